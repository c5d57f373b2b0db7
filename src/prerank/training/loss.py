"""The loss of a step (eq. 9): the mean score of a minibatch plus strength times the penalty, for every model of a fleet."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prerank.forecasts import GaussianMixture
from prerank.randomness import key, normals_of_step
from prerank.training.cuda_graph import Branches
from prerank.training.grouping import Grouping, join, split
from prerank.training.protocols import Score, Streams, draws_of, values_of_penalty, values_of_score


class StepNoise:
    """Standard normal numbers (seeds, ...) by the name of their stream; models of one seed share theirs."""

    def __init__(self, seeds: Sequence[int], names: Iterable[str], dtype: torch.dtype, device: torch.device) -> None:
        # made beforehand: a captured graph cannot copy keys from the host
        self.keys = {name: torch.tensor([key(seed, name) for seed in seeds], device=device) for name in names}
        self.dtype = dtype

    def of_groups(self, wanted: Sequence[Streams], step: Tensor) -> list[dict[str, Tensor]]:
        """Numbers (seeds, *shape) for every group of models; groups that want the same share them."""
        drawn: dict[object, Tensor] = {}
        numbers: list[dict[str, Tensor]] = []
        for streams in wanted:
            for name, stream in streams.items():
                kind = name, stream.shape, stream.transform
                if kind not in drawn:
                    drawn[kind] = stream.made(normals_of_step(self.keys[name], step, stream.shape, self.dtype))
            numbers.append({name: drawn[name, stream.shape, stream.transform] for name, stream in streams.items()})
        return numbers

    def of_score(self, score: Score, name: str, y: Tensor, step: Tensor, seed_of: Tensor) -> Tensor | None:
        """Numbers (E, B, n_draws, D) for the draws of a score on y (E, B, D); None if it draws nothing."""
        n_draws = draws_of(score)
        if not n_draws:
            return None
        return normals_of_step(self.keys[name], step, (y.shape[-2], n_draws, y.shape[-1]), self.dtype)[seed_of]


@dataclass(frozen=True, eq=False)
class Loss:
    """What E models minimise; `strength` and `seed_of` (E,) are each model's."""

    score: Score
    grouping: Grouping
    strength: Tensor
    seed_of: Tensor
    noise: StepNoise

    def __call__(self, y: Tensor, forecast: GaussianMixture, weights: Tensor, step: Tensor) -> Tensor:
        """Loss (E,) of y (E, B, D) with weights (E, B) at a step; zero for a model whose rows all weigh nothing."""
        total = weights.sum(-1, keepdim=True)
        weights = torch.where(total > 0, weights, 1.0)
        noise = self.noise.of_score(self.score, "score", y, step, self.seed_of)
        # before the branches, so that its backward pass comes after theirs: what they all read is freed only then
        scores = values_of_score(self.score, y, forecast, noise)
        loss = (scores * weights).sum(-1) / weights.sum(-1)
        return (loss + self.strength * self.penalties(y, forecast, weights, step)) * (total[:, 0] > 0)

    def penalties(self, y: Tensor, forecast: GaussianMixture, weights: Tensor, step: Tensor) -> Tensor:
        """The penalty of every model, (E,), zero for those without one."""
        groups, sizes = self.grouping.groups, self.grouping.sizes
        if not groups:
            return torch.zeros_like(y[:, 0, 0])
        drawn = self.noise.of_groups([group.streams for group in groups], step)
        forecasts = split(forecast, sizes)
        values: list[Tensor | None] = [None] * len(sizes)
        found: list[tuple[int, Tensor]] = []
        with Branches(y.device, len(groups)) as branches:
            for number, group in enumerate(groups):
                with branches[number]:
                    noise = {
                        name: stream.given(drawn[number][name], group.seeds) for name, stream in group.streams.items()
                    }
                    own = join([forecasts[k] for k in group.segments])
                    value = values_of_penalty(group.penalty, group.part(y), own, group.part(weights), noise)
                    cut = value.split([sizes[k] for k in group.segments])
                    found += [
                        (k, share * part) for k, share, part in zip(group.segments, group.shares, cut, strict=True)
                    ]
        for segment, value in found:
            before = values[segment]
            values[segment] = value if before is None else before + value
        segments = zip(self.grouping.segments, values, strict=True)
        return torch.cat([torch.zeros_like(y[models, 0, 0]) if value is None else value for models, value in segments])
