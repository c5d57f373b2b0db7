"""Checks of several groups of cases, such as places or seasons, adjusted for being several."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from prerank._wording import counted
from prerank.calibration import holm
from prerank.diagnosis.plotdata import crossed_heat, group_heat
from prerank.diagnosis.result import LEVEL, Check, Decision
from prerank.diagnosis.sentences import of_groups
from prerank.diagnosis.target_words import named
from prerank.plotting.panels import CrossedHeat, GroupHeat
from prerank.plotting.tables import bullets, p_text, render

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class GroupedCheck(Decision):
    """What `check(..., by=...)` and `grouped` return: the checks by group, and a table with a row per group.

    Attributes
    ----------
    checks : dict of Check
        The check of each group, by its name; groups that several labels make have tuples for names.
    table : pandas.DataFrame
        One row per group: cases; "p-value", that of the group's check, which is adjusted for its pre-ranks; "adjusted
        p-value", which is adjusted for the groups too; and a reading.
    attainable : float
        The smallest adjusted p-value that these data could have given.
    notes : tuple of str
        About all groups, a sentence each.
    factors : tuple of str
        What the parts of names that are tuples stand for; empty where groups have one label.
    """

    checks: Mapping[Any, Check]
    table: "pd.DataFrame"
    attainable: float
    notes: tuple[str, ...] = ()
    factors: tuple[str, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """What fails where: plain sentences with the groups that each is about, the most frequent first."""
        failing = self.table["adjusted p-value"] <= LEVEL
        if not self.rejected:
            return []
        found = zip(self.checks.items(), failing, strict=True)
        said = [(group_text(name, self.factors), one.sentences) for (name, one), fails in found if fails]
        return of_groups(said, len(self.checks))

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
        shown = [group_text(name, self.factors) for name in failed[:10]]
        named = ", ".join([*shown, "..."] if len(failed) > 10 else shown)
        return (
            f"Miscalibrated in {len(failed)} of {n_groups}: {named} (smallest adjusted p-value {p_text(self.p_value)})."
        )

    def plot(self, path: Path | str | None = None) -> "Figure":
        """A heat map of where it fails: PCE over expected for groups by pre-ranks; written to `path` if given.

        Groups that two labels make, such as models and places, are a table of the two, with the largest over the pre-ranks.

        Parameters
        ----------
        path : str or path-like, optional
            The file, in the format of its suffix; without one a PNG and an SVG file.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        from prerank.plotting.heatmaps import crossed_figure, group_figure  # matplotlib loads slowly
        from prerank.plotting.style import save_named

        crossed = self._crossed()
        figure = group_figure(self._heat(), self.verdict) if crossed is None else crossed_figure(crossed, self.verdict)
        if path is not None:
            save_named(figure, path)
        return figure

    def to_html(
        self, path: Path | str | None = None, *, title: str = "", command: str = "", python: str = "", date: str = ""
    ) -> str:
        """A report of all groups as one HTML page; as `Check.to_html`, with a heat map of where it fails.

        Parameters
        ----------
        path : str or path-like, optional
            The file.
        title : str, default ''
            Heading of the page; a question, "Is the joint forecast calibrated?", where it is empty.
        command : str, default ''
            A command line that repeats the check.
        python : str, default ''
            Lines of Python that repeat it; calls of `check` and `grouped` where it is empty.
        date : str, default ''
            A date to show.

        Returns
        -------
        str
            The page.
        """
        from prerank.diagnosis.report import Described, report_of_groups  # its template's engine loads slowly
        from prerank.plotting.page import write_page

        described = Described(title, command, python, date)
        results, readings = list(self.checks.values()), [str(words) for words in self.table["reading"]]
        page = report_of_groups(
            results,
            self._heat(),
            readings,
            self.calibrated,
            self.verdict,
            described,
            self.sentences,
            self.notes,
            self._crossed(),
        )
        return write_page(page, path)

    def _heat(self) -> GroupHeat:
        tables = {group_text(name, self.factors): result.table for name, result in self.checks.items()}
        if len(tables) < len(self.checks):  # labels that look alike
            tables = {name: result.table for name, result in self.checks.items()}
        return group_heat(tables, self.table["adjusted p-value"].tolist(), LEVEL)

    def _crossed(self) -> CrossedHeat | None:
        """The groups as a table of two labels, where there are two."""
        return crossed_heat(self._heat(), list(self.checks), self.factors) if len(self.factors) == 2 else None

    def to_frame(self) -> "pd.DataFrame":
        """The tables of all groups as one, with a row per group and pre-rank.

        Returns
        -------
        pandas.DataFrame
            The columns of each check's table, with the group, or its factors, and the pre-rank as index.
        """
        import pandas as pd  # loads slowly

        return pd.concat({name: one.table for name, one in self.checks.items()}, names=list(self.factors) or ["group"])

    def to_xarray(self) -> Any:
        """An `xarray.Dataset`: that of each group's check along "group".

        Returns
        -------
        xarray.Dataset
            With the columns of `table` as variables that begin with `group_`.

        Raises
        ------
        ImportError
            If xarray is not installed.
        """
        from prerank.diagnosis.export import as_grouped_dataset

        return as_grouped_dataset(self)

    def __str__(self) -> str:
        rows = [
            [
                group_text(name, self.factors),
                f"{row['cases']}",
                p_text(row["p-value"]),
                p_text(row["adjusted p-value"]),
                row["reading"],
            ]
            for name, row in self.table.iterrows()
        ]
        stream = io.StringIO()
        columns, head = ("group", "cases", "p", "adjusted p", "reading"), [self.verdict, *bullets(self.sentences)]
        render(columns, rows, stream, [*self.notes, _METHOD], head=head)
        return stream.getvalue().rstrip("\n")

    __repr__ = __str__


