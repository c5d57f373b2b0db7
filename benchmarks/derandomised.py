"""What is gained by not drawing a number to break ties: power of interval ranks against randomised ranks.

    PYTHONPATH=src python benchmarks/derandomised.py --out results/size

The scenarios of the first simulation study (Gaussian vectors of 10 targets), and correlations of 0.7 and 0.8 forecast as 0.2
where nearly all joint CDFs tie. The same data and members for both; the test of randomised ranks uses its own exchange
null. Rates are over repetitions of N cases at 5 %; the script ends with an error where interval ranks reject less often by
more than 3.5 standard errors of the difference.
"""

import argparse
import csv
from pathlib import Path

import torch
from torch import Tensor

from prerank import Copula, Ensemble, paper_preranks, pce_test, projected_pit
from prerank.calibration import RandomisedRank
from prerank.randomness import torch_generator
from prerank_paper.simulations.scenarios import gaussian_vector

LEVEL = 0.05 + 1e-9
N_MEMBERS, N_CASES = 20, 100


def study_data(repetitions: int, device: torch.device) -> dict[str, tuple[Tensor, Tensor]]:
    """Observations (R, N, D) and members (R, N, M, D) of every scenario."""
    simulation = gaussian_vector().to(device, torch.float64)
    generator = torch_generator(0, "derandomised", device=device)
    shape = (repetitions, N_CASES, simulation.n_targets)
    options = {"generator": generator, "device": device, "dtype": torch.float64}
    noise, members = torch.randn(*shape, **options), torch.randn(*shape[:2], N_MEMBERS, shape[2], **options)
    y = noise @ torch.linalg.cholesky(simulation.covariance).mT
    return {
        scenario.name: (y, scenario.mean + members @ torch.linalg.cholesky(scenario.covariance).mT)
        for scenario in simulation.scenarios
    }


def correlated(rho: float, generator: torch.Generator, *shape: int) -> Tensor:
    options = {"generator": generator, "device": generator.device, "dtype": torch.float64}
    common = torch.randn(*shape[:-1], 1, **options)
    return rho**0.5 * common + (1 - rho) ** 0.5 * torch.randn(*shape, **options)


def tied_data(repetitions: int, device: torch.device) -> dict[str, tuple[Tensor, Tensor]]:
    found = {}
    for truth, n_members, n_targets in ((0.2, 25, 12), (0.7, 10, 3), (0.7, 20, 6), (0.8, 25, 12)):
        generator = torch_generator(0, "tied", truth, n_members, device=device)
        y = correlated(truth, generator, repetitions, N_CASES, n_targets)
        members = correlated(0.2, generator, repetitions, N_CASES, n_members, n_targets)
        found[f"correlation {truth} as 0.2, M = {n_members}, D = {n_targets}"] = y, members
    return found


def rows(repetitions: int, device: torch.device) -> list[dict[str, object]]:
    found = []
    for data, only in ((study_data(repetitions, device), None), (tied_data(repetitions, device), [Copula()])):
        for name, (y, members) in data.items():
            preranks = paper_preranks(y.shape[-1]) if only is None else only
            rejected = []
            for how in (None, RandomisedRank()):
                parts = []
                for some in torch.arange(repetitions).split(10):
                    forecast = Ensemble(members[some])
                    # another seed for every part: randomised ranks of one seed would be alike where ranks tie
                    pit = projected_pit(y[some], forecast, preranks, how, seed=int(some[0]), exchangeable=True)
                    parts.append(pce_test(pit, n_replicates=199).p_value <= LEVEL)
                rejected.append(torch.cat(parts).double())
            for g, item in enumerate(preranks):
                interval, randomised = (part[:, g] for part in rejected)
                difference = interval - randomised
                found.append(
                    {
                        "scenario": name,
                        "pre-rank": item.name,
                        "interval": round(float(interval.mean()), 4),
                        "randomised": round(float(randomised.mean()), 4),
                        "standard error": round(float(difference.std()) / repetitions**0.5, 4),
                    }
                )
                print("  ".join(f"{key} {value}" for key, value in found[-1].items()), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--out", type=Path, default=None, help="folder for derandomised.csv")
    options = parser.parse_args()
    table = rows(options.repetitions, torch.device(options.device))
    lower = [
        row
        for row in table
        if float(str(row["interval"])) < float(str(row["randomised"])) - 3.5 * float(str(row["standard error"])) - 1e-9
    ]
    print(f"{len(table)} cells of {options.repetitions} repetitions, N = {N_CASES}; {len(lower)} lower beyond noise")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        with (options.out / "derandomised.csv").open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(table[0]))
            writer.writeheader()
            writer.writerows(table)
    raise SystemExit(1 if lower else 0)


if __name__ == "__main__":
    main()
