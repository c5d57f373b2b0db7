"""`evaluate`: every number of the paper's tables for trained models, exactly and as published, as tidy records."""

from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor

from prerank.calibration import (
    PreRank,
    ProjectedPIT,
    corrected_pce,
    paper_preranks,
    pce,
    pce_interval,
    pce_null,
    pce_test,
    projected_pit,
)
from prerank.forecast import GaussianMixture
from prerank.scores import Fair, TwoSets, energy_score
from prerank.training.published import published_null_level, published_pce

_BATCH = 256


def evaluate(
    forecast: GaussianMixture,
    y: Tensor,
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

    >>> law = GaussianMixture(torch.zeros(300, 1), torch.zeros(300, 1, 2), torch.eye(2).expand(300, 1, 2, 2))
    >>> records = evaluate(law, law.ensemble(1, seed=1).members[:, 0], n_replicates=99)
    >>> sorted(records["metric"].unique())
    ['energy score', 'nll', 'pce', 'pce per 256']
    """
    if len(forecast.batch_shape) not in (1, 2):
        raise ValueError(f"evaluate takes forecasts of batch shape (N,) or (E, N), got {tuple(forecast.batch_shape)}")
    if len(forecast.batch_shape) == 2:
        parts = []
        for model in range(forecast.batch_shape[0]):
            law = GaussianMixture(forecast.logits[model], forecast.loc[model], forecast.scale_tril[model])
            observed = y if y.ndim == 2 else y[model]
            part = evaluate(
                law,
                observed,
                preranks,
                published_preranks=published_preranks,
                n_draws=n_draws,
                n_replicates=n_replicates,
                seed=seed,
            )
            parts.append(part.assign(model=model))
        return pd.concat(parts, ignore_index=True)
    chosen = list(paper_preranks(y.shape[-1]) if preranks is None else preranks)
    published = chosen if published_preranks is None else list(published_preranks)
    with torch.no_grad():
        rows = [
            _record("exact", "nll", -forecast.log_prob(y).mean()),
            _record("exact", "energy score", _energy(forecast, y, n_draws, seed, exact=True)),
            _record("as published", "nll", -forecast.log_prob(y).mean()),
            _record("as published", "energy score", _energy(forecast, y, n_draws, seed, exact=False)),
        ]
        rows += _exact(forecast, y, chosen, n_draws, n_replicates, seed)
        rows += _as_published(forecast, y, published, n_draws, seed)
    return pd.DataFrame(rows).assign(model=0, n_cases=len(y))


def _record(protocol: str, metric: str, value: Tensor | float, **more: object) -> dict[str, object]:
    return {"protocol": protocol, "metric": metric, "value": float(value), **more}


def _energy(forecast: GaussianMixture, y: Tensor, n_draws: int, seed: int, *, exact: bool) -> Tensor:
    members = forecast.ensemble(n_draws if exact else 2 * n_draws, seed, "energy score")
    return energy_score(y, members, Fair() if exact else TwoSets()).mean()


def _exact(
    forecast: GaussianMixture, y: Tensor, preranks: list[PreRank], n_draws: int, n_replicates: int, seed: int
) -> list[dict[str, object]]:
    pit = projected_pit(preranks, forecast, y, n_draws=n_draws, seed=seed, exchangeable=True)
    test = pce_test(pit, n_replicates=n_replicates, seed=seed)
    rows = []
    for g, name in enumerate(test.groups):
        values = _columns(pit, name)
        interval = pce_interval(values, null=test.replicates[:, g] if values.shape[1] > 1 else None, seed=seed)
        rows.append(
            _record(
                "exact",
                "pce",
                test.statistic[g],
                prerank=name,
                null_level=float(test.null_level[g]),
                corrected=float(corrected_pce(values).mean()) if len(y) > 1 else float("nan"),
                low=interval.low,
                high=interval.high,
                p_value=float(test.p_value[g]),
                corrected_p_value=float(test.corrected_p_value[g]),
            )
        )
        batches = [pce(part).mean() for part in values.split(_BATCH)]
        null = [pce_null(len(part)).mean for part in values.split(_BATCH)]
        per_batch = torch.stack(batches).mean()
        rows.append(_record("exact", "pce per 256", per_batch, prerank=name, null_level=sum(null) / len(null)))
    return rows


def _as_published(
    forecast: GaussianMixture, y: Tensor, preranks: list[PreRank], n_draws: int, seed: int
) -> list[dict[str, object]]:
    values = published_pce(preranks, forecast, y, n_draws, seed)
    level = published_null_level(len(y))
    return [
        _record("as published", "pce per 256", value, prerank=item.name, null_level=level)
        for item, value in zip(preranks, values, strict=True)
    ]


def _columns(pit: ProjectedPIT, group: str) -> Tensor:
    return pit.values[:, [k for k, name in enumerate(pit.groups) if name == group]].double()
