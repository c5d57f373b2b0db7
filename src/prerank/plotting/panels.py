"""The numbers behind the pictures of a check: the figure and the HTML report draw the same values."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

HIGHEST = 4.0  # densities above are cut and written out, or one bad pre-rank would flatten all others


class ProjectionPanel(NamedTuple):
    """One projection of a pre-rank, for its rank histogram and its reliability diagram.

    `heights` (bins,) are densities, 1 where PITs are uniform; `deviation` (J,) is the observed share minus the level, and
    `half_width` (J,) that of the consistency band around zero. `failed`: its adjusted p-value and that of its pre-rank
    are at most 0.05.
    """

    name: str
    heights: np.ndarray
    deviation: np.ndarray
    half_width: np.ndarray
    pce: float
    expected_pce: float
    adjusted_p_value: float
    reading: str
    failed: bool


class PreRankPanel(NamedTuple):
    """One pre-rank: its row of the table, its projections, and the consistency band (low, high) of histogram bins.

    `sentence` says in plain words how it fails, and is empty where it does not. `by_rank`: a bin is a rank, of which there
    are few.
    """

    name: str
    projections: tuple[ProjectionPanel, ...]
    levels: np.ndarray
    band: tuple[float, float]
    pce: float
    expected_pce: float
    low: float
    high: float
    p_value: float
    adjusted_p_value: float
    reading: str
    failed: bool
    sentence: str = ""
    by_rank: bool = False

    @property
    def worst(self) -> int:
        """The number of the projection with the largest PCE against the expected one."""
        return int(np.argmax([ratio(one.pce, one.expected_pce) for one in self.projections]))


class GroupHeat(NamedTuple):
    """Where it fails: PCE over expected (groups, pre-ranks), NaN where a group lacks a pre-rank, and what is rejected.

    `failed` (groups, pre-ranks): the pre-rank fails in a group that fails, both by adjusted p-values.
    """

    groups: tuple[str, ...]
    preranks: tuple[str, ...]
    ratios: np.ndarray
    failed: np.ndarray
    adjusted_p_value: np.ndarray

    @property
    def order(self) -> np.ndarray:
        """Numbers of the groups, the smallest adjusted p-value first, then the largest ratio."""
        largest = np.nanmax(self.ratios, axis=1)
        return np.lexsort((np.arange(len(self.groups)), -largest, self.adjusted_p_value))


class PlaneHistogram(NamedTuple):
    """Cases in each cell of the plane of two ranks, observed and expected, (bins, bins); the first rank is the first axis.

    `failed`: further from what is expected than chance allows all cells together at 5 %.
    """

    names: tuple[str, str]
    observed: np.ndarray
    expected: np.ndarray
    failed: np.ndarray


class CrossedHeat(NamedTuple):
    """Groups that two labels make: the largest PCE over expected of each (rows, columns), NaN where there is no such group.

    `failed` (rows, columns): the group fails by its adjusted p-value. `titles` name rows and columns.
    """

    titles: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    ratios: np.ndarray
    failed: np.ndarray


def highest_density(projections: Iterable[ProjectionPanel]) -> float:
    """The upper end of the common axis of all histograms."""
    return min(HIGHEST, max(2.0, 1.08 * max((float(one.heights.max()) for one in projections), default=0.0)))


def widest_deviation(projections: Iterable[ProjectionPanel]) -> float:
    """Both ends of the common axis of all reliability diagrams."""
    furthest = (float(np.maximum(np.abs(one.deviation), one.half_width).max()) for one in projections)
    return max(0.01, 1.08 * max(furthest, default=0.0))


def departures(heights: np.ndarray, band: tuple[float, float]) -> np.ndarray:
    """How far densities lie from 1, in units of the band on their side: beyond -1 and 1 they are outside.

    >>> departures(np.array([1.0, 1.5, 0.4]), (0.8, 1.25)).round(6).tolist()
    [0.0, 2.0, -3.0]
    """
    low, high = band
    side = np.where(heights > 1, high - 1, 1 - low)
    return (heights - 1) / np.maximum(side, 1e-12)


def ratio(pce: float, expected_pce: float) -> float:
    """PCE over the PCE expected under calibration; where nothing is expected (all is tied), zero or infinite.

    >>> ratio(0.03, 0.01), ratio(0.0, 0.0), ratio(0.1, 0.0)
    (3.0, 0.0, inf)
    """
    if expected_pce > 0:
        return pce / expected_pce
    return 0.0 if pce == 0 else float("inf")


def fitting_names(names: Sequence[str], length: int) -> list[str]:
    """Names of at most `length` signs that stay different: cut at the end, or where that is not enough at the beginning.

    >>> fitting_names(["temperature at Oslo", "temperature at Voss", "rain"], 12)
    ['…at Oslo', '…at Voss', 'rain']
    >>> fitting_names(["a long name", "another"], 6)
    ['a lon…', 'anoth…']
    """
    cut = [name if len(name) <= length else f"{name[: length - 1]}…" for name in names]
    for places in _alike(cut, names):
        full = [names[place] for place in places]
        shared = next(
            (k for k, signs in enumerate(zip(*full, strict=False)) if len(set(signs)) > 1), min(map(len, full))
        )
        begin = full[0].rfind(" ", 0, max(shared - 3, 0)) + 1
        begin = begin if shared - begin < length - 2 else shared
        for place in places:
            end = f"…{names[place][begin:]}"
            cut[place] = end if len(end) <= length else f"{end[: length - 1]}…"
    for places in _alike(cut, names):
        for place in places:
            tag = f"…{place + 1}"
            cut[place] = names[place][: length - len(tag)] + tag
    return cut


def _alike(cut: Sequence[str], names: Sequence[str]) -> list[list[int]]:
    """Places of names that differ and are cut to the same text."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(cut):
        found.setdefault(name, []).append(place)
    return [places for places in found.values() if len({names[place] for place in places}) > 1]
