"""Forecasts: an ensemble of members, a Gaussian mixture, or any torch distribution."""

from prerank.forecasts.affine_transformed import Moved
from prerank.forecasts.batching import can_be_cut, case_by_case, select_cases
from prerank.forecasts.ensemble import Ensemble
from prerank.forecasts.equal_mixture import Mixed, equal_mixture
from prerank.forecasts.mixture import GaussianMixture
from prerank.forecasts.sampling import Forecast, JointForecast, differentiable_draws, equally_weighted_draws

__all__ = [
    "Ensemble",
    "Forecast",
    "GaussianMixture",
    "JointForecast",
    "Mixed",
    "Moved",
    "can_be_cut",
    "case_by_case",
    "differentiable_draws",
    "equal_mixture",
    "equally_weighted_draws",
    "select_cases",
]
