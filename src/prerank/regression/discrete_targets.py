"""Discrete targets: recognise which values they take, the cell of each, and round numbers to them.

A density has no finite maximum where values repeat: a component can sit on an atom and shrink. A target on a grid is
therefore spread over the cells of its values, and a likelihood is that of a cell.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.floating]

REPEATED = 0.95
"""Share of rows whose value occurs again, from which on a target counts as being on a grid."""
WIDTH = 0.01
"""Mean width of the cells, in standard deviations, below which a grid is too fine to matter."""
AT_AN_END = 0.05
"""Share of rows at the smallest or largest value of an otherwise continuous target that makes it an atom."""
FEW = 10
"""Values up to which a target with many gaps between them has levels rather than a common step."""
ROOM = 0.25
"""Width of the interval that stands for such an atom, in standard deviations of the target."""
_BOUND = 0.01  # share of rows at an end of a lattice that makes it a bound, as 0 is of a count


class Support(Protocol):
    """Where the values of one target with atoms lie."""

    def cell(self, y: Array) -> tuple[Array, Array]:
        """Lower and upper end of the cell of each value; both are the value itself where it is not in one."""

    def snapped(self, values: Array) -> Array:
        """Numbers of the real line as values of the target."""

    def mean(self, weights: Array, loc: Array, scale: Array) -> Array:
        """Mean of the snapped forecast: univariate mixtures, (N, C) each -> (N,)."""


@dataclass(frozen=True)
class Levels:
    """A few values without a common step, such as 0, 1, 3, 5: cells end half-way between neighbours."""

    values: tuple[float, ...]

    def _edges(self) -> Array:
        values = np.array(self.values)
        inner = (values[1:] + values[:-1]) / 2
        return np.concatenate([[2 * values[0] - inner[0]], inner, [2 * values[-1] - inner[-1]]])

    def _place(self, y: Array) -> NDArray[np.intp]:
        return np.searchsorted(self._edges()[1:-1], y, side="right")

    def cell(self, y: Array) -> tuple[Array, Array]:
        edges, place = self._edges(), self._place(y)
        return edges[place], edges[place + 1]

    def snapped(self, values: Array) -> Array:
        return np.array(self.values)[self._place(values)]

    def mean(self, weights: Array, loc: Array, scale: Array) -> Array:
        edges = self._edges()[1:-1]
        below = (weights[..., None] * ndtr((edges - loc[..., None]) / scale[..., None])).sum(-2)
        return self.values[-1] - below @ np.diff(self.values)


@dataclass(frozen=True)
class Lattice:
    """Whole multiples of `step` from `origin`, such as counts: values that were not seen have a cell too.

    `lowest` and `highest` are bounds, None where there is none: numbers beyond them go to them. `values` are those that
    were seen, where rounding keeps multiples of the step from meeting them: a draw has to tie with what was observed.
    """

    origin: float
    step: float
    lowest: float | None = None
    highest: float | None = None
    values: tuple[float, ...] = field(default=(), repr=False)

    def _nearest(self, y: Array) -> Array:
        number = np.floor((y - self.origin) / self.step + 0.5)
        nearest = self.origin + self.step * number
        if not self.values:
            return nearest
        values = np.array(self.values)
        numbers = np.round((values - self.origin) / self.step)
        place = np.searchsorted(numbers, number).clip(0, len(values) - 1)
        return np.where(numbers[place] == number, values[place], nearest)

    def cell(self, y: Array) -> tuple[Array, Array]:
        nearest = self._nearest(y)
        return nearest - self.step / 2, nearest + self.step / 2

    def snapped(self, values: Array) -> Array:
        return _clipped(self._nearest(values), self.lowest, self.highest)

    def mean(self, weights: Array, loc: Array, scale: Array) -> Array:
        return _clipped_mean(weights, loc, scale, self.lowest, self.highest)


@dataclass(frozen=True)
class Ends:
    """A continuous target with an atom at its smallest or largest value, as rain has at zero; None: no atom there.

    The atom becomes an interval of `width` beyond the other values. A number in it or farther out is the atom.
    """

    lowest: float | None
    highest: float | None
    width: float

    def cell(self, y: Array) -> tuple[Array, Array]:
        low, high = y.astype(np.float64), y.astype(np.float64)
        if self.lowest is not None:
            low = np.where(y == self.lowest, self.lowest - self.width, low)
        if self.highest is not None:
            high = np.where(y == self.highest, self.highest + self.width, high)
        return low, high

    def snapped(self, values: Array) -> Array:
        return _clipped(values, self.lowest, self.highest)

    def mean(self, weights: Array, loc: Array, scale: Array) -> Array:
        return _clipped_mean(weights, loc, scale, self.lowest, self.highest)


def _clipped(values: Array, low: float | None, high: float | None) -> Array:
    return values if low is None and high is None else np.clip(values, low, high)


def _clipped_mean(weights: Array, loc: Array, scale: Array, low: float | None, high: float | None) -> Array:
    """Mean of a clipped Gaussian mixture, in closed form."""
    mean = (weights * loc).sum(-1)
    for end, sign in ((low, 1.0), (high, -1.0)):
        if end is not None:
            distance = sign * (end - loc)
            z = distance / scale
            density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
            mean = mean + sign * (weights * (distance * ndtr(z) + scale * density)).sum(-1)
    return mean


def recognised(y: Array) -> Support | None:
    """What a column of targets (n,) says of its support; None: it is continuous, or as good as.

    >>> recognised(np.repeat([0.0, 1.0, 3.0, 5.0], 20))
    Levels(values=(0.0, 1.0, 3.0, 5.0))
    >>> recognised(np.arange(200) % 7)
    Lattice(origin=0.0, step=1.0, lowest=0.0, highest=6.0)
    >>> recognised(np.linspace(0, 1, 200)) is None
    True
    """
    y = y.astype(np.float64)
    values, counts = np.unique(y, return_counts=True)
    spread = float(y.std())
    if len(values) < 2 or not spread > 0:
        return None
    step = _common_step(values, counts)
    repeated = counts[counts > 1].sum() >= REPEATED * len(y)
    times = 2 if step else 5  # rows that were copied once or twice are no grid
    if repeated and len(y) >= times * len(values):
        grid: Levels | Lattice = Levels(tuple(values.tolist()))
        if step:
            low = float(values[0]) if counts[0] >= _BOUND * len(y) else None
            high = float(values[-1]) if counts[-1] >= _BOUND * len(y) else None
            grid = Lattice(float(values[0]), step, low, high)
            if (grid.snapped(values) != values).any():
                grid = replace(grid, values=tuple(values.tolist()))
        low_end, high_end = grid.cell(values)
        if np.average(high_end - low_end, weights=counts) >= WIDTH * spread:
            return grid
    low, high = (
        float(values[end]) if counts[end] >= max(2, AT_AN_END * len(y)) and len(values) > 2 else None for end in (0, -1)
    )
    return None if low is None and high is None else Ends(low, high, ROOM * spread)


def _common_step(values: Array, counts: NDArray[np.integer]) -> float | None:
    """The step of which all differences of sorted values are multiples, within the rounding of single precision."""
    gaps = np.diff(values)
    least = gaps.min()
    steps = np.round((values - values[0]) / least)
    step = (values[-1] - values[0]) / steps[-1]
    error = np.abs(values - values[0] - steps * step).max()
    rounding = 4 * np.finfo(np.float32).eps * np.abs(values).max()
    if error > 1e-3 * step + rounding or rounding > 0.1 * step:
        return None
    single = np.round(gaps / step) == 1
    # a count leaves gaps only in its tail; levels such as 0, 1, 3, 5 are few, and numbers of two precisions sit apart
    neighbours = np.append(single, False) | np.append(False, single)
    counted = (len(values) > FEW or single.mean() > 0.5) and counts[neighbours].sum() >= 0.5 * counts.sum()
    return float(step) if counted else None


def as_record(support: Support | None) -> dict[str, Any] | None:
    """A support as JSON."""
    return None if support is None else {"kind": type(support).__name__, **asdict(support)}  # type: ignore[call-overload]


def from_record(record: Mapping[str, Any] | None) -> Support | None:
    """The support that `as_record` described."""
    if record is None:
        return None
    fields: dict[str, Any] = {name: tuple(item) if isinstance(item, list) else item for name, item in record.items()}
    kinds: dict[str, Any] = {kind.__name__: kind for kind in (Levels, Lattice, Ends)}
    return kinds[fields.pop("kind")](**fields)
