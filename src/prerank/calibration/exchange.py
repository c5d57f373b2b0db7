"""Replicates of the PCE under calibration, made by exchanging the observation with a member.

Under calibration the observation and the members of a case are exchangeable, so any of them could have been the
observation. Each replicate picks one point per case at random and takes all its PITs along: the dependence between
projections and between pre-ranks is kept, and nothing is assumed. Which point a replicate picks depends on (seed, case,
number of the replicate) alone.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.calibration.curvetable import Table, merged, tables_of
from prerank.calibration.null import rank_spread
from prerank.calibration.projectedpit import ProjectedPIT
from prerank.chunks import at_once
from prerank.randomness import bits_of_steps, case_keys


class Replicates(NamedTuple):
    """Per replicate and projection: the PCE and the largest standardised deviation, (B, ..., K) each."""

    pce: Tensor
    maximum: Tensor


class Points(NamedTuple):
    """The points of all cases, or of a chunk of them, ready for replicates.

    `tables` hold the projections (columns); row s N P + i P + p is point p of case i of set s. `weights` (N,) are the
    cases' shares; without them cases count equally.
    """

    tables: list[tuple[Tensor, Table]]
    n_sets: int
    n_cases: int
    n_points: int
    n_projections: int
    levels: Tensor
    pick: Tensor | None
    weights: Tensor | None

    def first_rows(self) -> Tensor:
        """The row of each observation, (S, N)."""
        count = self.n_sets * self.n_cases
        return torch.arange(count, device=self.levels.device).reshape(self.n_sets, self.n_cases) * self.n_points

    def observed(self, power: float, spread: Tensor) -> Replicates:
        """The statistics of the data as they are, by the same arithmetic as the replicates: ties are ties. (1, S, K)."""
        return self.replicates(lambda start, stop: self.first_rows()[None], 1, power, spread)

    def replicates(
        self,
        rows: Callable[[int, int], Tensor],
        n_replicates: int,
        power: float,
        spread: Tensor,
        centre: Tensor | None = None,
    ) -> Replicates:
        """Statistics of data sets; `rows(start, stop)` gives those of some replicates, (stop - start, S, N).

        `spread` (S, J, K) is that of a calibrated curve, `centre` (S, J, K) the curve that deviations are measured from;
        None is the diagonal.
        """
        total = float(self.n_cases) if self.weights is None else 1.0
        shape = (n_replicates, self.n_sets, self.n_projections)
        errors, maxima = (torch.empty(shape, dtype=torch.float64, device=self.levels.device) for _ in range(2))
        for part, columns, sums in self.sums(rows, n_replicates):
            own = None if centre is None else centre[..., columns]
            found = statistics(sums / total, self.levels, power, spread[..., columns], own)
            errors[part, :, columns], maxima[part, :, columns] = found
        return Replicates(errors, maxima)

    def sums(self, rows: Callable[[int, int], Tensor], n_replicates: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Curves of data sets, summed over the cases, piece by piece: which replicates, which projections, (R, S, J, k)."""
        widest = max(table.width * len(columns) for columns, table in self.tables)
        size = at_once(self.n_sets * self.n_cases * widest, self.levels.device)
        for start in range(0, n_replicates, size):
            part = slice(start, min(start + size, n_replicates))
            chosen = rows(part.start, part.stop).reshape(-1, self.n_cases)
            for columns, table in self.tables:
                sums = table.sums(chosen, self.weights)
                yield part, columns, sums.reshape(-1, self.n_sets, *sums.shape[1:])

    def squares(self, columns: Tensor, table: Table, shares: Tensor) -> Tensor:
        """Squared contributions to the curve expected of a picked point, summed with squared shares of cases: (S, J, k)."""
        chance = self.levels.new_full((1, 1, self.n_points), 1.0 / self.n_points) if self.pick is None else self.pick
        factor = (chance * shares.square()[:, None]).expand(self.n_sets, -1, -1).reshape(self.n_sets, -1)
        return table.squares(factor)


