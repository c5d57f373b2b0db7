"""Real ensembles of several models, corrected in several ways and judged on later cases, or on alternate months.

    PRERANK_REAL=folder python benchmarks/real_ensembles.py [--out results/recalibration] [--slow]

Writes real_ensembles.csv, a row for each set, split and method, and real_ensembles.md. What is there is not computed again.
Sets: day-ahead electricity prices (Lago et al. 2021; Janke and Steinke 2020), temperatures (Fraley et al. 2007) and the
Madden-Julian oscillation, as arrays of `obs`, `ensemble` and `case_date`. `--slow` adds kernels about members, with and
without a tilt, the default before the law. The last part has blocks of twice the length, for fit and judgement.
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

from prerank import Ensemble, GaussianMixture, Recalibrator, check, energy_score, variogram_score
from prerank.forecasts import equally_weighted_draws
from prerank.recalibration import (
    Affine,
    Dressing,
    EnsembleCopulaCoupling,
    ErrorLaw,
    Tilt,
    Tilted,
    error_fit,
    error_mean,
    error_scatter,
    members_about_mean,
    members_in_order,
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


def cell_of(folder: Path, name: str, split: str, times: int = 1) -> Cell:
    about = SETS[name]._replace(block=times * SETS[name].block)
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


def member_by_member(cell: Cell) -> Ensemble:
    """Each target's mean a + b m and deviations times sqrt(c + d / s^2) from a case's mean m and spread s, by energy score.

    After Van Schaeybroeck and Vannitsem (2015), whose scores are those of single targets.
    """
    centre, unit = cell.members.mean((0, 1)), cell.y.std(0)

    def corrected(members: Tensor, p: Tensor) -> Tensor:
        members = (members - centre) / unit
        mean = members.mean(1, keepdim=True)
        spread = (members - mean).square().mean(1, keepdim=True).clamp_min(1e-6)
        factor = (p[2].exp() + p[3].exp() / spread).sqrt()
        return p[0] + (1 + p[1]) * mean + factor * (members - mean)

    y, start = (cell.y - centre) / unit, torch.zeros(4, cell.y.shape[1]).double()
    start[3] = -4.0
    p = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([p], max_iter=100, line_search_fn="strong_wolfe")

    def cost() -> Tensor:
        optimiser.zero_grad()
        loss = of_energy(corrected(cell.members, p), y) + (p - start).square().sum() / len(y)
        loss.backward()
        return loss

    optimiser.step(cost)  # type: ignore[no-untyped-call]
    return Ensemble(centre + unit * corrected(cell.fresh, p.detach()))


def of_energy(members: Tensor, y: Tensor) -> Tensor:
    """The mean energy score of members (N, M, D) as they are, with a gradient."""
    apart = (members[:, :, None] - members[:, None] + 1e-12).square().sum(-1).sqrt()
    return (members - y[:, None]).square().sum(-1).sqrt().mean() - 0.5 * apart.mean()


class Generative(NamedTuple):
    """A network from a case's mean and spread and noise to an outcome: its members are draws."""

    members: Tensor

    def ensemble(self, count: int) -> Ensemble:
        return Ensemble(self.members[:, :count])


