"""Replicates of single projections under calibration: any point of a case could have been the observation.

Under calibration the observation and the members of a case are exchangeable. Each replicate picks one point per case at
random, with its own ties and weights, so the null distribution of one projection is exact whatever these are. Which point a
replicate picks depends on (seed, case, number of the replicate) alone. Of several projections at once a replicate keeps the
dependence that the *points* have, which is right only if the whole joint forecast is: see
`prerank.calibration.random_signs`.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from prerank._chunks import at_once
from prerank._parallel import in_threads
from prerank.calibration.curve_table import Coded, CurveTable, Resampled, merged, tables_of
from prerank.calibration.null import rank_spread
from prerank.calibration.projected_pits import PreRankPIT, ProjectedPIT
from prerank.calibration.rank_intervals import Intervals
from prerank.randomness import bits_of_steps, case_keys


class Replicates(NamedTuple):
    """Per data set, model and projection: the PCE and the largest standardised deviation, (B, S, K) each.

    The deviations are zero where no spread was given.
    """

    pce: Tensor
    maximum: Tensor


class PointTables(NamedTuple):
    """The points of all cases, or of a chunk of them, ready for replicates.

    `tables` hold the projections (columns); row s N P + i P + p is point p of case i of set s. `weights` (N,) are the
    cases' shares; without them cases count equally.
    """

    tables: list[tuple[Tensor, CurveTable]]
    n_sets: int
    n_cases: int
    n_points: int
    n_projections: int
    levels: Tensor
    pick: Tensor | None
    weights: Tensor | None

    @property
    def total(self) -> float:
        """What a curve's sum over the cases is divided by."""
        return float(self.n_cases) if self.weights is None else 1.0

    def first_rows(self) -> Tensor:
        """The row of each observation, (S, N)."""
        count = self.n_sets * self.n_cases
        return torch.arange(count, device=self.levels.device).reshape(self.n_sets, self.n_cases) * self.n_points

    def replicates(
        self,
        rows: Callable[[int, int], Tensor],
        n_replicates: int,
        exponent: float,
        spread: Tensor | None,
        centre: Tensor | None = None,
    ) -> Replicates:
        """Statistics of data sets; `rows(start, stop)` gives those of some replicates, (stop - start, S, N).

        `spread` (S, J, K) is that of a calibrated curve, None where deviations are not asked for; `centre` (S, J, K) is the
        curve that deviations are measured from; None is the diagonal.
        """
        shape = (n_replicates, self.n_sets, self.n_projections)
        errors, maxima = (torch.empty(shape, dtype=torch.float64, device=self.levels.device) for _ in range(2))

        def write(part: slice, columns: Tensor, sums: Tensor) -> None:
            own = None if centre is None else centre[..., columns]
            scale = None if spread is None else spread[..., columns]
            found = statistics(sums / self.total, self.levels, exponent, scale, own)
            errors[part, :, columns], maxima[part, :, columns] = found

        self._each(rows, n_replicates, write)
        return Replicates(errors, maxima)

    def sums(self, rows: Callable[[int, int], Tensor], n_replicates: int) -> Tensor:
        """Curves of data sets, summed over the cases, (B, S, J, K)."""
        shape = (n_replicates, self.n_sets, len(self.levels), self.n_projections)
        found = torch.empty(shape, dtype=torch.float64, device=self.levels.device)

        def write(part: slice, columns: Tensor, sums: Tensor) -> None:
            found[part][..., columns] = sums

        self._each(rows, n_replicates, write)
        return found

    def _each(
        self,
        rows: Callable[[int, int], Tensor],
        n_replicates: int,
        write: Callable[[slice, Tensor, Tensor], None],
    ) -> None:
        """Curves summed over the cases, piece by piece: which replicates, which projections, (R, S, J, k)."""
        tables = [(columns, self._for_sets(table, n_replicates)) for columns, table in self.tables]
        largest = max(table.numbers_of_a_set(self.n_cases) for _, table in tables)
        size = at_once(self.n_sets * largest, self.levels.device)

        def work(start: int) -> None:
            part = slice(start, min(start + size, n_replicates))
            chosen = rows(part.start, part.stop).reshape(-1, self.n_cases)
            for columns, table in tables:
                sums = table.sums(chosen, self.weights)
                write(part, columns, sums.reshape(-1, self.n_sets, *sums.shape[1:]))

        in_threads(work, range(0, n_replicates, size), spread=self.levels.device.type == "cpu")

    def _for_sets(self, table: CurveTable, n_replicates: int) -> CurveTable | Resampled:
        """The table as it serves so many data sets best: sorted, where each may have any of the cases, and some twice."""
        on_cpu, one_row_each = self.levels.device.type == "cpu", self.n_sets == self.n_points == 1
        if isinstance(table, Coded) and one_row_each and on_cpu and self.weights is None and n_replicates > 1:
            return Resampled.of(table) if len(table.codes) == self.n_cases < 1 << 24 else table
        return table

    def moments(self, shares: Tensor, exponent: int) -> Tensor:
        """First or second powers of the contributions expected of picked points, by the cases' factors (N,): (S, J, K)."""
        chance = self.levels.new_full((1, 1, self.n_points), 1.0 / self.n_points) if self.pick is None else self.pick
        factor = (chance * shares[:, None]).expand(self.n_sets, -1, -1).reshape(self.n_sets, -1)
        found = self.levels.new_empty(self.n_sets, len(self.levels), self.n_projections)
        for columns, table in self.tables:
            found[..., columns] = table.moments(factor, exponent)
        return found


