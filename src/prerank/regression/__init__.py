"""The scikit-learn face: regressors whose forecasts are joint distributions, their calibration, and scorers."""

from prerank.regression.calibrated import CalibratedRegressorCV
from prerank.regression.predictions import predict_distribution, predict_quantiles, sample
from prerank.regression.regressor import MixtureRegressor
from prerank.regression.scorers import LogLikelihood, NegativeEnergyScore, NegativePCE, PaperRule
from prerank.regression.stacking import StackedFeatures
from prerank.regression.transformed import Transformed, TransformedTargets

__all__ = [
    "CalibratedRegressorCV",
    "LogLikelihood",
    "MixtureRegressor",
    "NegativeEnergyScore",
    "NegativePCE",
    "PaperRule",
    "StackedFeatures",
    "Transformed",
    "TransformedTargets",
    "predict_distribution",
    "predict_quantiles",
    "sample",
]
