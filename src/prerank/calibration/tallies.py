"""A test of more cases than fit in memory: what a chunk of cases adds to it, and the test of the sum.

A replicate of the null picks a point of each case by (seed, case, number of the replicate) alone, so its reliability curve
is a sum over cases that can be taken in any parts. What is kept of a case is the interval of its observation, a few bytes
per projection, which the bootstrap of the intervals needs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.calibration.blindness import BlockTilts, Tilts, block_tilts, power_at, power_of_sample, tilts
from prerank.calibration.exchange import Points, Replicates, known_spread, picked_rows, points_of, statistics
from prerank.calibration.intervals import Intervals
from prerank.calibration.projectedpit import PreRankPIT, ProjectedPIT, sampled
from prerank.calibration.testing import PCETest, compared, laws_of
from prerank.randomness import case_keys


@dataclass(frozen=True, eq=False)
class Setting:
    """What all chunks share: the number of cases, of the points that a case has at most, of blocks (None: no blocks).

    `unequal` says that some cases have fewer points than others, and `square_of_shares` is 1 / N, or the sum of the squared
    weights of the cases.
    """

    n_cases: int
    n_points: int
    levels: Tensor
    n_replicates: int
    seed: int
    n_blocks: int | None = None
    unequal: bool = False
    square_of_shares: float | None = None

    @property
    def weighted(self) -> bool:
        return self.square_of_shares is not None


class Tally(NamedTuple):
    """What some cases add to a test: sums, and what is kept of single cases, with their places among all.

    `observed` (J, K) and `replicates` (B, J, K) are curves summed over the cases; `squares` (J, K) are squared
    contributions, for the spread of a calibrated curve. `observations` are PITs without other points, `samples` have all
    points of some cases; `tilts` and `block_tilts` serve the power.
    """

    observations: tuple[tuple[Tensor, ProjectedPIT], ...]
    samples: tuple[tuple[Tensor, ProjectedPIT], ...]
    observed: Tensor
    replicates: Tensor
    squares: Tensor
    tilts: Tilts | None
    block_tilts: BlockTilts | None

    def joined(self, more: "Tally") -> "Tally":
        """Those of two sets of cases together."""
        self._refuse_other_projections(more)
        return Tally(
            self.observations + more.observations,
            self.samples + more.samples,
            self.observed + more.observed,
            self.replicates + more.replicates,
            self.squares + more.squares,
            None if self.tilts is None or more.tilts is None else self.tilts.joined(more.tilts),
            None if self.block_tilts is None or more.block_tilts is None else self.block_tilts.joined(more.block_tilts),
        )

    def _refuse_other_projections(self, more: "Tally") -> None:
        if self.samples and more.samples:
            for one, other in zip(self.samples[0][1].parts, more.samples[0][1].parts, strict=True):
                refuse_other_projections(one, other)


def refuse_other_projections(one: PreRankPIT, other: PreRankPIT) -> None:
    """Refuse a pre-rank that finds other projections where there are fewer members."""
    fewest, most = sorted((len(one.names), len(other.names)))
    if fewest < most:
        raise ValueError(
            f"{one.prerank} finds {fewest} to {most} projections because cases have different numbers of members; ask for "
            f"{one.prerank}(n_components={fewest})"
        )


def tally(
    pit: ProjectedPIT, places: Tensor, setting: Setting, blocks: Tensor | None = None, weights: Tensor | None = None
) -> Tally:
    """The tally of PITs with exchangeable points, (n, K); `blocks` (n,) are numbers, `weights` (n,) shares of the whole."""
    points = points_of(pit, setting.levels)._replace(weights=weights)
    if blocks is None:
        keys = case_keys(setting.seed, pit.case_ids, "exchange")
    else:
        keys = case_keys(setting.seed, blocks, "exchange of blocks")
    chosen = (places % sampled(setting.n_cases).step == 0).nonzero()[:, 0]
    mean_one = None if weights is None else weights * setting.n_cases
    of_blocks = None
    if blocks is not None and setting.n_blocks is not None:
        of_blocks = block_tilts(pit, blocks, setting.n_blocks, mean_one, setting.n_points)
    return Tally(
        ((places, _observations(pit)),),
        ((places[chosen], pit.select(chosen)),) if len(chosen) else (),
        _sums(points, lambda start, stop: points.first_rows()[None], 1)[0],
        _sums(points, picked_rows(points, keys), setting.n_replicates),
        _squares(points, pit, weights, setting),
        tilts(pit, mean_one) if weights is not None and blocks is None else None,
        of_blocks,
    )


def _observations(pit: ProjectedPIT) -> ProjectedPIT:
    """The PITs without the other points, as whole ranks where they are."""
    parts = []
    for part in pit.parts:
        points = part.points
        assert points is not None
        lower = points.lower[..., 0, :].clone()
        upper = lower if points.are_values else points.upper[..., 0, :].clone()
        parts.append(replace(part, observed=Intervals(lower, upper, points.unit), points=None))
    return ProjectedPIT(tuple(parts), pit.case_ids)


def _sums(points: Points, rows: Callable[[int, int], Tensor], n_replicates: int) -> Tensor:
    shape = (n_replicates, len(points.levels), points.n_projections)
    found = torch.empty(shape, dtype=torch.float64, device=points.levels.device)
    for part, columns, sums in points.sums(rows, n_replicates):
        found[part, :, columns] = sums[:, 0]
    return found


def _squares(points: Points, pit: ProjectedPIT, weights: Tensor | None, setting: Setting) -> Tensor:
    levels = setting.levels
    shares = levels.new_full((pit.n_cases,), 1.0 / setting.n_cases) if weights is None else weights
    found = (known_spread(pit, levels).square() + levels.square()[:, None]) * shares.square().sum()
    counted = torch.cat([~part.law_is_known | (part.ties > 0) | part.unrandomised for part in pit.parts])
    for columns, table in points.tables:
        if setting.unequal or counted[columns].any():
            found[:, columns] = points.squares(columns, table, shares)[0]
    return found


class Accumulated:
    """The sum of tallies of all cases; what is kept of single cases is put where it belongs as it comes."""

    def __init__(self, setting: Setting, case_ids: Tensor) -> None:
        self.setting, self.case_ids = setting, case_ids
        self.parts: list[_Part] = []
        self.total: Tally | None = None

    def add(self, more: Tally) -> None:
        """Add what some cases add."""
        for places, pit in more.observations:
            self.parts = self.parts or [_Part(part, self.setting) for part in pit.parts]
            for whole, part in zip(self.parts, pit.parts, strict=True):
                whole.add(places, part)
        more = more._replace(observations=())
        self.total = more if self.total is None else self.total.joined(more)

    def result(self, power: float) -> tuple[ProjectedPIT, PCETest]:
        """The PITs of all observations, and the test."""
        setting, levels = self.setting, self.setting.levels
        assert self.total is not None
        sample = self._sample(self.total.samples)
        pit = ProjectedPIT(
            tuple(part.part(own, setting.unequal) for part, own in zip(self.parts, sample.parts, strict=True)),
            self.case_ids,
        )
        size = 1.0 / setting.n_cases if setting.square_of_shares is None else setting.square_of_shares
        observed, replicates, squares = self.total.observed, self.total.replicates, self.total.squares
        known = torch.cat([part.law_is_known & (not part.unrandomised) for part in pit.parts])
        exact = known_spread(pit, levels) * size**0.5
        counted = (squares - (levels.square() * size)[:, None]).clamp_min(0.0).sqrt()
        spread = torch.where(known & (not setting.unequal), exact, counted)
        total = 1.0 if setting.weighted else float(setting.n_cases)
        own, null = (
            Replicates(*statistics(sums / total, levels, power, spread)) for sums in (observed[None], replicates)
        )
        independent = setting.n_blocks is None and not setting.unequal and not setting.weighted
        return pit, compared(
            pit, own, null, levels, spread, power, laws_of(pit, independent), self._power(self.total, sample)
        )

    def _power(self, total: Tally, sample: ProjectedPIT) -> Tensor:
        if total.block_tilts is not None:
            return power_at(total.block_tilts.distance())
        if total.tilts is not None:
            return power_at(total.tilts.distance())
        return power_of_sample(sample, self.setting.n_cases)

    def _sample(self, samples: tuple[tuple[Tensor, ProjectedPIT], ...]) -> ProjectedPIT:
        """The sampled cases in the order of all, with as many points as any of them has."""
        order = torch.cat([places for places, _ in samples]).argsort()
        pits = [pit for _, pit in samples]
        parts = [
            replace(pits[0].parts[g], points=_stacked([pit.parts[g] for pit in pits], order))
            for g in range(len(self.parts))
        ]
        pick = None
        if self.setting.unequal:
            pick = _padded([pit.pick[..., None] for pit in pits if pit.pick is not None])[order, :, 0]
        return ProjectedPIT(tuple(parts), torch.arange(len(order)), pick)


class _Part:
    """The observations of one pre-rank, filled in chunk by chunk."""

    def __init__(self, first: PreRankPIT, setting: Setting) -> None:
        self.first, self.n_cases = first, setting.n_cases
        observed = first.observed
        self.lower = observed.lower.new_empty(setting.n_cases, len(first.names))
        self.upper = self.lower if observed.are_values else torch.empty_like(self.lower)
        self.unit = None if isinstance(observed.unit, int) else observed.unit.new_ones(setting.n_cases)
        self.tied, self.ties = torch.zeros_like(first.tied), torch.zeros_like(first.ties)
        self.note, self.most = first.note, 0

    def add(self, places: Tensor, part: PreRankPIT) -> None:
        refuse_other_projections(self.first, part)
        self.lower[places] = part.observed.lower
        if self.upper is not self.lower:
            self.upper[places] = part.observed.upper
        if self.unit is not None:
            self.unit[places] = torch.as_tensor(part.observed.unit).to(self.unit)
        share = len(places) / self.n_cases
        self.tied += part.tied * share
        self.ties += part.ties * share
        most = int(torch.as_tensor(part.observed.unit).max())
        if most > self.most:  # what is said of complete cases
            self.note, self.most = part.note, most

    def part(self, sample: PreRankPIT, unequal: bool) -> PreRankPIT:
        unit = self.unit if self.unit is not None else self.first.observed.unit
        return replace(
            self.first,
            observed=Intervals(self.lower, self.upper, unit),
            tied=self.tied,
            ties=self.ties,
            note=self.note,
            sample=None if unequal else sample.points,
        )


def _stacked(parts: list[PreRankPIT], order: Tensor) -> Intervals:
    """The points of sets of cases in one array, (n, P, K)."""
    found = [part.points for part in parts if part.points is not None]
    lower = _padded([points.lower for points in found])[order]
    upper = lower if found[0].are_values else _padded([points.upper for points in found])[order]
    units = [points.unit for points in found]
    if isinstance(units[0], int):
        return Intervals(lower, upper, units[0])
    return Intervals(lower, upper, torch.cat([unit for unit in units if isinstance(unit, Tensor)])[order])


def _padded(points: list[Tensor]) -> Tensor:
    """Points (n, P, K) of sets of cases one after the other, with zeros where some have fewer."""
    most = max(one.shape[-2] for one in points)
    return torch.cat([torch.nn.functional.pad(one, (0, 0, 0, most - one.shape[-2])) for one in points])
