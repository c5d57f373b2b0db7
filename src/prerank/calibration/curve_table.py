"""Reliability curves of thousands of data sets made of the same points: the engine of nulls and bootstraps.

The intervals of N x P points and K projections are prepared once; a data set is then N rows, and its curve the sum of their
contributions. Ranks take few different intervals, so points carry the number of theirs (a byte or two), data sets are
counted by these numbers, and one small product turns counts into curves. Weighted ranks are all different: their
contributions are summed as they are.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from prerank._chunks import at_once, chunks
from prerank.calibration.rank_intervals import Intervals, curve_sums, steps
from prerank.calibration.reliability import level_bins

_MOST_CODES = 4096  # different intervals up to which counting is cheaper than summing


class CurveTable(Protocol):
    """The points of some projections, ready for summing."""

    def numbers_of_a_set(self, n_cases: int) -> int:
        """How many numbers the temporaries of a set of so many cases hold, for the choice of chunks."""
        ...

    def sums(self, rows: Tensor, weights: Tensor | None) -> Tensor:
        """Contributions of rows (R, N) summed over the N cases, with weights (N,): (R, J, K)."""
        ...

    def sums_of_sets(self, numbers: Tensor, n_sets: int, weights: Tensor | None, digits: int) -> Tensor:
        """Contributions in units of 2^-digits, as whole numbers, summed over the rows of each set: (n_sets, K, J).

        `numbers` (rows,) say which set a row belongs to, `weights` (rows,) are whole numbers. No sum is rounded.
        """
        ...

    def moments(self, weights: Tensor, exponent: int) -> Tensor:
        """Contributions of all rows, S sets of equal size, to the first or second power, summed with weights (S, rows)."""
        ...


class Coded(NamedTuple):
    """Points by the number of their interval: codes (rows, K), and what an interval with that number adds, (U, J)."""

    codes: Tensor
    curves: Tensor

    def numbers_of_a_set(self, n_cases: int) -> int:
        return max(n_cases, len(self.curves)) * self.codes.shape[1]

    def sums(self, rows: Tensor, weights: Tensor | None) -> Tensor:
        n_sets, n_cases = rows.shape
        n_projections, n_codes = self.codes.shape[1], len(self.curves)
        size = n_sets * n_projections * n_codes
        small = torch.int32 if size < 1 << 31 else torch.int64
        device = self.codes.device
        # one row of codes per chosen case, moved so that every (set, projection) has cells of its own
        place = torch.arange(n_sets, device=device)[:, None, None] * n_projections + torch.arange(
            n_projections, device=device
        )
        chosen = self.codes.index_select(0, rows.flatten()).to(small).reshape(n_sets, n_cases, n_projections)
        chosen += (place * n_codes).to(small)
        if weights is None:
            counts = torch.bincount(chosen.flatten(), minlength=size).double()
        else:
            counts = torch.bincount(chosen.flatten(), weights[:, None].expand(chosen.shape).flatten(), size)
        return (counts.reshape(n_sets, n_projections, n_codes) @ self.curves).mT

    def sums_of_sets(self, numbers: Tensor, n_sets: int, weights: Tensor | None, digits: int) -> Tensor:
        curves = whole(self.curves, digits)
        found = curves.new_empty(n_sets, self.codes.shape[1], curves.shape[1])
        for columns, counts in self._counts(numbers, n_sets, weights):
            found[:, columns] = counts @ curves
        return found

    def counts_of_sets(self, numbers: Tensor, n_sets: int, weights: Tensor | None) -> Tensor:
        """How often each interval occurs among the rows of each set, (n_sets, K, U), weighted by whole numbers."""
        shape = (n_sets, self.codes.shape[1], len(self.curves))
        # of fewer than 2^24 rows counts are exact in single precision
        dtype = torch.float32 if weights is None and len(self.codes) < 1 << 24 else torch.float64
        found = torch.empty(shape, dtype=dtype, device=self.codes.device)
        for columns, counts in self._counts(numbers, n_sets, weights):
            found[:, columns] = counts
        return found

    def _counts(self, numbers: Tensor, n_sets: int, weights: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
        n_rows, n_projections = self.codes.shape
        n_codes = len(self.curves)
        size = max(1, at_once(max(n_rows, n_sets * n_codes), self.codes.device))
        for start in range(0, n_projections, size):
            columns = slice(start, min(start + size, n_projections))
            codes = self.codes[:, columns]
            column = torch.arange(codes.shape[1], device=codes.device)
            cells = ((numbers[:, None] * codes.shape[1] + column) * n_codes + codes).flatten()
            own = None if weights is None else weights[:, None].expand(codes.shape).flatten()
            counts = torch.bincount(cells, own, n_sets * codes.shape[1] * n_codes).double()
            yield columns, counts.reshape(n_sets, -1, n_codes)

    def moments(self, weights: Tensor, exponent: int) -> Tensor:
        n_sets, n_projections, n_codes = len(weights), self.codes.shape[1], len(self.curves)
        column = torch.arange(n_projections, device=self.codes.device) * n_codes
        codes = self.codes.reshape(n_sets, -1, n_projections)
        counts = weights.new_zeros(n_sets, n_projections * n_codes)
        for sets in chunks(n_sets, codes[0].numel(), self.codes.device):
            place = torch.arange(sets.stop - sets.start, device=self.codes.device)[:, None, None] * counts.shape[1]
            rows_at_once = (sets.stop - sets.start) * n_projections
            for rows in chunks(codes.shape[1], rows_at_once, self.codes.device):
                cells = codes[sets, rows].long() + column + place
                own = weights[sets, rows, None].expand(cells.shape)
                found = torch.bincount(cells.flatten(), own.flatten(), counts[sets].numel())
                counts[sets] += found.reshape(counts[sets].shape)
        return (counts.reshape(n_sets, n_projections, n_codes) @ self.curves.pow(exponent)).mT


class Resampled(NamedTuple):
    """The same points sorted by the numbers of their intervals, for many sets drawn from all of them with replacement.

    A set is how often it has each row; the rows with a number, and the sets that have them, are added side by side.
    `order` (K rows,) has the rows of each projection by their codes, `ends` (K U,) where those with each code begin.
    """

    order: Tensor
    ends: Tensor
    curves: Tensor

    @staticmethod
    def of(table: Coded) -> "Resampled":
        n_projections, n_codes = table.codes.shape[1], len(table.curves)
        order = table.codes.T.contiguous().sort(dim=-1, stable=True).indices.int().flatten()
        column = torch.arange(n_projections, device=order.device) * n_codes
        sizes = torch.bincount((table.codes + column).flatten(), minlength=n_projections * n_codes)
        return Resampled(order, (sizes.cumsum(0) - sizes).int(), table.curves)

    def numbers_of_a_set(self, n_cases: int) -> int:
        return n_cases + 4 * len(self.ends)

    def sums(self, rows: Tensor, weights: Tensor | None) -> Tensor:
        n_sets, n_rows = rows.shape
        cells = rows + torch.arange(n_sets, device=rows.device)[:, None] * n_rows
        often = torch.bincount(cells.flatten(), minlength=n_sets * n_rows).reshape(n_sets, n_rows)
        # whole numbers below 2^24 are exact in single precision
        counts = embedding_bag(self.order, often.float().T.contiguous(), self.ends, mode="sum")
        counts = counts.T.contiguous().double().reshape(n_sets, -1, len(self.curves))
        return (counts @ self.curves).mT


class Summed(NamedTuple):
    """Points by the ends of their intervals, (rows, K) each, in any unit (rows, 1)."""

    lower: Tensor
    upper: Tensor
    unit: Tensor | None
    levels: Tensor

    def numbers_of_a_set(self, n_cases: int) -> int:
        return 16 * n_cases * self.lower.shape[1]

    def _bounds(self, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        lower, upper = self.lower[rows], self.upper[rows]
        return (lower, upper) if self.unit is None else (lower / self.unit[rows], upper / self.unit[rows])

    def sums(self, rows: Tensor, weights: Tensor | None) -> Tensor:
        return curve_sums(*self._bounds(rows), self.levels, weights)

    def sums_of_sets(self, numbers: Tensor, n_sets: int, weights: Tensor | None, digits: int) -> Tensor:
        n_rows, n_projections = self.lower.shape
        found = self.levels.new_zeros(n_sets, n_projections, len(self.levels))
        for rows in chunks(n_rows, n_projections * len(self.levels), self.levels.device):
            lower, upper = self._bounds(rows)
            shares = whole(steps(lower.flatten(), upper.flatten(), self.levels), digits)
            own = shares.reshape(*lower.shape, -1)
            found.index_add_(0, numbers[rows], own if weights is None else own * weights[rows, None, None])
        return found

    def moments(self, weights: Tensor, exponent: int) -> Tensor:
        n_sets, n_projections = len(weights), self.lower.shape[1]
        n_rows = len(self.lower) // n_sets
        total = self.levels.new_zeros(n_sets, len(self.levels), n_projections)
        for s in range(n_sets):
            for part in chunks(n_rows, n_projections * len(self.levels), self.levels.device):
                lower, upper = self._bounds(slice(s * n_rows + part.start, s * n_rows + part.stop))
                shares = steps(lower.flatten(), upper.flatten(), self.levels).reshape(*lower.shape, -1)
                total[s] += torch.einsum("r,rkj->jk", weights[s, part], shares.pow(exponent))
        return total


def whole(shares: Tensor, digits: int) -> Tensor:
    """Shares in units of 2^-digits, as whole numbers in double precision."""
    return (shares * 2.0**digits).round_()


def tables_of(points: Intervals, levels: Tensor, untied: Tensor | None = None) -> list[tuple[Tensor, CurveTable]]:
    """Tables of points (..., N, P, K), each with the numbers of the projections (columns) that it holds.

    `untied` (K,) says which projections have no ties, where that is known.
    """
    n_projections = points.lower.shape[-1]
    every = torch.arange(n_projections, device=levels.device)
    lower = points.lower.reshape(-1, n_projections)
    if points.are_values:
        if not (isinstance(points.unit, int) and points.unit == 1):
            raise ValueError("PITs that are numbers have unit 1")
        return [(every, _steps_table(lower, levels))]
    upper = points.upper.reshape(-1, n_projections)
    if lower.is_floating_point():
        return [(every, Summed(lower, upper, None, levels))]
    units = _units_of_rows(points)
    found: list[tuple[Tensor, CurveTable]] = []
    if untied is None:
        untied = (upper - lower == 1).all(0)
    for columns, single in ((every[untied], True), (every[~untied], False)):
        if len(columns) == 0:
            continue
        low, high = (end if len(columns) == n_projections else end[:, columns] for end in (lower, upper))
        table: CurveTable | None = _rank_table(low, high, units, levels, single)
        if table is None:
            unit = levels.new_full((1, 1), units) if isinstance(units, int) else units[:, None].to(levels)
            table = Summed(low, high, unit.expand(len(low), 1), levels)
        found.append((columns, table))
    return found


def merged(tables: list[tuple[Tensor, CurveTable]]) -> list[tuple[Tensor, CurveTable]]:
    """The same tables with those in one that count by the same numbers: fewer, larger operations."""
    kept: list[tuple[Tensor, CurveTable]] = []
    alike: list[list[tuple[Tensor, Coded]]] = []
    for columns, table in tables:
        if not isinstance(table, Coded):
            kept.append((columns, table))
            continue
        for group in alike:
            first = group[0][1]
            if first.codes.dtype == table.codes.dtype and torch.equal(first.curves, table.curves):
                group.append((columns, table))
                break
        else:
            alike.append([(columns, table)])
    for group in alike:
        if len(group) == 1:
            kept += group
            continue
        codes = torch.cat([table.codes for _, table in group], 1)
        kept.append((torch.cat([columns for columns, _ in group]), group[0][1]._replace(codes=codes)))
    return kept


def _units_of_rows(points: Intervals) -> int | Tensor:
    if isinstance(points.unit, int):
        return points.unit
    return points.unit.to(points.lower.device).repeat_interleave(points.lower.shape[-2])


def _steps_table(values: Tensor, levels: Tensor) -> Coded:
    """PITs that are numbers: the number of the first level at or above each."""
    codes = torch.empty(values.shape, dtype=_small(len(levels) + 1), device=values.device)
    for rows in chunks(len(values), values.shape[-1], values.device):
        codes[rows] = level_bins(values[rows], levels).to(codes.dtype)
    cells = torch.arange(len(levels) + 1, device=levels.device)
    curves = (cells[:, None] <= cells[:-1]).double()
    return Coded(codes, curves)


def _rank_table(lower: Tensor, upper: Tensor, units: int | Tensor, levels: Tensor, single: bool) -> Coded | None:
    """Ranks among M members, M the same for all cases or not; None where there are too many different intervals."""
    numberings, total = [], 0
    for unit in [units] if isinstance(units, int) else units.unique().tolist():
        rows = None if isinstance(units, int) else (units == unit).nonzero()[:, 0]
        numbering = numbers_of_ranks(unit, levels) if single else _numbers_of_ties(lower, upper, unit, rows)
        if numbering is None or total + len(numbering.lower) > _MOST_CODES:
            return None
        numberings.append((rows, total, numbering))
        total += len(numbering.lower)
    codes = torch.empty(lower.shape, dtype=_small(total), device=lower.device)
    for rows, offset, numbering in numberings:
        for part in _in_chunks(rows, lower):
            own = numbering.of(lower[part], upper[part])
            codes[part] = (own + offset).to(codes.dtype)
    low = torch.cat([numbering.lower for *_, numbering in numberings])
    high = torch.cat([numbering.upper for *_, numbering in numberings])
    return Coded(codes, steps(low, high, levels))


class Numbering(NamedTuple):
    """The number of each interval of ranks, and the ends that a number stands for.

    `stride` None: the number is the lower end itself; 0: it is looked up by the lower end alone.
    """

    number: Tensor
    stride: int | None
    lower: Tensor
    upper: Tensor

    def of(self, lower: Tensor, upper: Tensor) -> Tensor:
        if self.stride is None:
            return lower
        place = lower.long() if self.stride == 0 else lower.long() * self.stride + upper.long()
        return self.number[place]


def numbers_of_ranks(unit: int, levels: Tensor) -> Numbering:
    """Ranks without ties. Where there are many, one between two levels shares the number of its neighbours there."""
    if unit <= 256:
        first = torch.arange(unit, dtype=torch.float64, device=levels.device)
        return Numbering(torch.arange(unit, device=levels.device), None, first / unit, (first + 1) / unit)
    level_at = (levels * unit).long().clamp_max(unit - 1)
    apart = torch.zeros(unit + 1, dtype=torch.long, device=levels.device)
    apart[level_at] = 1
    apart[level_at + 1] = 1
    apart[0] = 1
    first = apart[:unit].nonzero()[:, 0].double()
    last = torch.cat([first[1:], first.new_full((1,), float(unit))])
    return Numbering(apart[:unit].cumsum(0) - 1, 0, first / unit, last / unit)


def _numbers_of_ties(lower: Tensor, upper: Tensor, unit: int, rows: Tensor | None) -> Numbering | None:
    """Ranks with ties: the pairs of ends that occur; None where a table of all pairs would be large."""
    stride = unit + 1
    if stride * stride > 1 << 24:
        return None
    seen = torch.zeros(stride * stride, dtype=torch.bool, device=lower.device)
    for part in _in_chunks(rows, lower):
        seen[(lower[part].long() * stride + upper[part].long()).flatten()] = True
    pairs = seen.nonzero()[:, 0]
    number = torch.zeros(len(seen), dtype=torch.int32, device=lower.device)
    number[pairs] = torch.arange(len(pairs), device=lower.device).int()
    first = pairs.div(stride, rounding_mode="floor")
    return Numbering(number, stride, first.double() / unit, (pairs % stride).double() / unit)


def _in_chunks(rows: Tensor | None, table: Tensor) -> list[slice] | list[Tensor]:
    slices = chunks(len(table) if rows is None else len(rows), table.shape[-1], table.device)
    return slices if rows is None else [rows[part] for part in slices]


def _small(count: int) -> torch.dtype:
    """The smallest type for numbers below `count`: a test gathers them a thousand times."""
    if count <= 256:
        return torch.uint8
    return torch.int16 if count <= 1 << 15 else torch.int32
