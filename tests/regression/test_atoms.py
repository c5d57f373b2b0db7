"""Targets with atoms: recognised, spread over cells, brought back, and judged by the probabilities of cells."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from prerank.forecasts import GaussianMixture
from prerank.recalibration import Affine, Recalibrator
from prerank.regression import CalibratedRegressorCV, LogLikelihood, MixtureRegressor
from prerank.regression.dequantising import MIDDLE, Dequantiser
from prerank.regression.discrete_targets import Ends, Lattice, Levels, as_record, from_record, recognised

Small = Callable[..., MixtureRegressor]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("y", "support"),
    [
        (rng().poisson(3.0, 500), Lattice),
        (rng().poisson(40.0, 5000), Lattice),
        (np.round(rng().normal(size=3000), 1), Lattice),
        (np.round(rng().normal(size=3000), 1).astype(np.float32), Lattice),
        (rng().integers(0, 2, 100), Lattice),
        (rng().choice([0.0, 1.0, 3.0, 5.0], 200), Levels),
        (np.maximum(rng().normal(size=400), 0.0), Ends),
        (np.minimum(rng().exponential(size=400), 1.0), Ends),
        (rng().normal(size=400), None),
        (np.repeat(rng().normal(size=200), 2), None),  # rows that were copied
        (np.repeat(rng().normal(size=200), 4), None),
        (np.round(rng().normal(size=5000), 4), None),  # rounded too finely to matter
        (rng().normal(size=3), None),
        (np.full(50, 2.0), None),
    ],
    ids=range(14),
)
def test_what_a_column_is(y: np.ndarray, support: type | None) -> None:
    found = recognised(y)
    assert found is None if support is None else isinstance(found, support)
    assert from_record(as_record(found)) == found


def test_a_count_has_a_bound_at_zero_and_none_above() -> None:
    found = recognised(rng().poisson(3.0, 2000))
    assert found == Lattice(0.0, 1.0, lowest=0.0, highest=None)


@pytest.mark.parametrize("support", [Levels((0.0, 1.0, 3.0, 5.0)), Lattice(0.5, 2.0, 0.5, 8.5), Ends(0.0, 9.0, 0.5)])
def test_what_is_spread_over_a_cell_comes_back_to_its_value(support) -> None:
    values = {Levels: [0.0, 1.0, 3.0, 5.0], Lattice: [0.5, 2.5, 8.5], Ends: [0.0, 0.25, 8.9, 9.0]}[type(support)]
    y = np.array(values)
    low, high = support.cell(y)
    assert (low <= y).all()
    assert (y <= high).all()
    for share in (0.0, 0.3, 0.999):
        np.testing.assert_allclose(support.snapped(low + share * (high - low)), y, rtol=0, atol=1e-12)


def test_cells_of_levels_and_of_lattices_leave_no_gap() -> None:
    for support, values in ((Levels((0.0, 1.0, 3.0, 5.0)), [0, 1, 3, 5]), (Lattice(0.0, 0.1), [0.0, 0.1, 0.2])):
        low, high = support.cell(np.array(values, dtype=float))
        np.testing.assert_allclose(low[1:], high[:-1], rtol=0, atol=1e-12)


def test_a_value_of_a_lattice_that_was_never_seen_has_a_cell() -> None:
    low, high = Lattice(0.0, 1.0, lowest=0.0).cell(np.array([1000.0]))
    assert (low, high) == (999.5, 1000.5)


@pytest.mark.parametrize("support", [Levels((0.0, 1.0, 3.0, 5.0)), Lattice(0.0, 0.5, 0.0, 4.0), Ends(0.0, 4.0, 0.5)])
def test_the_mean_in_closed_form_is_that_of_many_draws(support) -> None:
    weights, loc, scale = (np.array([row]) for row in ([0.3, 0.7], [-0.2, 3.5], [0.8, 1.1]))
    generator = rng()
    which = generator.uniform(size=200_000) < 0.3
    draws = support.snapped(
        np.where(which, -0.2 + 0.8 * generator.normal(size=which.size), 3.5 + 1.1 * generator.normal(size=which.size))
    )
    # five standard errors; rounding to a lattice that is fine beside the spread moves a mean by less than 1e-3
    margin = 5 * draws.std() / np.sqrt(draws.size) + 1e-3
    assert abs(support.mean(weights, loc, scale)[0] - draws.mean()) < margin


def test_the_likelihood_of_a_cell_is_its_probability() -> None:
    """One Gaussian, counts: the integral of the density over a cell, within the error of 64 points of it."""
    cells = Dequantiser((Lattice(0.0, 1.0), None))
    n = 2000
    law = GaussianMixture(
        torch.zeros(n, 1, dtype=torch.float64), torch.zeros(n, 1, 2), torch.eye(2).expand(n, 1, 2, 2).double()
    )
    y = np.column_stack([np.full(n, 1.0), np.linspace(-1, 1, n)])
    found = cells.log_likelihood(y, law).numpy()
    probability = ndtr(1.5) - ndtr(0.5)
    density = np.exp(-0.5 * y[:, 1] ** 2) / np.sqrt(2 * np.pi)
    ratios = np.exp(found) / (probability * density)
    assert abs(ratios.mean() - 1) < 5 * ratios.std() / np.sqrt(n)  # unbiased
    assert ratios.std() < 0.05
    assert found.mean() < np.log(probability * density).mean() + 1e-3  # and its logarithm is not too large


@pytest.mark.parametrize("width", [0.12, 0.5, 3.0])
def test_laws_in_the_middle_of_a_cell_and_wider_than_it_both_have_its_probability(width: float) -> None:
    """Four correlated targets in cells about the mean, by the closed form of independent ones and by many points."""
    n, d = 400, 4
    law = GaussianMixture(
        torch.zeros(n, 1, dtype=torch.float64), torch.zeros(n, 1, d), width * torch.eye(d).expand(n, 1, d, d).double()
    )
    found = Dequantiser((Lattice(0.0, 1.0),) * d).log_likelihood(np.zeros((n, d)), law)
    probability = (ndtr(0.5 / width) - ndtr(-0.5 / width)) ** d
    ratios = found.exp() / probability
    assert abs(float(ratios.mean()) - 1) < 5 * float(ratios.std()) / np.sqrt(n) + 1e-6
    assert float(ratios.std()) < 0.5


def test_a_likelihood_does_not_depend_on_how_many_cases_are_taken_at_once() -> None:
    cells, y = Dequantiser((Lattice(0.0, 1.0), None)), np.zeros((6, 2))
    law = GaussianMixture(torch.zeros(6, 1).double(), torch.zeros(6, 1, 2), torch.eye(2).expand(6, 1, 2, 2).double())
    whole = cells.log_likelihood(y, law)
    parts = [cells.log_likelihood(y[rows], law.select(rows), rows.start) for rows in (slice(0, 2), slice(2, 6))]
    assert torch.equal(torch.cat(parts), whole)


def test_an_atom_is_spread_over_the_middle_of_its_cell() -> None:
    supports = (Lattice(0.0, 2.0), Levels((0.0, 1.0, 3.0)), Ends(0.0, None, 0.5))
    cells, y = Dequantiser(supports), np.zeros((4000, 3))
    spread = cells.dequantised(y, 0)
    low, high = cells.cells(y)
    place = (spread - low) / (high - low)
    assert np.abs(place - 0.5).max() < 0.5 * MIDDLE
    np.testing.assert_allclose(place.std(0), MIDDLE / np.sqrt(12), rtol=0.05)
    assert (cells.snapped(spread) == y).all()


def test_a_rare_value_beside_a_frequent_one_is_forecast_as_often_as_it_is_seen(small: Small) -> None:
    """One in fifty: a mixture that leaked from the frequent value's cell would have it far more often."""
    generator = rng()
    x = generator.uniform(-1, 1, size=(2000, 1))
    y = np.column_stack([generator.uniform(size=2000) < 0.02, generator.normal(size=2000)]).astype(float)
    model = small(learning_rate=0.02, n_components=3, fall_back=False).fit(x, y)
    drawn = model.sample(x[:1000], 100)[..., 0]
    assert 0.01 < drawn.mean() < 0.04


