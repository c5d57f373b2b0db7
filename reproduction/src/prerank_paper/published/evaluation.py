"""The test PCE as it was published: a mean over minibatches of 256 cases, by soft draws."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from prerank._chunks import chunks
from prerank.arrays import as_observations
from prerank.calibration import inclusive_levels, pce, pce_null
from prerank.forecasts import GaussianMixture
from prerank.preranks import PreRank
from prerank_paper.published.softdraws import SoftDraws, keyed_noise, soft_streams
from prerank_paper.published.view import published_pit

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
    return torch.cat(totals, -2).mean(-2)


def published_pits(
    y: Tensor, forecast: GaussianMixture, preranks: Sequence[PreRank], n_draws: int = 100, seed: int = 0
) -> Iterator[list[Tensor]]:
    """The published test PITs, some minibatches of 256 at a time: one tensor (..., minibatches, 256, K) per pre-rank.

    A smaller last minibatch comes by itself.
    """
    y = as_observations(y)
    n_batches, n_left = divmod(y.shape[-2], BATCH)
    n_models = forecast.batch_shape[:-1].numel()
    numbers_of_a_draw = max(4 * n_models * forecast.n_targets, forecast.n_components * (forecast.n_targets + 1))
    groups = [range(some.start, some.stop) for some in chunks(n_batches, BATCH * n_draws * numbers_of_a_draw, y.device)]
    for group in groups + ([range(n_batches, n_batches + 1)] if n_left else []):
        cases = slice(group.start * BATCH, min(group.stop * BATCH, y.shape[-2]))
        some = forecast.select(cases)
        batch = GaussianMixture(
            some.logits.unflatten(-2, (len(group), -1)),
            some.loc.unflatten(-3, (len(group), -1)),
            some.scale_tril.unflatten(-4, (len(group), -1)),
        )
        observed = y[..., cases, :].unflatten(-2, (len(group), -1))
        noise = keyed_noise(soft_streams(preranks, batch, observed.shape[-2], n_draws), observed, seed, group)
        with torch.no_grad():
            soft = SoftDraws.of(batch, noise)
            yield [published_pit(observed, batch, item, soft).clamp(0.0, 1.0) for item in preranks]


def published_expected_pce(n_cases: int) -> float:
    """What `published_pce` gives a forecast whose PITs are exactly uniform: a mean over batches of 256 and a small last."""
    sizes = batch_sizes(n_cases)
    return sum(pce_null(size, levels=inclusive_levels()).mean for size in sizes) / len(sizes)


def batch_sizes(n_cases: int) -> list[int]:
    """Cases of each minibatch: 256, and a smaller last one."""
    return [min(BATCH, n_cases - start) for start in range(0, n_cases, BATCH)]
