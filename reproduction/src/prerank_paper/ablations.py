"""Between the published protocol and the exact one: one step changed at a time, in training and in evaluation.

The protocols differ in several steps at once. What each of them does is seen by taking it alone:

* draws: soft averages over components, as published, or draws of the mixture;
* the rank in evaluation: a sigmoid in raw units, as published, or a rank; in training the sigmoid's temperature, in raw
  units, as published, or relative to the spread of the forecast;
* linear pre-ranks in training: ranked among draws, as published, or in closed form;
* PCA: directions common to a minibatch, as published, or one set for every case;
* the PCE: a mean over minibatches of 256, as published, or one over all cases.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from prerank.arrays import as_observations
from prerank.calibration import SmoothRank, inclusive_levels, pce
from prerank.forecasts import Forecast, GaussianMixture
from prerank.preranks import (
    PCA,
    LinearProjection,
    PointwiseProjection,
    PreRank,
    Projection,
    View,
    principal_directions,
    view_of,
)
from prerank.randomness import key, uniform
from prerank.training import Penalty, PreRankPenalty, declares_capture
from prerank_paper.protocols import AS_PUBLISHED, EXACT
from prerank_paper.published import BATCH, PUBLISHED_RANK, PublishedPenalty, PublishedView, SoftDraws, published_pit
from prerank_paper.published.softdraws import keyed_noise, soft_streams

SOFT_RELATIVE = "soft draws, relative temperature"
TRUE_RAW = "true draws, raw temperature"
TRUE_RELATIVE = "true draws, relative temperature"
TRUE_OWN = "true draws, own directions"
CLOSED_POOLED = "closed form, pooled directions"

VARIANTS = (AS_PUBLISHED, SOFT_RELATIVE, TRUE_RAW, TRUE_RELATIVE, TRUE_OWN, CLOSED_POOLED, EXACT)
"""Ways to train, from the published to the exact one."""


def trained_with(variant: str, prerank: str) -> bool:
    """Whether a variant is a way of its own for a pre-rank: directions are a question of PCA's alone."""
    return prerank == "PCA" or variant not in (TRUE_OWN, CLOSED_POOLED)


def variant_penalty(variant: str, preranks: Sequence[PreRank], n_draws: int = 100) -> Penalty:
    """The penalty of one way to train."""
    if variant == EXACT:
        return PreRankPenalty(tuple(preranks), n_draws=n_draws)
    if variant in (AS_PUBLISHED, SOFT_RELATIVE):
        rank = PUBLISHED_RANK if variant == AS_PUBLISHED else SmoothRank()
        return PublishedPenalty(tuple(preranks), n_draws=n_draws, rank=rank)
    if variant not in VARIANTS:
        raise ValueError(f"there is no way to train called {variant!r}; known are {', '.join(VARIANTS)}")
    pooled = [PooledPCA() if isinstance(item, PCA) and variant != TRUE_OWN else item for item in preranks]
    if variant == CLOSED_POOLED:
        return PreRankPenalty(tuple(pooled), n_draws=n_draws)
    rank = SmoothRank(relative=variant != TRUE_RAW)
    return PreRankPenalty(tuple(Ranked(item) for item in pooled), n_draws=n_draws, rank=rank)


@dataclass(frozen=True)
class Ranked:
    """A pre-rank whose PITs are ranks among draws even where there is a closed form."""

    prerank: PreRank

    @property
    def name(self) -> str:
        return self.prerank.name

    @property
    def capturable(self) -> bool:
        return declares_capture(self.prerank, "given")

    def given(self, view: View | Forecast) -> Projection:
        projection = self.prerank.given(view_of(view))
        return PointwiseProjection(projection, projection.names, projection.note)


