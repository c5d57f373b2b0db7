"""What `check` gives back: a table, a verdict in words, a figure."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from prerank._wording import counted
from prerank.calibration import PCETest, ProjectedPIT, describe_shape, histogram_measures
from prerank.calibration.confidence import pce_intervals
from prerank.calibration.evidence import LEVEL
from prerank.calibration.null import in_quadrature
from prerank.calibration.projected_pits import PreRankPIT
from prerank.calibration.rank_intervals import Intervals
from prerank.calibration.testing import NEARLY_BLIND
from prerank.diagnosis.plotdata import panels
from prerank.plotting.panels import PlaneHistogram, PreRankPanel
from prerank.plotting.tables import bullets, p_text, render

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class Decision:
    """What the adjusted p-values of a table decide."""

    table: "pd.DataFrame"
    attainable: float

    @property
    def p_value(self) -> float:
        """p-value of the whole: the smallest adjusted one."""
        return float(self.table["adjusted p-value"].min())

    @property
    def rejected(self) -> bool | None:
        """Whether any adjusted p-value is at most 0.05.

        None where it could not have been: so few cases, blocks or replicates cannot reach that level.
        """
        return None if self.attainable > LEVEL else self.p_value <= LEVEL

    @property
    def calibrated(self) -> bool | None:
        """`not rejected`: no evidence against calibration, which is not evidence for it. None where there is no verdict."""
        return None if self.rejected is None else not self.rejected


@dataclass(frozen=True, eq=False, repr=False)
class Check(Decision):
    """The outcome of `check`: prints its verdict and table, converts to a DataFrame, plots.

    Attributes
    ----------
    table : pandas.DataFrame
        One row per pre-rank: the PCE, the PCE expected under calibration and the bias-corrected PCE (each the mean over its
        projections), a 95 % interval ("low", "high"), the p-value of "every projection of this pre-rank is calibrated" with
        its Monte Carlo error, the p-value adjusted for testing all pre-ranks, that of the largest deviation ("max p-value"),
        the share of cases whose observation ties with a member, the largest power of its projections, how many these are,
        the half-width of the consistency band in standard deviations, and a reading.
    projections : pandas.DataFrame
        One row per projection of each pre-rank, with the columns of `table` that a projection has by itself.
    pit : ProjectedPIT
        PITs of all pre-ranks.
    test : PCETest
        The test of all pre-ranks.
    notes : tuple of str
        What was done to the data, how p-values were computed, and what to beware of, a sentence each.
    n_cases : int
        Cases that were tested.
    n_blocks : int or None
        Blocks that they are in, without those of weight zero; None without blocks.
    attainable : float
        The smallest adjusted p-value that these data could have given.
    n_replicates : int or None
        Replicates of the tests; None for PITs that were computed elsewhere.
    case_weights : Tensor, shape (n_cases,), or None
        Weights of the cases; None means equal.
    seed : int or None
        Of everything random; None for PITs that were computed elsewhere.
    call : str
        The call that gave the result, as a line of Python; empty for PITs that were computed elsewhere.
    sentences : dict of str
        A plain sentence for each pre-rank that fails, by the names of targets and their dimension.
    """

    table: "pd.DataFrame"
    projections: "pd.DataFrame"
    pit: ProjectedPIT
    test: PCETest
    notes: tuple[str, ...]
    n_cases: int
    n_blocks: int | None = None
    attainable: float = 0.0
    n_replicates: int | None = None
    case_weights: Tensor | None = None
    seed: int | None = None
    call: str = ""
    sentences: Mapping[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """One sentence; what is wrong is said by `sentences`."""
        if self.rejected is None:
            return f"No verdict: {self._why_no_verdict()}."
        if not self.rejected:
            smallest = f"smallest adjusted p-value {p_text(self.p_value)}, {self._size}"
            return f"No evidence against calibration ({smallest})."
        return f"Miscalibrated (adjusted p-value {p_text(self.p_value)}, {self._size})."

    @property
    def _size(self) -> str:
        return self._in_blocks(counted(self.n_cases, "case"))

    def _in_blocks(self, cases: str) -> str:
        return cases if self.n_blocks is None else f"{cases} in {counted(self.n_blocks, 'block')}"

    def _why_no_verdict(self) -> str:
        least = f"the smallest adjusted p-value possible here is {p_text(self.attainable)}"
        if self.n_replicates is not None and 1 / (self.n_replicates + 1) > LEVEL:
            return f"{self.n_replicates} replicates are too few, {least}; ask for n_replicates=999"
        cure = "take more cases" if self.n_blocks is None else "take more, and so shorter, blocks, or more cases"
        cases = counted(self.n_cases, "case")
        positive = self.n_cases if self.case_weights is None else int((self.case_weights > 0).sum())
        if positive < self.n_cases:
            cases += f" ({positive:,} with a positive weight)"
        return f"{self._in_blocks(cases)} with so few members are too few, {least}; {cure}"

    def to_frame(self, n_bins: int | None = None) -> "pd.DataFrame":
        """The table as a DataFrame (a copy).

        With `n_bins` it also has the reliability index and the entropy of rank histograms with so many bins, the mean
        over the projections of each pre-rank: see `prerank.calibration.histogram_measures`.

        Parameters
        ----------
        n_bins : int, optional
            Bins of equal width, two or more.

        Returns
        -------
        pandas.DataFrame
            A row per pre-rank.
        """
        table = self.table.copy()
        if n_bins is not None:
            weights = None if self.case_weights is None else self.case_weights.to(self.pit.device)
            found = [histogram_measures(self.pit.of(str(name)), n_bins, weights) for name in table.index]
            table["reliability index"] = [float(one.reliability_index.mean()) for one in found]
            table["entropy"] = [float(one.entropy.mean()) for one in found]
        return table

    def to_xarray(self) -> Any:
        """An `xarray.Dataset`: the table along "prerank", projections along "projection", their curves over "level".

        Returns
        -------
        xarray.Dataset
            Columns are variables, such as `adjusted_p_value`; those of projections begin with `projection_`, and their
            curves are `reliability`. Verdict, notes and the number of cases are attributes.

        Raises
        ------
        ImportError
            If xarray is not installed.
        """
        from prerank.diagnosis.export import as_dataset

        return as_dataset(self)

    columns: ClassVar[tuple[str, ...]] = ("pre-rank", "PCE", "expected", "95 % interval", "p", "adjusted p", "reading")

    def rows(self) -> list[list[str]]:
        """The table as text, for a terminal.

        Returns
        -------
        list of list of str
            A row per pre-rank, with a text for each of `columns`.
        """
        return [
            [
                str(name),
                f"{row['PCE']:.4f}",
                f"{row['expected PCE']:.4f}",
                "–" if np.isnan(row["low"]) else f"{row['low']:.3f}–{row['high']:.3f}",
                p_text(row["p-value"]),
                p_text(row["adjusted p-value"]),
                str(row["reading"]),
            ]
            for name, row in self.table.iterrows()
        ]

    def __str__(self) -> str:
        stream = io.StringIO()
        render(self.columns, self.rows(), stream, self.notes, head=[self.verdict, *bullets(self.sentences.values())])
        return stream.getvalue().rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        said = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.sentences.values())
        head = f"<p>{escape(self.verdict)}</p>" + (f"<ul>{said}</ul>" if said else "")
        return f"{head}{self.table.to_html(float_format=lambda value: f'{value:.4f}')}"

    def panels(self) -> list[PreRankPanel]:
        """The numbers of the pictures: histograms, reliability curves and consistency bands, a value per pre-rank.

        Returns
        -------
        list of PreRankPanel
            In the order of the table.
        """
        return panels(self.pit, self.test, self.table, self.projections, self.case_weights, LEVEL, self.sentences)

    def plot(self, path: Path | str | None = None, columns: int = 1) -> "Figure":
        """Rank histogram and reliability diagram of every pre-rank, with all projections; written to `path` if given.

        One column is five inches wide, which suits a phone or a column of a page; several stand beside each other.

        Parameters
        ----------
        path : str or path-like, optional
            The file, in the format of its suffix; without one a PNG and an SVG file.
        columns : int, default 1
            Columns in which pre-ranks are arranged.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        from prerank.plotting.diagnosis import diagnosis_figure  # matplotlib loads slowly
        from prerank.plotting.style import save_named

        figure = diagnosis_figure(self.panels(), self._size, columns)
        if path is not None:
            save_named(figure, path)
        return figure

    def plane(self, first: str, second: str, n_bins: int = 5) -> PlaneHistogram:
        """Rank histogram of two projections in the plane, such as two targets: the numbers of `plot_plane`.

        Parameters
        ----------
        first : str
            Name of the projection along the first axis; of a pre-rank with one projection, the pre-rank's name.
        second : str
            Name of the other.
        n_bins : int, default 5
            Bins of equal width along each axis, two or more.

        Returns
        -------
        PlaneHistogram
            Cases observed and expected in each cell, (n_bins, n_bins) each, and which cells are beyond chance.

        Raises
        ------
        ValueError
            If there is no such projection, or its PITs are no ranks among members.
        """
        from prerank.diagnosis.plane import plane_histogram  # scipy's laws load slowly

        return plane_histogram(self.pit, first, second, n_bins)

    def plot_plane(self, first: str, second: str, path: Path | str | None = None, n_bins: int = 5) -> "Figure":
        """Draw where the ranks of two projections fall together, such as those of two targets, and where they are expected.

        A cell shows the number of cases in it and, in brackets, the number expected if observations were like members:
        too many are orange, too few are blue, and bold ones are beyond chance. Only for forecasts whose observations are
        ranked among members.

        Parameters
        ----------
        first : str
            Name of the projection along the first axis; of a pre-rank with one projection, the pre-rank's name.
        second : str
            Name of the other.
        path : str or path-like, optional
            The file, in the format of its suffix; without one a PNG and an SVG file.
        n_bins : int, default 5
            Bins of equal width along each axis, two or more.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.

        Raises
        ------
        ValueError
            If there is no such projection, or its PITs are no ranks among members.
        """
        from prerank.plotting.plane import plane_panel  # matplotlib loads slowly
        from prerank.plotting.style import new_figure, quiet_style, save_named

        with quiet_style():
            figure = new_figure(4.2, 4.4)
            axes = plane_panel(figure.add_subplot(), self.plane(first, second, n_bins))
            axes.set_title(f"{self._size}: observed (expected)", fontsize=9)
        if path is not None:
            save_named(figure, path)
        return figure

    def to_html(
        self, path: Path | str | None = None, *, title: str = "", command: str = "", python: str = "", date: str = ""
    ) -> str:
        """A report as one HTML page that needs no network, at most 2 MB; written to `path` if given.

        It has the verdict, the table, rank histograms and reliability diagrams, what their shapes mean, what to do next,
        and how to repeat the check: `command` is a command line and `python` the lines for it, both optional. A `date` is
        shown as it is given; without one the same check makes the same bytes.

        Parameters
        ----------
        path : str or path-like, optional
            The file.
        title : str, default ''
            Heading of the page; a question, "Is the joint forecast calibrated?", where it is empty.
        command : str, default ''
            A command line that repeats the check.
        python : str, default ''
            Lines of Python that repeat it; the call of the check where it is empty.
        date : str, default ''
            A date to show.

        Returns
        -------
        str
            The page.
        """
        from prerank.diagnosis.report import Described, report_of_one  # which itself needs a Check
        from prerank.plotting.page import write_page

        return write_page(report_of_one(self, Described(title, command, python, date)), path)


