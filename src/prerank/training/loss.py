"""The loss of a step (eq. 9): the mean score of a minibatch plus strength times the penalty, for every model of a fleet."""

from dataclasses import dataclass

import torch
from torch import Tensor

from prerank.forecasts import GaussianMixture
from prerank.training.cuda_graph import Branches
from prerank.training.grouping import Grouping, join, split
from prerank.training.noise import StepNoise
from prerank.training.protocols import Score, values_of_penalty, values_of_score


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
