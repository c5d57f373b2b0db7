"""What the regressor promises beyond scikit-learn's checks."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from prerank import HDR, PCA, Contrast, GaussianMixture, Location, Marginal, pce, pce_null, projected_pit
from prerank.datasets import Bimodal, Standardiser
from prerank.regression import MixtureRegressor
from prerank.regression.preparation import in_target_units
from prerank.training import choose_strength

Table = tuple[np.ndarray, np.ndarray]
Small = Callable[..., MixtureRegressor]


def test_the_same_random_state_gives_the_same_model(table: Table, small: Small) -> None:
    first, second = (small(preranks=HDR(), strength=1.0).fit(*table) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.weights_, second.weights_, strict=True))
    other = small(preranks=HDR(), strength=1.0, random_state=1).fit(*table)
    assert not torch.equal(first.weights_[0], other.weights_[0])


def test_fitting_leaves_the_global_generators_alone(table: Table, small: Small) -> None:
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002 - the global state is the point
    before, drawn = torch.get_rng_state(), np.random.RandomState(5).rand()
    small(preranks=HDR(), strengths=(0, 1)).fit(*table).sample(table[0], 3)
    assert torch.equal(before, torch.get_rng_state())
    assert np.random.rand() == drawn  # noqa: NPY002


def test_units_of_y_move_the_forecast_and_nothing_else(table: Table, small: Small) -> None:
    """y -> a y + b (a a power of two, so that rounding is the same): members move along, densities divide by a."""
    x, y = table
    scale, shift = np.array([1024.0, 2.0**-20]), np.array([0.0, 0.0])
    plain, moved = small().fit(x, y), small().fit(x, scale * y + shift)
    assert (moved.sample(x, 5) == scale * plain.sample(x, 5)).all()
    assert moved.score(x, scale * y) == pytest.approx(plain.score(x, y) - np.log(scale).sum(), abs=1e-12)


def test_the_law_in_target_units_is_the_change_of_variables() -> None:
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(4, 2, 3, 3, generator=generator, dtype=torch.float64).tril(-1) + torch.eye(3)
    law = GaussianMixture(
        torch.randn(4, 2, generator=generator, dtype=torch.float64),
        torch.randn(4, 2, 3, generator=generator, dtype=torch.float64),
        factor,
    )
    scaler = Standardiser(np.array([1.0, -5.0, 100.0]), np.array([0.5, 2.0, 30.0]))
    y = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    moved = in_target_units(law, scaler).log_prob(scaler.inverse(y))
    torch.testing.assert_close(moved, law.log_prob(y) - np.log(scaler.scale).sum())


def test_the_score_is_the_mean_log_likelihood_of_the_distribution(table: Table, small: Small) -> None:
    x, y = table
    model = small().fit(x, y)
    law = model.predict_distribution(x)
    likelihood = law.log_prob(torch.as_tensor(y, dtype=torch.float64)).numpy()
    assert model.score(x, y) == pytest.approx(likelihood.mean(), rel=1e-12)
    weights = np.arange(len(x))
    assert model.score(x, y, weights) == pytest.approx(np.average(likelihood, weights=weights), rel=1e-12)
    np.testing.assert_allclose(model.predict(x), law.mean.numpy(), rtol=1e-12)


def test_members_depend_on_seed_and_position_alone(table: Table, small: Small) -> None:
    x, y = table
    model = small().fit(x, y)
    members = model.sample(x, 4000, seed=3)
    assert members.shape == (300, 4000, 2)
    np.testing.assert_allclose(model.sample(x[:10], 4000, seed=3), members[:10], rtol=0, atol=1e-12)
    assert (model.sample(x, 2, seed=4) != members[:, :2]).all()
    # five standard errors of the mean of 4,000 draws, in each of 600 means
    spread = model.predict_distribution(x).variance.sqrt().numpy()
    assert (np.abs(members.mean(1) - model.predict(x)) < 5 * spread / np.sqrt(4000)).all()


def test_one_target_keeps_its_axes(table: Table, small: Small) -> None:
    x, y = table
    flat, column = small(preranks=Marginal(), strength=1.0).fit(x, y[:, 0]), small(preranks=Marginal(), strength=1.0)
    column.fit(x, y[:, :1])
    assert flat.predict(x).shape == (300,)
    assert column.predict(x).shape == (300, 1)
    assert (flat.predict(x) == column.predict(x)[:, 0]).all()
    assert flat.score(x, y[:, 0]) == column.score(x, y[:, :1])
    assert flat.sample(x, 7).shape == (300, 7, 1)


def test_rows_of_weight_zero_have_no_influence(table: Table, small: Small) -> None:
    x, y = table
    weights = np.arange(300.0) % 3
    kept = weights > 0
    spoilt = np.where(kept[:, None], y, 1e6)
    weighted = small(preranks=Location(), strength=1.0).fit(x, spoilt, weights)
    without = small(preranks=Location(), strength=1.0).fit(x[kept], y[kept], weights[kept])
    assert (weighted.predict(x) == without.predict(x)).all()


def test_only_ratios_of_weights_count(table: Table, small: Small) -> None:
    weights = 2.0 ** (np.arange(300) % 4)
    plain = small().fit(*table)
    assert (small().fit(*table, np.full(300, 7.0)).predict(table[0]) == plain.predict(table[0])).all()
    once, scaled = (small().fit(*table, factor * weights).predict(table[0]) for factor in (1.0, 1024.0))
    assert (once == scaled).all()
    assert (once != plain.predict(table[0])).any()


def test_weights_draw_the_forecast_to_the_heavy_rows(small: Small) -> None:
    """Two populations that no feature tells apart, weighted 9 to 1: the mean follows the weights."""
    rng = np.random.default_rng(0)
    group = np.arange(600) % 2
    y = 4.0 * group + rng.normal(size=600)
    mean = small(max_epochs=300).fit(np.ones((600, 1)), y, np.where(group == 1, 9.0, 1.0)).predict([[1.0]])
    assert abs(mean[0] - 3.6) < abs(mean[0] - 2.0)


def test_auto_keeps_what_the_rule_prefers(table: Table, small: Small) -> None:
    model = small(preranks=[Location(), PCA()], strengths=(0.1, 10)).fit(*table)
    assert model.tuning_ is not None
    assert list(model.tuning_["strength"]) == [0.0, 0.1, 10.0]
    assert model.strength_ == choose_strength(model.tuning_)


def test_the_model_kept_is_the_one_that_its_strength_alone_gives(table: Table, small: Small) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # in which a fleet of three and a fleet of one agree to 1e-9
    try:
        tuned = small(preranks=Location(), strengths=(0.1, 10)).fit(*table)
        alone = small(preranks=Location(), strength=tuned.strength_).fit(*table)
    finally:
        torch.set_default_dtype(before)
    for one, other in zip(tuned.weights_, alone.weights_, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_a_tolerance_of_zero_admits_no_worse_energy_score(table: Table, small: Small) -> None:
    model = small(preranks=Contrast(), strengths=(0, 10), tolerance=0.0).fit(*table)
    scores = model.tuning_.set_index("strength")["score"]  # type: ignore[union-attr]
    assert scores[model.strength_] <= scores[0.0]


@pytest.mark.slow
def test_the_penalty_calibrates_a_gaussian_of_a_bimodal_truth(small: Small) -> None:
    """The paper's claim on a law that one Gaussian cannot fit, on fresh rows, in the sense of the trained pre-rank."""
    made, fresh = Bimodal().table(2000, seed=0), Bimodal().table(4000, seed=1)
    errors = []
    for parameters in ({}, {"preranks": Contrast(), "strength": 10.0}):
        settings = {"n_components": 1, "hidden": (32,), "learning_rate": 0.01, "patience": 10, **parameters}
        law = small(**settings).fit(made.x, made.y).predict_distribution(fresh.x)
        pit = projected_pit(torch.as_tensor(fresh.y, dtype=torch.float64), law, Contrast())
        errors.append(float(pce(pit.values)))
    # the difference is larger than chance alone ever makes a calibrated forecast's error
    assert errors[0] - errors[1] > pce_null(4000).quantile(0.999)


def test_single_precision_and_double_precision_input_agree(table: Table, small: Small) -> None:
    x, y = table[0].astype(np.float32), table[1].astype(np.float32)
    one, two = small().fit(x, y), small().fit(x.astype(np.float64), y.astype(np.float64))
    assert (one.predict(x) == two.predict(x)).all()


def test_a_constant_feature_does_no_harm_when_it_changes(table: Table, small: Small) -> None:
    x, y = table
    model = small().fit(np.column_stack([x, np.full(300, 0.1)]), y)
    moved = model.predict(np.column_stack([x, np.full(300, 1.1)]))
    assert (np.abs(moved) < 10 * np.abs(y).max()).all()
