"""Where the PITs and the test of a check come from: a forecast in memory, ranked at once, or members read in chunks."""

from collections.abc import Callable, Iterator, Sequence
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
from prerank.calibration import PCETest, ProjectedPIT, centred_levels, pce_test, projected_pit
from prerank.calibration.evidence import Accumulated, Chunking, Tally, tally
from prerank.calibration.random_signs import Setting
from prerank.diagnosis.present_members import pit_of_present_members
from prerank.forecasts import Ensemble
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


class Source(Protocol):
    """Cases that are ready to be tested."""

    cases: Cases
    preranks: list[PreRank]

    def test(
        self, rows: Tensor | None, blocks: Tensor | None, weights: Tensor | None, n_groups: int
    ) -> tuple[ProjectedPIT, PCETest]:
        """PITs and test of some of the cases that are left, one of `n_groups` groups, or of all.

        Blocks and weights are theirs.
        """
        ...


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

    def test(
        self, rows: Tensor | None, blocks: Tensor | None, weights: Tensor | None, n_groups: int
    ) -> tuple[ProjectedPIT, PCETest]:
        asked = self.asked
        pit = self._pit if rows is None else self._pit.of_cases(rows)
        return pit, pce_test(
            pit,
            exponent=asked.exponent,
            n_replicates=asked.n_replicates,
            seed=asked.seed,
            blocks=blocks,
            case_weights=weights,
            n_groups=n_groups,
        )

    def of_preranks(self, names: Sequence[str]) -> "MemorySource":
        """The same data looked at through some of the pre-ranks, in this order, whose PITs are not computed again."""
        some = copy(self)
        some.preranks = [next(item for item in self.preranks if item.name == name) for name in names]
        some._pit = replace(self._pit, parts=tuple(part for name in names for part in self._pit.of(name).parts))
        return some

    @cached_property
    def _pit(self) -> ProjectedPIT:
        """PITs of the observation and of all points that could have been it."""
        return _named(self._ranked(), self.preranks, self.cases)

    def _ranked(self) -> ProjectedPIT:
        cases, asked = self.cases, self.asked
        ids = cases.index.kept if cases.ids is None else cases.ids
        with _bar(_size(cases, asked)) as on_progress:
            if cases.present is not None:
                assert isinstance(cases.forecast, Ensemble)
                return pit_of_present_members(
                    self.preranks,
                    cases.forecast,
                    cases.present,
                    cases.observed(),
                    observation_weights=cases.observation_weights,
                    seed=asked.seed,
                    case_ids=ids,
                    on_progress=on_progress,
                ).as_equal_cases()
            return projected_pit(
                cases.observed(),
                cases.law,
                self.preranks,
                observation_weights=cases.observation_weights,
                n_draws=asked.n_draws,
                seed=asked.seed,
                case_ids=ids,
                exchangeable=True,
                on_progress=on_progress,
            )


class LazySource:
    """Members that are read in chunks of cases, once for each group of cases."""

    def __init__(self, cases: Cases, asked: Asked) -> None:
        assert isinstance(cases.forecast, LazyMembers)
        self.cases, self.asked, self.members = cases, asked, cases.forecast
        self.preranks = in_units(asked.listed(cases.n_targets), cases.units.divisors)

    def test(
        self, rows: Tensor | None, blocks: Tensor | None, weights: Tensor | None, n_groups: int
    ) -> tuple[ProjectedPIT, PCETest]:
        asked, index, found = self.asked, self.cases.index, self.cases.survey
        assert found is not None
        cases = index.kept if rows is None else index.kept[rows]
        shares = None if weights is None else (weights / weights.sum()).double()
        setting = Setting(
            len(cases),
            centred_levels(),
            asked.seed,
            None if blocks is None else int(blocks.max()) + 1,
            None if shares is None else float(shares.square().sum()),
        )
        chunking = Chunking(setting, asked.n_replicates, n_groups, len(self.preranks))
        ids = torch.arange(index.n_given) if self.cases.ids is None else self._spread(self.cases.ids, index.kept)
        places = torch.full((index.n_given,), -1)
        places[cases] = torch.arange(len(cases))
        per_case = PerCase(
            places,
            ids,
            None if blocks is None else self._spread(blocks, cases),
            None if shares is None else self._spread(shares, cases),
        )
        units, precisions = self.cases.units, self.cases.precisions
        ranking = Ranking(self.preranks, precisions, units, chunking, found.n_missing > 0, found.fewest)
        y = self._spread(self.cases.observed(), index.kept)
        with _bar(_size(self.cases, asked)) as on_progress:
            done = _told(on_progress, index.n_given)
            pit, test = rank_in_chunks(self.members, y, ranking, per_case, ids[cases], asked.exponent, done)
        return _named(pit, self.preranks, self.cases), test

    def _spread(self, values: Tensor, cases: Tensor) -> Tensor:
        """What some cases have, with a place for every case that was given."""
        shape = (self.cases.index.n_given, *values.shape[1:])
        return torch.zeros(shape, dtype=values.dtype).index_copy_(0, cases, values)