def counts(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, size=(n, 1))
    return x, np.column_stack([generator.poisson(np.exp(1 + x[:, 0])), generator.normal(size=n) + x[:, 0]])


def test_a_model_of_counts_forecasts_counts(small: Small) -> None:
    x, y = counts(600, 0)
    model = small(learning_rate=0.02).fit(x, y)
    assert model.likelihood_ == "cells of y1; density of the others"
    drawn = model.sample(x[:50], 40)
    assert (drawn[..., 0] == np.round(drawn[..., 0])).all()
    assert (drawn[..., 0] >= 0).all()
    assert (drawn[..., 1] != np.round(drawn[..., 1])).any()
    spread = model.dequantised(y[:50])
    assert (np.abs(spread[:, 0] - y[:50, 0]) <= 0.5).all()
    assert (spread[:, 1] == y[:50, 1]).all()
    assert (model.dequantised(y[:50], seed=1)[:, 0] != spread[:, 0]).all()
    off = small(dequantise=False).fit(x, y)
    assert off.likelihood_ == "density"
    assert (off.dequantised(y) == y).all()


def test_probabilities_of_cells_sum_to_one_and_are_near_the_truth(small: Small) -> None:
    """Poisson counts: the score is a log probability, below zero, and within 0.1 nats of the true law's."""
    x, y = counts(1500, 1)
    fresh, observed = counts(1500, 2)
    model = small(learning_rate=0.02, hidden=(16,), n_components=3).fit(x, y[:, 0])
    assert model.likelihood_ == "cells"
    total = sum(np.exp(one) for one in _log_probabilities(model, fresh[:1], range(60)))
    assert abs(total - 1) < 0.05
    from scipy.stats import poisson

    truth = poisson(np.exp(1 + fresh[:, 0])).logpmf(observed[:, 0]).mean()
    assert truth - 0.1 < model.score(fresh, observed[:, 0]) < 0


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_draws_tie_with_observations_whatever_their_rounding(kind: type) -> None:
    """Tenths have no exact binary form, and standardised counts sit on a grid only within rounding."""
    counted = rng().poisson(4.0, 2000)
    for y in ((counted / 10).astype(kind), ((counted - 4.1) / 1.93).astype(kind)):
        support = recognised(y)
        assert isinstance(support, Lattice)
        values = y.astype(np.float64)
        assert (support.snapped(values + 0.3 * support.step * rng().uniform(-1, 1, 2000)) == values).all()
        assert from_record(as_record(support)) == support
        beyond = support.origin + 40 * support.step  # not seen, and on the grid nevertheless
        assert support.snapped(np.array([beyond + 0.2 * support.step]))[0] == pytest.approx(beyond, rel=1e-6)


