"""Ensembles whose errors are known: how near the corrected law comes to the truth, and to the best that members allow.

    python benchmarks/right_ensembles.py [--out results/recalibration] [--repetitions 3]

Writes right_ensembles.csv, a row for each error, number of cases and repetition, and right_ensembles.md with their means.
Rows that are there are not computed again. Three targets, 20 members; fitted on 50 to 5,000 cases, judged on 500 others by
the log score: what is lost to the truth, whose mean no member knows, and to the best law given the members, whose mean has
an error of its own. The second is known where the truth is Gaussian and of the same size in every case.
"""

import argparse
import math
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from prerank import Ensemble, Recalibrator, energy_score
from prerank.forecasts import equally_weighted_draws
from prerank.recalibration import ErrorLaw

D, M, TEST = 3, 20, 500
SIZES = (50, 200, 1000, 5000)
CORRELATION = 0.5 + 0.5 * np.eye(D)
ERRORS = (
    "bias",
    "spread",
    "correlation",
    "skew",
    "two humps",
    "spread that knows the error",
    "spread that does not",
    "members of different quality",
)


class Sample(NamedTuple):
    """Members, observations, log densities of the observations under the truth and the best law given members (or NaN)."""

    members: Tensor
    y: Tensor
    truth: Tensor
    best: Tensor


def sample(error: str, n_cases: int, rng: np.random.Generator) -> Sample:
    """Members about a signal of which they know all, or, by quality, less and less."""
    factor = np.linalg.cholesky(CORRELATION)
    signal = 3 * rng.normal(size=(n_cases, 1, D))
    size = np.exp(0.5 * rng.normal(size=(n_cases, 1, 1)))
    size = size if "spread that" in error else np.ones_like(size)
    known = size if error == "spread that knows the error" else np.ones_like(size)
    noise = rng.normal(size=(n_cases, M, D)) @ factor.T
    own = noise if error != "correlation" else rng.normal(size=(n_cases, M, D))
    narrow = 0.6 if error in ("spread", "spread that knows the error", "spread that does not") else 1.0
    quality = np.linspace(0.3, 1.5, M)[:, None] if error == "members of different quality" else np.ones((M, 1))
    members = signal + narrow * known * quality * own - (0.7 if error == "bias" else 0.0)
    z = rng.normal(size=(n_cases, D)) @ factor.T
    law = MultivariateNormal(torch.zeros(D).double(), torch.as_tensor(CORRELATION))
    left = z
    if error == "skew":
        left = np.sinh(0.8 * z + 0.5) - math.sinh(0.5)
    if error == "two humps":
        left = z + 2 * np.sign(rng.normal(size=(n_cases, 1)))
    y = signal[:, 0] + size[:, 0] * left
    truth = law.log_prob(torch.as_tensor(z)) - D * torch.as_tensor(size[:, 0, 0]).log()
    if error == "skew":
        truth = truth - torch.as_tensor(np.log(0.8 * np.cosh(0.8 * z + 0.5)).sum(1))
    if error == "two humps":
        both = [law.log_prob(torch.as_tensor(left + 2 * side)) for side in (-1, 1)]
        truth = torch.logaddexp(*both) - math.log(2)
    best = torch.full_like(truth, torch.nan)
    of_mean = {"bias": CORRELATION / M, "spread": 0.36 * CORRELATION / M, "correlation": np.eye(D) / M}
    if error in of_mean:
        centre = torch.as_tensor(members.mean(1) + (0.7 if error == "bias" else 0.0))
        best = MultivariateNormal(centre, torch.as_tensor(CORRELATION + of_mean[error])).log_prob(torch.as_tensor(y))
    if error == "members of different quality":
        share = quality[:, 0] ** -2.0
        centre = torch.as_tensor((share[:, None] / share.sum() * members).sum(1))
        best = MultivariateNormal(centre, torch.as_tensor(CORRELATION * (1 + 1 / share.sum()))).log_prob(
            torch.as_tensor(y)
        )
    return Sample(torch.as_tensor(members), torch.as_tensor(y), truth, best)


def row(error: str, n_cases: int, repetition: int) -> dict[str, object]:
    rng = np.random.default_rng([ERRORS.index(error), n_cases, repetition])
    past, fresh = sample(error, n_cases, rng), sample(error, TEST, rng)
    started = time.process_time()
    step = ErrorLaw(always=True, named_members=error == "members of different quality")
    law = Recalibrator(steps=[step]).fit(Ensemble(past.members), past.y).transform(Ensemble(fresh.members))
    seconds = time.process_time() - started
    score = law.log_prob(fresh.y)
    before = energy_score(fresh.y, Ensemble(fresh.members)).mean()
    after = energy_score(fresh.y, equally_weighted_draws(law, 100, 1)).mean()
    return {
        "error": error,
        "cases": n_cases,
        "repetition": repetition,
        "lost to the truth": float((fresh.truth - score).mean()),
        "lost to the best": float((fresh.best - score).mean()),
        "error of the loss": float((fresh.truth - score).std() / TEST**0.5),
        "energy score before": float(before),
        "energy score": float(after),
        "seconds": seconds,
    }


def table(records: pd.DataFrame) -> str:
    """Means over repetitions."""
    lines = [
        "# Ensembles whose errors are known",
        "",
        f"Three targets, {M} members, laws of errors judged on {TEST} fresh cases each: nats per case lost to the truth,",
        "which knows the signal, and to the best law given the members, where that is known; fair energy scores of the",
        "members and of 100 draws; CPU seconds of a fit. Means over repetitions.",
        "From `python benchmarks/right_ensembles.py`.",
        "",
        "| error | cases | repetitions | lost to the truth | lost to the best | energy score before | after | CPU |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (error, cases), some in records.groupby(["error", "cases"], sort=False):
        mean = some.mean(numeric_only=True)
        best = "–" if np.isnan(mean["lost to the best"]) else f"{mean['lost to the best']:.3f}"
        numbers = [f"{mean['lost to the truth']:.3f}", best, f"{mean['energy score before']:.3f}"]
        numbers += [f"{mean['energy score']:.3f}", f"{mean['seconds']:.1f}"]
        lines.append(f"| {error} | {cases} | {len(some)} | {' | '.join(numbers)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/recalibration"))
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    path = options.out / "right_ensembles.csv"
    done = pd.read_csv(path) if path.exists() else pd.DataFrame({"error": [], "cases": [], "repetition": []})
    known = {(error, int(n), int(r)) for error, n, r in done[["error", "cases", "repetition"]].to_numpy()}
    for repetition in range(options.repetitions):
        for n_cases in SIZES:
            for error in ERRORS:
                if (error, n_cases, repetition) in known:
                    continue
                done = pd.concat([done, pd.DataFrame([row(error, n_cases, repetition)])], ignore_index=True)
                done[["cases", "repetition"]] = done[["cases", "repetition"]].astype(int)
                done.to_csv(path, index=False, float_format="%.5g")
    order = done.assign(place=done["error"].map(ERRORS.index)).sort_values(["place", "cases"], kind="stable")
    (options.out / "right_ensembles.md").write_text(table(order), encoding="utf-8")


if __name__ == "__main__":
    main()
