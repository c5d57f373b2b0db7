"""The one argument: `MixtureRegressor(calibrate=...)` is a `CalibratedRegressorCV` of the same network."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from prerank.regression import CalibratedRegressorCV, MixtureRegressor, predict_distribution

QUICK = {"n_components": 1, "hidden": (8,), "learning_rate": 0.03, "max_epochs": 4, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_calibrate_is_a_calibrated_regressor_of_the_same_network(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.normal(size=(60, 1))  # one target: few projections, so quick
    model = MixtureRegressor(**QUICK, calibrate=3).fit(x, y)
    other = CalibratedRegressorCV(MixtureRegressor(**QUICK), cv=3, random_state=0).fit(x, y)
    assert (model.predict(x) == other.predict(x)).all()
    assert (model.sample(x[:2], n_draws=3, seed=1) == other.sample(x[:2], n_draws=3, seed=1)).all()
    assert model.score(x, y) == other.score(x, y)
    assert predict_distribution(model, x).batch_shape == (60,)
    assert model.n_features_in_ == 2
    with pytest.raises(ValueError, match=r"saved by calibrated_.save"):
        model.save(tmp_path / "model")
    with pytest.raises(NotFittedError):
        clone(model).predict(x)
    with pytest.raises(ValueError, match="leave validation_rows out"):
        clone(model).fit(x, y, validation_rows=np.arange(60) > 40)
