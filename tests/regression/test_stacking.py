"""Predictions of other models as features: out of fold for training rows, and never of a model that saw the row."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from prerank.regression import CalibratedRegressorCV, MixtureRegressor, StackedFeatures, predict_distribution
from prerank.scores import nll

QUICK = {"n_components": 2, "hidden": (8,), "learning_rate": 0.02, "max_epochs": 20, "patience": 5, "random_state": 0}


class Remembers(RegressorMixin, BaseEstimator):
    """Predicts how many of the rows it was fitted on are the row itself, plus the mean of what it was taught."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Remembers":
        self.seen_, self.mean_ = set(X[:, 0]), np.average(y, weights=sample_weight)
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.array([1e6 * (value in self.seen_) for value in X[:, 0]]) + self.mean_


def table(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.array([10.0, 20.0, 30.0]) + rng.normal(size=(n, 3))
    return np.column_stack([np.arange(n, dtype=float), rng.normal(size=n)]), y


def test_training_rows_are_predicted_by_models_that_have_not_seen_them() -> None:
    x, y = table()
    made = StackedFeatures(Remembers(), random_state=0).fit_transform(x, y)
    assert made.shape == (40, 5)
    assert (made[:, :2] == x).all()
    assert np.abs(made[:, 2:] - [10, 20, 30]).max() < 1  # a model that had seen the row would say a million more


def test_other_rows_get_the_mean_prediction_of_all_folds() -> None:
    x, y = table()
    stacked = StackedFeatures(Ridge(), cv=KFold(4)).fit(x, y)
    fresh = x + 0.5
    expected = np.mean(
        [Ridge().fit(x[train], y[train]).predict(fresh) for train, _ in KFold(4).split(x)], 0
    )  # ridge of several targets is that of each
    assert np.allclose(stacked.transform(fresh)[:, 2:], expected)
    assert len(stacked.models_) == 4
    assert {len(models) for models in stacked.models_} == {3}


def test_one_target_may_have_one_axis() -> None:
    x, y = table()
    flat, column = (StackedFeatures(Ridge(), random_state=3).fit_transform(x, of) for of in (y[:, 0], y[:, :1]))
    assert (flat == column).all()
    assert flat.shape == (40, 3)


def test_rows_of_a_group_stay_together() -> None:
    x, y = table()
    groups = np.arange(40) % 8
    x[:, 0] = groups  # a model that saw a row of the group knows it
    made = StackedFeatures(Remembers(), cv=4).fit_transform(x, y, groups=groups)
    assert (made[:, 2:] < 1e5).all()
    assert (StackedFeatures(Remembers(), cv=4, random_state=0).fit_transform(x, y)[:, 2:] > 1e5).any()


def test_weights_go_to_the_models() -> None:
    x, y = table()
    weights = (np.arange(40) % 2).astype(float)
    stacked = StackedFeatures(Remembers(), cv=KFold(2)).fit(x, y, weights)
    assert stacked.models_[0][1].mean_ == pytest.approx(y[20:, 1][weights[20:] > 0].mean())


def test_rows_that_no_fold_tests_get_the_prediction_of_models_of_the_others() -> None:
    x, y = table()
    made = StackedFeatures(Remembers(), cv=TimeSeriesSplit(3)).fit_transform(x, y)
    assert np.abs(made[:, 2:] - [10, 20, 30]).max() < 1  # a model that had seen the row would say a million more
    stacked = StackedFeatures(Ridge(), cv=TimeSeriesSplit(3))
    assert np.allclose(stacked.fit_transform(x, y)[:10, 2:], Ridge().fit(x[10:], y[10:]).predict(x[:10]))
    assert len(stacked.models_) == 3


def test_the_seed_decides_folds_and_models() -> None:
    x, y = table()
    trees = HistGradientBoostingRegressor(max_iter=5, max_features=0.5, min_samples_leaf=2)
    first, again, other = (StackedFeatures(trees, random_state=seed).fit_transform(x, y) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_gaps_in_features_go_to_models_that_take_them() -> None:
    x, y = table()
    x[3, 1] = np.nan
    made = StackedFeatures(random_state=0).fit_transform(x, y)
    assert np.isnan(made).sum() == 1


def test_columns_have_names() -> None:
    x, y = table()
    stacked = StackedFeatures(Ridge()).fit(x, y)
    assert stacked.get_feature_names_out(["hour", "wind"]).tolist() == [
        *("hour", "wind"),
        *("prediction1", "prediction2", "prediction3"),
    ]


def test_a_network_with_trees_beside_it_learns_what_it_would_not_alone() -> None:
    """A step in a product of two features, few rows."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, size=(600, 6))
    mean = 3.0 * ((x[:, 0] > 0.2) ^ (x[:, 1] > -0.3))
    y = mean[:, None] + 0.3 * rng.normal(size=(600, 2))
    alone = MixtureRegressor(**QUICK).fit(x[:400], y[:400])
    stacked = make_pipeline(StackedFeatures(random_state=0), MixtureRegressor(**QUICK)).fit(x[:400], y[:400])
    before, after = (float(nll(y[400:], predict_distribution(model, x[400:])).mean()) for model in (alone, stacked))
    assert after < before - 0.3


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_row_that_corrects_has_no_part_in_its_predictions() -> None:
    x, y = table(60)
    seen: list[Any] = []

    class Spy(BaseEstimator):
        def fit(self, forecast: Any, observed: Any, **more: Any) -> "Spy":
            seen.append(forecast)
            return self

        def transform(self, forecast: Any) -> Any:
            return forecast

    network = MixtureRegressor(**{**QUICK, "max_epochs": 2}, bound_features=False, anchored=True)
    pipeline = make_pipeline(StackedFeatures(Remembers(), cv=3, random_state=0), network)
    model = CalibratedRegressorCV(pipeline, cv=5, ensemble=True, recalibrator=Spy(), random_state=0).fit(x, y)
    for pipe in model.models_:
        for models in pipe[0].models_:
            assert len(set().union(*(single.seen_ for single in models))) <= 36  # of 60 rows 12 are held out, 12 stop
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed"),
        (np.zeros((39, 2)), "numbers of samples: \\[40, 39\\]"),
        (np.full((40, 2), np.nan), "80 of 80 values of y are NaN or infinite"),
    ],
    ids=["none", "rows", "nan"],
)
def test_targets_that_cannot_be_learnt_from_are_refused(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StackedFeatures(Ridge()).fit(table()[0], y)


EXPECTED_FAILURES = {
    "check_transformer_general": "training rows are predicted out of fold, so fit_transform is not fit and transform",
    "check_transformer_data_not_an_array": "the same",
}


@parametrize_with_checks(
    [StackedFeatures(Ridge(), cv=2, random_state=0)], expected_failed_checks=lambda estimator: EXPECTED_FAILURES
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
