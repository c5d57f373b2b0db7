"""`evaluate`: every number of the paper's tables for trained models, exactly and as published, as tidy records."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from prerank.calibration import (
    PCETest,
    PreRank,
    ProjectedPIT,
    centred_levels,
    paper_preranks,
    pce,
    pce_null,
    pce_test,
    projected_pit,
)
from prerank.calibration.interval import pce_intervals
from prerank.calibration.null import in_quadrature
from prerank.forecast import GaussianMixture, as_observations
from prerank.scores import Fair, TwoSets, energy_score
from prerank.training.published import BATCH, batch_sizes, published_null_level, published_pce

EXACT, AS_PUBLISHED = "exact", "as published"


def evaluate(
    y: Tensor,
    forecast: GaussianMixture,
    preranks: Sequence[PreRank] | None = None,
    *,
    published_preranks: Sequence[PreRank] | None = None,
    n_draws: int = 100,
    n_replicates: int = 999,
    seed: int = 0,
) -> pd.DataFrame:
    """Scores and calibration of one model (batch shape (N,)) or several ((E, N)) on test rows y (N, D) or (E, N, D).

    One record per model, protocol, metric and pre-rank: `nll`; `energy score` (exact: fair, as published: two
    independent sets of draws); `pce`, the mean over the projections of a pre-rank, over the whole set, with its null
    level, corrected value, 95 % interval and p-value; `pce per 256`, the mean over minibatches of 256 as the paper reports
    it; and for the protocol "as published" the PCE that its sampler gives. Pre-ranks are those of the paper, and for the
    published protocol the same unless `published_preranks` says otherwise (its dependency for D = 2, for instance).
    Models share their random numbers, so that what is said of one does not depend on the others; they are taken some
    at a time. `n_replicates=0` leaves tests and intervals out, which are most of the work; the null level is then the
    exact mean for uniform PITs.

    >>> law = GaussianMixture(torch.zeros(300, 1), torch.zeros(300, 1, 2), torch.eye(2).expand(300, 1, 2, 2))
    >>> records = evaluate(law.ensemble(1, seed=1).members[:, 0], law, n_replicates=99)
    >>> sorted(records["metric"].unique())
    ['energy score', 'nll', 'pce', 'pce per 256']
    """
    y = as_observations(y)
    exact = list(paper_preranks(y.shape[-1]) if preranks is None else preranks)
    published = exact if published_preranks is None else list(published_preranks)

    def columns(laws: GaussianMixture, observed: Tensor) -> Iterator[dict[str, object]]:
        yield from _scores(laws, observed, n_draws, seed)
        yield from _exact(laws, observed, exact, n_draws, n_replicates, seed)
        yield from _as_published(laws, observed, published, n_draws, seed)

    return _some_models_at_a_time(forecast, y, columns, len(exact) * (n_draws + 1) if n_replicates else 1)


def exact_tests(
    y: Tensor,
    forecast: GaussianMixture,
    preranks: Sequence[PreRank],
    *,
    n_draws: int = 100,
    n_replicates: int = 999,
    seed: int = 0,
) -> pd.DataFrame:
    """The exact PCEs of `evaluate` alone, with their tests and intervals."""

    y = as_observations(y)

    def columns(laws: GaussianMixture, observed: Tensor) -> Iterator[dict[str, object]]:
        return _exact(laws, observed, list(preranks), n_draws, n_replicates, seed)

    return _some_models_at_a_time(forecast, y, columns, len(preranks) * (n_draws + 1))


def _some_models_at_a_time(
    forecast: GaussianMixture,
    y: Tensor,
    columns: Callable[[GaussianMixture, Tensor], Iterator[dict[str, object]]],
    points_per_case: int,
) -> pd.DataFrame:
    """What `columns` says of all models, taken so many at a time that their points are held together without trouble."""
    if len(forecast.batch_shape) not in (1, 2):
        raise ValueError(f"evaluate takes forecasts of batch shape (N,) or (E, N), got {tuple(forecast.batch_shape)}")
    laws = forecast if len(forecast.batch_shape) == 2 else forecast.expand((1, *forecast.batch_shape))
    n_models, n_cases = laws.batch_shape
    y = y.expand(n_models, n_cases, y.shape[-1])
    size = max(1, (1 << 22 if y.device.type == "cpu" else 1 << 29) // (points_per_case * n_cases * y.shape[-1]))
    parts = []
    for start in range(0, n_models, size):
        models = slice(start, min(start + size, n_models))
        some = GaussianMixture(laws.logits[models], laws.loc[models], laws.scale_tril[models])
        with torch.no_grad():
            parts += [
                pd.DataFrame(column).assign(model=range(start, models.stop)) for column in columns(some, y[models])
            ]
    return pd.concat(parts).sort_values("model", kind="stable", ignore_index=True).assign(n_cases=n_cases)


def _column(protocol: str, metric: str, value: Tensor, prerank: str | None = None, **more: object) -> dict[str, object]:
    """One metric of all models, (E,) values."""
    about = {} if prerank is None else {"prerank": prerank}
    return {"protocol": protocol, "metric": metric, "value": _numbers(value), **about, **more}


def _numbers(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()


def _scores(laws: GaussianMixture, y: Tensor, n_draws: int, seed: int) -> Iterator[dict[str, object]]:
    nll = -laws.log_prob(y).mean(-1)
    for protocol, count, estimator in ((EXACT, n_draws, Fair()), (AS_PUBLISHED, 2 * n_draws, TwoSets())):
        score = energy_score(y, laws.ensemble(count, seed, "energy score"), estimator).mean(-1)
        yield _column(protocol, "nll", nll)
        yield _column(protocol, "energy score", score)


def _exact(
    laws: GaussianMixture, y: Tensor, preranks: list[PreRank], n_draws: int, n_replicates: int, seed: int
) -> Iterator[dict[str, object]]:
    pit = projected_pit(y, laws, preranks, n_draws=n_draws, seed=seed, exchangeable=n_replicates > 0)
    test = pce_test(pit, n_replicates=n_replicates, seed=seed) if n_replicates else None
    for g, prerank in enumerate(preranks):
        own = pit.of(prerank.name)
        error, n_members = pce(own).mean(-1), own.parts[0].n_members
        if test is None:
            level = pce_null(y.shape[-2], n_members=n_members).mean
            tested = {"null_level": level, "corrected": _numbers(_corrected(error, level, y.shape[-2]))}
        else:
            tested = _tested(test, g, own, error, seed)
        yield _column(EXACT, "pce", error, prerank.name, **tested)
        null = [pce_null(size, n_members=n_members).mean for size in batch_sizes(y.shape[-2])]
        batches = [slice(start, start + BATCH) for start in range(0, y.shape[-2], BATCH)]
        per_batch = torch.stack([pce(own.select(cases)).mean(-1) for cases in batches]).mean(0)
        yield _column(EXACT, "pce per 256", per_batch, prerank.name, null_level=sum(null) / len(null))


def _tested(test: PCETest, g: int, pit: ProjectedPIT, error: Tensor, seed: int) -> dict[str, object]:
    """What tests and intervals say about PITs (E, N, K) of group g."""
    null = test.replicates[..., g]
    _, low, high = pce_intervals(pit, 0.95, centred_levels(), null, len(test.replicates), seed)
    found = {
        "null_level": test.null_level[..., g],
        "corrected": _corrected(error, test.null_level[..., g], pit.n_cases),
        "low": low,
        "high": high,
        "p_value": test.p_value[..., g],
        "corrected_p_value": test.corrected_p_value[..., g],
    }
    return {name: _numbers(value) for name, value in found.items()}


def _corrected(error: Tensor, level: Tensor | float, n_cases: int) -> Tensor:
    """The mean PCE over the projections without what chance adds, (E,); a single case has none."""
    return in_quadrature(error, level) if n_cases > 1 else torch.full_like(error, torch.nan)


def _as_published(
    laws: GaussianMixture, y: Tensor, preranks: list[PreRank], n_draws: int, seed: int
) -> Iterator[dict[str, object]]:
    if not preranks:
        return
    values = published_pce(y, laws, preranks, n_draws, seed)
    level = published_null_level(y.shape[-2])
    for k, item in enumerate(preranks):
        yield _column(AS_PUBLISHED, "pce per 256", values[..., k], item.name, null_level=level)
