"""Cross-fitting: a correction is learnt from rows that had no part in the forecasts, and forecasts get better by it."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch.distributions import Independent, MultivariateNormal, Normal

from prerank import Ensemble, GaussianMixture, Location, Recalibrator
from prerank.recalibration import Affine
from prerank.regression import CalibratedRegressorCV, MixtureRegressor
from prerank.regression.cv_plans import Fold, held_out, single
from prerank.regression.fold_models import Job, Rows, _filled, fit_together, fitted_models
from prerank.training import FitOptions, Run, TrainingSet, fit

QUICK: dict[str, Any] = {"n_components": 2, "hidden": (8,), "learning_rate": 0.03, "max_epochs": 4, "random_state": 0}
Table = tuple[np.ndarray, np.ndarray]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class Remembers(RegressorMixin, BaseEstimator):
    """Its forecast of a row says whether the row, told by the first feature, was among those that it was given."""

    def __init__(self, stops: bool = True):
        self.stops = stops

    def fit(self, X: Any, y: Any, sample_weight: Any = None, validation_rows: Any = None) -> "Remembers":
        self.given_ = set(np.asarray(X)[:, 0])
        self.n_validation_ = 0 if validation_rows is None else int(np.sum(validation_rows))
        self.weight_ = None if sample_weight is None else float(np.sum(sample_weight))
        self.n_targets_ = np.shape(y)[1]
        return self

    def predict_distribution(self, X: Any) -> GaussianMixture:
        seen = torch.tensor([float(value in self.given_) for value in np.asarray(X)[:, 0]], dtype=torch.float64)
        loc = seen[:, None, None].expand(-1, 1, self.n_targets_)
        return GaussianMixture(torch.zeros(len(loc), 1), loc, torch.eye(self.n_targets_).expand(len(loc), 1, -1, -1))


class Spy(BaseEstimator):
    """A recalibrator that keeps what it is given and changes nothing."""

    def fit(self, forecast: Any, y: Any, case_weights: Any = None, blocks: Any = None) -> "Spy":
        self.forecast_, self.y_, self.case_weights_, self.blocks_ = forecast, y, case_weights, blocks
        return self

    def transform(self, forecast: Any) -> Any:
        return forecast


def numbered(n_rows: int) -> Table:
    """Rows that are told by their first feature, and targets that tell the row."""
    number = np.arange(n_rows, dtype=float)
    return np.column_stack([number, np.sin(number)]), np.column_stack([number, -number])


def folds_of(splitter: Any, n_rows: int, groups: Any = None) -> list[Fold]:
    return [Fold(train, test) for train, test in splitter.split(np.zeros((n_rows, 1)), groups=groups)]


@pytest.mark.parametrize("n_folds", [3, 5])
@pytest.mark.parametrize("way", [held_out, lambda folds: single(folds, 31)])
def test_no_row_serves_a_model_that_forecasts_it_to_be_learnt_from(way: Any, n_folds: int) -> None:
    plan = way(folds_of(KFold(n_folds, shuffle=True, random_state=0), 31))
    for part in plan.outside:
        for place in part.jobs:
            job = plan.jobs[place]
            served = job.train if job.stop is None else np.concatenate([job.train, job.stop])
            assert not set(served) & set(part.rows)
    assert all(job.stop is None or not set(job.stop) & set(job.train) for job in plan.jobs)


def test_a_pool_learns_from_the_last_fold_and_is_fitted_on_all_others() -> None:
    plan = held_out(folds_of(KFold(4), 20))
    assert [part.rows.tolist() for part in plan.outside] == [[15, 16, 17, 18, 19]]
    assert len(plan.jobs) == 3
    for job in plan.jobs:
        assert sorted(np.concatenate([job.train, job.stop])) == list(range(15))


def test_of_ten_folds_two_are_held_out_and_four_stop_a_model() -> None:
    plan = held_out(folds_of(KFold(10), 20))
    assert [part.rows.tolist() for part in plan.outside] == [[16, 17, 18, 19]]
    assert [job.stop.tolist() for job in plan.jobs] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    for job in plan.jobs:
        assert sorted(np.concatenate([job.train, job.stop])) == list(range(16))
    assert plan.final == plan.outside[0].jobs == (0, 1, 2, 3)


@pytest.mark.parametrize("ensemble", [True, False])
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_recalibrator_sees_forecasts_of_models_that_never_saw_the_row(ensemble: bool, wrapped: bool) -> None:
    x, y = numbered(40)
    estimator = make_pipeline("passthrough", Remembers()) if wrapped else Remembers()
    model = CalibratedRegressorCV(estimator, cv=4, ensemble=ensemble, recalibrator=Spy(), random_state=0).fit(x, y)
    spy = model.recalibrator_
    assert (spy.forecast_.mean == 0).all()
    assert len(set(spy.y_[:, 0].tolist())) == len(spy.y_) == (10 if ensemble else 40)
    seen = model.predict_distribution(x).mean[:, 0] > 0
    assert int(seen.sum()) == (30 if ensemble else 40)  # what forecasts has seen all but what it is corrected by


def test_pooled_models_are_stopped_by_a_fold_of_their_own() -> None:
    x, y = numbered(40)
    model = CalibratedRegressorCV(Remembers(), cv=4, ensemble=True, recalibrator=Spy(), random_state=0).fit(x, y)
    assert [each.n_validation_ for each in model.models_] == [10] * 3
    assert all(len(each.given_) == 30 for each in model.models_)


def test_transformers_of_a_pipeline_learn_from_training_rows_alone() -> None:
    x, y = numbered(30)
    rows = np.arange(30)
    scaled = make_pipeline(StandardScaler(), MixtureRegressor(**QUICK))
    job = Job(rows[:20], rows[20:25], "one")
    model = fitted_models(scaled, x, y, None, [job], 0)[0]
    assert model[0].mean_[0] == rows[:20].mean()


def test_groups_stay_together_in_folds_and_in_the_recalibrator() -> None:
    x, y = numbered(60)
    groups = np.repeat(np.arange(20), 3)[np.random.default_rng(0).permutation(60)]
    make = {"estimator": Remembers(), "ensemble": False, "recalibrator": Spy()}
    spy = CalibratedRegressorCV(**make, cv=5, random_state=0).fit(x, y, groups=groups).recalibrator_
    assert (spy.blocks_ == groups[spy.y_[:, 0].numpy().astype(int)]).all()
    explicit = CalibratedRegressorCV(**make, cv=GroupKFold(5)).fit(x, y, groups=groups)
    assert (explicit.recalibrator_.y_ == spy.y_).all()
    folds = np.array_split(spy.blocks_, 5)
    assert all(not set(folds[i]) & set(folds[j]) for i in range(5) for j in range(i))


def test_of_a_series_only_rows_with_a_forecast_from_the_past_are_learnt_from() -> None:
    x, y = numbered(60)
    model = CalibratedRegressorCV(Remembers(), cv=TimeSeriesSplit(5), recalibrator=Spy()).fit(x, y)
    assert model.recalibrator_.y_[:, 0].tolist() == list(range(10, 60))
    assert model.models_[0].given_ == set(range(60))
    with pytest.raises(ValueError, match="leaves 10 of 60 rows untested: use ensemble=False"):
        CalibratedRegressorCV(Remembers(), cv=TimeSeriesSplit(5), ensemble=True).fit(x, y)


def test_weights_reach_the_estimator_and_the_recalibrator_and_rows_of_weight_zero_nobody() -> None:
    x, y = numbered(40)
    weights = np.where(np.arange(40) < 10, 0.0, 2.0)
    model = CalibratedRegressorCV(Remembers(), cv=3, recalibrator=Spy(), random_state=0, ensemble=False)
    model.fit(x, y, weights)
    assert all(not each.given_ & set(range(10)) for each in model.models_)
    assert (model.recalibrator_.case_weights_ == 2).all()
    assert min(model.recalibrator_.y_[:, 0].tolist()) == 10


class Says(RegressorMixin, BaseEstimator):
    """Standard normal targets, whatever the features, in the form of a forecast that it is told."""

    def __init__(self, form: Any = None):
        self.form = form

    def fit(self, X: Any, y: Any) -> "Says":
        self.n_targets_ = np.shape(y)[1]
        return self

    def predict_distribution(self, X: Any) -> Any:
        return self.form(torch.zeros(len(X), self.n_targets_, dtype=torch.float64))


def drawn(zero: torch.Tensor) -> Ensemble:
    factors = torch.eye(zero.shape[1]).expand(len(zero), 1, -1, -1)
    return GaussianMixture(zero[:, :1], zero[:, None], factors).ensemble(50)


@pytest.mark.parametrize(
    "form",
    [
        lambda zero: MultivariateNormal(zero, torch.eye(zero.shape[1]).to(zero)),
        lambda zero: Independent(Normal(zero, 1.0), 1),
        drawn,
    ],
    ids=["normal", "torch distribution", "ensemble"],
)
@pytest.mark.parametrize("ensemble", [True, False])
def test_any_estimator_with_a_joint_forecast_is_corrected(form: Any, ensemble: bool) -> None:
    rng = np.random.default_rng(0)
    y = 1.0 + 2.0 * rng.normal(size=(800, 2))
    x = rng.normal(size=(800, 1))
    learns = Recalibrator(steps=[Affine()])
    model = CalibratedRegressorCV(Says(form), cv=4, ensemble=ensemble, recalibrator=learns, random_state=0).fit(x, y)
    forecast = model.predict_distribution(x[:50])
    # 200 held-out rows: a mean has standard error 2 / sqrt(200) = 0.14, a spread one of 5 %
    assert np.abs(model.predict(x[:50]).mean(0) - 1).max() < 0.6
    if not isinstance(forecast, Ensemble):
        spread = forecast.variance.sqrt().mean(0).numpy()
        assert np.abs(spread / 2 - 1).max() < 0.25
        assert model.sample(x[:3], n_draws=7).shape == (3, 7, 2)
        assert model.score(x, y) > CalibratedRegressorCV(
            Says(form), cv=4, ensemble=ensemble, recalibrator=Spy(), random_state=0
        ).fit(x, y).score(x, y)


def test_a_forecast_does_not_depend_on_the_rows_beside_it() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 2))
    y = np.exp(rng.normal(size=(300, 2)))
    model = CalibratedRegressorCV(
        Says(lambda zero: MultivariateNormal(zero, 9 * torch.eye(2).to(zero))), Location(), cv=3, random_state=0
    ).fit(x, y)
    assert model.recalibrator_.steps_[1].changed  # so that forecasts are computed by draws
    all_rows, some = model.predict(x[:20]), model.predict(x[10:13])
    np.testing.assert_allclose(some, all_rows[10:13], rtol=1e-10)
    assert (model.predict(x[[5, 5]])[0] == model.predict(x[[5, 5]])[1]).all()


def test_a_fleet_of_models_is_what_its_models_are_alone() -> None:
    x, y = numbered(48)
    models, alone = ([MixtureRegressor(**{**QUICK, "random_state": s}) for s in (0, 1, 2)] for _ in range(2))
    parts = [np.arange(48)[k : k + 40] for k in (0, 4, 8)]
    fit_together(models, [Rows(x[part], y[part]) for part in parts])
    for model, other, part in zip(models, alone, parts, strict=True):
        other.fit(x[part], y[part])
        assert all((a == b).all() for a, b in zip(model.weights_, other.weights_, strict=True))
        assert model.validation_nll_ == other.validation_nll_


def test_rows_that_fill_up_a_fleet_have_no_influence() -> None:
    x, y = (torch.from_numpy(part).float() for part in numbered(40))
    long, short = (TrainingSet(x[:n], y[:n] / 10, x[30:n], y[30:n] / 10) for n in (40, 36))
    filled = _filled([long, short])[1]
    assert (filled.weights[36:] == 0).all()
    assert (filled.validation_weights[6:] == 0).all()
    spoilt = filled._replace(x=filled.x.clone(), y_validation=filled.y_validation.clone())
    spoilt.x[36:], spoilt.y_validation[6:] = 7.0, -7.0
    options = FitOptions(n_components=2, hidden=(8,), max_epochs=3, batch_size=16)
    first, second = (fit([Run(0)], each, options) for each in (filled, spoilt))
    assert all((a == b).all() for a, b in zip(first.weights, second.weights, strict=True))
    assert (first.best_score == second.best_score).all()


def test_frames_with_categories_and_gaps_go_through_a_pipeline_and_come_back_as_frames() -> None:
    rng = np.random.default_rng(2)
    x = pd.DataFrame({"kind": rng.choice(["a", "b"], 120), "size": rng.normal(size=120)}, index=np.arange(120) + 1000)
    x.loc[x.index[::7], "size"] = np.nan
    y = pd.DataFrame({"u": (x["kind"] == "a") + rng.normal(size=120), "v": rng.normal(size=120)})
    columns = ColumnTransformer([("kind", OneHotEncoder(), ["kind"]), ("size", SimpleImputer(), ["size"])])
    steps = Recalibrator(steps=[Affine()])
    model = CalibratedRegressorCV(make_pipeline(columns, MixtureRegressor(**QUICK)), cv=3, recalibrator=steps).fit(x, y)
    mean = model.predict(x.head(4))
    assert list(mean.columns) == ["u", "v"]
    assert list(mean.index) == [1000, 1001, 1002, 1003]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(x[["size", "kind"]])


def test_the_same_seed_gives_the_same_forecasts_and_an_estimators_own_seed_serves(table: Table) -> None:
    x, y = table[0][:90], table[1][:90]
    steps = Recalibrator(steps=[Affine()])
    first, second = (CalibratedRegressorCV(MixtureRegressor(**QUICK), cv=3, recalibrator=steps) for _ in range(2))
    other = CalibratedRegressorCV(MixtureRegressor(**QUICK), cv=3, recalibrator=steps, random_state=5)
    means = [each.fit(x, y).predict(x) for each in (first, second, other)]
    assert (means[0] == means[1]).all()
    assert not (means[0] == means[2]).all()
    assert len({each.seed_ for each in first.models_}) == len(first.models_)  # networks of a pool differ


def test_few_rows_are_left_uncorrected_and_the_user_is_told() -> None:
    x, y = numbered(8)
    with pytest.warns(UserWarning, match="8 held-out rows are too few to learn a correction"):
        model = CalibratedRegressorCV(Remembers(), cv=4, ensemble=False, random_state=0).fit(x, y)
    assert model.recalibrator_ is None
    assert "Too few rows" in model.summary()


@pytest.mark.parametrize(
    ("parameters", "arguments", "message"),
    [
        ({"ensemble": "yes"}, {}, "ensemble='yes': True, False or \"auto\""),
        ({"cv": 1}, {}, "cv=1"),
        ({"cv": 2, "ensemble": True}, {}, "at least three folds"),
        ({"cv": ShuffleSplit(4, random_state=0)}, {}, "more than once"),
        ({}, {"sample_weight": np.zeros(40)}, "sample_weight are zero; at least one must be positive"),
        ({}, {"sample_weight": -np.ones(40)}, "[Nn]egative"),
        ({}, {"groups": np.zeros(39)}, "inconsistent numbers of samples"),
        ({"estimator": StandardScaler()}, {}, "StandardScaler has no predict_distribution"),
    ],
)
def test_what_makes_no_sense_is_refused(parameters: dict, arguments: dict, message: str) -> None:
    x, y = numbered(40)
    with pytest.raises((ValueError, TypeError), match=message):
        CalibratedRegressorCV(**{"estimator": Remembers(), "recalibrator": Spy(), **parameters}).fit(x, y, **arguments)


def test_weights_for_an_estimator_that_takes_none_are_refused() -> None:
    x, y = numbered(40)
    with pytest.raises(TypeError, match=r"Says.fit takes no sample_weight"):
        CalibratedRegressorCV(Says(drawn), cv=3).fit(x, y, np.ones(40))


def test_validation_rows_decide_when_to_stop_and_nothing_else(table: Table) -> None:
    x, y = table[0][:100], table[1][:100]
    mask = np.arange(100) >= 80
    model = MixtureRegressor(**QUICK).fit(x, y, validation_rows=mask)
    np.testing.assert_allclose(model.y_scaler_.mean, y[:80].mean(0), rtol=1e-10)
    changed = y.copy()
    changed[80:] += 1.0
    other = MixtureRegressor(**{**QUICK, "max_epochs": 1}).fit(x, changed, validation_rows=mask)
    again = MixtureRegressor(**{**QUICK, "max_epochs": 1}).fit(x, y, validation_rows=mask)
    assert all((a == b).all() for a, b in zip(other.weights_, again.weights_, strict=True))
    for bad in (mask[:-1], np.ones(100)):
        with pytest.raises(ValueError, match="a mask of True and False"):
            MixtureRegressor(**QUICK).fit(x, y, validation_rows=bad)
    with pytest.raises(ValueError, match="100 to train on and 0 to validate"):
        MixtureRegressor(**QUICK).fit(x, y, validation_rows=np.zeros(100, dtype=bool))


class Rounding:
    has_atoms = True

    def snapped(self, values: np.ndarray) -> np.ndarray:
        return np.round(values)


class Spreads(Remembers):
    """Forecasts targets as spread over cells: here, moved by a thousand; values are whole numbers."""

    dequantiser_ = Rounding()

    def dequantised(self, y: Any, seed: int = 0) -> np.ndarray:
        return np.asarray(y) + 1000


def test_targets_with_atoms_are_compared_as_they_are_forecast() -> None:
    x, y = numbered(40)
    for estimator in (Spreads(), make_pipeline("passthrough", Spreads())):
        model = CalibratedRegressorCV(estimator, cv=4, ensemble=False, recalibrator=Spy(), random_state=0).fit(x, y)
        assert model.recalibrator_.y_[:, 0].min() == 1000
        assert (model.dequantised(y) == y + 1000).all()
        members = model.sample(x[:3], n_draws=9)
        assert (members == np.round(members)).all()
        assert np.abs(model.predict(x[:3]) - 1).max() < 5 / np.sqrt(1000)  # standard normal about one, rounded


def test_a_saved_model_forecasts_the_same_to_the_last_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    x = pd.DataFrame(rng.normal(size=(150, 2)), columns=["a", "b"])
    y = pd.DataFrame(np.exp(rng.normal(size=(150, 2))), columns=["u", "v"])
    model = CalibratedRegressorCV(MixtureRegressor(**QUICK), Location(), cv=3).fit(x, y)
    model.save(tmp_path / "model")
    loaded = CalibratedRegressorCV.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.predict(x.head()), model.predict(x.head()), check_exact=True)
    assert loaded.summary() == model.summary()
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(x[["b", "a"]])
    model.recalibrator_ = None
    model.save(tmp_path / "plain")
    assert CalibratedRegressorCV.load(tmp_path / "plain").recalibrator_ is None
    model.models_ = [Remembers()]
    with pytest.raises(TypeError, match="Remembers cannot be saved"):
        model.save(tmp_path / "code")
    assert not (tmp_path / "code").exists()
