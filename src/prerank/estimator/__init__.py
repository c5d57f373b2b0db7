"""The scikit-learn face: regressors whose forecasts are joint distributions, their calibration, and scorers."""

from prerank.estimator.crossfit import CalibratedRegressorCV
from prerank.estimator.mixed import Mixed, equal_mixture
from prerank.estimator.predictions import predict_distribution, predict_quantiles, sample
from prerank.estimator.regressor import MixtureRegressor
from prerank.estimator.scorers import LogLikelihood, NegativeEnergyScore, NegativePCE, PaperRule
from prerank.estimator.stacking import StackedFeatures
from prerank.estimator.transformed import Transformed, TransformedTargets

__all__ = [
    "CalibratedRegressorCV",
    "LogLikelihood",
    "Mixed",
    "MixtureRegressor",
    "NegativeEnergyScore",
    "NegativePCE",
    "PaperRule",
    "StackedFeatures",
    "Transformed",
    "TransformedTargets",
    "equal_mixture",
    "predict_distribution",
    "predict_quantiles",
    "sample",
]