def tables(
    pit: ProjectedPIT, test: PCETest, blocks: Tensor | None, case_weights: Tensor | None
) -> "tuple[pd.DataFrame, pd.DataFrame]":
    """One row per pre-rank, and one row per projection."""
    import pandas as pd  # loads slowly

    rows, projections, start = [], [], 0
    limits = None
    if case_weights is None:  # neither is defined for weighted cases: better none than a wrong one
        _, *limits = pce_intervals(pit, test.replicates, blocks)
    for g, part in enumerate(pit.parts):
        columns = slice(start, start + len(part.names))
        start = columns.stop
        low, high = float("nan"), float("nan")
        corrected = torch.full_like(test.projection_expected_pce[columns], torch.nan)
        if limits is not None:
            low, high = (float(limit[g]) for limit in limits)
            if pit.n_cases > 1:
                corrected = in_quadrature(test.projection_pce[columns], test.projection_expected_pce[columns])
        adjusted = float(test.adjusted_p_value[g])
        rejected = adjusted <= LEVEL
        power = float(test.projection_power[columns].amax())
        p_values = test.projection_p_value[columns]
        words = [
            describe_shape(_column(part.observed, k), float(p), LEVEL, case_weights, _points_column(part, pit, k))
            if rejected
            else "flat"
            for k, p in enumerate(p_values)
        ]
        if rejected:
            reading = _reading(
                part.names, words, p_values, test.projection_pce[columns] / test.projection_expected_pce[columns]
            )
        else:
            reading = "flat" if float(test.p_value[g]) > LEVEL else "no clear shape"
            if power < NEARLY_BLIND:
                reading += f" (nearly blind here: {100 * power:.0f} % power)"
        rows.append(
            {
                "pre-rank": part.prerank,
                "PCE": float(test.statistic[g]),
                "expected PCE": float(test.expected_pce[g]),
                "corrected PCE": float(corrected.mean()),
                "low": low,
                "high": high,
                "p-value": float(test.p_value[g]),
                "p-value error": float(test.p_value_error[g]),
                "adjusted p-value": adjusted,
                "max p-value": float(test.maximum_p_value[g]),
                "tied": float(part.tied.mean()),
                "power": power,
                "projections": len(part.names),
                "band": float(test.band_width[g]),
                "reading": reading,
            }
        )
        for k, name in enumerate(part.names):
            projections.append(
                {
                    "pre-rank": part.prerank,
                    "projection": name,
                    "PCE": float(test.projection_pce[columns][k]),
                    "expected PCE": float(test.projection_expected_pce[columns][k]),
                    "corrected PCE": float(corrected[k]),
                    "adjusted p-value": float(p_values[k]),
                    "tied": float(part.tied[k]),
                    "power": float(test.projection_power[columns][k]),
                    "reading": words[k],
                }
            )
    return pd.DataFrame(rows).set_index("pre-rank"), pd.DataFrame(projections).set_index(["pre-rank", "projection"])