def network(cell: Cell) -> Generative:
    """Noise and the members' mean and log spread through 64 hidden units, by the fair energy score of ten draws.

    200 passes over the first four fifths of the blocks; the pass that is best on the last fifth is kept. After Chen, Janke,
    Steinke and Lerch (2024), with little tuning.
    """
    torch.manual_seed(SEED)
    n_targets, unit = cell.y.shape[1], cell.y.std(0)

    def inputs(members: Tensor) -> Tensor:
        return torch.cat([members.mean(1), members.std(1).clamp_min(1e-6).log()], 1)

    usual = inputs(cell.members)
    centre, spread = usual.mean(0), usual.std(0).clamp_min(1e-6)
    net = torch.nn.Sequential(
        torch.nn.Linear(2 * n_targets + 10, 64), torch.nn.ELU(), torch.nn.Linear(64, 2 * n_targets)
    ).double()

    def drawn(members: Tensor, count: int) -> Tensor:
        x = ((inputs(members) - centre) / spread).clamp(-3, 3)[:, None].expand(-1, count, -1)
        move, size = net(torch.cat([x, torch.randn(len(x), count, 10).double()], -1)).chunk(2, -1)
        noise = torch.randn(len(x), count, n_targets).double()
        return members.mean(1, keepdim=True) + unit * (move + (size - 2).exp() * noise)

    def cost(rows: Tensor, count: int) -> Tensor:
        return energy_score(cell.y[rows] / unit, Ensemble(drawn(cell.members[rows], count) / unit)).mean()

    order = np.unique(cell.blocks, return_inverse=True)[1]
    early = torch.as_tensor(order < 0.8 * (order.max() + 1)).nonzero()[:, 0]
    late = torch.as_tensor(order >= 0.8 * (order.max() + 1)).nonzero()[:, 0]
    optimiser, best, kept = torch.optim.Adam(net.parameters(), 1e-3), np.inf, None
    for _ in range(200):
        for rows in early[torch.randperm(len(early))].split(64):
            optimiser.zero_grad()
            cost(rows, 10).backward()
            optimiser.step()
        with torch.no_grad():
            now = float(cost(late, 50))
        if now < best:
            best, kept = now, {key: value.clone() for key, value in net.state_dict().items()}
    assert kept is not None
    net.load_state_dict(kept)
    with torch.no_grad():
        return Generative(drawn(cell.fresh, DRAWS))


def part(**constants: Any) -> Callable[[Cell], Any]:
    """The law without some of its parts, which these constants of its modules switch off."""

    def of(cell: Cell) -> Any:
        before = {name: getattr(MODULES[name], name) for name in constants}
        try:
            for name, value in constants.items():
                setattr(MODULES[name], name, value)
            return law(cell)
        finally:
            for name, value in before.items():
                setattr(MODULES[name], name, value)

    return of


MODULES = {"STRENGTHS": error_mean, "_WIDTH": error_mean, "COUNTS": error_fit, "FREEDOMS": error_scatter}
METHODS: dict[str, Callable[[Cell], Any]] = {
    "raw": lambda cell: Ensemble(cell.fresh),
    "affine": recalibrated(Affine()),
    "ECC": published(EnsembleCopulaCoupling()),
    "Gaussian copula": gaussian_copula,
    "analogs of errors": analogs,
    "member by member": member_by_member,
    "network": network,
    "law of errors": law,
    "law of errors, named members": lambda cell: law(cell, True),
    "law without a curve": part(_WIDTH=1e9),
    "law with a shift alone": part(STRENGTHS=(torch.inf,)),
    "Gaussian law": part(FREEDOMS=(np.inf,), COUNTS=()),
}
SLOW = {"dressing": recalibrated(Dressing()), "dressing + tilt": recalibrated(Dressing(), Tilt())}


def checked(cell: Cell, members: Ensemble) -> tuple[int, float]:
    table = check(cell.observed, members, blocks=cell.fresh_blocks, n_replicates=199).table
    return int((table["adjusted p-value"] <= 0.05).sum()), float((table["PCE"] / table["expected PCE"]).mean())