def test_every_estimator_and_the_scorer_have_the_likelihood_of_cells(small: Small) -> None:
    x, y = counts(300, 4)
    plain = small().fit(x, y)
    assert LogLikelihood()(plain, x, y) == pytest.approx(plain.score(x, y), rel=1e-12)
    none = Recalibrator(steps=[Affine()])
    model = CalibratedRegressorCV(small(), cv=3, ensemble=False, recalibrator=none, random_state=0).fit(x, y)
    cells = model.models_[0].dequantiser_
    law = model.predict_distribution(x)
    assert cells.has_atoms
    assert model.score(x, y) == pytest.approx(float(cells.log_likelihood(y, law).mean()), rel=1e-12)
    weights = np.arange(300.0)
    weighted = np.average(cells.log_likelihood(y, law), weights=weights)
    assert LogLikelihood()(model, x, y, weights) == pytest.approx(weighted, rel=1e-12)


def _log_probabilities(model: MixtureRegressor, x: np.ndarray, values: range) -> list[float]:
    return [model.score(x, [float(value)]) for value in values]


def test_a_model_with_atoms_comes_back_from_its_file(small: Small, tmp_path) -> None:
    x, y = counts(300, 3)
    model = small().fit(x, y)
    model.save(tmp_path / "model")
    loaded = MixtureRegressor.load(tmp_path / "model")
    assert loaded.dequantiser_ == model.dequantiser_
    assert (loaded.sample(x, 5) == model.sample(x, 5)).all()
    assert loaded.score(x, y) == model.score(x, y)
