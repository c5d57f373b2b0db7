"""The pass over members in chunks that ranks them and adds up what a test needs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from prerank._parallel import single_threaded
from prerank.arrays.precision import Precisions
from prerank.calibration import PCETest, ProjectedPIT, projected_pit
from prerank.calibration.chunked_test import Accumulated, Chunking, Tally, tally
from prerank.diagnosis.present_members import pit_of_present_members
from prerank.forecasts import Ensemble
from prerank.inputs.lazy_members import LazyMembers, in_order
from prerank.inputs.rescaling import Units
from prerank.preranks import PreRank
from prerank.preranks.selection import of_cases

_VALUES = 1 << 21  # values of members that are ranked at once


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