def statistics(
    curve: Tensor, levels: Tensor, power: float, spread: Tensor, centre: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """PCE and largest standardised deviation of curves (..., J, K) from the diagonal, or from `centre`: (..., K) each."""
    inside = ((levels > 0) & (levels < 1))[:, None] & (spread > 1e-12)
    deviation = (curve - (levels[:, None] if centre is None else centre)).abs_()
    error = (deviation if power == 1 else deviation.pow(power)).mean(-2)
    return error, (deviation / torch.where(inside, spread, 1.0) * inside).amax(-2)


def points_of(
    pit: ProjectedPIT, levels: Tensor, case_weights: Tensor | None = None, observed_only: bool = False
) -> Points:
    """All points of a result, or its observations alone where it kept no others, ready for replicates."""
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
    weights = None if case_weights is None else (case_weights / case_weights.sum()).double().to(levels.device)
    return Points(tables, n_sets, pit.n_cases, n_points, start, levels, pick, weights)


def spread_of(points: Points, pit: ProjectedPIT) -> Tensor:
    """Standard deviation of a calibrated reliability curve, cases being independent: (S, J, K)."""
    shares = points.levels.new_full((pit.n_cases,), 1.0 / pit.n_cases) if points.weights is None else points.weights
    size = shares.square().sum()
    spread = (known_spread(pit, points.levels) * size.sqrt()).repeat(points.n_sets, 1, 1)
    if pit.has_points:
        unknown = ~spread_is_known(pit)
        for columns, table in points.tables:
            if unknown[columns].any():
                squares = points.squares(columns, table, shares)
                spread[..., columns] = (squares - (points.levels.square() * size)[:, None]).clamp_min(0.0).sqrt()
    return spread


def known_spread(pit: ProjectedPIT, levels: Tensor) -> Tensor:
    """Standard deviation of what one calibrated PIT adds to the curve, (J, K), from M alone."""
    return torch.stack([rank_spread(levels, part.n_members) for part in pit.parts for _ in part.names], 1)


def spread_is_known(pit: ProjectedPIT) -> Tensor:
    """Whether a projection has untied ranks or continuous PITs, whose spread depends on M alone: (K,)."""
    return torch.cat([part.law_is_known & (pit.pick is None) & (not part.unrandomised) for part in pit.parts])


def exchange_replicates(
    pit: ProjectedPIT,
    levels: Tensor,
    n_replicates: int = 999,
    power: float = 1,
    seed: int = 0,
    blocks: Tensor | None = None,
    case_weights: Tensor | None = None,
) -> Replicates:
    """PCEs of `n_replicates` data sets in which another point of each case plays the observation.

    `blocks` (N,) are labels: all cases of a block pick the same member, which keeps dependence between cases where
    members run through them (the days of a season, say). Draws from a distribution do not.
    """
    if not pit.has_points:
        raise ValueError("no exchangeable points: compute the PITs with projected_pit(..., exchangeable=True)")
    points = points_of(pit, levels.double().to(pit.device), case_weights)
    flat = exchanged(points, pit, n_replicates, power, seed, blocks, spread_of(points, pit))
    return Replicates(*(part.reshape(n_replicates, *pit.lead, points.n_projections) for part in flat))


def exchanged(
    points: Points,
    pit: ProjectedPIT,
    n_replicates: int,
    power: float,
    seed: int,
    blocks: Tensor | None,
    spread: Tensor,
) -> Replicates:
    """`exchange_replicates` of points that are ready, sets on one axis: (B, S, K)."""
    if points.pick is not None and blocks is not None:
        _refuse_uneven_blocks(points.pick, blocks)
    return points.replicates(picked_rows(points, exchange_keys(pit, seed, blocks)), n_replicates, power, spread)


def picked_rows(points: Points, keys: Tensor) -> Callable[[int, int], Tensor]:
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


def exchange_keys(pit: ProjectedPIT, seed: int, blocks: Tensor | None) -> Tensor:
    """One key per case, (N,): cases of a block share theirs."""
    if blocks is None:
        return case_keys(seed, pit.case_ids, "exchange")
    if blocks.shape != (pit.n_cases,):
        raise ValueError(f"blocks have shape {tuple(blocks.shape)}; one label per case is ({pit.n_cases},)")
    labels = torch.unique(blocks.to(pit.device), return_inverse=True)[1]
    return case_keys(seed, labels, "exchange of blocks")


def _refuse_uneven_blocks(pick: Tensor, blocks: Tensor) -> None:
    """Whole members are exchanged, so a member must have one probability within a block."""
    labels = torch.unique(blocks.to(pick.device), return_inverse=True)[1]
    order = labels.argsort()
    same = labels[order][1:] == labels[order][:-1]
    sorted_pick = pick[:, order]
    uneven = ((sorted_pick[:, 1:] - sorted_pick[:, :-1]).abs() > 1e-9).any(2).any(0) & same
    if uneven.any():
        raise ValueError(
            "blocks= exchanges whole members, whose weights differ from case to case within a block here; give a member "
            "one weight per block, or leave blocks or weights out"
        )
