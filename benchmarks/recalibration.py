"""Recalibration of simulated forecasts: harmless where nothing is wrong, right where something is, and what it costs.

    python benchmarks/recalibration.py harmless|right|cost [--quick] [--out FILE]

Every repetition is a line of JSON in FILE; lines that are there are not computed again. The table is printed at the end.
"""

import argparse
import json
import math
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from prerank import Ensemble, GaussianMixture, Recalibrator, energy_score, nll, paper_preranks, pce, projected_pit
from prerank.forecast import equally_weighted_draws
from prerank.randomness import torch_generator

N_TEST = 1000
LEVEL = 0.3133  # the PCE expected of n calibrated cases is this over the square root of n


def forecasts(n_cases: int, n_targets: int, seed: int) -> GaussianMixture:
    """Normal forecasts whose means differ from case to case, equally correlated at 0.3."""
    generator = torch_generator(seed, "means")
    loc = torch.randn(n_cases, 1, n_targets, generator=generator, dtype=torch.float64)
    factor = torch.linalg.cholesky(0.7 * torch.eye(n_targets, dtype=torch.float64) + 0.3)
    return GaussianMixture(torch.zeros(n_cases, 1), loc, factor.expand(n_cases, 1, n_targets, n_targets))


def _noise(forecast: GaussianMixture, seed: int) -> Tensor:
    return forecast.ensemble(1, seed, "observations").members[:, 0] - forecast.mean


def _recoloured(noise: Tensor, correlation: float) -> Tensor:
    """Noise of correlation 0.3 with another one."""
    d = noise.shape[-1]
    old, new = (torch.linalg.cholesky((1 - r) * torch.eye(d).double() + r) for r in (0.3, correlation))
    return torch.linalg.solve_triangular(old, noise.mT, upper=False).mT @ new.mT


def _heavy(noise: Tensor, seed: int) -> Tensor:
    """Student's t with 5 degrees of freedom and the same covariance."""
    generator = np.random.default_rng(seed)
    return noise * torch.as_tensor(np.sqrt(3.0 / generator.chisquare(5, size=(len(noise), 1))))


def _humps(noise: Tensor, seed: int) -> Tensor:
    side = torch.as_tensor(np.random.default_rng(seed).choice([-1.0, 1.0], size=(len(noise), 1)))
    return 0.6 * noise + 0.8 * side


def _clayton_like(noise: Tensor, seed: int) -> Tensor:
    """Normal margins, and dependence that is strong when all targets are low: a common factor only there."""
    low = noise.mean(-1, keepdim=True) < 0
    pulled = noise.mean(-1, keepdim=True) + 0.5 * (noise - noise.mean(-1, keepdim=True))
    mixed = torch.where(low, pulled, noise)
    rank = (mixed.argsort(0).argsort(0).double() + 0.5) / len(mixed)
    return torch.special.ndtri(rank)


ERRORS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "none": lambda noise, seed: noise,
    "bias": lambda noise, seed: noise + 0.4,
    "spread": lambda noise, seed: 1.4 * noise,
    "correlation": lambda noise, seed: _recoloured(noise, 0.7),
    "skew": lambda noise, seed: (0.5 * noise).exp() * 1.5 - 1.7,
    "two humps": _humps,
    "heavy tails": _heavy,
    "copula": _clayton_like,
}


def data(error: str, n_cases: int, n_targets: int, seed: int) -> tuple[GaussianMixture, Tensor]:
    forecast = forecasts(n_cases, n_targets, seed)
    return forecast, forecast.mean + ERRORS[error](_noise(forecast, seed), seed)


def repetition(error: str, n_cal: int, n_targets: int, seed: int) -> dict[str, Any]:
    """Fit on some cases and judge on fresh ones, by plain ranks among equally weighted draws."""
    started = time.perf_counter()
    recalibrator = Recalibrator(seed=seed).fit(*data(error, n_cal, n_targets, 2 * seed))
    seconds = time.perf_counter() - started
    before, y = data(error, N_TEST, n_targets, 2 * seed + 1)
    after = recalibrator.transform(before)
    row: dict[str, Any] = {"changed": recalibrator.changed_, "seconds": seconds}
    row["affine"], row["tilt"] = (step.changed for step in recalibrator.steps_)
    row["nll loss"] = float((nll(y, after) - nll(y, before)).mean())
    row["nll error"] = float(after.log_normaliser_error.mean()) if hasattr(after, "log_normaliser_error") else 0.0
    row["energy score gain"] = float((energy_score(y, before) - energy_score(y, after)).mean())
    level = LEVEL * math.sqrt(1 / n_cal + 1 / N_TEST)
    for name, law in (("before", before), ("after", after)):
        pit = projected_pit(y, Ensemble(equally_weighted_draws(law, 100, 1).members, reference=law))
        for item in paper_preranks(n_targets):
            row[f"{item.name} {name}"] = float(pce(pit.of(item.name)).mean()) / level
    return row


def done(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    return {row["cell"]: row for row in rows}


def cells(study: str, quick: bool) -> Iterator[tuple[str, int, int, int]]:
    """Error, cases, targets and seed of every repetition."""
    if study == "harmless":
        for n_targets in (2,) if quick else (2, 6, 16):
            for n_cal in (200, 600) if quick else (200, 600, 2000):
                yield from (("none", n_cal, n_targets, seed) for seed in range(20 if quick else 200))
        return
    for n_targets in (2, 6) if quick else (2, 6, 16):
        for error in ERRORS:
            for n_cal in (600,) if quick else (200, 2000, 20_000):
                yield from ((error, n_cal, n_targets, seed) for seed in range(1 if quick else 10) if error != "none")


def cost() -> None:
    """n_cal = 2,048, M = 256, D = 16, five components, all pre-ranks, cross-validation included."""
    generator = torch.Generator().manual_seed(0)
    n, d, c = 2048, 16, 5
    factor = torch.eye(d) + 0.08 * torch.randn(n, c, d, d, generator=generator).tril(-1)
    forecast = GaussianMixture(
        torch.randn(n, c, generator=generator), torch.randn(n, c, d, generator=generator), factor
    )
    y = 1.1 * forecast.ensemble(1, seed=3).members[:, 0] + 0.1 * torch.randn(n, d, generator=generator).square()
    started = time.perf_counter()
    recalibrator = Recalibrator().fit(forecast, y)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(recalibrator.summary())
    print(f"{seconds:.1f} s with {torch.get_num_threads()} threads, {peak:.2f} GiB at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", choices=("harmless", "right", "cost"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.study == "cost":
        cost()
        return
    path = options.out or Path(f"recalibration-{options.study}.jsonl")
    known = done(path)
    for error, n_cal, n_targets, seed in cells(options.study, options.quick):
        cell = f"{error}, n_cal {n_cal}, D {n_targets}, seed {seed}"
        if cell not in known:
            known[cell] = {"cell": cell, **repetition(error, n_cal, n_targets, seed)}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(known[cell]) + "\n")
    table = pd.DataFrame(list(known.values()))
    table["cell"] = table["cell"].str.replace(r", seed \d+", "", regex=True)
    with pd.option_context("display.width", 250, "display.max_columns", None):
        print(table.groupby("cell", sort=False).mean().round(3).T.to_string())


if __name__ == "__main__":
    main()
