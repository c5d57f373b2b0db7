"""Forecasts of anything that scikit-learn builds around a forecasting estimator: pipelines and searches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.distributions import Distribution

from prerank._parallel import single_threaded
from prerank._parameters import require_whole
from prerank.forecasts import Ensemble, Forecast, GaussianMixture, equally_weighted_draws
from prerank.inputs import as_ensemble
from prerank.recalibration import marginal_quantiles
from prerank.recalibration.quantiles import checked_levels


def predict_distribution(estimator: Any, X: Any) -> Forecast:
    """The joint forecast of a fitted estimator: its own, a pipeline's last step's, or a search's best one's.

    Parameters
    ----------
    estimator : estimator
        Fitted, with `predict_distribution`, or a pipeline or search around one.
    X : array_like, shape (n_rows, n_features)
        Features.

    Returns
    -------
    Ensemble or Distribution
        Batch shape (n_rows,), event shape (n_targets,).

    Raises
    ------
    TypeError
        If nothing in it gives a joint forecast.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from prerank.datasets import Bimodal
    >>> from prerank.regression.regressor import MixtureRegressor
    >>> table = Bimodal().table(200)
    >>> network = MixtureRegressor(n_components=2, hidden=(8,), learning_rate=0.1, patience=2, random_state=0)
    >>> model = make_pipeline(StandardScaler(), network).fit(table.x, table.y)
    >>> predict_distribution(model, table.x[:5]).batch_shape
    torch.Size([5])
    """
    if hasattr(estimator, "predict_distribution"):
        return estimator.predict_distribution(X)
    if isinstance(estimator, Pipeline):
        check_is_fitted(estimator)
        return predict_distribution(estimator.steps[-1][1], estimator[:-1].transform(X) if len(estimator) > 1 else X)
    if isinstance(estimator, BaseSearchCV):
        return predict_distribution(_best(estimator), X)
    raise TypeError(
        f"{type(estimator).__name__} has no predict_distribution, nor has its last step or best estimator; "
        "use MixtureRegressor, or an estimator with a method of that name that returns a joint forecast"
    )


def _best(search: BaseSearchCV) -> Any:
    """The best estimator of a fitted search."""
    if hasattr(search, "cv_results_") and not hasattr(search, "best_estimator_"):
        raise TypeError(
            f"the {type(search).__name__} was fitted with refit=False and kept no estimator to forecast with; give it "
            "refit=True, or fit the estimator with the best parameters yourself"
        )
    check_is_fitted(search)
    return search.best_estimator_


def inmost(estimator: Any) -> Any:
    """The estimator that forecasts, inside pipelines and searches."""
    if isinstance(estimator, Pipeline):
        return inmost(estimator.steps[-1][1])
    return inmost(_best(estimator)) if isinstance(estimator, BaseSearchCV) else estimator


def as_forecast(estimator: Any, y: Any) -> Any:
    """Targets as the estimator forecasts them: spread over their cells, where they have atoms and it does so."""
    own = inmost(estimator)
    return own.dequantised(y) if hasattr(own, "dequantised") else y


def cells_of(estimator: Any, forecast: Forecast) -> Any:
    """What spreads targets with atoms over their cells and brings them back, if a distribution is of such targets."""
    if isinstance(forecast, Ensemble):
        return None
    own = inmost(estimator)
    own = getattr(own, "calibrated_", own)
    models = getattr(own, "models_", None)
    found = getattr(inmost(own if models is None else models[0]), "dequantiser_", None)
    return found if found is not None and found.has_atoms else None


@single_threaded()
def drawn_values(
    estimator: Any, forecast: Forecast, n_draws: int, seed: int, case_ids: Tensor | None = None
) -> np.ndarray:
    """Equally weighted draws (N, M, D) of an estimator's forecast; targets with atoms have values of theirs."""
    drawn = equally_weighted_draws(forecast, n_draws, seed, case_ids=case_ids).members.cpu().numpy()
    cells = cells_of(estimator, forecast)
    return drawn if cells is None else cells.snapped(drawn)


def sample(estimator: Any, X: Any, n_draws: int = 100, seed: int = 0) -> np.ndarray:
    """Equally weighted draws of a fitted estimator's joint forecast; discrete targets are drawn on their own support.

    Parameters
    ----------
    estimator : estimator
        Fitted, with `predict_distribution`, or a pipeline or search around one.
    X : array_like, shape (n_rows, n_features)
        Features.
    n_draws : int, default 100
        Members per row.
    seed : int, default 0
        Seed of the draws.

    Returns
    -------
    ndarray, shape (n_rows, n_draws, n_targets)
        Members, in the units of y.

    Raises
    ------
    TypeError
        If the forecast is an ensemble: its members are its draws.
    """
    forecast = predict_distribution(estimator, X)
    n_draws = require_whole(n_draws, "n_draws")
    if isinstance(forecast, Distribution):
        return drawn_values(estimator, forecast, n_draws, seed)
    raise TypeError(
        f"the forecast is an ensemble of {as_ensemble(forecast).n_members} members, which are its draws; use its members"
    )


@single_threaded()
def predict_quantiles(
    estimator: Any, X: Any, levels: Sequence[float] = (0.05, 0.5, 0.95), n_draws: int = 1000, seed: int = 0
) -> np.ndarray:
    """Quantiles of single targets.

    They say nothing about targets together; for that there are `sample` and `prerank.HighestDensityRegions`.

    Parameters
    ----------
    estimator : fitted estimator
        One with `predict_distribution`, or a pipeline or search around one.
    X : array_like, shape (n_rows, n_features)
        Features.
    levels : sequence of float, default (0.05, 0.5, 0.95)
        Probabilities between 0 and 1.
    n_draws : int, default 1000
        Draws to take quantiles of, where the forecast is not a `GaussianMixture`.
    seed : int, default 0
        Of these draws.

    Returns
    -------
    ndarray, shape (n_rows, n_levels, n_targets)
        Exact for a `GaussianMixture`. Quantiles of discrete targets are values of theirs: those of counts are whole.
    """
    forecast = predict_distribution(estimator, X)
    wanted = checked_levels(levels)
    cells = cells_of(estimator, forecast)
    if isinstance(forecast, GaussianMixture):
        found = marginal_quantiles(forecast, wanted).cpu().numpy()
    else:
        forecast = equally_weighted_draws(forecast, require_whole(n_draws, "n_draws"), seed)
        if forecast.weights is not None:
            raise TypeError("quantiles of a weighted ensemble are not defined here; resample its members first")
        found = np.moveaxis(np.quantile(forecast.members.cpu().numpy(), wanted.cpu().numpy(), axis=-2), 0, -2)
    return found if cells is None else cells.snapped(found)
