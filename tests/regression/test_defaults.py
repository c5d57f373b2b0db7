"""What the estimator does for its users by default, and the paper's settings by name."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from prerank import Location
from prerank.datasets import Heteroscedastic
from prerank.regression import MixtureRegressor, fitting
from prerank.regression.settings import PAPER, components_for, fit_options
from prerank.training import FitOptions, Silent

Table = tuple[np.ndarray, np.ndarray]
Small = Callable[..., MixtureRegressor]


def test_the_papers_settings_are_those_of_the_benchmark() -> None:
    model = MixtureRegressor.paper(Location(), 1.0, random_state=3)
    options = fit_options(model.get_params(), 1000, 2)
    assert replace(options, keep_on_interrupt=False) == FitOptions()
    assert (model.preranks, model.strength, model.random_state) == (Location(), 1.0, 3)
    assert not any((model.bound_features, model.dequantise, model.fall_back))


def test_the_preset_is_a_matter_of_parameters_and_survives_cloning() -> None:
    model = MixtureRegressor.paper(patience=7)
    assert model.get_params() == {**MixtureRegressor().get_params(), **PAPER, "patience": 7}
    assert clone(model).get_params() == model.get_params()


def test_the_papers_preset_trains_what_training_by_hand_does(table: Table, small: Small) -> None:
    from prerank.randomness import keyed_order
    from prerank.training import Run, TrainingSet, fit

    x, y = table
    model = MixtureRegressor.paper(hidden=(8,), max_epochs=3, patience=3, random_state=5)
    with pytest.warns(ConvergenceWarning):
        model.fit(x, y)
    train, validation = np.split(keyed_order(300, 5), [240])
    parts = []
    for rows in (train, validation):
        for values in (x, y):
            standard = (values[rows] - values[train].mean(0)) / values[train].std(0)
            parts.append(torch.from_numpy(standard).float())
    fleet = fit([Run(5)], TrainingSet(*parts), FitOptions(hidden=(8,), max_epochs=3, patience=3))
    for one, other in zip(model.weights_, fleet.weights, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)  # means and deviations are summed in another order


def test_a_feature_far_outside_moves_a_forecast_no_farther_than_the_end_of_its_range(
    table: Table, small: Small
) -> None:
    x, y = table
    model = small().fit(x, y)
    seen = x[_training_rows(model)]
    end, far = seen.max(0), np.array([1e6, 1e30])
    np.testing.assert_array_equal(model.predict([end]), model.predict([far]))
    assert model.outside_range([end, far, seen.min(0), seen.min(0) - 1e-6]).tolist() == [False, True, False, True]
    free = small(bound_features=False).fit(x, y)
    assert np.abs(free.predict([far])).max() > 1e6


def _training_rows(model: MixtureRegressor) -> np.ndarray:
    from prerank.randomness import keyed_order

    return keyed_order(300, model.seed_)[:240]


def test_a_row_outside_the_range_does_not_spoil_the_likelihood_of_all(small: Small) -> None:
    """As in the house prices of King County: one feature of one row, 32 standard deviations away."""
    made, fresh = Heteroscedastic().table(400, seed=0), Heteroscedastic().table(400, seed=1)
    moved = fresh.x.copy()
    moved[0, 0] = 200.0
    model, free = (small(bound_features=way).fit(made.x, made.y) for way in (True, False))
    assert abs(model.score(moved, fresh.y) - model.score(fresh.x, fresh.y)) < 0.1
    assert free.score(moved, fresh.y) < model.score(moved, fresh.y) - 1


def test_a_surprising_row_costs_no_more_than_the_wide_component_says(table: Table, small: Small) -> None:
    x, y = table
    model, free = small().fit(x, y), small(tail_weight=0.0).fit(x, y)
    far = y + 30.0
    model.uses_reference_ = True
    wide = model.predict_distribution(x)
    model.uses_reference_ = False
    spread = 3 * model.reference_.scale_tril.square().sum(-1).sqrt().numpy() * model.y_scaler_.scale
    z = (far - wide.mean.numpy()) / spread
    cost = (0.5 * z**2 + np.log(spread * np.sqrt(2 * np.pi))).sum(-1).mean() + np.log(1e3)
    assert model.score(x, far) >= -cost - 1e-9
    assert free.score(x, far) < 3 * model.score(x, far)
    assert free.score(x, y) + np.log1p(-1e-3) <= model.score(x, y) + 1e-9


def test_where_the_network_loses_the_reference_makes_the_forecasts(small: Small) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4))
    y = x @ rng.normal(size=(4, 12)) + rng.normal(size=(60, 12))
    settings = {"anchored": False, "common_correlations": False, "max_epochs": 5, "learning_rate": 1e-4}
    with pytest.warns(ConvergenceWarning, match=r"validation NLL of .* is not below the .* linear-Gaussian reference"):
        model = small(**settings).fit(x, y)
    assert model.uses_reference_
    assert model.reference_nll_ < model.validation_nll_
    law = model.predict_distribution(x)
    assert law.n_components == 2  # the reference, and the wide component
    np.testing.assert_allclose(model.predict(x), law.mean.numpy(), rtol=1e-12)
    assert np.abs(model.predict(x) - y).mean() < 1.0
    with pytest.warns(ConvergenceWarning, match="max_epochs=5"):
        kept = small(**settings, fall_back=False).fit(x, y)
    assert not kept.uses_reference_
    assert kept.predict_distribution(x).n_components == 3
    assert kept.reference_nll_ == model.reference_nll_
    assert model.score(x, y) > kept.score(x, y)


def test_a_model_that_uses_the_reference_comes_back_from_its_file(small: Small, tmp_path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 2)), rng.normal(size=(12, 3))
    with pytest.warns(ConvergenceWarning):
        model = small(learning_rate=1e9, n_restarts=0, anchored=False, common_correlations=False).fit(x, y)
    assert model.uses_reference_
    model.save(tmp_path / "model")
    loaded = MixtureRegressor.load(tmp_path / "model")
    assert (loaded.predict(x) == model.predict(x)).all()
    assert (loaded.uses_reference_, loaded.reference_nll_) == (True, model.reference_nll_)


@pytest.mark.parametrize("n_targets", [24, 60])
def test_many_targets_are_forecast_no_worse_than_by_the_reference(n_targets: int) -> None:
    """400 rows of a law that moves with its features: between the reference and the truth, on fresh rows."""
    recipe = Heteroscedastic(n_targets)
    made, fresh = recipe.table(400, seed=0), recipe.table(400, seed=1)
    model = MixtureRegressor(max_epochs=40, hidden=(32,), random_state=0)
    model.fit(made.x, made.y)
    used = model.score(fresh.x, fresh.y)
    truth = float(recipe.law(fresh.x).log_prob(torch.from_numpy(fresh.y)).mean())
    model.uses_reference_ = True
    assert model.score(fresh.x, fresh.y) < used < truth


def test_components_follow_rows_and_targets(small: Small) -> None:
    assert [components_for(n, 24) for n in (10, 1000, 2000, 10**6)] == [1, 1, 2, 5]
    rng = np.random.default_rng(0)
    with pytest.warns(ConvergenceWarning):
        model = small(n_components=None, max_epochs=1).fit(rng.normal(size=(60, 1)), rng.normal(size=(60, 20)))
    assert model.architecture_.n_components == 1


def test_pandas_in_pandas_out(table: Table, small: Small) -> None:
    index = pd.date_range("2001-01-01", periods=300)
    x = pd.DataFrame(table[0], columns=["a", "b"], index=index)
    y = pd.DataFrame(table[1], columns=["u", "v"], index=index)
    model = small().fit(x, y)
    mean = model.predict(x[10:20])
    assert list(mean.columns) == ["u", "v"]
    assert mean.index.equals(index[10:20])
    plain = small().fit(*table).predict(table[0][10:20])
    assert isinstance(plain, np.ndarray)
    np.testing.assert_array_equal(mean.to_numpy(), plain)
    one = small().fit(x, y["u"]).predict(x[:5])
    assert isinstance(one, pd.Series)
    assert (one.name, list(one.index)) == ("u", list(index[:5]))
    with pytest.warns(UserWarning, match="valid feature names"):
        assert isinstance(model.predict(table[0][:5]), np.ndarray)


class PressesCtrlC(Silent):
    def advance(self, epoch: int, active: int, best: torch.Tensor) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_keeps_the_best_network_so_far_and_says_so(
    table: Table, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressing(runs, data, options, progress):
        return fit(runs, data, options, PressesCtrlC())

    fit = fitting.fit
    monkeypatch.setattr(fitting, "fit", pressing)
    with pytest.warns(ConvergenceWarning, match="interrupted in epoch 2; the weights of epoch 1 are kept"):
        model = small(fall_back=False).fit(*table)
    assert model.predict(table[0]).shape == (300, 2)
    assert model.n_epochs_ == 1
