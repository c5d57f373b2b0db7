"""Forecasts: an ensemble of members, a Gaussian mixture, or any torch distribution."""

from prerank.forecast.arrays import accepts_arrays, as_observations, as_tensor
from prerank.forecast.draws import Forecast, differentiable_draws, equally_weighted_draws, require_vector_distribution
from prerank.forecast.ensemble import Ensemble
from prerank.forecast.layout import as_ensemble
from prerank.forecast.mixture import GaussianMixture

__all__ = [
    "Ensemble",
    "Forecast",
    "GaussianMixture",
    "accepts_arrays",
    "as_ensemble",
    "as_observations",
    "as_tensor",
    "differentiable_draws",
    "equally_weighted_draws",
    "require_vector_distribution",
]
