"""How long a `Recalibrator` takes at its defaults, by cases, members and targets.

    python benchmarks/recalibration_times.py [--out results/recalibration]

Writes times.csv, a row for each size: processor seconds of one thread for `fit`, and for `transform` of as many cases
with 100 draws of each, the smaller of two runs up to three seconds. What is there is not computed again. Forecasts are too
low and too narrow. Ensembles are corrected by a law of errors, Gaussian distributions of what is skew by an affine step
and two tilts.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from prerank import Ensemble, GaussianMixture, Recalibrator
from prerank.forecasts import equally_weighted_draws

ENSEMBLES = [
    *((200, 10, 3), (1000, 10, 3), (5000, 10, 3), (1000, 50, 3)),
    *((200, 10, 24), (1000, 10, 24), (1000, 50, 24)),
]
DISTRIBUTIONS = [(200, 3), (1000, 3), (200, 10), (1000, 10)]
ENOUGH = 3.0  # seconds of a run that is not repeated


def ensemble(n_cases: int, n_members: int, n_targets: int) -> tuple[Any, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    signal = torch.randn(n_cases, 1, n_targets, generator=generator, dtype=torch.float64)
    noise = torch.randn(n_cases, n_members + 1, n_targets, generator=generator, dtype=torch.float64)
    return Ensemble(signal + 0.5 * noise[:, 1:]), signal[:, 0] + 1 + noise[:, 0]


def distribution(n_cases: int, n_targets: int) -> tuple[Any, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    loc = torch.randn(n_cases, 1, n_targets, generator=generator, dtype=torch.float64)
    tril = 0.5 * torch.eye(n_targets, dtype=torch.float64).expand(n_cases, 1, n_targets, n_targets)
    noise = torch.randn(n_cases, n_targets, generator=generator, dtype=torch.float64).square() - 1
    return GaussianMixture(torch.zeros(n_cases, 1), loc, tril), loc[:, 0] + 1 + noise


def seconds(make: Callable[[], tuple[Any, torch.Tensor]]) -> dict[str, float]:
    forecast, y = make()
    runs = []
    while len(runs) < 2 and (not runs or runs[0][0] < ENOUGH):
        started = time.process_time()
        recalibrator = Recalibrator().fit(forecast, y)
        fitted = time.process_time()
        equally_weighted_draws(recalibrator.transform(forecast), 100)
        runs.append((fitted - started, time.process_time() - fitted))
    return {"fit": min(run[0] for run in runs), "transform": min(run[1] for run in runs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/recalibration"))
    path = parser.parse_args().out / "times.csv"
    torch.set_num_threads(1)
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    there = {(row["forecast"], row["cases"], row["members"], row["targets"]) for row in rows}
    plans = [("ensemble", n, m, d, lambda n=n, m=m, d=d: ensemble(n, m, d)) for n, m, d in ENSEMBLES]
    plans += [("distribution", n, 0, d, lambda n=n, d=d: distribution(n, d)) for n, d in DISTRIBUTIONS]
    for kind, n_cases, n_members, n_targets, make in plans:
        if (kind, n_cases, n_members, n_targets) in there:
            continue
        sizes = {"forecast": kind, "cases": n_cases, "members": n_members, "targets": n_targets}
        rows.append(sizes | seconds(make))
        pd.DataFrame(rows).to_csv(path, index=False, float_format="%.3g")
        print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
