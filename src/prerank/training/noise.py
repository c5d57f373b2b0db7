"""The random numbers of a step: one set for each seed, a function of the seed, the name of the stream and the step."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from prerank.randomness import key, normals_of_step
from prerank.training.protocols import Score, Streams, draws_of


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
