"""`evaluate`: scores and calibration of trained models on test rows, as tidy records."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from prerank._parallel import single_threaded
from prerank.arrays import as_observations
from prerank.calibration import PCETest, ProjectedPIT, pce, pce_null, pce_test, projected_pit
from prerank.calibration.confidence import pce_intervals
from prerank.calibration.null import in_quadrature
from prerank.forecasts import GaussianMixture
from prerank.preranks import PreRank, paper_preranks
from prerank.scores import Fair, energy_score

Column = dict[str, object]
"""One metric of all models, (E,) values and what goes with them, by the names of the records' columns."""


@single_threaded()
def evaluate(
    y: Tensor,
    forecast: GaussianMixture,
    preranks: Sequence[PreRank] | None = None,
    *,
    n_draws: int = 100,
    n_replicates: int = 999,
    seed: int = 0,
) -> pd.DataFrame:
    """Scores and calibration of one model or several on test rows.

    One record per model, metric and pre-rank: `nll`; `energy score`, fair; `pce`, the mean over the projections of a
    pre-rank, with its null level, corrected value, 95 % interval and p-value. Models share their random numbers, so
    that what is said of one does not depend on the others; they are taken some at a time.

    Parameters
    ----------
    y : array_like, shape (n_cases, n_targets) or (n_models, n_cases, n_targets)
        Observations.
    forecast : GaussianMixture
        Batch shape (n_cases,) or (n_models, n_cases).
    preranks : sequence of PreRank, optional
        The paper's by default.
    n_draws : int, default 100
        Draws of the energy score, and members that are ranked where PITs have no closed form.
    n_replicates : int, default 999
        Replicates of the null distribution; 0 leaves tests and intervals out, which are most of the work, and the null
        level is then the exact mean for uniform PITs.
    seed : int, default 0
        Seed of draws and replicates.

    Returns
    -------
    pandas.DataFrame
        Columns model, metric, value, prerank and what goes with them.

    Raises
    ------
    ValueError
        If the batch shape of the forecast is another.

    See Also
    --------
    check : for one forecast, with a verdict

    Examples
    --------
    >>> law = GaussianMixture(torch.zeros(300, 1), torch.zeros(300, 1, 2), torch.eye(2).expand(300, 1, 2, 2))
    >>> records = evaluate(law.ensemble(1, seed=1).members[:, 0], law, n_replicates=99)
    >>> sorted(records["metric"].unique())
    ['energy score', 'nll', 'pce']
    """
    y = as_observations(y)
    chosen = list(paper_preranks(y.shape[-1]) if preranks is None else preranks)

    def columns(observed: Tensor, laws: GaussianMixture) -> Iterator[Column]:
        yield from exact_scores(observed, laws, n_draws, seed)
        for _, found in exact_errors(observed, laws, chosen, n_draws, n_replicates, seed):
            yield found

    return some_models_at_a_time(y, forecast, columns, points_per_case(chosen, n_draws, n_replicates))


def points_per_case(preranks: Sequence[PreRank], n_draws: int, n_replicates: int) -> int:
    """How many points of a case are held together: those of all pre-ranks where they are to be exchanged for tests."""
    return (len(preranks) if n_replicates else 1) * (n_draws + 1)


@single_threaded()
def some_models_at_a_time(
    y: Tensor,
    forecast: GaussianMixture,
    columns: Callable[[Tensor, GaussianMixture], Iterable[Column]],
    points: int,
) -> pd.DataFrame:
    """Records of what `columns` says of y (E, N, D) and forecasts (E, N), model by model.

    Models are taken so many at a time that their points, `points` for each case, are held together without trouble.
    """
    if len(forecast.batch_shape) not in (1, 2):
        raise ValueError(f"evaluate takes forecasts of batch shape (N,) or (E, N), got {tuple(forecast.batch_shape)}")
    laws = forecast if len(forecast.batch_shape) == 2 else forecast.expand((1, *forecast.batch_shape))
    n_models, n_cases = laws.batch_shape
    y = y.expand(n_models, n_cases, y.shape[-1])
    size = max(1, (1 << 22 if y.device.type == "cpu" else 1 << 27) // (points * n_cases * y.shape[-1]))
    parts = []
    for start in range(0, n_models, size):
        models = slice(start, min(start + size, n_models))
        some = GaussianMixture(laws.logits[models], laws.loc[models], laws.scale_tril[models])
        with torch.no_grad():
            parts += [
                pd.DataFrame(column).assign(model=range(start, models.stop)) for column in columns(y[models], some)
            ]
    return pd.concat(parts).sort_values("model", kind="stable", ignore_index=True).assign(n_cases=n_cases)


def column_of(metric: str, value: Tensor, prerank: str | None = None, **more: object) -> Column:
    """One metric of all models, (E,) values."""
    about = {} if prerank is None else {"prerank": prerank}
    return {"metric": metric, "value": _numbers(value), **about, **more}


def _numbers(values: Tensor) -> np.ndarray:
    return values.double().cpu().numpy()


def exact_scores(y: Tensor, laws: GaussianMixture, n_draws: int, seed: int) -> Iterator[Column]:
    """NLL and fair energy score."""
    yield column_of("nll", -laws.log_prob(y).mean(-1))
    yield column_of("energy score", energy_score(y, laws.ensemble(n_draws, seed, "energy score"), Fair()).mean(-1))


def exact_errors(
    y: Tensor,
    laws: GaussianMixture,
    preranks: Sequence[PreRank],
    n_draws: int,
    n_replicates: int,
    seed: int,
    n_groups: int = 1,
) -> Iterator[tuple[ProjectedPIT, Column]]:
    """The PITs of each pre-rank in turn, and their PCE with what tests and intervals say of it.

    `n_groups` is that of `pce_test`.
    """
    pit = projected_pit(y, laws, preranks, n_draws=n_draws, seed=seed, exchangeable=n_replicates > 0)
    test = pce_test(pit, n_replicates=n_replicates, seed=seed, n_groups=n_groups) if n_replicates else None
    for g, prerank in enumerate(preranks):
        own = pit.of(prerank.name)
        errors = pce(own)
        if test is None:
            level = pce_null(y.shape[-2], n_members=own.parts[0].n_members).mean
            tested: Column = {"expected_pce": level, "corrected": _numbers(_corrected(errors, level, y.shape[-2]))}
        else:
            tested = _tested(test, g, own, errors, [name == prerank.name for name in pit.groups], seed)
        yield own, column_of("pce", errors.mean(-1), prerank.name, **tested)


def _tested(test: PCETest, g: int, pit: ProjectedPIT, errors: Tensor, columns: Sequence[bool], seed: int) -> Column:
    """What tests and intervals say about PITs (E, N, K) of group g, whose projections stand in some of the columns."""
    null = test.replicates[..., g]
    _, low, high = pce_intervals(pit, null[..., None], n_replicates=len(null), seed=seed)
    found = {
        "expected_pce": test.expected_pce[..., g],
        "corrected": _corrected(errors, test.projection_expected_pce[..., torch.tensor(columns)], pit.n_cases),
        "low": low[..., 0],
        "high": high[..., 0],
        "p_value": test.p_value[..., g],
        "adjusted_p_value": test.adjusted_p_value[..., g],
    }
    return {name: _numbers(value) for name, value in found.items()}


def _corrected(errors: Tensor, level: Tensor | float, n_cases: int) -> Tensor:
    """The PCE without what chance adds, (E, K) -> (E,), the mean over the projections; a single case has none."""
    return (in_quadrature(errors, level) if n_cases > 1 else torch.full_like(errors, torch.nan)).mean(-1)
