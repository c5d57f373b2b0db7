"""Where the PITs and the test of a check come from: a forecast in memory, ranked at once, or members read in chunks."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from prerank._parallel import single_threaded
from prerank._progress import Tell, progress_bar
from prerank.arrays.precision import Precisions
from prerank.calibration import PCETest, ProjectedPIT, centred_levels, projected_pit
from prerank.calibration.evidence import Accumulated, Chunk, Evidence, Plan, Tally, shares_of
from prerank.calibration.testing import pce_test_of
from prerank.diagnosis.present_members import pit_of_present_members
from prerank.forecasts import Ensemble, Forecast
from prerank.forecasts.support import refuse_outside_support
from prerank.inputs import Cases
from prerank.inputs.lazy_members import LazyMembers, in_order
from prerank.inputs.rescaling import Units
from prerank.preranks import Contrast, Marginal, PreRank, SquaredDifference, needs_of
from prerank.preranks.selection import in_units, of_cases
from prerank.preranks.table1 import listed_preranks

_LARGE = 1 << 26  # numbers that are ranked from which a check takes seconds
_VALUES = 1 << 21  # values of members that are ranked at once


@dataclass(frozen=True, eq=False)
class Asked:
    """The options of a check that do not come one per case, and the call that said them."""

    preranks: Sequence[PreRank] | PreRank | None
    scale: str
    n_draws: int
    n_replicates: int
    exponent: float
    seed: int
    call: str = ""

    def listed(self, n_targets: int) -> list[PreRank]:
        return listed_preranks(self.preranks, n_targets)

    def plan(
        self, n_cases: int, device: torch.device, blocks: Tensor | None, shares: Tensor | None, n_groups: int
    ) -> Plan:
        """The test of so many cases."""
        levels = centred_levels().to(device)
        return Plan.of(n_cases, levels, self.seed, blocks, shares, self.n_replicates, self.exponent, n_groups)


class Source(Protocol):
    """Cases that are ready to be tested."""

    cases: Cases
    preranks: list[PreRank]

    def evidence(self, rows: Tensor | None, blocks: Tensor | None, shares: Tensor | None, n_groups: int) -> Evidence:
        """What the test of some of the cases that are left, one of `n_groups` groups, or of all needs.

        Numbers of blocks and shares of the weight are theirs.
        """
        ...


def pits_and_test(
    source: Source, rows: Tensor | None, blocks: Tensor | None, weights: Tensor | None, n_groups: int = 1
) -> tuple[ProjectedPIT, PCETest]:
    """PITs and test of some of the cases, one of `n_groups` groups, or of all; blocks and weights are theirs."""
    evidence = source.evidence(rows, blocks, shares_of(weights), n_groups)
    return _named(evidence.pit, source.preranks, source.cases), pce_test_of(evidence)


def prepare(cases: Cases, asked: Asked) -> Cases:
    """Cases as they came, without missing values and in comparable units."""
    cases = cases.of_one_model().in_one_precision()
    lazy = isinstance(cases.forecast, LazyMembers)
    with _bar(_size(cases, asked) if lazy else 0) as on_progress:
        cases = cases.complete(done=_told(on_progress, cases.index.n_given))
    if any(needs_of(item, cases.n_targets).density for item in asked.listed(cases.n_targets)):
        refuse_outside_support(cases.observed(), cases.forecast)
    return cases.rescaled(asked.scale)


def source_of(cases: Cases, asked: Asked) -> Source:
    """Where the PITs of prepared cases come from."""
    return LazySource(cases, asked) if isinstance(cases.forecast, LazyMembers) else MemorySource(cases, asked)


class MemorySource:
    """A forecast in memory: its PITs are computed once, for all groups of cases."""

    def __init__(self, cases: Cases, asked: Asked) -> None:
        self.cases, self.asked = cases, asked
        self.preranks = in_units(of_cases(asked.listed(cases.n_targets), cases.index.kept), cases.units.divisors)

    def evidence(self, rows: Tensor | None, blocks: Tensor | None, shares: Tensor | None, n_groups: int) -> Chunk:
        pit = self._pit if rows is None else self._pit.of_cases(rows)
        plan = self.asked.plan(pit.n_cases, pit.device, blocks, shares, n_groups)
        return Chunk(plan, pit, torch.arange(pit.n_cases, device=pit.device), blocks, shares)

    def of_preranks(self, names: Sequence[str]) -> "MemorySource":
        """The same data looked at through some of the pre-ranks, in this order, whose PITs are not computed again."""
        some = copy(self)
        some.preranks = [next(item for item in self.preranks if item.name == name) for name in names]
        some._pit = replace(self._pit, parts=tuple(part for name in names for part in self._pit.of(name).parts))
        return some

    @cached_property
    def _pit(self) -> ProjectedPIT:
        """PITs of the observation and of all points that could have been it."""
        cases, asked = self.cases, self.asked
        with _bar(_size(cases, asked)) as on_progress:
            return _ranked(
                cases.observed(),
                cases.law,
                self.preranks,
                cases.present,
                observation_weights=cases.observation_weights,
                n_draws=asked.n_draws,
                seed=asked.seed,
                case_ids=cases.index.kept if cases.ids is None else cases.ids,
                on_progress=on_progress,
            ).as_equal_cases()


class LazySource:
    """Members that are read in chunks of cases, once for each group of cases."""

    def __init__(self, cases: Cases, asked: Asked) -> None:
        assert isinstance(cases.forecast, LazyMembers)
        self.cases, self.asked, self.members = cases, asked, cases.forecast
        self.preranks = in_units(asked.listed(cases.n_targets), cases.units.divisors)

    def evidence(self, rows: Tensor | None, blocks: Tensor | None, shares: Tensor | None, n_groups: int) -> Accumulated:
        asked, cases = self.asked, self.cases
        kept, found = cases.index.kept, cases.survey
        assert found is not None
        chosen = kept if rows is None else kept[rows]
        ids = torch.arange(cases.index.n_given) if cases.ids is None else self._spread(cases.ids, kept)
        places = torch.full((cases.index.n_given,), -1)
        places[chosen] = torch.arange(len(chosen))
        per_case = PerCase(
            self._spread(cases.observed(), kept),
            places,
            ids,
            None if blocks is None else self._spread(blocks, chosen),
            None if shares is None else self._spread(shares, chosen),
        )
        plan = asked.plan(len(chosen), places.device, blocks, shares, n_groups)
        fewest = found.fewest if found.n_missing else None
        ranking = Ranking(self.preranks, cases.precisions, cases.units, plan, fewest)
        accumulated = Accumulated(plan, ids[chosen])
        with _bar(_size(cases, asked)) as on_progress:
            done = _told(on_progress, cases.index.n_given)
            tallies = in_order(_tally, self._calls(per_case, ranking))
            for read, one in zip(self.members.slices(), tallies, strict=True):
                if one is not None:
                    accumulated.add(one)
                done(read.stop)
        return accumulated

    def _calls(self, per_case: "PerCase", ranking: "Ranking") -> Iterator[tuple[Any, ...]]:
        for cases in self.members.slices():
            places = self.members.places_of(cases)
            own = replace(ranking, preranks=of_cases(ranking.preranks, places))
            yield self.members.block(cases), per_case.select(places), own

    def _spread(self, values: Tensor, cases: Tensor) -> Tensor:
        """What some cases have, with a place for every case that was given."""
        shape = (self.cases.index.n_given, *values.shape[1:])
        return torch.zeros(shape, dtype=values.dtype).index_copy_(0, cases, values)


@dataclass(frozen=True, eq=False)
class Ranking:
    """How cases are ranked: the same for all chunks. `fewest` is the smallest number of members, None: none is missing."""

    preranks: Sequence[PreRank]
    precisions: Precisions
    units: Units
    plan: Plan
    fewest: int | None


class PerCase(NamedTuple):
    """What goes with the cases that are ranked: y, place among them (-1: left out), name, number of the block, share."""

    y: Tensor
    places: Tensor
    ids: Tensor
    blocks: Tensor | None
    shares: Tensor | None

    def select(self, cases: Tensor | slice) -> "PerCase":
        """The same of some cases."""
        return PerCase(*(None if part is None else part[cases] for part in self))  # type: ignore[arg-type]


@single_threaded()
def _tally(block: np.ndarray, per_case: PerCase, ranking: Ranking) -> Tally | None:
    """The tally of some cases, a few at a time; None if all are left out."""
    found: Tally | None = None
    size = max(1, _VALUES // int(np.prod(block.shape[1:])))
    for start in range(0, len(block), size):
        cases = slice(start, min(start + size, len(block)))
        own = per_case.select(cases)
        kept = own.places >= 0
        if not kept.any():
            continue
        y, members, _ = ranking.precisions.together(own.y, block[cases])
        if not kept.all():
            y, members, own = y[kept], members[kept], own.select(kept)
        pit = _ranked(
            ranking.units.apply(y),
            Ensemble(ranking.units.apply(members)),
            of_cases(of_cases(ranking.preranks, cases), kept),
            None if ranking.fewest is None else ~members.isnan().any(-1),
            seed=ranking.plan.setting.seed,
            case_ids=own.ids,
            fewest=ranking.fewest,
        )
        one = Chunk(ranking.plan, pit, own.places, own.blocks, own.shares).tally()
        found = one if found is None else found.joined(one)
    return found


def _ranked(
    y: Tensor,
    forecast: Forecast,
    preranks: Sequence[PreRank],
    present: Tensor | None,
    *,
    observation_weights: Tensor | None = None,
    n_draws: int = 100,
    seed: int,
    case_ids: Tensor,
    fewest: int | None = None,
    on_progress: Tell | None = None,
) -> ProjectedPIT:
    """PITs of the observation and of all points that could have been it, members being missing where `present` says so."""
    if present is None:
        return projected_pit(
            y,
            forecast,
            preranks,
            observation_weights=observation_weights,
            n_draws=n_draws,
            seed=seed,
            case_ids=case_ids,
            exchangeable=True,
            on_progress=on_progress,
        )
    assert isinstance(forecast, Ensemble)
    return pit_of_present_members(
        preranks,
        forecast,
        present,
        y,
        observation_weights=observation_weights,
        seed=seed,
        case_ids=case_ids,
        fewest=fewest,
        on_progress=on_progress,
    )


def _named(pit: ProjectedPIT, preranks: Sequence[PreRank], cases: Cases) -> ProjectedPIT:
    """Projections that are about single targets, or about two, called by the targets' names."""
    targets = cases.names
    for item in preranks:
        if isinstance(item, Marginal):
            pit = pit.renamed(item.name, list(targets))
        elif isinstance(item, Contrast):
            pit = pit.renamed(item.name, [f"{targets[item.i]} - {targets[item.j]}"])
        elif isinstance(item, SquaredDifference):
            pit = pit.renamed(item.name, [f"({targets[item.i]} - {targets[item.j]})²"])
    return pit


def _size(cases: Cases, asked: Asked) -> int:
    """How many numbers are ranked; members in chunks are read as well."""
    forecast = cases.forecast
    if isinstance(forecast, LazyMembers):
        return 2 * int(torch.tensor(forecast.shape).prod())
    return getattr(forecast, "n_members", asked.n_draws) * cases.observed().numel()


def _bar(size: int) -> AbstractContextManager[Tell | None]:
    """A bar where so many numbers take seconds."""
    return progress_bar("ranking", "cases") if size >= _LARGE else nullcontext()


def _told(on_progress: Any, total: int) -> Any:
    return (lambda done: None) if on_progress is None else (lambda done: on_progress(done, total))