def statistics(
    curve: Tensor, levels: Tensor, exponent: float, spread: Tensor | None, centre: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """PCE and largest standardised deviation of curves (..., J, K) from the diagonal, or from `centre`: (..., K) each."""
    deviation = (curve - (levels[:, None] if centre is None else centre)).abs_()
    error = (deviation if exponent == 1 else deviation.pow(exponent)).mean(-2)
    if spread is None:
        return error, torch.zeros_like(error)
    inside = ((levels > 0) & (levels < 1))[:, None] & (spread > 1e-12)
    return error, (deviation / torch.where(inside, spread, 1.0) * inside).amax(-2)


def points_of(
    pit: ProjectedPIT, levels: Tensor, shares: Tensor | None = None, observed_only: bool = False
) -> PointTables:
    """All points of a result, or its observations alone where it kept no others, ready for replicates.

    `shares` (N,) are weights of the cases that sum to one over all of them.
    """
    alone = observed_only or not pit.has_points
    n_sets, tables, start = pit.lead.numel(), [], 0
    n_points = 1
    for part in pit.parts:
        intervals = part.points
        if intervals is None or alone:
            intervals = part.as_single_points()
        n_points = intervals.lower.shape[-2]
        for columns, table in tables_of(intervals, levels, None if alone else part.ties == 0):
            tables.append((columns + start, table))
        start += len(part.names)
    tables = merged(tables)
    pick = None
    if pit.pick is not None and not alone:
        pick = pit.pick.double().expand(*pit.lead, pit.n_cases, n_points).reshape(n_sets, pit.n_cases, n_points)
    return PointTables(tables, n_sets, pit.n_cases, n_points, start, levels, pick, shares)


def known_spread(pit: ProjectedPIT, levels: Tensor) -> Tensor:
    """Standard deviation of what one calibrated PIT adds to the curve, (J, K), from M alone."""
    return torch.stack([rank_spread(levels, part.n_members) for part in pit.parts for _ in part.names], 1)


def picked_rows(points: PointTables, keys: Tensor) -> Callable[[int, int], Tensor]:
    """The rows of the points that replicates pick, by the keys of the cases (N,)."""
    first = points.first_rows()
    cumulative = None if points.pick is None else points.pick.cumsum(-1)

    def rows(start: int, stop: int) -> Tensor:
        numbers = bits_of_steps(keys, start, stop)  # (N, stop - start), 31 bits
        if cumulative is None:
            return first + ((numbers * points.n_points) >> 31).T[:, None, :]
        uniform = (numbers.double() + 0.5) / (1 << 31)
        target = uniform * cumulative[..., -1:]
        place = torch.searchsorted(cumulative, target.contiguous())
        return first + place.movedim(-1, 0)

    return rows


def picked_replicates(
    pit: ProjectedPIT,
    levels: Tensor,
    shares: Tensor | None,
    spread: Tensor,
    n_replicates: int,
    exponent: float,
    seed: int,
) -> Replicates | None:
    """Statistics of the data (row 0) and of data sets in which other points play the observations, (B + 1, S, K).

    PITs of one pre-rank. Without its points, ranks that hardly ever tie are as good: they are drawn. None where neither is
    there.
    """
    part, points = pit.parts[0], points_of(pit, levels, shares)
    rows = picked_rows(points, case_keys(seed, pit.case_ids, "exchange"))
    first = points.first_rows()
    observed = points.replicates(lambda start, stop: first[None], 1, exponent, spread)
    if part.points is None:
        if not bool(part.law_is_known.all()):
            return None
        table, n_codes = _possible_ranks(part, levels)
        every = torch.arange(len(pit.names), device=levels.device)
        points = points._replace(tables=[(every, table)])
        keys = case_keys(seed, torch.arange(pit.n_cases, device=levels.device), "uniform")

        def rows(start: int, stop: int) -> Tensor:
            chosen = (bits_of_steps(keys, start, stop) * n_codes) >> 31
            return chosen.T[:, None, :].expand(-1, points.n_sets, -1)

    null = points.replicates(rows, n_replicates, exponent, spread)
    return Replicates(*(torch.cat(both) for both in zip(observed, null, strict=True)))


def _possible_ranks(part: PreRankPIT, levels: Tensor) -> tuple[CurveTable, int]:
    """All PITs that a calibrated observation has with equal probability, one row each, and how many there are."""
    steps = (1 << 18) if part.n_members is None else part.n_members + 1
    place = torch.arange(steps, device=levels.device)[:, None]
    if part.n_members is None:
        values = (place.double() + 0.5) / steps
        intervals = Intervals(values, values)
    elif part.unrandomised:
        values = place.double() / part.n_members
        intervals = Intervals(values, values)
    else:
        intervals = Intervals(place, place + 1, steps)
    count = len(part.names)
    lower = intervals.lower.expand(-1, count)
    upper = lower if intervals.are_values else intervals.upper.expand(-1, count)
    ((_, table),) = tables_of(Intervals(lower, upper, intervals.unit), levels)
    return table, steps
