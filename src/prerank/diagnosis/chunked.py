"""`check` of members that are read a few cases at a time: one pass to see what they are, one to rank them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from prerank._parallel import single_threaded
from prerank.arrays import as_tensor
from prerank.arrays.fill_values import Fills, fills_of
from prerank.arrays.precision import in_one_precision
from prerank.calibration import PCETest, ProjectedPIT, projected_pit
from prerank.calibration.chunked_test import Accumulated, Chunking, Tally, tally
from prerank.diagnosis.data_warnings import Sorted, first_members, sorted_members
from prerank.diagnosis.present_members import pit_of_present_members
from prerank.forecasts import Ensemble
from prerank.inputs.lazy_members import LazyMembers, in_order
from prerank.inputs.rescaling import Magnitudes, Units
from prerank.preranks import PreRank
from prerank.preranks.selection import of_cases

_VALUES = 1 << 21  # values of members that are ranked at once


@dataclass(frozen=True, eq=False)
class Precision:
    """The floating types that y and the members came in; they are compared in the coarser one."""

    of_y: torch.dtype | None
    of_members: torch.dtype | None

    def __call__(self, y: Tensor, block: np.ndarray) -> tuple[Tensor, Tensor, str | None]:
        """y and members, and a note if one of them was rounded."""
        return in_one_precision(y, as_tensor(block, "the forecast"), self.of_y, self.of_members)


class Survey(NamedTuple):
    """What there is to know about members before any is ranked; that of two sets of cases can be joined.

    `empty` are the places of cases without members, `n_missing` is the number of other members that are missing, `fewest`
    the smallest number of members that another case has.
    """

    n_infinite: int
    fills: Fills
    moved: str | None
    empty: Tensor
    n_missing: int
    fewest: int
    sizes: Magnitudes | None
    order: Sorted
    early: Tensor

    def joined(self, more: "Survey") -> "Survey":
        """That of two sets of cases together."""
        sizes = self.sizes or more.sizes
        if self.sizes is not None and more.sizes is not None:
            sizes = self.sizes.joined(more.sizes)
        return Survey(
            self.n_infinite + more.n_infinite,
            self.fills.joined(more.fills),
            self.moved or more.moved,
            torch.cat([self.empty, more.empty]),
            self.n_missing + more.n_missing,
            min(self.fewest, more.fewest),
            sizes,
            self.order.joined(more.order),
            self.early if len(self.early) else more.early,
        )


def survey(
    members: LazyMembers,
    y: Tensor,
    complete: Tensor,
    precision: Precision,
    done: Callable[[int], None],
) -> Survey:
    """Look at all members; `complete` (N,) says which observations are."""

    def calls() -> Iterator[tuple[Any, ...]]:
        for cases in members.slices():
            places = members.places_of(cases)
            yield members.block(cases), y[places], places, complete[places], precision

    found: Survey | None = None
    for cases, one in zip(members.slices(), in_order(_look, calls()), strict=True):
        found = one if found is None else found.joined(one)
        done(cases.stop)
    assert found is not None
    return found


@single_threaded()
def _look(
    block: np.ndarray,
    y: Tensor,
    places: Tensor,
    complete: Tensor,
    precision: Precision,
) -> Survey:
    """The survey of some cases."""
    _, members, moved = precision(y, block)
    n_infinite = 0 if bool(torch.stack(members.aminmax()).isfinite().all()) else int(members.isinf().sum())
    fills = fills_of(members)
    if not complete.all():
        members, places = members[complete], places[complete]
    missing = members.isnan().any(-1)
    empty = missing.all(-1)
    partly = missing & ~empty[:, None]
    there = (~missing).sum(-1)[~empty]
    points = members[~missing] if missing.any() else members.flatten(0, -2)
    return Survey(
        n_infinite,
        fills,
        moved,
        places[empty],
        int(partly.sum()),
        int(there.min()) if len(there) else members.shape[1],
        Magnitudes.of(points) if len(points) else None,
        sorted_members(members, ~missing if missing.any() else None),
        first_members(members).clone(),
    )


@dataclass(frozen=True, eq=False)
class Ranking:
    """How cases are ranked: the same for all chunks."""

    preranks: Sequence[PreRank]
    precision: Precision
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


def ranked(
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
        observed, members, _ = ranking.precision(y[cases], block[cases])
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