_METHOD = "p-values adjusted for the pre-ranks of a group, then for the groups by Holm's method"


def group_text(name: Any, factors: Sequence[str] = ()) -> str:
    """What a group is called: by its label, or by several labels, of which a number follows the name of what it numbers.

    >>> group_text("winter"), group_text(("a", 3), ("model", "week"))
    ('winter', 'a / week 3')
    """
    if not factors:
        return str(name)
    return " / ".join(named(factor, plain_label(part)) for factor, part in zip(factors, name, strict=True))


def plain_label(label: Any) -> str:
    """A label as text, a date without its midnight."""
    return str(label).removesuffix(" 00:00:00")


def crossed_labels(by: Any) -> tuple[Any, tuple[str, ...]]:
    """Several labels per case as one label, a tuple, with the names of what they label; a single label as it is.

    >>> import pandas as pd
    >>> found, names = crossed_labels(pd.DataFrame({"model": ["a", "b"], "week": [1, 2]}))
    >>> found.tolist(), names
    ([('a', 1), ('b', 2)], ('model', 'week'))
    """
    import pandas as pd  # loads slowly

    kinds = (list, np.ndarray, pd.Series, pd.Index)
    if isinstance(by, pd.DataFrame) and by.shape[1] == 1:
        return by.iloc[:, 0], ()
    if isinstance(by, list | tuple) and len(by) > 1 and all(isinstance(part, kinds) for part in by):
        sizes = {len(part) for part in by}
        if len(sizes) > 1:
            raise ValueError(f"by has labels of {sorted(sizes)} cases; give one label per case in each")
        names = [getattr(part, "name", None) or f"label {k + 1}" for k, part in enumerate(by)]
        index = next((part.index for part in by if isinstance(part, pd.Series)), None)
        by = pd.DataFrame(dict(zip(names, map(list, by), strict=True)), index=index)
    if not isinstance(by, pd.DataFrame):
        return by, ()
    if by.isna().to_numpy().any():
        raise ValueError(f"by has {int(by.isna().any(axis=1).sum())} missing labels; give every case a label")
    tuples = list(by.itertuples(index=False, name=None))
    return pd.Series(tuples, index=by.index, dtype=object), tuple(map(str, by.columns))


def grouped(checks: Mapping[Any, Check], notes: Sequence[str] = (), factors: Sequence[str] = ()) -> GroupedCheck:
    """Checks of several groups of cases together: p-values adjusted by Holm's method, valid under any dependence.

    `factors` name the parts of groups that several labels make, whose names are tuples.

    Parameters
    ----------
    checks : dict of Check
        The check of each group, by its name; at least one.
    notes : sequence of str, optional
        What is to be said of all groups.
    factors : sequence of str, optional
        A name for each part of the groups' names, if these are tuples.

    Returns
    -------
    GroupedCheck
        The checks, and a table with a row per group.

    Raises
    ------
    ValueError
        If there is no group.

    Examples
    --------
    >>> from prerank import check_pits
    >>> pits = torch.linspace(0.001, 0.999, 200)
    >>> grouped({"spring": check_pits(pits), "autumn": check_pits(pits**3)}).verdict
    'Miscalibrated in 1 of 2 groups: autumn (smallest adjusted p-value < 0.001).'
    """
    import pandas as pd  # loads slowly

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
    names = list(checks)
    several = (
        pd.MultiIndex.from_tuples(names, names=list(factors))
        if factors
        else pd.Index(names, name="group", tupleize_cols=False)
    )
    table = pd.DataFrame(rows, index=several)
    least = holm(torch.tensor([result.attainable for result in checks.values()], dtype=torch.float64))
    return GroupedCheck(dict(checks), table, float(least.min()), tuple(notes), tuple(factors))


def _reading(result: Check, adjusted: float) -> str:
    """The words of the pre-rank with the largest PCE against the expected one, among those that fail."""
    if result.rejected is None:
        return "too few cases or blocks to tell"
    if adjusted > LEVEL:
        return "flat" if result.p_value > LEVEL else "no clear shape"
    failed = result.table[result.table["adjusted p-value"] <= LEVEL]
    worst = str((failed["PCE"] / failed["expected PCE"]).idxmax())
    others = f" (and {counted(len(failed) - 1, 'other pre-rank')})" if len(failed) > 1 else ""
    return f"{worst}: {failed['reading'].to_dict()[worst]}{others}"
