"""Replicates of the PCE under calibration, made by exchanging the observation with a member.

Under calibration the observation and the members of a case are exchangeable, so any of them could have been the
observation. Each replicate picks one point per case at random and takes all its PITs along: the dependence between
projections and between pre-ranks is kept, and nothing is assumed. Which point a replicate picks depends on (seed, case,
number of the replicate) alone.
"""

from collections.abc import Callable
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
    """The points of all cases, ready for replicates.

    `tables` hold the projections (columns); row s N P + i P + p is point p of case i of set s. `spread` (S, J, K) is the
    standard deviation of a calibrated reliability curve, cases being independent.
    """

    tables: list[tuple[Tensor, Table]]
    n_sets: int
    n_cases: int
    n_points: int
    n_projections: int
    levels: Tensor
    pick: Tensor | None
    weights: Tensor | None
    spread: Tensor

    def first_rows(self) -> Tensor:
        """The row of each observation, (S, N)."""
        count = self.n_sets * self.n_cases
        return torch.arange(count, device=self.levels.device).reshape(self.n_sets, self.n_cases) * self.n_points

    def observed(self, power: float) -> Replicates:
        """The statistics of the data as they are, by the same arithmetic as the replicates: ties are ties. (1, S, K)."""
        return self.replicates(lambda start, stop: self.first_rows()[None], 1, power)

    def replicates(
        self,
        rows: Callable[[int, int], Tensor],
        n_replicates: int,
        power: float,
        centre: Tensor | None = None,
    ) -> Replicates:
        """Statistics of data sets; `rows(start, stop)` gives those of some replicates, (stop - start, S, N).

        `centre` (S, J, K) is the curve that deviations are measured from; None is the diagonal.
        """
        target = self.levels[:, None] if centre is None else centre
        inside = ((self.levels > 0) & (self.levels < 1))[:, None] & (self.spread > 1e-12)
        spread = torch.where(inside, self.spread, 1.0)
        total = float(self.n_cases) if self.weights is None else 1.0
        shape = (n_replicates, self.n_sets, self.n_projections)
        errors, maxima = (torch.empty(shape, dtype=torch.float64, device=self.levels.device) for _ in range(2))
        widest = max(table.width * len(columns) for columns, table in self.tables)
        size = at_once(self.n_sets * self.n_cases * widest, self.levels.device)
        for start in range(0, n_replicates, size):
            part = slice(start, min(start + size, n_replicates))
            chosen = rows(part.start, part.stop).reshape(-1, self.n_cases)
            for columns, table in self.tables:
                sums = table.sums(chosen, self.weights)
                curve = sums.reshape(-1, self.n_sets, *sums.shape[1:]) / total
                deviation = (curve - (target if centre is None else target[..., columns])).abs_()
                errors[part, :, columns] = (deviation if power == 1 else deviation.pow(power)).mean(2)
                scaled = deviation / spread[..., columns] * inside[..., columns]
                maxima[part, :, columns] = scaled.amax(2)
        return Replicates(errors, maxima)


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
    own = levels.new_full((pit.n_cases,), 1.0 / pit.n_cases) if weights is None else weights
    # untied ranks and continuous PITs have a spread that depends on M alone; a single point per case says nothing else
    known = [rank_spread(levels, part.n_members) for part in pit.parts for _ in part.names]
    spread = (torch.stack(known, 1) * own.square().sum().sqrt()).repeat(n_sets, 1, 1)
    if not alone:
        unknown = ~torch.cat([part.law_is_known & (pick is None) & (not part.unrandomised) for part in pit.parts])
        chance = levels.new_full((1, 1, n_points), 1.0 / n_points) if pick is None else pick
        factor = (chance * own.square()[:, None]).expand(n_sets, -1, -1).reshape(n_sets, -1)
        diagonal = (levels.square() * own.square().sum())[:, None]
        for columns, table in tables:
            if unknown[columns].any():
                spread[..., columns] = (table.squares(factor) - diagonal).clamp_min(0.0).sqrt()
    return Points(tables, n_sets, pit.n_cases, n_points, start, levels, pick, weights, spread)


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
    flat = exchanged(points, pit, n_replicates, power, seed, blocks)
    return Replicates(*(part.reshape(n_replicates, *pit.lead, points.n_projections) for part in flat))


def exchanged(
    points: Points, pit: ProjectedPIT, n_replicates: int, power: float, seed: int, blocks: Tensor | None
) -> Replicates:
    """`exchange_replicates` of points that are ready, sets on one axis: (B, S, K)."""
    keys = exchange_keys(pit, seed, blocks)
    cumulative = None
    if points.pick is not None:
        if blocks is not None:
            _refuse_uneven_blocks(points.pick, blocks)
        cumulative = points.pick.cumsum(-1)
    first = points.first_rows()

    def rows(start: int, stop: int) -> Tensor:
        numbers = bits_of_steps(keys, start, stop)  # (N, stop - start), 31 bits
        if cumulative is None:
            return first + ((numbers * points.n_points) >> 31).T[:, None, :]
        uniform = (numbers.double() + 0.5) / (1 << 31)
        target = uniform * cumulative[..., -1:]
        place = torch.searchsorted(cumulative, target.contiguous())
        return first + place.movedim(-1, 0)

    return points.replicates(rows, n_replicates, power)


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
