"""Trained models evaluated under both protocols, the exact one and the published one, as tidy records."""

from collections.abc import Iterator, Sequence

import pandas as pd
import torch
from torch import Tensor

from prerank.arrays import as_observations
from prerank.calibration import ProjectedPIT, pce, pce_null
from prerank.forecasts import GaussianMixture
from prerank.preranks import PreRank, paper_preranks
from prerank.scores import TwoSets, energy_score
from prerank.training.evaluation import (
    Column,
    column_of,
    exact_errors,
    exact_scores,
    points_per_case,
    some_models_at_a_time,
)
from prerank_paper.protocols import AS_PUBLISHED, EXACT
from prerank_paper.published import BATCH, batch_sizes, published_expected_pce, published_pce

TESTS = 100  # cells of a table, which p-values are adjusted for: small ones need so many times the replicates


def evaluate_both(
    y: Tensor,
    forecast: GaussianMixture,
    preranks: Sequence[PreRank] | None = None,
    published_preranks: Sequence[PreRank] | None = None,
    *,
    n_draws: int = 100,
    n_replicates: int = 999,
    seed: int = 0,
) -> pd.DataFrame:
    """The records of `prerank.training.evaluation` with the published protocol beside them, told apart by `protocol`.

    Exact: in addition `pce per 256`, the mean over minibatches of 256 as the paper reports it. As published: `nll`;
    `energy score` by two independent sets of draws; `pce per 256`, the PCE that the published sampler gives. Pre-ranks are
    those of the paper, and for the published protocol the same unless `published_preranks` says otherwise (its dependency
    for D = 2, for instance).

    >>> forecast = GaussianMixture(torch.zeros(300, 1), torch.zeros(300, 1, 2), torch.eye(2).expand(300, 1, 2, 2))
    >>> records = evaluate_both(forecast.ensemble(1, seed=1).members[:, 0], forecast, n_replicates=0)
    >>> sorted(records["protocol"].unique()), sorted(records["metric"].unique())
    (['as published', 'exact'], ['energy score', 'nll', 'pce', 'pce per 256'])
    """
    y = as_observations(y)
    exact = list(paper_preranks(y.shape[-1]) if preranks is None else preranks)
    published = exact if published_preranks is None else list(published_preranks)

    def columns(observed: Tensor, laws: GaussianMixture) -> Iterator[Column]:
        for found in exact_scores(observed, laws, n_draws, seed):
            yield {"protocol": EXACT, **found}
        for found in _published_scores(observed, laws, n_draws, seed):
            yield {"protocol": AS_PUBLISHED, **found}
        errors = exact_errors(observed, laws, exact, n_draws, n_replicates, seed)
        for prerank, (pit, found) in zip(exact, errors, strict=True):
            yield {"protocol": EXACT, **found}
            yield {"protocol": EXACT, **_per_batch(pit, prerank)}
        for found in _published_errors(observed, laws, published, n_draws, seed):
            yield {"protocol": AS_PUBLISHED, **found}

    two_sets = 2 * n_draws  # of the published energy score
    return some_models_at_a_time(y, forecast, columns, max(two_sets, points_per_case(exact, n_draws, n_replicates)))


def exact_tests(
    y: Tensor,
    forecast: GaussianMixture,
    preranks: Sequence[PreRank],
    *,
    n_draws: int = 100,
    n_replicates: int = 999,
    seed: int = 0,
) -> pd.DataFrame:
    """The exact PCEs of `evaluate_both` alone, with tests and intervals; small p-values are resolved further."""
    y = as_observations(y)

    def columns(observed: Tensor, laws: GaussianMixture) -> Iterator[Column]:
        for _, found in exact_errors(observed, laws, preranks, n_draws, n_replicates, seed, TESTS):
            yield {"protocol": EXACT, **found}

    return some_models_at_a_time(y, forecast, columns, points_per_case(preranks, n_draws, n_replicates))


def _per_batch(pit: ProjectedPIT, prerank: PreRank) -> Column:
    """The mean of the exact PCE over minibatches, and what exact uniformity would give."""
    n_members, sizes = pit.parts[0].n_members, batch_sizes(pit.n_cases)
    null = [pce_null(size, n_members=n_members).mean for size in sizes]
    n_batches, n_left = divmod(pit.n_cases, BATCH)
    values = []
    if n_batches:
        values.append(pce(pit.select(slice(0, n_batches * BATCH)).in_sets(n_batches)).mean(-1))
    if n_left:
        values.append(pce(pit.select(slice(n_batches * BATCH, None))).mean(-1)[..., None])
    return column_of("pce per 256", torch.cat(values, -1).mean(-1), prerank.name, expected_pce=sum(null) / len(null))


def _published_scores(y: Tensor, laws: GaussianMixture, n_draws: int, seed: int) -> Iterator[Column]:
    yield column_of("nll", -laws.log_prob(y).mean(-1))
    two_sets = energy_score(y, laws.ensemble(2 * n_draws, seed, "energy score"), TwoSets())
    yield column_of("energy score", two_sets.mean(-1))


def _published_errors(
    y: Tensor, laws: GaussianMixture, preranks: Sequence[PreRank], n_draws: int, seed: int
) -> Iterator[Column]:
    if not preranks:
        return
    values = published_pce(y, laws, preranks, n_draws, seed)
    level = published_expected_pce(y.shape[-2])
    for k, item in enumerate(preranks):
        yield column_of("pce per 256", values[..., k], item.name, expected_pce=level)
