"""The scikit-learn face: a regressor whose forecasts are joint distributions."""

from prerank.estimator.regressor import MixtureRegressor

__all__ = ["MixtureRegressor"]
