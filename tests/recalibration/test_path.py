"""The tilt's fit by its formulas: polynomials, likelihood, Newton's optimum, folds, and where a path of ridges ends."""

import math

import numpy as np
import pytest
import torch
from numpy.polynomial.legendre import legval

from builders import uniform
from prerank.recalibration.basis import by_case, legendre, log_tilt
from prerank.recalibration.features import Features
from prerank.recalibration.folds import folds_of
from prerank.recalibration.likelihood import Points
from prerank.recalibration.path import _metric, ridge_path, solve

CPU = torch.device("cpu")


@pytest.fixture
def wrong():
    """PITs of 40 observations that are too low, among 6 draws, of two projections; weights of the cases."""
    pits = uniform(40, 7, 2)
    pits[:, 0, 0] **= 3.0
    return pits, 0.2 + uniform(40, seed=1)


def log_likelihood(pits, theta, features=None):
    """Log probability (N,) of picking the observation, written out."""
    basis = legendre(pits, theta.shape[-2])
    if features is None:
        exponent = torch.einsum("nmjk,jk->nm", basis, theta)
    else:
        exponent = torch.einsum("nl,nmjk,ljk->nm", features, basis, theta)
    return exponent[:, 0] - exponent.exp().sum(1).log()


def slope(pits, weights, theta, ridge, features=None):
    """Of the penalised mean log likelihood at some coefficients."""
    theta = theta.clone().requires_grad_()
    orders = torch.arange(1, theta.shape[-2] + 1)[:, None]
    mean = (weights * log_likelihood(pits, theta, features)).sum() / weights.sum()
    return torch.autograd.grad(mean - 0.5 * ridge * (orders * theta).square().sum(), theta)[0]


def test_the_polynomials_are_those_of_legendre_normalised():
    pits = uniform(3, 4, 2)
    found = legendre(pits, 9)
    assert found.shape == (3, 4, 9, 2)
    for j in range(1, 10):
        expected = math.sqrt(2 * j + 1) * legval(2 * pits.numpy() - 1, [0] * j + [1])
        np.testing.assert_allclose(found[:, :, j - 1], expected, atol=1e-12)
    assert legendre(pits.float(), 2).dtype == torch.float32


def test_coefficients_by_case_are_sums_over_features():
    pits, theta, features = uniform(5, 7, 3), uniform(2, 4, 3, seed=1), uniform(5, 2, seed=2) - 0.5
    own = by_case(theta, features.float())
    for case in range(5):
        torch.testing.assert_close(
            own[case], features[case, 0].float().double() * theta[0] + features[case, 1].float() * theta[1]
        )
        alone = log_tilt(pits[case : case + 1], own[case])
        torch.testing.assert_close(log_tilt(pits, own)[case], alone[0])
    assert log_tilt(pits.float(), theta[0]).dtype == torch.float32


@pytest.mark.parametrize("with_features", [False, True])
@pytest.mark.parametrize("keep", [0, 1 << 28])
def test_values_gradients_and_curvature_are_those_of_the_likelihood(with_features, keep, wrong, monkeypatch):
    monkeypatch.setattr("prerank._chunks.ELEMENTS", 100)  # a few cases at a time
    pits, weights = wrong
    features = uniform(40, 3, seed=2) - 0.5 if with_features else None
    points = Points(pits, 4, features, keep)
    assert points.shape == ((3, 4, 2) if with_features else (4, 2))
    theta = 0.3 * (uniform(2, *points.shape, seed=3) - 0.5)
    used = torch.stack([weights, weights.flip(0)])
    value = points.evaluate(theta, used)
    for row in range(2):
        torch.testing.assert_close(value.log_likelihood[row], log_likelihood(pits, theta[row], features))
        free = theta[row].clone().requires_grad_()
        (expected,) = torch.autograd.grad((used[row] * log_likelihood(pits, free, features)).sum(), free)
        torch.testing.assert_close(value.gradient[row], expected)
    size = math.prod(points.shape)
    parts = points.information(theta[0], weights, [slice(0, 13), slice(13, 40)])
    for part, cases in zip(parts, (slice(0, 13), slice(13, 40)), strict=True):

        def total(flat, cases=cases):
            own = None if features is None else features[cases]
            return (weights[cases] * log_likelihood(pits[cases], flat.reshape(points.shape), own)).sum()

        expected = -torch.autograd.functional.hessian(total, theta[0].flatten()).reshape(size, size)
        torch.testing.assert_close(part, expected, atol=1e-9, rtol=1e-7)


