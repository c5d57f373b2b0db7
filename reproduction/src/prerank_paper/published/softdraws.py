"""Soft draws: averages of one draw per component under soft random weights, as the published experiments made them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from prerank._kernels import Kernel, kernel_for, register
from prerank.forecasts import GaussianMixture
from prerank.preranks import PreRank, needs_of
from prerank.randomness import key, normal
from prerank.training import ForecastSizes, Numbers, SharedNumbers, Stream

RANKED, LEARNT = "ranked", "learnt"
"""Streams of the numbers behind the draws that are ranked and behind those that the copula learns from."""


SOFT_DRAWS = register(
    Kernel(
        "published draws",
        "softly averaged draws of all components",
        fused="prerank_paper.published.softdraws_kernel.soft_draws",
        plain="prerank_paper.published.soft_draws",
        most={"targets": 32},
        fewest={"axes": 1},
    )
)


def with_gumbel(noise: Tensor) -> Tensor:
    """Normal numbers (..., S, C, D + 1), the last of each turned into a Gumbel variable that chooses a component softly."""
    numbers = torch.cat([noise[..., :-1], -torch.log(-torch.special.log_ndtr(noise[..., -1:]))], -1)
    if numbers.is_cpu or numbers.ndim < 3:
        return numbers
    # as the kernel reads them: all draws of a number together
    return numbers.movedim(-3, -1).contiguous().movedim(-1, -3)


def soft_draws(forecast: GaussianMixture, noise: Numbers) -> Tensor:
    """Softly averaged component draws (..., N, S, D) from `with_gumbel` numbers (..., N, S, C, D + 1).

    These are *not* draws of the mixture.
    """
    if fused := kernel_for(SOFT_DRAWS, forecast.loc, axes=len(forecast.batch_shape), targets=forecast.n_targets):
        return fused(forecast.loc, forecast.scale_tril, forecast.log_weights, *_shared(forecast, noise))
    numbers = noise.of_models() if isinstance(noise, SharedNumbers) else noise
    share = torch.softmax(forecast.log_weights[..., None, :] + numbers[..., -1], -1)
    each = forecast.loc[..., None, :, :] + torch.einsum("...cij,...scj->...sci", forecast.scale_tril, numbers[..., :-1])
    return (share[..., None] * each).sum(-2)


def _shared(forecast: GaussianMixture, noise: Numbers) -> tuple[Tensor, Tensor]:
    """Numbers (M, B, S, C, D + 1), and whose of them each model of the forecast uses."""
    if isinstance(noise, SharedNumbers):
        return noise.values, noise.owner
    values = noise.reshape(-1, *noise.shape[-4:])
    return values, torch.arange(forecast.batch_shape[:-1].numel(), device=noise.device) % len(values)


class SoftDraws(NamedTuple):
    """Soft draws (..., B, S, D) that are ranked, and those that the copula's CDF is made from, if it is asked for."""

    ranked: Tensor
    learnt: Tensor | None

    @staticmethod
    def of(forecast: GaussianMixture, noise: Mapping[str, Numbers]) -> "SoftDraws":
        return SoftDraws(
            soft_draws(forecast, noise[RANKED]), soft_draws(forecast, noise[LEARNT]) if LEARNT in noise else None
        )


def soft_streams(preranks: Sequence[PreRank], sizes: ForecastSizes, n_cases: int, n_draws: int) -> dict[str, Stream]:
    """Numbers of `n_draws` soft draws, which models of one seed share: to rank, and to learn from where a pre-rank does."""
    shape = (n_cases, n_draws, sizes.n_components, sizes.n_targets + 1)
    stream = Stream(shape, with_gumbel, shared=True)
    learns = any(needs_of(item, sizes.n_targets).reference for item in preranks)
    return {RANKED: stream, LEARNT: stream} if learns else {RANKED: stream}


def keyed_noise(
    streams: Mapping[str, Stream], like: Tensor, seed: int, steps: int | Sequence[int]
) -> dict[str, Tensor]:
    """The numbers of a step that depend on seed and step alone; those of several steps on a leading axis."""

    def keys(name: str) -> int | Tensor:
        if isinstance(steps, int):
            return key(seed, "published", name, steps)
        return torch.tensor([key(seed, "published", name, step) for step in steps], device=like.device)

    return {
        name: stream.made(normal(keys(name), stream.shape, like.dtype, like.device)) for name, stream in streams.items()
    }
