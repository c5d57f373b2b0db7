"""Real ensembles corrected as time goes on: a new fit for every second block, on what had been observed before it.

    PRERANK_REAL=folder python benchmarks/sequential_ensembles.py [--out results/recalibration] [--sets temperature mjo]

Sets, blocks, gaps and judges are those of `real_ensembles.py`, later cases alone. Writes sequential_ensembles.csv, a row for
each set and method, and sequential_ensembles.md. What is there is not computed again.
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
from torch import Tensor

from prerank import Ensemble, Recalibrator, energy_score, variogram_score
from prerank.recalibration import Affine, ErrorLaw, members_about_mean, recalibrate_over_time
from prerank.recalibration.folds import mean_and_error
from prerank.scores import Paper
from real_ensembles import DRAWS, METHODS, SEED, SETS, Cell, Set, checked, draws


class Record(NamedTuple):
    """All cases of a set, their places in time and blocks, and how many of the times are learnt from alone."""

    members: Tensor
    y: Tensor
    place: np.ndarray
    first: int
    about: Set

    @classmethod
    def of(cls, folder: Path, name: str) -> "Record":
        about = SETS[name]
        with np.load(folder / f"{about.file}.npz", allow_pickle=False) as arrays:
            members, y = (torch.tensor(arrays[key]).double() for key in ("ensemble", "obs"))
            dates = arrays["case_date"]
        place = np.unique(dates, return_inverse=True)[1]
        end = int((np.unique(dates) < "2017").sum()) if name == "prices_igep" else (place.max() + 1) // 2
        return cls(members, y, place, int(end), about)

    @property
    def later(self) -> Tensor:
        return torch.as_tensor(np.flatnonzero(self.place >= self.first))

    @property
    def block(self) -> np.ndarray:
        return self.place // self.about.block


Issued = list[tuple[np.ndarray, Any]]
"""Cases and their corrected forecast, fit after fit."""


def of_product(step: Callable[[Set], Any], window: bool = False) -> Callable[[Record], Issued]:
    """`recalibrate_over_time`, a fit for every second block, with the same blocks as folds."""

    def of(record: Record) -> Issued:
        about = record.about
        issued = recalibrate_over_time(
            record.y.numpy(),
            record.members.numpy(),
            record.place,
            recalibrator=Recalibrator(steps=[step(about)], gap=1 if about.gap >= about.block > 1 else 0),
            every=2 * about.block,
            delay=about.gap,
            first=record.first,
            window=record.first - about.gap if window else None,
            blocks=record.block,
        )
        return [(issue.cases, issue.forecast) for issue in issued.issues]

    return of


def of_rival(method: Callable[[Cell], Any], once: bool = False) -> Callable[[Record], Issued]:
    """A method of `real_ensembles.py`, fitted once or for every second block on what was known before."""

    def of(record: Record) -> Issued:
        about, found = record.about, []
        last = int(record.place.max()) + 1
        for start in range(record.first, last, last if once else 2 * about.block):
            past = record.place < start - about.gap
            fresh = (record.place >= start) & (record.place < (last if once else start + 2 * about.block))
            cases = np.flatnonzero(fresh)
            cases = cases[np.argsort(record.place[cases], kind="stable")]
            if not len(cases):
                continue
            at, block = torch.as_tensor(cases), record.block
            cell = Cell(
                record.members[past],
                record.y[past],
                block[past],
                record.members[at],
                record.y[at],
                block[cases],
                about,
            )
            found.append((cases, method(cell)))
        return found

    return of


def law(about: Set) -> ErrorLaw:
    return ErrorLaw(ordered_targets=about.ordered)


METHODS_OVER_TIME: dict[str, Callable[[Record], Issued]] = {
    "raw": of_rival(METHODS["raw"], once=True),
    "affine": of_product(lambda about: Affine()),
    "ECC": of_rival(METHODS["ECC"]),
    "Gaussian copula": of_rival(METHODS["Gaussian copula"]),
    "law of errors": of_product(law),
    "law of errors, window": of_product(law, window=True),
    "law of errors, once": of_rival(METHODS["law of errors"], once=True),
}


def judged(record: Record, issued: Issued, scores: dict[str, Tensor]) -> dict[str, float]:
    """As in `real_ensembles.py`: M members as they are, 100 draws of laws by the fair estimator, calibration of both."""
    count, laws = record.members.shape[1], all(not isinstance(part, Ensemble) for _, part in issued)
    stayed = sum(isinstance(part, Ensemble) for _, part in issued)
    cases = torch.as_tensor(np.concatenate([cases for cases, _ in issued]))
    y, few, drawn, wide = record.y[cases], [], [], []
    for place, (_, forecast) in enumerate(issued):
        if isinstance(forecast, Ensemble):
            few.append(forecast.members)
            drawn.append(forecast.members)
            continue
        seed = SEED + 1000 * place  # no two fits use the same random numbers
        few.append(members_about_mean(forecast, count, seed).members)
        drawn.append(draws(forecast, count, seed).members)
        wide.append(draws(forecast, DRAWS, seed).members)
    members = Ensemble(torch.cat(few))
    scores["ES of M"] = energy_score(y, members, Paper())
    scores["VS of M"] = variogram_score(y, members, estimator=Paper())
    row: dict[str, float] = {"fits": len(issued), "stayed members": stayed}
    cell = Cell(record.members, record.y, record.block, record.members[cases], y, record.block[cases], record.about)
    row["rejected, M"], row["ratio, M"] = checked(cell, Ensemble(torch.cat(drawn)))
    if laws:
        many = Ensemble(torch.cat(wide))
        row["rejected, draws"], row["ratio, draws"] = checked(cell, many)
        scores["ES of draws"], scores["VS of draws"] = energy_score(y, many), variogram_score(y, many)
        scores["log score"] = torch.cat([part.log_prob(record.y[at]).double() for at, part in issued])
    return row | {name: float(values.mean()) for name, values in scores.items()}


def rows(record: Record) -> list[dict[str, Any]]:
    """A row for each method, with paired differences in block errors from ECC (M members) and the law of errors (draws)."""
    kept: dict[str, dict[str, Tensor]] = {}
    found = []
    for method, make in METHODS_OVER_TIME.items():
        started = time.process_time()
        issued = make(record)
        seconds = time.process_time() - started
        order = np.argsort(np.concatenate([cases for cases, _ in issued]), kind="stable")
        scores: dict[str, Tensor] = {}
        found.append({"method": method, "seconds": seconds, **judged(record, issued, scores)})
        kept[method] = {name: values[torch.as_tensor(order)] for name, values in scores.items()}
        print("  ", method, f"{seconds:.1f} s", flush=True)
    block = torch.as_tensor(np.unique(record.block[record.later.numpy()], return_inverse=True)[1])
    for row in found:
        for name, other in (("ES of M", "ECC"), ("ES of draws", "law of errors"), ("log score", "law of errors")):
            own, reference = kept[row["method"]].get(name), kept.get(other, {}).get(name)
            if own is not None and reference is not None and row["method"] != other:
                gap, error = mean_and_error(own - reference, torch.ones(len(own)), block)
                row[f"{name} less {other}"], row[f"{name} error"] = gap, error
    return found


def table(records: pd.DataFrame) -> str:
    """A row for each set and method."""
    lines = [
        "# Real ensembles, corrected as time goes on",
        "",
        "A new fit for every second block of later cases (prices four weeks, temperature two dates, MJO 18 starts) on",
        "all that had been observed before it, with the delays of `real_ensembles.py`; with a window on as many of the",
        "last times as there were at the beginning; once: fitted at the beginning, as on the page of real ensembles.",
        "Raw is not fitted. ES and VS of M: energy and variogram score of as many members as the raw ensemble has, as",
        "they are (a member with itself included), for laws members about the mean. Of draws: fair scores of 100",
        "independent draws. Rejected of 7 pre-ranks at 0.05 adjusted, blocks kept together, and the mean of PCE over",
        "expected PCE: of M draws (or members) and of 100 draws. In brackets: the paired difference from ECC (M) or",
        "from the law of errors fitted again (draws, log score) over its block standard error. CPU seconds of all fits,",
        "one core.",
        "From `python benchmarks/sequential_ensembles.py`.",
        "",
    ]

    def said(row: Any, name: str, other: str | None = None, digits: int = 2) -> str:
        value = row.get(name)
        if value is None or pd.isna(value):
            return "–"
        text = f"{value:.{digits}f}"
        gap, error = (row.get(f"{name} less {other}"), row.get(f"{name} error")) if other else (None, None)
        return text if gap is None or pd.isna(gap) or not error else f"{text} ({gap / error:+.1f})"

    head = ["set", "method", "ES of M", "VS of M", "ES of draws", "VS of draws", "log score"]
    head += ["rejected, M", "ratio, M", "rejected, draws", "ratio, draws", "fits", "seconds"]
    lines += [f"| {' | '.join(head)} |", ("| " + "--- | " * len(head)).rstrip()]
    for _, row in records.iterrows():
        cells = [row["set"], row["method"], said(row, "ES of M", "ECC"), said(row, "VS of M", digits=1)]
        cells += [said(row, "ES of draws", "law of errors"), said(row, "VS of draws", digits=1)]
        cells.append(said(row, "log score", "law of errors"))
        for of in ("M", "draws"):
            cells += [said(row, f"rejected, {of}", digits=0), said(row, f"ratio, {of}", digits=1)]
        cells += [said(row, "fits", digits=0), said(row, "seconds", digits=1)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/recalibration"))
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    options = parser.parse_args()
    folder, path = Path(os.environ["PRERANK_REAL"]), options.out / "sequential_ensembles.csv"
    done = pd.read_csv(path) if path.exists() else pd.DataFrame({"set": [], "method": []})
    for name in options.sets:
        if METHODS_OVER_TIME.keys() <= set(done["method"][done["set"] == name]):
            continue
        print(name, flush=True)
        found = [{"set": name, **row} for row in rows(Record.of(folder, name))]
        done = pd.concat([done[done["set"] != name], pd.DataFrame(found)], ignore_index=True)
        done["place"] = [list(SETS).index(each) for each in done["set"]]
        done = done.sort_values("place", kind="stable").drop(columns="place")
        done.to_csv(path, index=False, float_format="%.5g")
    (options.out / "sequential_ensembles.md").write_text(table(done), encoding="utf-8")


if __name__ == "__main__":
    main()