def test_single_precision_is_enough_for_points_and_results_are_double():
    points = Points(uniform(10, 5, 2).float(), 3)
    value = points.evaluate(torch.zeros(1, 3, 2).double(), torch.ones(1, 10))
    assert (value.log_likelihood.dtype, value.gradient.dtype) == (torch.float64, torch.float64)
    torch.testing.assert_close(value.log_likelihood, torch.full((1, 10), -math.log(5)).double())
    assert points.information(torch.zeros(3, 2), torch.ones(10), [slice(None)]).dtype == torch.float64


@pytest.mark.parametrize("ridge", [0.5, 0.01])
def test_newtons_method_finds_the_penalised_optimum_of_every_weighting(ridge, wrong):
    pits, weights = wrong
    within = [slice(0, 15), slice(15, 40)]
    used = weights.repeat(3, 1)
    used[1, within[0]], used[2, within[1]] = 0.0, 0.0
    theta, value = solve(Points(pits, 3), used, within, ridge, torch.zeros(3, 3, 2).double())
    for row in range(3):
        # half the squared decrement is below 1e-6, and curvatures are near one
        assert slope(pits, used[row], theta[row], ridge).abs().max() < 2e-3
        torch.testing.assert_close(value[row], log_likelihood(pits, theta[row]))
    assert float(theta[0, 0, 0]) < -0.05  # observations are low
    alone, _ = solve(Points(pits, 3), used[:1], [slice(None)], ridge, torch.zeros(1, 3, 2).double())
    torch.testing.assert_close(alone[0], theta[0], atol=5e-3, rtol=0)


def test_a_start_far_off_leads_to_the_same_optimum(wrong):
    pits, weights = wrong
    points, used = Points(pits, 3), weights[None]
    for ridge in (0.1, 0.001):  # from there whole steps lose, and are halved
        near, _ = solve(points, used, [slice(None)], ridge, torch.zeros(1, 3, 2).double())
        far, _ = solve(points, used, [slice(None)], ridge, torch.full((1, 3, 2), 8.0).double())
        torch.testing.assert_close(far, near, atol=5e-3, rtol=0)


def test_the_metric_of_every_weighting_is_its_own_curvature(wrong):
    pits, weights = wrong
    points, within = Points(pits, 3), [slice(0, 15), slice(15, 40)]
    used = weights.repeat(3, 1)
    used[1, within[0]], used[2, within[1]] = 0.0, 0.0
    theta, totals, penalty = 0.2 * uniform(3, 2, seed=4), used.sum(1, keepdim=True), 0.1 + uniform(6, seed=5)
    factor = _metric(points, theta.flatten(), used, within, penalty)
    for row in range(3):
        curvature = points.information(theta, used[row], [slice(None)])[0] / totals[row]
        expected = curvature + torch.diag(penalty + 1e-6 * curvature.diagonal().mean())
        torch.testing.assert_close(factor[row] @ factor[row].mT, expected, rtol=1e-10, atol=1e-10)


def test_of_many_cases_every_other_one_makes_the_metric(monkeypatch, wrong):
    monkeypatch.setattr("prerank.recalibration.path._FOR_METRIC", 20)
    pits, weights = wrong
    points, used, within = Points(pits, 3), weights[None], [slice(0, 20), slice(20, 40)]
    theta, penalty = torch.zeros(6).double(), torch.ones(6).double()
    (factor,) = _metric(points, theta, used, within, penalty)
    curvature = Points(pits[::2], 3).information(theta, weights[::2], [slice(None)])[0] / weights[::2].sum()
    expected = curvature + torch.diag(penalty + 1e-6 * curvature.diagonal().mean())
    torch.testing.assert_close(factor @ factor.mT, expected, rtol=1e-10, atol=1e-10)
    silent = used.clone()
    silent[:, ::2] = 0.0  # all the weight is where nobody looks: then all cases are asked
    (factor,) = _metric(points, theta, silent, within, penalty)
    curvature = Points(pits[1::2], 3).information(theta, weights[1::2], [slice(None)])[0] / weights[1::2].sum()
    expected = curvature + torch.diag(penalty + 1e-6 * curvature.diagonal().mean())
    torch.testing.assert_close(factor @ factor.mT, expected, rtol=1e-10, atol=1e-10)


def test_under_an_overwhelming_ridge_nothing_is_gained(wrong):
    pits, weights = wrong
    path = ridge_path(pits, weights, folds_of(40, 2, None, 0, CPU), (1e12,), 2)
    assert path.candidates[0].gain.abs().max() < 1e-10
    assert path.choice is None


