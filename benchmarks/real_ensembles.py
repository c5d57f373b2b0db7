"""Real ensembles of several models, corrected in several ways and judged on later cases, or on alternate months.

    PRERANK_REAL=folder python benchmarks/real_ensembles.py [--out results/recalibration] [--slow]

Writes real_ensembles.csv, a row for each set, split and method, and real_ensembles.md. What is there is not computed again.
Sets: day-ahead electricity prices (Lago et al. 2021; Janke and Steinke 2020), temperatures (Fraley et al. 2007) and the
Madden-Julian oscillation, as arrays of `obs`, `ensemble` and `case_date`. `--slow` adds kernels about members, with and
without a tilt.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.distributions import MultivariateNormal

from prerank import Ensemble, Recalibrator, check, energy_score, variogram_score
from prerank.forecasts import equally_weighted_draws
from prerank.recalibration import (
    Affine,
    Dressing,
    EnsembleCopulaCoupling,
    ErrorLaw,
    Tilt,
    members_about_mean,
)
from prerank.recalibration.folds import mean_and_error
from prerank.scores import Paper

DRAWS, SEED = 100, 1


class Set(NamedTuple):
    """File, cases of a block, of a run of the alternate split and of the gap, and whether targets are in an order."""

    file: str
    block: int
    run: int
    gap: int
    ordered: bool


SETS = {
    "prices_de": Set("prices_de", 14, 28, 2, True),
    "prices_np": Set("prices_np", 14, 28, 2, True),
    "prices_igep": Set("prices_igep", 14, 28, 2, True),
    "temperature": Set("uw_temperature", 1, 4, 1, False),
    "mjo": Set("mjo_rmm1", 9, 36, 9, True),
}


class Cell(NamedTuple):
    """Past members, observations and blocks, and those to be judged by."""

    members: Tensor
    y: Tensor
    blocks: np.ndarray
    fresh: Tensor
    observed: Tensor
    fresh_blocks: np.ndarray
    about: Set


def cell_of(folder: Path, name: str, split: str) -> Cell:
    about = SETS[name]
    with np.load(folder / f"{about.file}.npz", allow_pickle=False) as arrays:
        members, y = (torch.tensor(arrays[key]).double() for key in ("ensemble", "obs"))
        dates = arrays["case_date"]
    place = np.unique(dates, return_inverse=True)[1]
    if split == "time":
        end = int((np.unique(dates) < "2017").sum()) if name == "prices_igep" else (place.max() + 1) // 2
        past, fresh = place < end - about.gap, place >= end
    else:
        inside = place % about.run
        fresh = (place // about.run) % 2 == 1
        past = ~fresh & (inside >= about.gap) & (inside < about.run - about.gap)
    block = place // about.block
    return Cell(members[past], y[past], block[past], members[fresh], y[fresh], block[fresh], about)


def recalibrated(*steps: Any) -> Callable[[Cell], Any]:
    def of(cell: Cell) -> Any:
        gap = 1 if cell.about.gap >= cell.about.block > 1 else 0
        recalibrator = Recalibrator(steps=list(steps) or None, gap=gap)
        return recalibrator.fit(Ensemble(cell.members), cell.y, blocks=cell.blocks).transform(Ensemble(cell.fresh))

    return of


def law(cell: Cell, named: bool = False) -> Any:
    return recalibrated(ErrorLaw(named_members=named, ordered_targets=cell.about.ordered))(cell)


def published(method: Any) -> Callable[[Cell], Any]:
    return lambda cell: method.fit(Ensemble(cell.members), cell.y).transform(Ensemble(cell.fresh))


def gaussian_copula(cell: Cell) -> Any:
    """Each target Gaussian, mean and log spread linear in the members', by likelihood; correlations of what is left."""

    def functions(members: Tensor) -> tuple[np.ndarray, np.ndarray]:
        return members.mean(1).numpy(), members.std(1).clamp_min(1e-6).log().numpy()

    (mean, spread), (fresh_mean, fresh_spread), y = functions(cell.members), functions(cell.fresh), cell.y.numpy()
    loc, scale, z = np.empty_like(fresh_mean), np.empty_like(fresh_mean), np.empty_like(mean)
    for d in range(y.shape[1]):
        centre, size = mean[:, d].mean(), y[:, d].std()

        def cost(p: np.ndarray, d: int = d, centre: float = centre, size: float = size) -> float:
            log_scale = p[2] + p[3] * (spread[:, d] - spread[:, d].mean())
            left = (y[:, d] - mean[:, d]) / size - p[0] - p[1] * (mean[:, d] - centre) / size
            return float((log_scale + 0.5 * left**2 * np.exp(-2 * log_scale)).mean())

        p = minimize(cost, np.array([0.0, 0.0, -1.0, 0.5]), method="L-BFGS-B").x

        def law_of(
            m: np.ndarray, s: np.ndarray, p: np.ndarray = p, d: int = d, c: float = centre, u: float = size
        ) -> Any:
            return m + p[0] * u + p[1] * (m - c), u * np.exp(p[2] + p[3] * (s - spread[:, d].mean()))

        own_loc, own_scale = law_of(mean[:, d], spread[:, d])
        z[:, d] = (y[:, d] - own_loc) / own_scale
        loc[:, d], scale[:, d] = law_of(fresh_mean[:, d], fresh_spread[:, d])
    correlation = 0.99 * np.corrcoef(z.T) + 0.01 * np.eye(y.shape[1])
    tril = torch.as_tensor(scale[:, :, None] * np.linalg.cholesky(correlation))
    return MultivariateNormal(torch.as_tensor(loc), scale_tril=tril)


