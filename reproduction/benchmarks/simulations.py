"""The simulation studies measured: uniform p-values of a true forecast, and the time of both studies at full size.

    python reproduction/benchmarks/simulations.py [--repetitions 200] [--cases 100] [--skip-times]

Prints, for each simulation and pre-rank, the p-value of a Kolmogorov-Smirnov test that the p-values of `repetitions` true
forecasts are uniform, and the share of them at or below 5 %. Writes nothing.
"""

import argparse
import os
import time

import torch
from scipy import stats

from prerank.calibration import pce_test
from prerank_paper.simulations.diagnostics import exact_diagnostics
from prerank_paper.simulations.draws import draw_noise, scenario_pits
from prerank_paper.simulations.power import repetitions_of
from prerank_paper.simulations.scenarios import Simulation, gaussian_field, gaussian_vector
from prerank_paper.simulations.simulation import run_simulation


def uniformity(simulation: Simulation, repetitions: int, cases: int, seed: int) -> None:
    """Print how uniform the p-values of a true forecast are, for every pre-rank."""
    simulation = simulation.to("cpu", torch.get_default_dtype())
    noise = draw_noise(simulation, torch.arange(repetitions * cases), 20, seed)
    for diagnostic in exact_diagnostics(simulation.n_targets):
        pits = scenario_pits(simulation, simulation.scenarios[0], noise, [diagnostic], seed)
        sets = repetitions_of(pits[diagnostic.name], cases, slice(0, repetitions))
        p_values = pce_test(sets, n_replicates=199, seed=seed).p_value[:, 0].cpu().numpy()
        fit = stats.kstest(p_values, "uniform").pvalue
        print(f"  {diagnostic.name:12s} uniform: p = {fit:.3f}   rejected at 5 %: {(p_values <= 0.05).mean():.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip-times", action="store_true")
    options = parser.parse_args()
    for simulation in (gaussian_vector(), gaussian_field()):
        print(f"{simulation.title}: {options.repetitions} true forecasts of {options.cases} cases")
        uniformity(simulation, options.repetitions, options.cases, options.seed)
    if options.skip_times:
        return
    for simulation in (gaussian_vector(), gaussian_field()):
        wall, used = time.perf_counter(), time.process_time()
        run_simulation(simulation)
        wall, used = time.perf_counter() - wall, time.process_time() - used
        load = os.getloadavg()[0]
        print(f"{simulation.title}, 10,000 cases, both protocols: {wall:.0f} s, {used:.0f} s of CPU, load {load:.1f}")


if __name__ == "__main__":
    main()
