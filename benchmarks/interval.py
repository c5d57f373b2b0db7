"""How often does the 95 % interval hold the PCE that infinitely many cases would show?

    PYTHONPATH=src python benchmarks/interval.py

PITs are drawn from three families whose population PCE on the grid of levels is known and can be set to any value: biased
(Z = U^a), U-shaped and hump-shaped (symmetric beta laws). The script prints coverage and mean width, and ends with an
error where coverage is below 94 % by more than chance explains (one-sided binomial, 1 % over all cells).
"""

import argparse
from collections.abc import Callable

import numpy as np
import torch
from scipy import optimize, stats

from prerank import pce_interval
from prerank.calibration import centred_levels
from prerank.randomness import key, numpy_generator

PROMISED = 0.94
SIZES = (100, 1_000, 10_000)
ERRORS = (0.0, 0.005, 0.02, 0.1)
LEVELS = centred_levels().numpy()

# the law of Z with a parameter: its CDF at the levels and its quantile function; 1 is the uniform law in each family
FAMILIES: dict[
    str, tuple[Callable[[float], np.ndarray], Callable[[np.ndarray, float], np.ndarray], tuple[float, float]]
]
FAMILIES = {
    "biased": (lambda a: LEVELS ** (1 / a), lambda u, a: u**a, (1.0, 20.0)),
    "U-shaped": (lambda a: stats.beta.cdf(LEVELS, a, a), lambda u, a: stats.beta.ppf(u, a, a), (1.0, 0.02)),
    "hump": (lambda a: stats.beta.cdf(LEVELS, a, a), lambda u, a: stats.beta.ppf(u, a, a), (1.0, 200.0)),
}


def parameter(family: str, error: float) -> float:
    """The parameter at which the population PCE of the family is `error`."""
    cdf, _, (low, high) = FAMILIES[family]
    if error == 0:
        return 1.0
    return float(optimize.brentq(lambda a: np.abs(cdf(a) - LEVELS).mean() - error, low, high))


def coverage(family: str, error: float, n_cases: int, repetitions: int, seed: int) -> tuple[float, float]:
    """Share of intervals that hold the population PCE, and their mean width."""
    _, quantile, _ = FAMILIES[family]
    a = parameter(family, error)
    generator = numpy_generator(seed, family, error, n_cases)
    held, width = 0, 0.0
    for repetition in range(repetitions):
        pit = torch.from_numpy(quantile(generator.random(n_cases), a))[:, None].clamp(0.0, 1.0)
        interval = pce_interval(pit, n_replicates=199, seed=key(seed, repetition) % (1 << 31))
        held += interval.low <= error <= interval.high
        width += interval.high - interval.low
    return held / repetitions, width / repetitions


def acceptable(share: float, repetitions: int, n_cells: int) -> bool:
    """Whether a coverage of 94 % explains what was seen, at 1 % over all cells."""
    return bool(stats.binom.cdf(round(share * repetitions), repetitions, PROMISED) > 0.01 / n_cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    cells = [
        (family, error, n) for n in SIZES for error in ERRORS for family in FAMILIES if error > 0 or family == "biased"
    ]
    failed = 0
    print(f"{'PITs':10s} {'PCE':>6s} {'N':>6s} {'coverage':>9s} {'width':>7s}")
    for family, error, n in cells:
        share, width = coverage(family, error, n, options.repetitions, options.seed)
        failed += not acceptable(share, options.repetitions, len(cells))
        name = "uniform" if error == 0 else family
        print(f"{name:10s} {error:6.3f} {n:6d} {100 * share:7.1f} % {width:7.4f}", flush=True)
    print(f"{failed} of {len(cells)} cells below {100 * PROMISED:.0f} % beyond chance")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
