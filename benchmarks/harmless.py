"""Calibrated ensembles: how often recalibration changes something, and what that costs. Known errors: what it gains.

    python benchmarks/harmless.py [--out results/recalibration] [--repetitions 50]

Writes harmless_ensembles.csv, a row for each repetition, and harmless_ensembles.md with their means. Rows that are there
are not computed again. The first part has 18 kinds of calibrated ensembles: 5, 20 or 50 members, 50 or 200 cases to learn
from, Gaussian, skew or counts, with a spread that is constant, or differs by case and is known to the members. The second
has known errors of Gaussian ensembles, beside members without the error.
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
from prerank.recalibration import Affine

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
        if repetition >= 10:
            continue
        for place, error in enumerate(ERRORS):
            rng = np.random.default_rng([2, repetition, place])
            right = calibrated("Gaussian", 500 + TEST, 21, False, rng)
            points = wrong(error, right, rng)
            where = {"part": "known error", "kind": error, "cases": 500, "members": 20, "by case": False}
            right = judged(Ensemble(right[500:, 1:]), right[500:, 0]) if error in ERRORS[:3] else {}
            where["right members"] = right.get("energy score", np.nan)
            yield {**where, "repetition": repetition}, points, 500, {"default": None, "affine": [Affine()]}


def table(records: pd.DataFrame) -> str:
    """Means over repetitions."""
    records = records.assign(
        gain=1 - records["energy score"] / records["energy score before"],
        law=np.where(
            records["changed"].astype(bool), 1 - records["energy score"] / records["energy score before"], np.nan
        ),
    )
    part = records[records["part"] == "calibrated"]
    lines = [
        "# Ensembles that are right, and errors that are known",
        "",
        f"Calibrated ensembles of {D} targets, {part['repetition'].nunique()} repetitions of 18 kinds: how often the",
        "default changes something, energy score lost (fair, on 200 fresh cases), of all and where something was changed,",
        "and how often a check of the fresh cases rejects before and after. CPU seconds of a fit.",
        "From `python benchmarks/harmless.py`.",
        "",
        "| kind | cases | members | spread by case | changed | score lost | where changed | rejected before | after | CPU |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]

    def line(some: pd.DataFrame, *cells: Any) -> str:
        mean = some[["changed", "gain", "law", "rejected before", "rejected", "seconds"]].astype(float).mean()
        where = "–" if np.isnan(mean["law"]) else f"{-100 * mean['law']:+.1f} %"
        numbers = [f"{100 * mean['changed']:.1f} %", f"{-100 * mean['gain']:+.2f} %", where]
        numbers += [
            f"{100 * mean['rejected before']:.1f} %",
            f"{100 * mean['rejected']:.1f} %",
            f"{mean['seconds']:.2f}",
        ]
        return f"| {' | '.join([*map(str, cells), *numbers])} |"

    for (kind, cases, members, by), some in part.groupby(["kind", "cases", "members", "by case"], sort=False):
        lines.append(line(some, kind, int(cases), int(members), "yes" if by else "no"))
    lines.append(line(part, "all", "", "", ""))
    lines += [
        "",
        "Known errors of Gaussian ensembles of 20 members, 500 cases: energy score of the members with the error,",
        "corrected, and of the members without it; how often a check of 200 fresh cases rejects.",
        "",
        "| error | method | before | after | right members | rejected before | after |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (kind, method), some in records[records["part"] == "known error"].groupby(["kind", "method"], sort=False):
        mean = some.mean(numeric_only=True)
        right = "–" if np.isnan(mean["right members"]) else f"{mean['right members']:.3f}"
        shares = f"{100 * mean['rejected before']:.0f} % | {100 * mean['rejected']:.0f} %"
        before, after = mean["energy score before"], mean["energy score"]
        lines.append(f"| {kind} | {method} | {before:.3f} | {after:.3f} | {right} | {shares} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/recalibration"))
    parser.add_argument("--repetitions", type=int, default=50)
    options = parser.parse_args()
    path = options.out / "harmless_ensembles.csv"
    done = pd.read_csv(path) if path.exists() else pd.DataFrame({"name": []})
    known, fresh = set(done["name"]), []
    for where, points, n_cases, steps in studies(options.repetitions):
        name = ", ".join(f"{key} {value}" for key, value in where.items() if key != "right members")
        if name in known:
            continue
        fresh += [{**where, **row} for row in rows(name, points, n_cases, steps)]
        if len(fresh) >= 36:
            done, fresh = pd.concat([done, pd.DataFrame(fresh)], ignore_index=True), []
            done.to_csv(path, index=False, float_format="%.5g")
    if fresh:
        done = pd.concat([done, pd.DataFrame(fresh)], ignore_index=True)
    done.to_csv(path, index=False, float_format="%.5g")
    (options.out / "harmless_ensembles.md").write_text(table(done), encoding="utf-8")


if __name__ == "__main__":
    main()
