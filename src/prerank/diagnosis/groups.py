"""Checks of several groups of cases, such as places or seasons, adjusted for being several."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure

from prerank._wording import counted
from prerank.calibration import holm
from prerank.diagnosis.plotdata import group_heat
from prerank.diagnosis.report import Described, report_of_groups
from prerank.diagnosis.result import LEVEL, Check
from prerank.diagnosis.sentences import of_groups
from prerank.plotting import render
from prerank.plotting.heatmaps import group_figure
from prerank.plotting.page import write_page
from prerank.plotting.panels import GroupHeat
from prerank.plotting.style import save_named
from prerank.plotting.tables import bullets, p_text


@dataclass(frozen=True, eq=False, repr=False)
class GroupedCheck:
    """What `check(..., by=...)` and `grouped` return: the checks by group, and a table with a row per group.

    The columns of `table`: cases; "p-value", that of the group's check, which is adjusted for its pre-ranks; "adjusted
    p-value", which is adjusted for the groups too; and a reading. `attainable` is the smallest adjusted p-value that these
    data could have given, `notes` are about all groups.
    """

    checks: Mapping[Any, Check]
    table: pd.DataFrame
    attainable: float
    notes: tuple[str, ...] = ()

    @property
    def p_value(self) -> float:
        """p-value of the whole: the smallest adjusted one."""
        return float(self.table["adjusted p-value"].min())

    @property
    def rejected(self) -> bool | None:
        """Whether any adjusted p-value is at most 0.05; None where it could not have been."""
        return None if self.attainable > LEVEL else self.p_value <= LEVEL

    @property
    def calibrated(self) -> bool | None:
        """`not rejected`, None where there is no verdict."""
        return None if self.rejected is None else not self.rejected

    @property
    def sentences(self) -> list[str]:
        """What fails where: plain sentences with the groups that each is about, the most frequent first."""
        failing = self.table["adjusted p-value"] <= LEVEL
        if not self.rejected:
            return []
        found = zip(self.checks.items(), failing, strict=True)
        return of_groups([(str(name), one.sentences) for (name, one), fails in found if fails], len(self.checks))

    @property
    def verdict(self) -> str:
        """One sentence; what is wrong where is said by `sentences`."""
        n_groups = counted(len(self.table), "group")
        if self.rejected is None:
            return (
                f"No verdict: the smallest adjusted p-value possible for {n_groups} is {p_text(self.attainable)}; "
                "take fewer groups, more cases or more replicates."
            )
        failed = self.table.index[self.table["adjusted p-value"] <= LEVEL]
        if not len(failed):
            return f"No evidence against calibration in {n_groups} (smallest adjusted p-value {p_text(self.p_value)})."
        named = ", ".join(map(str, failed[:10])) + (", ..." if len(failed) > 10 else "")
        return (
            f"Miscalibrated in {len(failed)} of {n_groups}: {named} (smallest adjusted p-value {p_text(self.p_value)})."
        )

    def plot(self, path: Path | str | None = None) -> Figure:
        """A heat map of where it fails: PCE over expected for groups by pre-ranks; written to `path` if given."""
        figure = group_figure(self._heat(), self.verdict)
        if path is not None:
            save_named(figure, path)
        return figure

    def to_html(
        self, path: Path | str | None = None, *, title: str = "", command: str = "", python: str = "", date: str = ""
    ) -> str:
        """A report of all groups as one HTML page; as `Check.to_html`, with a heat map of where it fails."""
        described = Described(title, command, python, date)
        results, readings = list(self.checks.values()), [str(words) for words in self.table["reading"]]
        page = report_of_groups(
            results, self._heat(), readings, self.calibrated, self.verdict, described, self.sentences, self.notes
        )
        return write_page(page, path)

    def _heat(self) -> GroupHeat:
        tables = {name: result.table for name, result in self.checks.items()}
        return group_heat(tables, self.table["adjusted p-value"].tolist(), LEVEL)

    def to_frame(self) -> pd.DataFrame:
        """The tables of all groups as one, with a row per group and pre-rank."""
        return pd.concat({name: one.table for name, one in self.checks.items()}, names=["group"])

    def to_xarray(self) -> Any:
        """An `xarray.Dataset`: that of each group's check along "group"."""
        from prerank.diagnosis.export import as_grouped_dataset

        return as_grouped_dataset(self)

    def __str__(self) -> str:
        rows = [
            [str(name), f"{row['cases']}", p_text(row["p-value"]), p_text(row["adjusted p-value"]), row["reading"]]
            for name, row in self.table.iterrows()
        ]
        stream = io.StringIO()
        columns, head = ("group", "cases", "p", "adjusted p", "reading"), [self.verdict, *bullets(self.sentences)]
        render(columns, rows, stream, [*self.notes, _METHOD], head=head)
        return stream.getvalue().rstrip("\n")

    __repr__ = __str__


_METHOD = "p-values adjusted for the pre-ranks of a group, then for the groups by Holm's method"


def grouped(checks: Mapping[Any, Check], notes: Sequence[str] = ()) -> GroupedCheck:
    """Checks of several groups of cases together: p-values adjusted by Holm's method, valid under any dependence.

    >>> from prerank import check_pits
    >>> pits = torch.linspace(0.001, 0.999, 200)
    >>> grouped({"spring": check_pits(pits), "autumn": check_pits(pits**3)}).verdict
    'Miscalibrated in 1 of 2 groups: autumn (smallest adjusted p-value < 0.001).'
    """
    if not checks:
        raise ValueError("there are no groups; give the check of at least one")
    own = torch.tensor([result.p_value for result in checks.values()], dtype=torch.float64)
    adjusted = holm(own)
    rows = [
        {
            "cases": result.n_cases,
            "p-value": float(own[k]),
            "adjusted p-value": float(adjusted[k]),
            "reading": _reading(result, float(adjusted[k])),
        }
        for k, result in enumerate(checks.values())
    ]
    table = pd.DataFrame(rows, index=pd.Index(list(checks), name="group"))
    least = holm(torch.tensor([result.attainable for result in checks.values()], dtype=torch.float64))
    return GroupedCheck(dict(checks), table, float(least.min()), tuple(notes))


def _reading(result: Check, adjusted: float) -> str:
    """The words of the pre-rank with the largest PCE against the expected one, among those that fail."""
    if adjusted > LEVEL:
        return "flat" if result.p_value > LEVEL else "no clear shape"
    failed = result.table[result.table["adjusted p-value"] <= LEVEL]
    worst = str((failed["PCE"] / failed["expected PCE"]).idxmax())
    others = f" (and {counted(len(failed) - 1, 'other pre-rank')})" if len(failed) > 1 else ""
    return f"{worst}: {failed['reading'].to_dict()[worst]}{others}"
