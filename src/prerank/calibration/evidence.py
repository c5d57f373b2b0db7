"""A test of more cases than fit in memory: what a chunk of cases adds to it, and the test of the sum.

Signs, and the points that a replicate picks, depend on (seed, case, number of the replicate) alone, so all curves are sums
over cases that can be taken in any parts. What is kept of a case is the interval of its observation, a few bytes per
projection, which the bootstrap of the intervals needs.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.calibration.exchange import Replicates, picked_rows, points_of, statistics
from prerank.calibration.projected_pits import PreRankPIT, ProjectedPIT, sampled
from prerank.calibration.random_signs import (
    Setting,
    UnitSums,
    at_levels,
    calibrated_spread,
    sign_sums,
    signs_of,
    spread_from,
)
from prerank.calibration.rank_intervals import Intervals
from prerank.calibration.row_test import FEWEST_SIGNS
from prerank.calibration.testing import PCETest, assembled, enough_replicates
from prerank.randomness import case_keys


@dataclass(frozen=True, eq=False)
class Chunking:
    """What all chunks share: the setting of the test, and how many replicates, groups and pre-ranks there are."""

    setting: Setting
    n_replicates: int
    n_groups: int
    n_rows: int = 1

    @property
    def n_picked(self) -> int:
        """Replicates of single projections, which cannot be added later."""
        return max(self.n_replicates, enough_replicates(self.n_groups * self.n_rows))


class Tally(NamedTuple):
    """What some cases add to a test: sums, and what is kept of single cases, with their places among all.

    `signs` (1, units, K, J) are sums by units that share a sign, `picked` those of data sets in which other points play the
    observations, (B + 1, J, k), for pre-ranks with one projection; `squares` (J, K) are squared contributions, for the
    spread of a calibrated curve. `observations` are PITs without other points, `samples` have all points of some cases.
    """

    observations: tuple[tuple[Tensor, ProjectedPIT], ...]
    samples: tuple[tuple[Tensor, ProjectedPIT], ...]
    signs: Tensor
    picked: dict[str, Tensor]
    squares: Tensor

    def joined(self, more: "Tally") -> "Tally":
        """Those of two sets of cases together."""
        self._refuse_other_projections(more)
        return Tally(
            self.observations + more.observations,
            self.samples + more.samples,
            self.signs + more.signs,
            {name: sums + more.picked[name] for name, sums in self.picked.items()},
            self.squares + more.squares,
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
    pit: ProjectedPIT, places: Tensor, chunking: Chunking, blocks: Tensor | None = None, shares: Tensor | None = None
) -> Tally:
    """The tally of PITs with exchangeable points, (n, K); `blocks` (n,) are numbers, `shares` (n,) weights of the whole."""
    setting = chunking.setting
    chosen = (places % sampled(setting.n_cases).step == 0).nonzero()[:, 0]
    singles = [part for part in pit.parts if len(part.names) == 1 or setting.is_small(FEWEST_SIGNS)]
    return Tally(
        ((places, _observations(pit)),),
        ((places[chosen], pit.select(chosen)),) if len(chosen) else (),
        at_levels(sign_sums(pit, places, setting, blocks, shares), len(pit.names)),
        {} if blocks is not None else {part.prerank: _picked_sums(part, pit, chunking, shares) for part in singles},
        _squares(pit, shares, setting),
    )


def _picked_sums(part: PreRankPIT, pit: ProjectedPIT, chunking: Chunking, shares: Tensor | None) -> Tensor:
    setting = chunking.setting
    points = points_of(pit.of(part.prerank), setting.levels, shares)
    first = points.first_rows()
    rows = picked_rows(points, case_keys(setting.seed, pit.case_ids, "exchange"))
    sums = points.sums(lambda start, stop: first[None], 1), points.sums(rows, chunking.n_picked)
    return torch.cat(sums)[:, 0]


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


def _squares(pit: ProjectedPIT, shares: Tensor | None, setting: Setting) -> Tensor:
    """Squared contributions of picked points summed over the cases, with squared shares, (J, K)."""
    shares = setting.levels.new_full((pit.n_cases,), 1.0 / setting.n_cases) if shares is None else shares
    return points_of(pit, setting.levels).moments(shares.square(), 2)[0]


class Accumulated:
    """The sum of tallies of all cases; what is kept of single cases is put where it belongs as it comes."""

    def __init__(self, chunking: Chunking, case_ids: Tensor) -> None:
        self.chunking, self.case_ids = chunking, case_ids
        self.parts: list[_Part] = []
        self.total: Tally | None = None

    def add(self, more: Tally) -> None:
        """Add what some cases add."""
        for places, pit in more.observations:
            self.parts = self.parts or [_Part(part, self.chunking.setting.n_cases) for part in pit.parts]
            for whole, part in zip(self.parts, pit.parts, strict=True):
                whole.add(places, part)
        more = more._replace(observations=())
        self.total = more if self.total is None else self.total.joined(more)

    def result(self, exponent: float) -> tuple[ProjectedPIT, PCETest]:
        """The PITs of all observations, and the test."""
        chunking, setting, total = self.chunking, self.chunking.setting, self.total
        assert total is not None
        sample = self._sample(total.samples)
        parts = tuple(part.part(own) for part, own in zip(self.parts, sample.parts, strict=True))
        pit = ProjectedPIT(parts, self.case_ids)
        spread = calibrated_spread(pit, setting, None)
        spread = torch.where(spread.isnan(), spread_from(total.squares, setting), spread)
        every = torch.arange(len(pit.names))
        signs = signs_of(pit, [UnitSums(every, total.signs)], setting, spread)

        def picked(columns: slice, part: PreRankPIT, count: int) -> Replicates | None:
            sums = total.picked[part.prerank][: count + 1]
            curves = sums / (1.0 if setting.weighted else float(setting.n_cases))
            found = statistics(curves, setting.levels, exponent, spread[0, :, columns])
            return Replicates(*(one[:, None] for one in found))

        return pit, assembled(pit, signs, picked, setting, chunking.n_replicates, exponent, chunking.n_groups)

    def _sample(self, samples: tuple[tuple[Tensor, ProjectedPIT], ...]) -> ProjectedPIT:
        """The sampled cases in the order of all, with as many points as any of them has."""
        order = torch.cat([places for places, _ in samples]).argsort()
        pits = [pit for _, pit in samples]
        parts = [
            replace(pits[0].parts[g], points=_stacked([pit.parts[g] for pit in pits], order))
            for g in range(len(self.parts))
        ]
        return ProjectedPIT(tuple(parts), torch.arange(len(order)))


class _Part:
    """The observations of one pre-rank, filled in chunk by chunk."""

    def __init__(self, first: PreRankPIT, n_cases: int) -> None:
        self.first, self.n_cases = first, n_cases
        observed = first.observed
        self.lower = observed.lower.new_empty(n_cases, len(first.names))
        self.upper = self.lower if observed.are_values else torch.empty_like(self.lower)
        self.unit = None if isinstance(observed.unit, int) else observed.unit.new_ones(n_cases)
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

    def part(self, sample: PreRankPIT) -> PreRankPIT:
        unit = self.unit if self.unit is not None else self.first.observed.unit
        return replace(
            self.first,
            observed=Intervals(self.lower, self.upper, unit),
            tied=self.tied,
            ties=self.ties,
            note=self.note,
            sample=sample.points,
        ).of_equal_cases()


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
