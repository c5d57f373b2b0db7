"""What the ranking likelihood and the tilt are known to satisfy."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from builders import uniform
from prerank import GaussianMixture, Location, Marginal
from prerank.recalibration import Tilted
from prerank.recalibration.basis import legendre, log_tilt
from prerank.recalibration.likelihood import Points
from prerank.recalibration.path import solve
from prerank.recalibration.pit_coordinates import OldPITs


def test_the_basis_is_orthonormal_for_uniform_pits():
    nodes, weights = np.polynomial.legendre.leggauss(12)  # exact up to degree 23, the products have 16
    u, w = torch.as_tensor((nodes + 1) / 2)[:, None], torch.as_tensor(weights / 2)
    basis = legendre(u, 8)[..., 0]
    torch.testing.assert_close((w[:, None] * basis).mT @ basis, torch.eye(8, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(w @ basis, torch.zeros(8, dtype=torch.float64), atol=1e-12, rtol=0)


def test_the_exponent_is_the_sum_of_coefficients_times_basis():
    pits, theta = uniform(5, 7, 3), uniform(4, 3, seed=1)
    torch.testing.assert_close(log_tilt(pits, theta), (legendre(pits, 4) * theta).sum((-2, -1)))


def test_without_ridge_observed_means_equal_those_of_the_weighted_points():
    pits = uniform(300, 33, 1)
    pits[:, 0] = pits[:, 0] ** 1.5  # observations too low
    used = torch.ones(1, 300, dtype=torch.float64)
    theta, _ = solve(Points(pits, 5), used, [slice(None)], 0.0, torch.zeros(1, 5, 1, dtype=torch.float64))
    basis = legendre(pits, 5)[..., 0]
    share = torch.softmax(log_tilt(pits, theta[0]), -1)
    weighted = (share[..., None] * basis).sum(1).mean(0)
    # half the squared Newton decrement is below 1e-6, so each mean is met to within sqrt(2e-6) standard deviations
    torch.testing.assert_close(basis[:, 0].mean(0), weighted, atol=1.5e-3, rtol=0)
    assert basis[:, 0].mean(0).abs().max() > 0.1  # there was something to meet


def test_the_expected_score_at_zero_vanishes_under_calibration():
    n = 20_000
    points = Points(uniform(n, 9, 2), 3)
    score = points.evaluate(torch.zeros(1, 3, 2), torch.ones(1, n, dtype=torch.float64)).gradient[0] / n
    error = math.sqrt((1 - 1 / 9) / n)  # variance of b(y) - mean of b over 9 points, b of variance one
    assert score.abs().max() < 4.5 * error  # six numbers: exceeded once in 20,000


def test_the_score_test_tends_to_neymans_smooth_test_like_one_over_the_number_of_draws():
    n, degree, errors = 50, 4, []
    y = uniform(n, 1, 1, seed=4) ** 1.2
    neyman = float(legendre(y, degree)[:, 0, :, 0].mean(0).square().sum() * n)
    for n_draws in (1000, 10_000):
        even = ((torch.arange(n_draws, dtype=torch.float64) + 0.5) / n_draws).expand(n, n_draws)[..., None]
        points, weights = Points(torch.cat([y, even], 1), degree), torch.ones(1, n, dtype=torch.float64)
        zero = torch.zeros(1, degree, 1, dtype=torch.float64)
        score = points.evaluate(zero, weights).gradient.flatten()
        statistic = score @ torch.linalg.solve(points.information(zero[0], weights[0], [slice(None)])[0], score)
        errors.append(abs(float(statistic) / neyman - 1))
    assert errors[0] < 0.05
    assert errors[1] < errors[0] / 5


def test_gradient_and_hessian_agree_with_finite_differences():
    pits, theta = uniform(6, 5, 2), 0.5 * uniform(1, 3, 2, seed=1)
    weights = uniform(1, 6, seed=2)
    points, step = Points(pits, 3), 1e-5

    def value(flat):
        return (weights * points.evaluate(flat.reshape(1, 3, 2), weights).log_likelihood).sum()

    def gradient(flat):
        return points.evaluate(flat.reshape(1, 3, 2), weights).gradient.flatten()

    flat, unit = theta.flatten(), step * torch.eye(6, dtype=torch.float64)
    slopes = torch.stack([(value(flat + u) - value(flat - u)) / (2 * step) for u in unit])
    curvature = torch.stack([(gradient(flat + u) - gradient(flat - u)) / (2 * step) for u in unit])
    torch.testing.assert_close(gradient(flat), slopes, atol=1e-8, rtol=1e-6)
    information = points.information(theta[0], weights[0], [slice(0, 2), slice(2, 6)]).sum(0)
    torch.testing.assert_close(-information, curvature, atol=1e-8, rtol=1e-6)


def test_a_basis_that_is_not_kept_gives_the_same():
    pits, theta, weights = uniform(40, 9, 3), uniform(2, 4, 3, seed=1), uniform(2, 40, seed=2)
    kept, made = Points(pits, 4), Points(pits, 4, keep=0)
    torch.testing.assert_close(kept.evaluate(theta, weights), made.evaluate(theta, weights))


@pytest.mark.slow
@pytest.mark.parametrize("law", ["single", "several"])
def test_own_weight_pits_are_uniform_under_the_corrected_law(law, standard):
    n, m = 4000, 60
    base = standard(n)
    preranks = (Location(),) if law == "single" else (Marginal(), Location())
    n_projections = 1 if law == "single" else 3
    theta = torch.zeros(2, n_projections, dtype=torch.float64)
    theta[0], theta[1] = 0.4, 0.15
    corrected = Tilted(base, OldPITs(preranks, 100, 0), theta, pool=4000)
    y = corrected.ensemble(1, seed=1).members  # pools of 4,000: an error of order 1/4,000, far below 1/sqrt(n)
    drawn = base.ensemble(m, seed=2).members
    points = torch.cat([y, drawn], 1)
    share = torch.softmax(corrected.log_weights(points), -1)
    below = (points[..., 0] < points[:, :1, 0]).double()
    u = uniform(n, seed=5)
    pit = (share * below).sum(-1) + u * share[:, 0]
    assert kstest(pit.numpy(), "uniform").pvalue > 1e-4
    plain = (below.sum(-1) + u) / (m + 1)
    assert kstest(plain.numpy(), "uniform").pvalue < 1e-4  # without weights they are not: the tilt matters


@pytest.mark.slow
def test_for_one_projection_the_corrected_pits_have_the_density_of_the_tilt(standard):
    n = 4000
    base, theta = standard(n), torch.tensor([[0.5], [0.2]], dtype=torch.float64)
    corrected = Tilted(base, OldPITs((Location(),), 100, 0), theta, pool=4000)
    old = corrected.pits(base, corrected.ensemble(1, seed=1).members, corrected.case_ids)[:, 0, 0]
    grid = (torch.arange(100_000, dtype=torch.float64)[:, None] + 0.5) / 100_000
    density = log_tilt(grid, theta).exp()
    cumulative = density.cumsum(0) / density.sum()
    found = kstest(np.interp(old.numpy(), grid[:, 0].numpy(), cumulative.numpy()), "uniform")
    assert found.pvalue > 1e-4
    # and the normaliser is the same for every case: that of the tilt on the unit interval
    exact = float(density.mean().log())
    z = (corrected._moments.log_normaliser - exact) / corrected.log_normaliser_error
    assert abs(float(z.mean())) < 5 / math.sqrt(n) + 0.05
    assert 0.9 < float(z.square().mean()) < 1.1


def test_a_tilted_density_integrates_to_one():
    base = GaussianMixture(torch.zeros(1, 1), torch.zeros(1, 1, 1, dtype=torch.float64), torch.ones(1, 1, 1, 1))
    theta = torch.tensor([[0.6], [-0.3]], dtype=torch.float64)
    corrected = Tilted(base, OldPITs((Marginal(),), 10, 0), theta, pool=20_000)
    grid = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    mass = float(corrected.log_prob(grid[:, None, None]).exp().sum() * (grid[1] - grid[0]))
    assert abs(math.log(mass)) < 5 * float(corrected.log_normaliser_error[0])