@dataclass(frozen=True, eq=False)
class Ranking:
    """How cases are ranked: the same for all chunks."""

    preranks: Sequence[PreRank]
    precisions: Precisions
    units: Units
    chunking: Chunking
    unequal: bool
    fewest: int


class PerCase(NamedTuple):
    """What goes with the cases that are ranked: place among them (-1: left out), name, number of the block, weight."""

    places: Tensor
    ids: Tensor
    blocks: Tensor | None
    weights: Tensor | None

    def select(self, cases: Tensor | slice) -> "PerCase":
        """The same of some cases."""
        blocks, weights = (None if part is None else part[cases] for part in (self.blocks, self.weights))
        return PerCase(self.places[cases], self.ids[cases], blocks, weights)


def rank_in_chunks(
    members: LazyMembers,
    y: Tensor,
    ranking: Ranking,
    per_case: PerCase,
    case_ids: Tensor,
    exponent: float,
    done: Callable[[int], None],
) -> tuple[ProjectedPIT, PCETest]:
    """PITs of observations y (N, D), and the test; `per_case` is in the order of y, `case_ids` name the cases ranked."""

    def calls() -> Iterator[tuple[Any, ...]]:
        for cases in members.slices():
            places = members.places_of(cases)
            own = replace(ranking, preranks=of_cases(ranking.preranks, places))
            yield members.block(cases), y[places], per_case.select(places), own

    accumulated = Accumulated(ranking.chunking, case_ids)
    for cases, one in zip(members.slices(), in_order(_rank, calls()), strict=True):
        if one is not None:
            accumulated.add(one)
        done(cases.stop)
    return accumulated.result(exponent)


@single_threaded()
def _rank(block: np.ndarray, y: Tensor, per_case: PerCase, ranking: Ranking) -> Tally | None:
    """The tally of some cases, a few at a time; None if all are left out."""
    found: Tally | None = None
    size = max(1, _VALUES // int(np.prod(block.shape[1:])))
    for start in range(0, len(block), size):
        cases = slice(start, min(start + size, len(block)))
        own = per_case.select(cases)
        kept = own.places >= 0
        if not kept.any():
            continue
        observed, members, _ = ranking.precisions.together(y[cases], block[cases])
        if not kept.all():
            observed, members, own = observed[kept], members[kept], own.select(kept)
        here = replace(ranking, preranks=of_cases(of_cases(ranking.preranks, cases), kept))
        pit = _pit(ranking.units.apply(observed), ranking.units.apply(members), own, here)
        one = tally(pit, own.places, ranking.chunking, own.blocks, own.weights)
        found = one if found is None else found.joined(one)
    return found


def _pit(y: Tensor, members: Tensor, per_case: PerCase, ranking: Ranking) -> ProjectedPIT:
    if not ranking.unequal:
        return projected_pit(
            y,
            Ensemble(members),
            ranking.preranks,
            seed=ranking.chunking.setting.seed,
            case_ids=per_case.ids,
            exchangeable=True,
        )
    present = ~members.isnan().any(-1)
    return pit_of_present_members(
        ranking.preranks,
        Ensemble(members),
        present,
        y,
        observation_weights=None,
        seed=ranking.chunking.setting.seed,
        case_ids=per_case.ids,
        fewest=ranking.fewest,
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
