"""What a test of calibration needs of its cases: one chunk of them in memory, or the sum of what several chunks add.

Signs, and the points that a replicate picks, depend on (seed, case, number of the replicate) alone, so all curves are sums
over cases that can be taken in any parts, and a chunk that holds all cases is the test in memory. What is kept of a case
that is read in chunks is the interval of its observation, a few bytes per projection, which the bootstrap of the intervals
needs.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from prerank.calibration.exchange import Replicates, picked_replicates, picked_rows, points_of, statistics
from prerank.calibration.null import REPLICATES
from prerank.calibration.projected_pits import PreRankPIT, ProjectedPIT, sampled
from prerank.calibration.random_signs import (
    Setting,
    UnitSums,
    at_levels,
    calibrated_spread,
    expected_squares,
    sign_sums,
    spread_from,
)
from prerank.calibration.rank_intervals import Intervals
from prerank.calibration.row_test import FEWEST_SIGNS
from prerank.randomness import case_keys

LEVEL = 0.05
MOST_GROUPS = int(LEVEL * (REPLICATES + 1))  # of more, no adjusted p-value could reach the level


@dataclass(frozen=True, eq=False)
class Plan:
    """What all cases of a test share: its setting, and how many replicates, groups of cases and pre-ranks there are."""

    setting: Setting
    n_replicates: int
    exponent: float = 1.0
    n_groups: int = 1

    @classmethod
    def of(
        cls,
        n_cases: int,
        levels: Tensor,
        seed: int,
        blocks: Tensor | None,
        shares: Tensor | None,
        n_replicates: int,
        exponent: float = 1.0,
        n_groups: int = 1,
    ) -> "Plan":
        """From the numbers of the blocks and the shares of the weight of all cases, (N,) each."""
        n_blocks = None if blocks is None else int(blocks.max()) + 1
        squares = None if shares is None else float(shares.square().sum())
        return cls(Setting(n_cases, levels, seed, n_blocks, squares), n_replicates, exponent, n_groups)

    def n_enough(self, factor: int) -> int:
        """How many replicates can give a p-value at the level, adjusted by this factor and for all groups."""
        return enough_replicates(self.n_groups * factor)


def enough_replicates(n_groups: int) -> int:
    """How many replicates can give a p-value at the level after adjustment for so many groups, with one to spare."""
    return math.ceil(2 * n_groups / LEVEL) - 1


def shares_of(weights: Tensor | None) -> Tensor | None:
    """Weights of all cases (N,) as shares that sum to one."""
    return None if weights is None else weights.double() / weights.double().sum()


class Evidence(Protocol):
    """The PITs of all cases, and sums over them.

    `sums` are those of the units that share a sign; `spread` (S, J, K) is that of a calibrated curve, NaN where unknown.
    """

    @property
    def plan(self) -> Plan: ...

    @property
    def pit(self) -> ProjectedPIT: ...

    @property
    def sums(self) -> list[UnitSums]: ...

    @property
    def spread(self) -> Tensor: ...

    def picked(self, part: PreRankPIT, spread: Tensor, n_replicates: int) -> Replicates | None:
        """Statistics of the data (row 0) and of replicates in which other points of one pre-rank are the observations."""
        ...


@dataclass(frozen=True, eq=False)
class Chunk:
    """Cases that are tested together: their PITs, places among all, numbers of blocks and shares of the weight, (n,).

    One that holds all cases is the evidence of a test. `tally` is what one of several adds to it.
    """

    plan: Plan
    pit: ProjectedPIT
    places: Tensor
    blocks: Tensor | None = None
    shares: Tensor | None = None

    @cached_property
    def sums(self) -> list[UnitSums]:
        """Sums over the cases of each unit."""
        return sign_sums(self.pit, self.places, self.plan.setting, self.blocks, self.shares)

    @property
    def spread(self) -> Tensor:
        """The standard deviation of a calibrated curve, as far as it is known."""
        return calibrated_spread(self.pit, self.plan.setting, self.shares)

    def picked(self, part: PreRankPIT, spread: Tensor, n_replicates: int) -> Replicates | None:
        """Statistics of the data and of picked points."""
        setting, own = self.plan.setting, self.pit.of(part.prerank)
        return picked_replicates(
            own, setting.levels, self.shares, spread, n_replicates, self.plan.exponent, setting.seed
        )

    def tally(self) -> "Tally":
        """What these cases add to a test of more, PITs with exchangeable points."""
        pit, setting = self.pit, self.plan.setting
        chosen = (self.places % sampled(setting.n_cases).step == 0).nonzero()[:, 0]
        singles = [part for part in pit.parts if len(part.names) == 1 or setting.is_small(FEWEST_SIGNS)]
        return Tally(
            ((self.places, _observations(pit)),),
            ((self.places[chosen], pit.select(chosen)),) if len(chosen) else (),
            at_levels(self.sums, len(pit.names)),
            {} if self.blocks is not None else {part.prerank: self._picked_sums(part) for part in singles},
            expected_squares(pit, setting, self.shares)[0],
        )

    def _picked_sums(self, part: PreRankPIT) -> Tensor:
        """Curves of the data and of picked points, summed over these cases, (B + 1, J, k): as many as may be asked for."""
        setting = self.plan.setting
        points = points_of(self.pit.of(part.prerank), setting.levels, self.shares)
        first = points.first_rows()
        rows = picked_rows(points, case_keys(setting.seed, self.pit.case_ids, "exchange"))
        n_replicates = max(self.plan.n_replicates, self.plan.n_enough(len(self.pit.parts)))
        sums = points.sums(lambda start, stop: first[None], 1), points.sums(rows, n_replicates)
        return torch.cat(sums)[:, 0]


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


class Accumulated:
    """The sum of tallies of all cases; what is kept of single cases is put where it belongs as it comes."""

    def __init__(self, plan: Plan, case_ids: Tensor) -> None:
        self.plan, self.case_ids = plan, case_ids
        self.parts: list[_Part] = []
        self.total: Tally | None = None

    def add(self, more: Tally) -> None:
        """Add what some cases add."""
        for places, pit in more.observations:
            self.parts = self.parts or [_Part(part, self.plan.setting.n_cases) for part in pit.parts]
            for whole, part in zip(self.parts, pit.parts, strict=True):
                whole.add(places, part)
        more = more._replace(observations=())
        self.total = more if self.total is None else self.total.joined(more)

    @cached_property
    def pit(self) -> ProjectedPIT:
        """The PITs of all observations."""
        sample = self._sample(self._whole.samples)
        parts = tuple(part.part(own) for part, own in zip(self.parts, sample.parts, strict=True))
        return ProjectedPIT(parts, self.case_ids)

    @property
    def sums(self) -> list[UnitSums]:
        """Sums over the cases of each unit."""
        return [UnitSums(torch.arange(len(self.pit.names)), self._whole.signs)]

    @property
    def spread(self) -> Tensor:
        """The standard deviation of a calibrated curve."""
        setting = self.plan.setting
        known = calibrated_spread(self.pit, setting, None)
        return torch.where(known.isnan(), spread_from(self._whole.squares, setting), known)

    def picked(self, part: PreRankPIT, spread: Tensor, n_replicates: int) -> Replicates:
        """Statistics of the data and of picked points."""
        setting = self.plan.setting
        sums = self._whole.picked[part.prerank][: n_replicates + 1]
        curves = sums / (1.0 if setting.weighted else float(setting.n_cases))
        found = statistics(curves, setting.levels, self.plan.exponent, spread[0])
        return Replicates(*(one[:, None] for one in found))

    @property
    def _whole(self) -> Tally:
        assert self.total is not None
        return self.total

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
