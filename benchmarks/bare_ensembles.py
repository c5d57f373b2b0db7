"""Recalibration of bare ensembles: a real one, split by date, and simulated ones whose true law is known.

    PRERANK_REAL=folder python benchmarks/bare_ensembles.py [--out results/recalibration]

Writes ensembles.csv, a row for each split or seed and method, and ensembles.md with their means. Rows that are there are not
computed again. Needs `uw_temperature.npz` (Fraley, Raftery, Gneiting and Sloughter 2007) for the real part.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from prerank import Ensemble, GaussianMixture, Recalibrator, check, energy_score, nll, paper_preranks, variogram_score
from prerank._wording import counted
from prerank.forecasts import equally_weighted_draws
from prerank.randomness import torch_generator
from prerank.recalibration import Affine, Dressing, EnsembleCopulaCoupling, Tilt
from prerank.scores import Paper

N_DRAWS = 100  # of a corrected law
N_REPLICATES = 199
METHODS: dict[str, Callable[[], Any]] = {
    "affine": lambda: Recalibrator(steps=[Affine()]),
    "ECC": EnsembleCopulaCoupling,
    "dressing": lambda: Recalibrator(steps=[Dressing()]),
    "dressing + tilt": lambda: Recalibrator(steps=[Dressing(), Tilt()]),
    "dressing, M draws": lambda: Recalibrator(steps=[Dressing()]),  # ranks among as few as the raw ensemble has
}


class Data(NamedTuple):
    """Members and observations to fit on and to judge by, blocks of both, and the true law if it is known."""

    members: Tensor
    y: Tensor
    blocks: np.ndarray | None
    test_members: Tensor
    test_y: Tensor
    test_blocks: np.ndarray | None
    truth: GaussianMixture | None = None


def real(path: Path) -> Iterator[tuple[str, Data]]:
    """Runs of 26, 13 and 4 dates, alternately fitted on and judged by, and the other way round."""
    with np.load(path, allow_pickle=False) as arrays:
        members, y, dates = torch.tensor(arrays["ensemble"]), torch.tensor(arrays["obs"]), arrays["case_date"]
    number = np.unique(dates, return_inverse=True)[1]
    for run in (26, 13, 4):
        for parity in (0, 1):
            fit = (number // run) % 2 == parity
            name = f"runs of {run} dates, {'even' if parity else 'odd'} ones judge"
            yield name, Data(members[fit], y[fit], dates[fit], members[~fit], y[~fit], dates[~fit])


def law(signal: Tensor, narrow: float = 1.0, bias: float = 0.0) -> GaussianMixture:
    """A skew law in four targets: two correlated Gaussians, about the signal, made narrower about its mean and moved."""
    n_cases, d = signal.shape
    place = torch.arange(d)
    factor = torch.linalg.cholesky(0.6 ** (place[:, None] - place).abs().double())
    centres = torch.tensor([-0.4, 1.6], dtype=torch.float64)[:, None].expand(2, d)
    loc = signal[:, None] + bias + narrow * centres
    scales = narrow * torch.tensor([0.7, 1.0], dtype=torch.float64)
    tril = (scales[:, None, None] * factor).expand(n_cases, 2, d, d)
    logits = torch.tensor([0.8, 0.2], dtype=torch.float64).log().expand(n_cases, 2)
    return GaussianMixture(logits, loc, tril)


def simulated(n_members: int, seed: int, n_fit: int = 500, n_test: int = 500) -> Data:
    """Members of a law too narrow by 0.6 and too low by 0.5; the signal differs from case to case."""
    n_cases = n_fit + n_test
    signal = 3 * torch.randn(n_cases, 4, generator=torch_generator(seed, "signal"), dtype=torch.float64)
    members = law(signal, 0.6, -0.5).ensemble(n_members, seed, "members").members
    truth = law(signal)
    y = truth.ensemble(1, seed, "observations").members[:, 0]
    split = [part.split([n_fit, n_test]) for part in (members, y)]
    return Data(split[0][0], split[1][0], None, split[0][1], split[1][1], None, truth.select(slice(n_fit, None)))


def judged(data: Data, forecast: Any) -> dict[str, float]:
    """PCE of every pre-rank by plain ranks among equally weighted members, and over what is expected; scores."""
    members = forecast if isinstance(forecast, Ensemble) else equally_weighted_draws(forecast, N_DRAWS, 1)
    plain = Ensemble(members.members)
    found = check(data.test_y, plain, blocks=data.test_blocks, n_replicates=N_REPLICATES)
    row: dict[str, float] = {}
    for name, line in found.table.iterrows():
        row[f"{name} PCE"] = line["PCE"]
        row[f"{name} ratio"] = line["PCE"] / line["expected PCE"]
    row["rejected"] = int((found.table["adjusted p-value"] <= 0.05).sum())
    row["energy score"] = float(energy_score(data.test_y, plain).mean())
    # the score of as many members as the raw ensemble has, a member with itself included: what a file of them is worth
    count = data.test_members.shape[1]
    few = plain if plain.n_members == count else equally_weighted_draws(forecast, count, 2)
    row["energy score, M members"] = float(energy_score(data.test_y, few, Paper()).mean())
    row["variogram score"] = float(variogram_score(data.test_y, plain).mean())
    if not isinstance(forecast, Ensemble):
        row["NLL"] = float(nll(data.test_y, forecast).mean())
        row["NLL error"] = float(getattr(forecast, "log_normaliser_error", torch.zeros(1)).mean())
        if data.truth is not None:
            row["KL to truth"] = row["NLL"] + float(data.truth.log_prob(data.test_y).mean())
    return row


def rows(name: str, data: Data, known: set[tuple[str, str]], where: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for method in ("raw", *METHODS, "truth"):
        if (name, method) in known or (method == "truth" and data.truth is None):
            continue
        started, forecast = time.perf_counter(), Ensemble(data.test_members)
        if method == "truth":
            forecast = data.truth
        elif method != "raw":
            step = METHODS[method]()
            blocks = {"blocks": data.blocks} if isinstance(step, Recalibrator) else {}
            forecast = step.fit(Ensemble(data.members), data.y, **blocks).transform(forecast)
            if method == "dressing, M draws":
                forecast = equally_weighted_draws(forecast, data.members.shape[1], 3)
        seconds = time.perf_counter() - started
        yield {"name": name, "method": method, **where, **judged(data, forecast), "seconds": seconds}


def studies(folder: str | None, only: str | None) -> Iterator[tuple[str, Data, dict[str, Any]]]:
    if folder is not None and only != "simulated":
        for name, data in real(Path(folder) / "uw_temperature.npz"):
            yield name, data, {"data": "temperature", "members": 8}
    for n_members in () if only == "temperature" else (8, 20, 50):
        for seed in range(2):
            data = simulated(n_members, seed)
            yield f"simulated, M {n_members}, seed {seed}", data, {"data": "simulated", "members": n_members}


def table(records: pd.DataFrame) -> str:
    """Means over splits or seeds."""
    names = [item.name for item in paper_preranks(5)]
    lines = [
        "# Bare ensembles, recalibrated",
        "",
        "PCE over the PCE expected of a calibrated forecast of the same cases (dates kept together), mean over splits or",
        "seeds; pre-ranks of 7 rejected at an adjusted p-value of 0.05; fair scores of equally weighted members;",
        "in the second column, of as many members as the raw ensemble has, as they are. KL is the mean log density of the",
        "true law less that of the forecast. Quantiles (ECC) and members stretched about their mean (affine) are no",
        "independent draws, and fair scores flatter them: see the score of the truth.",
        "From `python benchmarks/bare_ensembles.py`.",
    ]
    for (what, members), part in records.groupby(["data", "members"], sort=False):
        runs = part["name"].nunique()
        lines += [
            "",
            f"## {what}, {members} members, {counted(runs, 'split' if what == 'temperature' else 'seed')}",
            "",
        ]
        head = [*names, "rejected", "energy score", "M members", "variogram score", "NLL", "KL to truth"]
        lines += [f"| | {' | '.join(head)} |", f"| --- {'| --- ' * len(head)}|"]
        for method, some in part.groupby("method", sort=False):
            mean = some.mean(numeric_only=True)
            cells = [f"{mean[f'{name} ratio']:.2f}" for name in names]
            cells += [
                f"{mean['rejected']:.1f}",
                f"{mean['energy score']:.3f}",
                f"{mean['energy score, M members']:.3f}",
            ]
            cells.append(f"{mean['variogram score']:.3f}")
            cells += ["–" if np.isnan(mean.get(key, np.nan)) else f"{mean[key]:.3f}" for key in ("NLL", "KL to truth")]
            lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/recalibration"))
    parser.add_argument("--only", choices=("temperature", "simulated"))
    options = parser.parse_args()
    path = options.out / "ensembles.csv"
    done = pd.read_csv(path) if path.exists() else pd.DataFrame({"name": [], "method": []})
    for name, data, where in studies(os.environ.get("PRERANK_REAL"), options.only):
        known = set(zip(done["name"], done["method"], strict=True))
        for row in rows(name, data, known, where):
            done = pd.concat([done, pd.DataFrame([row])], ignore_index=True)
            options.out.mkdir(parents=True, exist_ok=True)
            done.to_csv(path, index=False, float_format="%.5g")
            print(name, row["method"], f"{row['seconds']:.1f} s", f"{row['energy score']:.4f}", flush=True)
    (options.out / "ensembles.md").write_text(table(done), encoding="utf-8")


if __name__ == "__main__":
    main()
