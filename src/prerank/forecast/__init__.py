"""Forecasts: an ensemble of members, a Gaussian mixture, or any torch distribution."""

from prerank.forecast.alignment import NAMES as USUAL_NAMES
from prerank.forecast.alignment import Axes, Labels, label_text, labels_of, positions
from prerank.forecast.arrays import accepts_arrays, as_observations, as_tensor, described
from prerank.forecast.cutting import CannotBeCut, CaseByCase, can_be_cut, case_by_case, select_cases
from prerank.forecast.draws import Forecast, differentiable_draws, equally_weighted_draws, require_vector_distribution
from prerank.forecast.elementwise import blocks, log_sum_exp, total
from prerank.forecast.ensemble import Ensemble
from prerank.forecast.fills import Fills, fills_of, refuse_fill_values
from prerank.forecast.layout import Inputs, as_ensemble, observations_and_forecast, refuse_idle_axes, refuse_swapped
from prerank.forecast.lazymembers import LazyMembers, in_order, is_lazy, observations_and_lazy_members
from prerank.forecast.mixture import GaussianMixture, normal_as_mixture
from prerank.forecast.precision import in_one_precision, precision_of
from prerank.forecast.requirements import require_fitting, require_members, require_observations, require_parameters
from prerank.forecast.support import has_bounds_within, inside_support, refuse_outside_support
from prerank.forecast.whole import require_number, require_real, require_ridges, require_whole, require_yes_or_no

__all__ = [
    "USUAL_NAMES",
    "Axes",
    "CannotBeCut",
    "CaseByCase",
    "Ensemble",
    "Fills",
    "Forecast",
    "GaussianMixture",
    "Inputs",
    "Labels",
    "LazyMembers",
    "accepts_arrays",
    "as_ensemble",
    "as_observations",
    "as_tensor",
    "blocks",
    "can_be_cut",
    "case_by_case",
    "described",
    "differentiable_draws",
    "equally_weighted_draws",
    "fills_of",
    "has_bounds_within",
    "in_one_precision",
    "in_order",
    "inside_support",
    "is_lazy",
    "label_text",
    "labels_of",
    "log_sum_exp",
    "normal_as_mixture",
    "observations_and_forecast",
    "observations_and_lazy_members",
    "positions",
    "precision_of",
    "refuse_fill_values",
    "refuse_idle_axes",
    "refuse_outside_support",
    "refuse_swapped",
    "require_fitting",
    "require_members",
    "require_number",
    "require_observations",
    "require_parameters",
    "require_real",
    "require_ridges",
    "require_vector_distribution",
    "require_whole",
    "require_yes_or_no",
    "select_cases",
    "total",
]
