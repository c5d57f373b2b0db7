"""Where the PITs of a check come from: a forecast in memory, ranked at once, or members that are read in chunks."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from prerank.arrays import as_tensor
from prerank.arrays.fill_values import refuse_fill_values
from prerank.arrays.labels import Axes
from prerank.calibration import PCETest, ProjectedPIT, centred_levels, pce_test, projected_pit
from prerank.calibration.chunked_test import Chunking
from prerank.calibration.random_signs import Setting
from prerank.diagnosis.chunked import PerCase, Precision, Ranking, ranked, survey
from prerank.diagnosis.data_warnings import few_values, quantiles, targets_of_few_values
from prerank.diagnosis.per_case import case_identifiers, projection_names, weight_per_case
from prerank.diagnosis.preparation import Prepared, complete_cases, prepare, refuse_infinite, target_names
from prerank.diagnosis.present_members import pit_of_present_members
from prerank.diagnosis.progress import check_progress
from prerank.forecasts import Ensemble
from prerank.inputs.lazy_members import observations_and_lazy_members
from prerank.inputs.rescaling import Magnitudes, chosen_units
from prerank.preranks import PreRank
from prerank.preranks.selection import in_units, of_cases
from prerank.preranks.table1 import listed_preranks


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
    """A forecast with its observations, ready to be tested; `own` are the observations' own weights (N,), if any."""

    own: Tensor | None
    preranks: list[PreRank]

    @property
    def prepared(self) -> Prepared: ...

    def notes(self) -> list[str]:
        """What is to be said about the data."""
        ...

    def test(
        self, rows: Tensor | None, blocks: Tensor | None, weights: Tensor | None, n_groups: int
    ) -> tuple[ProjectedPIT, PCETest]:
        """PITs and test of some of the cases that are left, one of `n_groups` groups, or of all.

        Blocks and weights are theirs.
        """
        ...


class MemorySource:
    """A forecast in memory: its PITs are computed once, for all groups of cases."""

    def __init__(
        self,
        y: Any,
        forecast: Any,
        axes: Axes | None,
        asked: Asked,
        observation_weights: Any,
        case_ids: Any,
    ) -> None:
        self.asked = asked
        self.prepared = prepare(y, forecast, axes, asked.scale, asked.listed)
        listed = of_cases(asked.listed(self.prepared.y.shape[-1]), self.prepared.cases)
        self.preranks = in_units(listed, self.prepared.units.divisors)
        self.own = weight_per_case(observation_weights, "observation_weights", self.prepared)
        ids = case_identifiers(case_ids, self.prepared)
        self.ids = self.prepared.cases if ids is None else ids

    def notes(self) -> list[str]:
        return [*self.prepared.notes, *quantiles(self.prepared), *few_values(self.prepared)]

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
        pit = self._ranked()
        for group, names in projection_names(self.preranks, self.prepared.names).items():
            pit = pit.renamed(group, names)
        return pit

    def _ranked(self) -> ProjectedPIT:
        prepared, forecast, asked = self.prepared, self.prepared.forecast, self.asked
        size = forecast.members.numel() if isinstance(forecast, Ensemble) else asked.n_draws * prepared.y.numel()
        with check_progress(size) as on_progress:
            if prepared.present is not None:
                assert isinstance(forecast, Ensemble)
                return pit_of_present_members(
                    self.preranks,
                    forecast,
                    prepared.present,
                    prepared.y,
                    observation_weights=self.own,
                    seed=asked.seed,
                    case_ids=self.ids,
                    on_progress=on_progress,
                ).as_equal_cases()
            return projected_pit(
                prepared.y,
                forecast,  # type: ignore[arg-type]
                self.preranks,
                observation_weights=self.own,
                n_draws=asked.n_draws,
                seed=asked.seed,
                case_ids=self.ids,
                exchangeable=True,
                on_progress=on_progress,
            )