def _column(intervals: Intervals, k: int) -> Intervals:
    lower = intervals.lower[..., k]
    return Intervals(lower, lower if intervals.are_values else intervals.upper[..., k], intervals.unit)


def _points_column(part: PreRankPIT, pit: ProjectedPIT, k: int) -> Intervals | None:
    """Intervals of points of one projection; where points have different weights their spread is not needed."""
    points = part.some_points()
    if points is None or pit.pick is not None or not isinstance(points.unit, int):
        return None
    return _column(points, k)


def _reading(names: Sequence[str], words: Sequence[str], p_values: Tensor, errors: Tensor) -> str:
    """What the projections of a rejected pre-rank say together: every one that fails by itself is named."""
    if len(names) == 1:
        return words[0] if words[0] != "flat" else "no clear shape"
    failed = [k for k in range(len(names)) if float(p_values[k]) <= LEVEL]
    if not failed:  # together they fail, none of them does by itself
        worst = int(errors.argmax())
        return f"no single projection; largest error {names[worst]}"
    groups: dict[str, list[int]] = {}
    for k in failed:
        groups.setdefault(words[k], []).append(k)
    return "; ".join(f"{_named(names, places)}: {said}" for said, places in groups.items())


def _named(names: Sequence[str], places: list[int]) -> str:
    """Names of projections, three or more neighbours as "first to last"."""
    runs: list[list[int]] = []
    for k in places:
        if runs and runs[-1][-1] == k - 1:
            runs[-1].append(k)
        else:
            runs.append([k])
    said = []
    for run in runs:
        said += [f"{names[run[0]]} to {names[run[-1]]}"] if len(run) > 2 else [names[k] for k in run]
    return ", ".join(said)
