"""Which models of a fleet share a penalty, or a part of one, and are evaluated together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor

from prerank._chunks import at_once
from prerank.forecasts import GaussianMixture
from prerank.training.fleet import Architecture, Run
from prerank.training.protocols import Penalty, Streams, parts_of, streams_of


@dataclass(eq=False)
class Group:
    """Models that share a penalty, or a part of one: segments of the fleet, the part's share in each, places, seeds."""

    penalty: Penalty
    streams: Streams
    segments: list[int] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    models: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    seeds: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    together: slice | None = None

    def part(self, tensor: Tensor) -> Tensor:
        """Its models of a tensor (E, ...): a view where they stand together."""
        return tensor[self.models if self.together is None else self.together]


@dataclass(frozen=True, eq=False)
class Grouping:
    """A fleet cut into segments of one penalty each, and the groups of segments that are evaluated together."""

    segments: list[slice]
    groups: list[Group]

    @property
    def sizes(self) -> list[int]:
        return [models.stop - models.start for models in self.segments]


def in_order_of_penalties(runs: Sequence[Run]) -> list[int]:
    """Places of the runs such that those with the same penalty stand together; those without one come first."""
    penalties = list(dict.fromkeys([None, *(run.effective_penalty for run in runs)]))
    return sorted(range(len(runs)), key=lambda i: penalties.index(runs[i].effective_penalty))


def grouped(runs: Sequence[Run], seed_of: Tensor, architecture: Architecture, n_cases: int, by_parts: bool) -> Grouping:
    """The groups of models with the given runs, which stand in the order of their penalties, and minibatches of `n_cases`.

    By parts, as for a GPU, all models with the same part of a penalty are one group; otherwise, as for a CPU, as many models
    with the same penalty as keep their draws in its cache.
    """
    segments: list[slice] = []
    groups: dict[object, Group] = {}
    for penalty, members in groupby(range(len(runs)), key=lambda i: runs[i].effective_penalty):
        places = list(members)
        parts = [] if penalty is None else parts_of(penalty) if by_parts else [penalty]
        wanted = [streams_of(part, architecture, n_cases) for part in parts]
        size = len(places) if by_parts or penalty is None else _models_at_once(wanted[0], architecture, n_cases)
        for start in range(places[0], places[-1] + 1, size):
            for part, streams in zip(parts, wanted, strict=True):
                group = groups.setdefault(part if by_parts else start, Group(part, streams))
                group.segments.append(len(segments))
                group.shares.append(1 / len(parts))
            segments.append(slice(start, min(start + size, places[-1] + 1)))
    for group in groups.values():
        places = [place for k in group.segments for place in range(len(runs))[segments[k]]]
        group.models = torch.tensor(places, device=seed_of.device)
        group.seeds = seed_of[group.models]
        if places == list(range(places[0], places[-1] + 1)):
            group.together = slice(places[0], places[-1] + 1)
    return Grouping(segments, list(groups.values()))


def _models_at_once(streams: Streams, architecture: Architecture, n_cases: int) -> int:
    """As many models as keep their draws, or their factors, in the cache of a CPU."""
    factors = n_cases * architecture.n_components * architecture.n_targets**2
    return at_once(max((math.prod(stream.shape) for stream in streams.values()), default=factors), torch.device("cpu"))


def join(forecasts: Sequence[GaussianMixture]) -> GaussianMixture:
    """The forecasts of several segments behind each other."""
    if len(forecasts) == 1:
        return forecasts[0]
    logits, loc, scale_tril = (
        torch.cat([getattr(item, name) for item in forecasts]) for name in ("logits", "loc", "scale_tril")
    )
    return GaussianMixture(logits, loc, scale_tril, validate_args=False)


def split(forecast: GaussianMixture, sizes: list[int]) -> list[GaussianMixture]:
    """The forecasts of consecutive models, cut at once: the backward pass of a cut is then one concatenation.

    A slice for each would give every one of them a gradient as large as the whole fleet's.
    """
    shape = forecast.scale_tril.shape[-2:]
    # with more than four axes the library would concatenate by one copy after the other
    parts = (tensor.split(sizes) for tensor in (forecast.logits, forecast.loc, forecast.scale_tril.flatten(-2)))
    return [
        GaussianMixture(logits, loc, factors.unflatten(-1, shape), validate_args=False)
        for logits, loc, factors in zip(*parts, strict=True)
    ]
