"""What a NumPy mask hides is missing to every estimator, not the number under the mask."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from prerank import MixtureRegressor
from prerank.regression import CalibratedRegressorCV, StackedFeatures, TransformedTargets

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))
HIDDEN = np.zeros((60, 2), dtype=bool)
HIDDEN[3, 1] = True
NETWORK = MixtureRegressor(n_components=1, hidden=(4,), max_epochs=2, random_state=0)
FILL = 9.96921e36


def masked(values):
    return np.ma.masked_array(np.where(HIDDEN, FILL, values), HIDDEN)


ESTIMATORS = [NETWORK, TransformedTargets(NETWORK), CalibratedRegressorCV(NETWORK, cv=3)]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)
def test_hidden_values_are_refused_as_missing_ones(estimator):
    with pytest.raises(ValueError, match="1 of 120 values of y are NaN or infinite"):
        estimator.fit(X, masked(Y))
    with pytest.raises(ValueError, match="fill value"):
        estimator.fit(X, masked(Y).data)
    with pytest.raises(ValueError, match="contains NaN"):
        estimator.fit(masked(X), Y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fitted_model_refuses_hidden_features_and_takes_masks_that_hide_nothing():
    model = NETWORK.fit(np.ma.masked_array(X), np.ma.masked_array(Y))
    assert np.array_equal(model.predict(X), MixtureRegressor(**NETWORK.get_params()).fit(X, Y).predict(X))
    for use in (model.predict, model.predict_distribution):
        with pytest.raises(ValueError, match="contains NaN"):
            use(masked(X))


def test_stacked_features_that_may_be_missing_are():
    hidden, holes = masked(X), np.where(HIDDEN, np.nan, X)
    stacked = StackedFeatures(HistGradientBoostingRegressor(max_iter=2), cv=2, random_state=0)
    stack = [stacked.fit_transform(each, Y) for each in (hidden, holes)]
    np.testing.assert_array_equal(*stack)
