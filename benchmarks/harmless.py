"""Calibrated ensembles: how often recalibration changes something, and what that costs. Known errors: what it gains.

    python benchmarks/harmless.py [--out results/recalibration] [--repetitions 100]

Writes harmless_ensembles.csv, a row for each repetition, and harmless_ensembles.md with their means. Rows that are there
are not computed again. The first part has 18 kinds of calibrated ensembles: 5, 20 or 50 members, 50 or 200 cases to learn from,
Gaussian, skew or counts, with a spread that is constant, or differs by case and is known to the members. The second has
errors that are known, and the true law.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from prerank import Ensemble, Recalibrator, check, energy_score
from prerank.forecasts import equally_weighted_draws
from prerank.recalibration import Dressing, ErrorLaw, Tilt

D, TEST, DRAWS = 3, 200, 100
CORRELATION = 0.5 + 0.5 * np.eye(D)
KINDS = ("Gaussian", "skew", "counts")
ERRORS = ("bias", "spread", "correlation", "skew", "two humps")


def calibrated(kind: str, n_cases: int, n_points: int, by_case: bool, rng: np.random.Generator) -> np.ndarray:
    """Exchangeable points (N, points, D): the observation and members of a calibrated ensemble."""
    size = np.exp(0.5 * rng.normal(size=(n_cases, 1, 1))) if by_case else np.ones((n_cases, 1, 1))
    noise = rng.normal(size=(n_cases, n_points, D)) @ np.linalg.cholesky(CORRELATION).T
    signal = 2 * rng.normal(size=(n_cases, 1, D))
    if kind == "Gaussian":
        return signal + size * noise
    if kind == "skew":
        return signal + size * (np.exp(0.8 * noise) - np.exp(0.32))
    return rng.poisson(np.exp(np.clip(0.5 + 0.4 * signal + 0.3 * size * noise, -5, 5))).astype(float)


def wrong(error: str, points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same points with an error of the members, which come after the observation; only its own in shape."""
    y, members = points[:, :1], points[:, 1:]
    centre = members.mean(1, keepdims=True)
    if error == "bias":
        members = members - 0.7
    if error == "spread":
        members = centre + 0.6 * (members - centre)
    if error == "correlation":
        order = rng.random(members.shape).argsort(1)
        members = np.take_along_axis(members, order, 1)
    if error == "skew":
        y = y - points.mean(1, keepdims=True)
        y = points.mean(1, keepdims=True) + np.sinh(0.8 * y) + 0.3 * y**2 - 0.3
    if error == "two humps":
        y = y + 1.5 * np.sign(rng.normal(size=(len(y), 1, 1)))
    return np.concatenate([y, members], 1)


def judged(forecast: Any, y: np.ndarray) -> dict[str, float]:
    plain = forecast if isinstance(forecast, Ensemble) else equally_weighted_draws(forecast, DRAWS, 1)
    found = check(y, plain, n_replicates=199).table
    row = {"energy score": float(energy_score(torch.as_tensor(y), plain).mean())}
    return row | {"rejected": float((found["adjusted p-value"] <= 0.05).any())}


def rows(name: str, points: np.ndarray, n_cases: int, steps: dict[str, Any]) -> Iterator[dict[str, Any]]:
    past, fresh = points[:n_cases], points[n_cases:]
    raw = judged(Ensemble(fresh[:, 1:]), fresh[:, 0])
    for method, step in steps.items():
        started = time.process_time()
        recalibrator = Recalibrator(steps=step).fit(Ensemble(past[:, 1:]), past[:, 0])
        seconds = time.process_time() - started
        after = judged(recalibrator.transform(Ensemble(fresh[:, 1:])), fresh[:, 0]) if recalibrator.changed_ else raw
        before = {f"{key} before": value for key, value in raw.items()}
        yield {"name": name, "method": method, "changed": recalibrator.changed_, **before, **after, "seconds": seconds}


def studies(repetitions: int) -> Iterator[tuple[dict[str, Any], np.ndarray, int, dict[str, Any]]]:
    for repetition in range(repetitions):
        for cell, (kind, n_cases, n_members, by_case) in enumerate(
            (kind, n, m, by) for kind in KINDS for n in (50, 200) for m, by in ((5, False), (20, True), (50, n == 50))
        ):
            rng = np.random.default_rng([1, repetition, cell])
            points = calibrated(kind, n_cases + TEST, n_members + 1, by_case, rng)
            where = {"part": "calibrated", "kind": kind, "cases": n_cases, "members": n_members, "by case": by_case}
            yield {**where, "repetition": repetition}, points, n_cases, {"default": None}
        if repetition >= repetitions // 10:
            continue
        for place, error in enumerate(ERRORS):
            rng = np.random.default_rng([2, repetition, place])
            points = wrong(error, calibrated("Gaussian", 500 + TEST, 21, False, rng), rng)
            where = {"part": "known error", "kind": error, "cases": 500, "members": 20, "by case": False}
            steps = {"default": None, "law of errors, always": [ErrorLaw(always=True)], "dressing": [Dressing()]}
            steps |= {"law of errors + tilt": [ErrorLaw(), Tilt()]}
            yield {**where, "repetition": repetition}, points, 500, steps


def table(records: pd.DataFrame) -> str:
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/recalibration"))
    parser.add_argument("--repetitions", type=int, default=100)
    options = parser.parse_args()
    path = options.out / "harmless_ensembles.csv"
    done = pd.read_csv(path) if path.exists() else pd.DataFrame({"name": []})
    known, fresh = set(done["name"]), []
    for where, points, n_cases, steps in studies(options.repetitions):
        name = ", ".join(f"{key} {value}" for key, value in where.items())
        if name in known:
            continue
        fresh += [{**where, **row} for row in rows(name, points, n_cases, steps)]
        if len(fresh) >= 50:
            done, fresh = pd.concat([done, pd.DataFrame(fresh)], ignore_index=True), []
            done.to_csv(path, index=False, float_format="%.5g")
    if fresh:
        done = pd.concat([done, pd.DataFrame(fresh)], ignore_index=True)
    done.to_csv(path, index=False, float_format="%.5g")
    (options.out / "harmless_ensembles.md").write_text(table(done), encoding="utf-8")


if __name__ == "__main__":
    main()