def analogs(cell: Cell) -> Ensemble:
    """Errors of the 50 past cases whose members' mean is nearest, about the mean of the members."""
    past, fresh = cell.members.mean(1), cell.fresh.mean(1)
    nearest = torch.cdist(fresh / past.std(0), past / past.std(0)).topk(50, largest=False).indices
    return Ensemble(fresh[:, None] + (cell.y - past)[nearest])


METHODS: dict[str, Callable[[Cell], Any]] = {
    "raw": lambda cell: Ensemble(cell.fresh),
    "affine": recalibrated(Affine()),
    "ECC": published(EnsembleCopulaCoupling()),
    "Gaussian copula": gaussian_copula,
    "analogs of errors": analogs,
    "law of errors": law,
    "law of errors, named members": lambda cell: law(cell, True),
}
SLOW = {"dressing": recalibrated(Dressing()), "dressing + tilt": recalibrated(Dressing(), Tilt())}


def checked(cell: Cell, members: Ensemble) -> tuple[int, float]:
    table = check(cell.observed, members, blocks=cell.fresh_blocks, n_replicates=199).table
    return int((table["adjusted p-value"] <= 0.05).sum()), float((table["PCE"] / table["expected PCE"]).mean())


def judged(cell: Cell, forecast: Any, scores: dict[str, Tensor]) -> dict[str, float]:
    """Scores of M members as they are, of 100 draws by the fair estimator, and calibration of both."""
    count, y, row = cell.members.shape[1], cell.observed, {}
    few = forecast
    if not isinstance(forecast, Ensemble):
        few = members_about_mean(forecast, count, SEED)
    elif forecast.n_members != count:  # errors of analogs: some of them
        few = Ensemble(forecast.members[:, :: forecast.n_members // count][:, :count])
    scores["ES of M"] = energy_score(y, few, Paper())
    scores["VS of M"] = variogram_score(y, few, estimator=Paper())
    drawn = None
    if not isinstance(forecast, Ensemble):
        few = Ensemble(draws(forecast, count).members)
        drawn = draws(forecast, DRAWS)
        scores["log score"] = forecast.log_prob(y).double()
    elif forecast.n_members != count:
        drawn = forecast
    row["rejected, M"], row["ratio, M"] = checked(cell, few)
    if drawn is not None:
        scores["ES of draws"], scores["VS of draws"] = energy_score(y, drawn), variogram_score(y, drawn)
        row["rejected, draws"], row["ratio, draws"] = checked(cell, drawn)
    return row | {name: float(values.mean()) for name, values in scores.items()}


def draws(forecast: Any, count: int, seed: int = SEED) -> Ensemble:
    return equally_weighted_draws(forecast, count, seed)


def rows(cell: Cell, methods: dict[str, Callable[[Cell], Any]]) -> list[dict[str, Any]]:
    """A row for each method, with differences from ECC (M members) and from the law of errors (draws) in block errors."""
    kept: dict[str, dict[str, Tensor]] = {}
    found = []
    for method, make in methods.items():
        started = time.process_time()
        forecast = make(cell)
        seconds = time.process_time() - started
        kept[method] = {}
        found.append({"method": method, "seconds": seconds, **judged(cell, forecast, kept[method])})
    block = torch.as_tensor(np.unique(cell.fresh_blocks, return_inverse=True)[1])
    for row in found:
        for name, other in (("ES of M", "ECC"), ("ES of draws", "law of errors"), ("log score", "law of errors")):
            own, reference = kept[row["method"]].get(name), kept.get(other, {}).get(name)
            if own is not None and reference is not None and row["method"] != other:
                gap, error = mean_and_error(own - reference, torch.ones(len(own)), block)
                row[f"{name} less {other}"], row[f"{name} error"] = gap, error
    return found


def table(records: pd.DataFrame) -> str:
    """One table for each split, a row for each set and method."""
    lines = [
        "# Real ensembles of several models",
        "",
        "ES and VS of M: energy and variogram score of as many members as the raw ensemble has, as they are (a",
        "member with itself included), for laws members about the mean. Of draws: fair scores of 100 independent draws,",
        "for analogs of 50 errors. Rejected of 7 pre-ranks at 0.05 adjusted, blocks kept together, and the mean of PCE",
        "over expected PCE: of M draws (or members) and of 100 draws. In brackets: the paired difference from ECC (M) or",
        "from the law of errors (draws, log score) over its block standard error. CPU seconds, one core.",
        "From `python benchmarks/real_ensembles.py`.",
    ]

    def said(row: Any, name: str, other: str | None = None, digits: int = 2) -> str:
        value = row.get(name)
        if value is None or pd.isna(value):
            return "–"
        text = f"{value:.{digits}f}"
        gap, error = (row.get(f"{name} less {other}"), row.get(f"{name} error")) if other else (None, None)
        return text if gap is None or pd.isna(gap) or not error else f"{text} ({gap / error:+.1f})"

    for split, part in records.groupby("split", sort=False):
        lines += ["", f"## {'Later cases' if split == 'time' else 'Alternate months, with gaps'}", ""]
        head = ["set", "method", "ES of M", "VS of M", "ES of draws", "VS of draws", "log score"]
        head += ["rejected, M", "ratio, M", "rejected, draws", "ratio, draws", "seconds"]
        lines += [f"| {' | '.join(head)} |", "| " + "--- | " * len(head)]
        lines[-1] = lines[-1].rstrip()
        for _, row in part.iterrows():
            cells = [row["set"], row["method"], said(row, "ES of M", "ECC"), said(row, "VS of M", digits=1)]
            cells += [said(row, "ES of draws", "law of errors"), said(row, "VS of draws", digits=1)]
            cells.append(said(row, "log score", "law of errors"))
            for of in ("M", "draws"):
                cells += [said(row, f"rejected, {of}", digits=0), said(row, f"ratio, {of}", digits=1)]
            cells.append(said(row, "seconds", digits=1))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/recalibration"))
    parser.add_argument("--slow", action="store_true")
    options = parser.parse_args()
    folder, path = Path(os.environ["PRERANK_REAL"]), options.out / "real_ensembles.csv"
    done = pd.read_csv(path) if path.exists() else pd.DataFrame({"set": [], "split": [], "method": []})
    compared = {name: METHODS[name] for name in ("ECC", "law of errors")}
    for split in ("time", "alternate"):
        for name in SETS:
            there = set(done["method"][(done["set"] == name) & (done["split"] == split)])
            for methods in (METHODS, *([SLOW] if options.slow else [])):
                if methods.keys() <= there:
                    continue
                found = rows(cell_of(folder, name, split), methods if methods is METHODS else compared | methods)
                fresh = [{"set": name, "split": split, **row} for row in found if row["method"] not in there]
                done = pd.concat([done, pd.DataFrame(fresh)], ignore_index=True)
                there |= methods.keys()
                done.to_csv(path, index=False, float_format="%.5g")
                print(split, name, *methods, flush=True)
    (options.out / "real_ensembles.md").write_text(table(done), encoding="utf-8")


if __name__ == "__main__":
    main()