@dataclass(frozen=True)
class PooledPCA:
    """PCA with directions common to all cases: those of all their draws together, as in the published experiments."""

    n_draws: int = 100
    name: str = "PCA"
    capturable = True

    def given(self, view: View | Forecast) -> LinearProjection:
        view = view_of(view)
        draws = view.draws("pooled directions", self.n_draws)  # made with gradients, which other uses of them need
        with torch.no_grad():
            share = draws.probabilities[..., None] / draws.members.shape[-3]
            centred = draws.members - (share * draws.members).sum((-3, -2), keepdim=True)
            directions = principal_directions(((share * centred).mT @ centred).sum(-3))[..., None, :, :]
        names = tuple(f"component {k + 1}" for k in range(view.n_targets))
        return LinearProjection(directions, names, "common to all cases")


def evaluation_table(
    y: Tensor, forecast: GaussianMixture, preranks: Sequence[PreRank], n_draws: int = 100, seed: int = 0
) -> pd.DataFrame:
    """PCE of models (E, N) by `draws` (soft, true), `rank` (sigmoid, rank) and `cases` (per 256, whole).

    All else as published: levels, directions common to a minibatch, and the copula's joint CDF from the same kind of
    draws. A row is one model, pre-rank and combination.
    """
    y = as_observations(y)
    rows = []
    for draws in ("soft", "true"):
        for rank in ("sigmoid", "rank"):
            batches = list(_pits(y, forecast, preranks, draws, rank, n_draws, seed))
            for k, prerank in enumerate(preranks):
                parts = [batch[k] for batch in batches]
                values = {
                    "per 256": torch.stack([_pce(part) for part in parts]).mean(0),
                    "whole": _pce(torch.cat(parts, -2)),
                }
                for cases, value in values.items():
                    label = {"draws": draws, "rank": rank, "cases": cases, "prerank": prerank.name}
                    rows += [label | {"model": model, "value": float(v)} for model, v in enumerate(value.reshape(-1))]
    return pd.DataFrame(rows)


def _pce(pit: Tensor) -> Tensor:
    return pce(pit, levels=inclusive_levels()).mean(-1)


def _pits(
    y: Tensor, forecast: GaussianMixture, preranks: Sequence[PreRank], draws: str, rank: str, n_draws: int, seed: int
) -> Iterator[list[Tensor]]:
    """PITs (..., B, K) of each pre-rank, minibatch by minibatch."""
    for number, start in enumerate(range(0, y.shape[-2], BATCH)):
        cases = slice(start, min(start + BATCH, y.shape[-2]))
        batch, observed = forecast.select(cases), y[..., cases, :]
        with torch.no_grad():
            made = _drawn(batch, observed, preranks, draws, n_draws, seed, number)
            if rank == "sigmoid":
                yield [published_pit(observed, batch, item, made).clamp(0.0, 1.0) for item in preranks]
            else:
                view = PublishedView(batch, made)
                yield [
                    _randomised(observed, made.ranked, item.given(view), key(seed, item.name, number))
                    for item in preranks
                ]


def _drawn(
    batch: GaussianMixture, y: Tensor, preranks: Sequence[PreRank], draws: str, n_draws: int, seed: int, number: int
) -> SoftDraws:
    if draws == "soft":
        return SoftDraws.of(batch, keyed_noise(soft_streams(preranks, batch, y.shape[-2], n_draws), y, seed, number))
    ranked, learnt = (batch.ensemble(n_draws, seed, f"{name}, batch {number}").members for name in ("ranked", "learnt"))
    return SoftDraws(ranked, learnt)


def _randomised(y: Tensor, members: Tensor, projection: Projection, number: int) -> Tensor:
    """Ranks (..., B, K), with a uniform number in each."""
    projected = projection(torch.cat([y[..., None, :].expand(*members.shape[:-2], 1, -1), members], -2))
    t, others = projected.split([1, members.shape[-2]], -2)
    below, ties = (others < t).sum(-2), (others == t).sum(-2)
    spread = uniform(torch.tensor([number]), tuple(below.shape[-2:])).to(below.device)[0]
    return ((below + spread * (ties + 1)) / (members.shape[-2] + 1)).to(y.dtype)