class LazySource:
    """Members that are read in chunks of cases: once to see what they are, once for each group of cases to rank them."""

    own: Tensor | None = None

    def __init__(self, y: Any, forecast: Any, axes: Axes | None, asked: Asked, case_ids: Any) -> None:
        self.asked = asked
        inputs = observations_and_lazy_members(y, forecast, axes)
        self.members = inputs.members
        _, self.n_members, n_targets = self.members.shape
        self.preranks = asked.listed(n_targets)
        self.precision = Precision(inputs.precision, self.members.precision)
        names = target_names(inputs.labels, n_targets)
        none = as_tensor(self.members.array.dtype.type(0))  # the type that members will have
        self.y, _, moved = self.precision(inputs.y, none.numpy()[None][:0])
        refuse_infinite(self.y, "y")
        refuse_fill_values(self.y, "y")
        cases, dropped = complete_cases(self.y)
        complete = torch.zeros(len(self.y), dtype=torch.bool)
        complete[cases] = True
        everything = Prepared(
            self.y, self.members, torch.arange(len(self.y)), None, [], inputs.labels, names, len(self.y)
        )
        self.ids = case_identifiers(case_ids, everything)
        with check_progress(2 * int(torch.tensor(self.members.shape).prod())) as on_progress:
            found = survey(self.members, self.y, complete, self.precision, _told(on_progress, len(self.y)))
        if found.n_infinite:
            raise ValueError(f"members have {found.n_infinite} infinite values; NaN marks a missing one")
        found.fills.refuse("the members")
        self.found = found
        notes = [note for note in (moved or found.moved, dropped) if note]
        if len(found.empty):
            complete[found.empty] = False
            cases = complete.nonzero()[:, 0]
            notes.append(f"{len(found.empty)} cases dropped: all their members are missing")
        if found.sizes is None:
            raise ValueError("no case is left: every member of every case has a missing value")
        if found.n_missing:
            total = len(cases) * self.n_members
            notes.append(f"{found.n_missing} of {total} members left out: they have missing values")
        left = self.y if len(cases) == len(self.y) else self.y[cases]
        self.units = chosen_units(Magnitudes.of(left), found.sizes, True, asked.scale, list(names), self.y.dtype)
        notes.extend(self.units.notes)
        self.preranks = in_units(self.preranks, self.units.divisors)
        self.prepared = Prepared(left, self.members, cases, None, notes, inputs.labels, names, len(self.y))

    def notes(self) -> list[str]:
        few = targets_of_few_values(self.prepared.y, self.found.early, self.prepared.names)
        return [*self.prepared.notes, *self.found.order.notes(), *few]

    def test(
        self, rows: Tensor | None, blocks: Tensor | None, weights: Tensor | None, n_groups: int
    ) -> tuple[ProjectedPIT, PCETest]:
        asked, cases = self.asked, self.prepared.cases if rows is None else self.prepared.cases[rows]
        shares = None if weights is None else (weights / weights.sum()).double()
        setting = Setting(
            len(cases),
            centred_levels(),
            asked.seed,
            None if blocks is None else int(blocks.max()) + 1,
            None if shares is None else float(shares.square().sum()),
        )
        chunking = Chunking(setting, asked.n_replicates, n_groups, len(self.preranks))
        ids = torch.arange(len(self.y)) if self.ids is None else self.ids
        places = torch.full((len(self.y),), -1)
        places[cases] = torch.arange(len(cases))
        per_case = PerCase(places, ids, self._spread(blocks, cases), self._spread(shares, cases))
        ranking = Ranking(
            self.preranks, self.precision, self.units, chunking, self.found.n_missing > 0, self.found.fewest
        )
        with check_progress(2 * int(torch.tensor(self.members.shape).prod())) as on_progress:
            done = _told(on_progress, len(self.y))
            named = ids if len(cases) == len(ids) else ids[cases]
            pit, test = ranked(self.members, self.y, ranking, per_case, named, asked.exponent, done)
        for group, names in projection_names(self.preranks, self.prepared.names).items():
            pit = pit.renamed(group, names)
        return pit, test

    def _spread(self, values: Tensor | None, cases: Tensor) -> Tensor | None:
        """What some cases have, with a place for every case."""
        if values is None:
            return None
        return torch.zeros(len(self.y), dtype=values.dtype).index_copy_(0, cases, values)


def _told(on_progress: Any, total: int) -> Any:
    return (lambda done: None) if on_progress is None else (lambda done: on_progress(done, total))