def test_projections_that_say_the_same_or_nothing_leave_a_finite_fit(wrong):
    pits, weights = wrong
    twice = torch.cat([pits, pits[..., :1]], -1)
    theta, _ = solve(Points(twice, 2), weights[None], [slice(None)], 0.0, torch.zeros(1, 2, 3).double())
    assert theta.isfinite().all()
    torch.testing.assert_close(theta[..., 0], theta[..., 2], atol=1e-3, rtol=0)
    nothing = torch.full((20, 4, 1), 0.3).double()
    theta, value = solve(
        Points(nothing, 2), torch.ones(1, 20).double(), [slice(None)], 0.0, torch.zeros(1, 2, 1).double()
    )
    assert torch.equal(theta, torch.zeros(1, 2, 1).double())
    torch.testing.assert_close(value, torch.full((1, 20), -math.log(4)).double())


@pytest.mark.parametrize("with_features", [False, True])
def test_candidates_have_the_optimum_of_all_cases_and_of_all_but_a_fold(with_features, wrong):
    pits, weights = wrong
    features = Features.of(uniform(40, 2, seed=5), 40, CPU) if with_features else None
    values = None if features is None else features.values
    if with_features:
        pits[:, 0, 0] = torch.where(values[:, 0] > 0, pits[:, 0, 0], 1 - pits[:, 0, 0])
    folds = folds_of(40, 3, None, 0, CPU)
    path = ridge_path(pits, weights.float(), folds, (0.05, 0.8), 2, features)
    assert [candidate.ridge for candidate in path.candidates] == [0.8, 0.05]
    for candidate in path.candidates:
        assert candidate.features is features
        assert candidate.without.shape == (3, *candidate.theta.shape)
        assert slope(pits, weights, candidate.theta, candidate.ridge, values).abs().max() < 2e-3
        for f in range(3):
            rest, inside = folds.fold != f, folds.fold == f
            some = (None, None) if values is None else (values[rest], values[inside])
            own = candidate.without[f]
            assert slope(pits[rest], weights[rest], own, candidate.ridge, some[0]).abs().max() < 2e-3
            gain = log_likelihood(pits[inside], own, some[1]) + math.log(7)
            torch.testing.assert_close(candidate.gain[inside], gain)
    assert path.choice is not None


def test_a_path_ends_where_weaker_ridges_lose():
    pits = uniform(60, 5, 3, seed=8)  # nothing to learn, much to overfit
    folds = folds_of(60, 4, None, 0, CPU)
    ridges = (3.0, 0.3, 0.03, 0.003, 0.0003, 0.0)
    path = ridge_path(pits, torch.ones(60), folds, ridges, 6)
    gains = [float(candidate.gain.mean()) for candidate in path.candidates]
    assert path.choice is None
    assert 1 < len(gains) < len(ridges)
    assert gains[-1] < min(gains[:-1], default=0.0)


def test_a_path_goes_on_while_ridges_gain(wrong):
    pits, weights = wrong
    pits[:, 0, 0] **= 3.0
    path = ridge_path(pits, weights, folds_of(40, 2, None, 0, CPU), (30.0, 3.0, 0.3), 2)
    gains = [float((weights * candidate.gain).sum()) for candidate in path.candidates]
    assert len(gains) == 3
    assert gains == sorted(gains)
    assert path.choice is not None


def test_a_path_ends_where_observations_are_told_from_all_draws():
    pits = 0.5 * uniform(30, 6, 1)
    pits[:, 0] = 0.99  # above every draw
    ridges = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)
    path = ridge_path(pits, torch.ones(30), folds_of(30, 2, None, 0, CPU), ridges, 2)
    shares = [float(candidate.gain.mean()) / math.log(6) for candidate in path.candidates]
    assert len(shares) < len(ridges)
    assert shares[-1] > 0.9
    assert all(share <= 0.9 for share in shares[:-1])


def test_weights_of_zero_are_as_if_the_cases_were_not_there(wrong):
    pits, weights = wrong
    folds = folds_of(40, 2, None, 0, CPU)
    silent = weights.clone()
    silent[::4] = 0.0
    other = pits.clone()
    other[::4] = 0.5
    first, second = (ridge_path(values, silent, folds, (0.1,), 2).candidates[0] for values in (pits, other))
    torch.testing.assert_close(first.theta, second.theta, atol=1e-9, rtol=0)
    torch.testing.assert_close(first.without, second.without, atol=1e-9, rtol=0)