def judged(cell: Cell, forecast: Any, scores: dict[str, Tensor]) -> dict[str, float]:
    """Scores of M members as they are, of 100 draws by the fair estimator, and calibration of both."""
    count, y, row = cell.members.shape[1], cell.observed, {}
    few = forecast
    if isinstance(forecast, Generative):
        few = Ensemble(forecast.members[:, :count])
    elif not isinstance(forecast, Ensemble):
        few = members_about_mean(forecast, count, SEED)
        mixture = GaussianMixture.of_normal(forecast) if isinstance(forecast, MultivariateNormal) else forecast
        in_order = None if isinstance(mixture, Tilted) else members_in_order(mixture, Ensemble(cell.fresh))
        if in_order is not None:
            scores["ES in order"] = energy_score(y, in_order, Paper())
            scores["VS in order"] = variogram_score(y, in_order, estimator=Paper())
    elif forecast.n_members != count:  # errors of analogs: some of them
        few = Ensemble(forecast.members[:, :: forecast.n_members // count][:, :count])
    scores["ES of M"] = energy_score(y, few, Paper())
    scores["VS of M"] = variogram_score(y, few, estimator=Paper())
    drawn = None
    if not isinstance(forecast, Ensemble):
        few = Ensemble(draws(forecast, count).members)
        drawn = draws(forecast, DRAWS)
        if not isinstance(forecast, Generative):
            scores["log score"] = forecast.log_prob(y).double()
    elif forecast.n_members != count:
        drawn = forecast
    row["rejected, M"], row["ratio, M"] = checked(cell, few)
    if drawn is not None:
        scores["ES of draws"], scores["VS of draws"] = energy_score(y, drawn), variogram_score(y, drawn)
        row["rejected, draws"], row["ratio, draws"] = checked(cell, drawn)
    return row | {name: float(values.mean()) for name, values in scores.items()}


def draws(forecast: Any, count: int, seed: int = SEED) -> Ensemble:
    if isinstance(forecast, Generative):
        return forecast.ensemble(count)
    return equally_weighted_draws(forecast, count, seed)


COMPARED = (
    ("ES of M", "ECC"),
    ("ES in order", "ECC"),
    ("ES of draws", "law of errors"),
    ("log score", "law of errors"),
)


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
        for name, other in COMPARED:
            own = kept[row["method"]].get(name)
            reference = kept.get(other, {}).get("ES of M" if name == "ES in order" else name)
            if own is not None and reference is not None and row["method"] != other:
                gap, error = mean_and_error(own - reference, torch.ones(len(own)), block)
                row[f"{name} less {other}"], row[f"{name} error"] = gap, error
    return found


HEADS = {
    "time": "Later cases",
    "alternate": "Alternate months, with gaps",
    "doubled": "Later cases, blocks of twice the length",
}


def table(records: pd.DataFrame) -> str:
    """One table for each split, a row for each set and method."""
    lines = [
        "# Real ensembles of several models",
        "",
        "ES and VS of M: energy and variogram score of as many members as the raw ensemble has, as they are (a",
        "member with itself included), for laws members about the mean; in order: even quantiles of a law's margins in the",
        "order of the raw members. Of draws: fair scores of 100 independent draws,",
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
        lines += ["", f"## {HEADS[str(split)]}", ""]
        head = [
            "set",
            "method",
            "ES of M",
            "VS of M",
            "ES in order",
            "VS in order",
            "ES of draws",
            "VS of draws",
            "log score",
        ]
        head += ["rejected, M", "ratio, M", "rejected, draws", "ratio, draws", "seconds"]
        lines += [f"| {' | '.join(head)} |", "| " + "--- | " * len(head)]
        lines[-1] = lines[-1].rstrip()
        for _, row in part.iterrows():
            cells = [row["set"], row["method"], said(row, "ES of M", "ECC"), said(row, "VS of M", digits=1)]
            cells += [said(row, "ES in order", "ECC"), said(row, "VS in order", digits=1)]
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
    doubled = {name: METHODS[name] for name in ("raw", "ECC", "Gaussian copula", "law of errors")}
    jobs = [("time", METHODS), ("alternate", METHODS), ("doubled", doubled)]
    if options.slow:
        jobs += [("time", compared | SLOW), ("alternate", compared | SLOW)]
    for split, methods in jobs:
        for name in SETS:
            there = set(done["method"][(done["set"] == name) & (done["split"] == split)])
            if methods.keys() <= there:
                continue
            cell = cell_of(folder, name, "time" if split == "doubled" else split, 2 if split == "doubled" else 1)
            fresh = [{"set": name, "split": split, **row} for row in rows(cell, methods) if row["method"] not in there]
            done = pd.concat([done, pd.DataFrame(fresh)], ignore_index=True)
            done.to_csv(path, index=False, float_format="%.5g")
            (options.out / "real_ensembles.md").write_text(table(done), encoding="utf-8")
            print(split, name, flush=True)
    (options.out / "real_ensembles.md").write_text(table(done), encoding="utf-8")


if __name__ == "__main__":
    main()
