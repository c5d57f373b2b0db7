"""The test PCE as it was published: a mean over minibatches of 256 cases, by soft draws."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from prerank.calibration import PreRank, inclusive_levels, pce, pce_null
from prerank.forecast import GaussianMixture, as_observations
from prerank.studies.published.softdraws import SoftDraws, keyed_noise, soft_streams
from prerank.studies.published.view import published_pit

BATCH = 256
"""Cases of a minibatch, in training and in the published test PCE."""


def published_pce(
    y: Tensor, forecast: GaussianMixture, preranks: Sequence[PreRank], n_draws: int = 100, seed: int = 0
) -> Tensor:
    """Test PCE as published: per minibatch of 256 in order, averaged over them and over projections, (..., pre-ranks)."""
    totals = [
        torch.stack([pce(pit, levels=inclusive_levels()).mean(-1) for pit in pits], -1)
        for pits in published_pits(y, forecast, preranks, n_draws, seed)
    ]
    return torch.stack(totals).mean(0)


def published_pits(
    y: Tensor, forecast: GaussianMixture, preranks: Sequence[PreRank], n_draws: int = 100, seed: int = 0
) -> Iterator[list[Tensor]]:
    """The published test PITs, minibatch by minibatch of 256: one tensor (..., B, K) per pre-rank."""
    y = as_observations(y)
    n_cases = y.shape[-2]
    for number, start in enumerate(range(0, n_cases, BATCH)):
        cases = slice(start, min(start + BATCH, n_cases))
        batch, observed = forecast.select(cases), y[..., cases, :]
        noise = keyed_noise(soft_streams(preranks, batch, observed.shape[-2], n_draws), observed, seed, number)
        with torch.no_grad():
            soft = SoftDraws.of(batch, noise)
            yield [published_pit(observed, batch, item, soft).clamp(0.0, 1.0) for item in preranks]


def published_null_level(n_cases: int) -> float:
    """What `published_pce` gives a forecast whose PITs are exactly uniform: a mean over batches of 256 and a small last."""
    sizes = batch_sizes(n_cases)
    return sum(pce_null(size, levels=inclusive_levels()).mean for size in sizes) / len(sizes)


def batch_sizes(n_cases: int) -> list[int]:
    """Cases of each minibatch: 256, and a smaller last one."""
    return [min(BATCH, n_cases - start) for start in range(0, n_cases, BATCH)]
