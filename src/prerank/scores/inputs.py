"""What enters a score: observations and members that fit each other and contain numbers only."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.arrays import as_tensor
from prerank.forecasts import Ensemble, equally_weighted_draws
from prerank.forecasts.sampling import require_vector_distribution
from prerank.inputs import Cases


def observations_and_members(
    y: Any, forecast: Any, weights: Any = None, n_draws: int = 100, seed: int = 0
) -> tuple[Tensor, Ensemble]:
    """Observations (..., N, D) and an ensemble (..., N, M, D) of one dtype, checked.

    `forecast` is an `Ensemble`, an array of members, or a distribution, of which `n_draws` equally weighted draws
    are taken. `weights` go with members that have none yet. Cases and targets are aligned where both sides label them.
    """
    try:
        cases = Cases.of(y, forecast)
    except ValueError as error:
        if "axes=" in str(error):
            error.add_note("A score takes no axes: pass it prerank.inputs.as_ensemble(members, axes=...) instead.")
        raise
    ensemble = _ensemble(cases, weights, n_draws, seed)
    observed = replace(cases, forecast=ensemble).require_complete().observed()
    dtype = torch.promote_types(observed.dtype, ensemble.members.dtype)
    return observed.to(dtype), as_dtype(ensemble, dtype)


def _ensemble(cases: Cases, weights: Any, n_draws: int, seed: int) -> Ensemble:
    forecast = cases.law
    if isinstance(forecast, Distribution):
        if weights is not None:
            raise ValueError(f"weights= go with members; the draws of a {type(forecast).__name__} weigh the same")
        require_vector_distribution(forecast, cases.index.n_given)
        return equally_weighted_draws(forecast, n_draws, seed)
    if weights is None:
        return forecast
    if forecast.weights is not None:
        raise ValueError("the Ensemble carries weights already; pass them there or as weights=, not both")
    given = as_tensor(weights, "weights")
    if cases.order is not None and given.ndim == 2:  # they stand in the order of the forecast as it came
        given = given[cases.order]
    return Ensemble(forecast.members, given)


def as_dtype(ensemble: Ensemble, dtype: torch.dtype) -> Ensemble:
    """The members and weights in another floating type, the reference (no score needs it) left behind."""
    weights = None if ensemble.weights is None else ensemble.weights.to(dtype)
    return Ensemble(ensemble.members.to(dtype), weights)
