"""The linear-Gaussian reference: right where the law is linear, and there for any table."""

import numpy as np
import pytest
import torch

from prerank.models import LinearGaussian


def linear_table(n: int, n_features: int, n_targets: int, seed: int = 0):
    """Rows of a linear law with correlated errors, its slope and its covariance."""
    rng = np.random.default_rng(seed)
    slope = rng.normal(size=(n_features, n_targets))
    factor = np.tril(rng.normal(size=(n_targets, n_targets))) / 2 + np.eye(n_targets)
    x = rng.normal(size=(n, n_features))
    y = 3.0 + x @ slope + rng.normal(size=(n, n_targets)) @ factor.T
    return torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(slope), torch.from_numpy(factor @ factor.T)


def test_a_linear_law_is_recovered_within_its_standard_errors():
    x, y, slope, covariance = linear_table(5000, 3, 4)
    found = LinearGaussian.fit(x, y)
    error = covariance.diagonal().sqrt() / 5000**0.5  # of a slope, and of the mean, for features of variance one
    assert ((found.slope - slope).abs() < 5 * error).all()
    assert ((found.level - 3).abs() < 5 * error).all()
    estimated = found.scale_tril @ found.scale_tril.T
    # a sample covariance has variance (s_ij^2 + s_ii s_jj) / n
    spread = ((covariance**2 + covariance.diagonal()[:, None] * covariance.diagonal()) / 5000).sqrt()
    assert ((estimated - covariance).abs() < 5 * spread + 0.005 * covariance.abs()).all()


def test_its_errors_are_those_of_rows_left_out():
    """One target, a ridge that the data cannot do without: the spread is the leave-one-out error, refitted row by row."""
    rng = np.random.default_rng(1)
    x, y = torch.from_numpy(rng.normal(size=(12, 15))), torch.from_numpy(rng.normal(size=(12, 1)))
    found = LinearGaussian.fit(x, y)
    x_centred, y_centred = x - x.mean(0), y - y.mean(0)
    best = torch.inf
    for ridge in torch.logspace(-4, 3, 15, dtype=torch.float64):
        errors = []
        for i in range(12):
            kept = torch.arange(12) != i
            # sums without the row; the penalty and the divisor stay
            design = torch.cat([torch.ones(12, 1, dtype=torch.float64), x_centred], 1)
            penalty = torch.diag(torch.cat([torch.zeros(1), torch.full((15,), float(ridge))])).double() * 12
            solved = torch.linalg.solve(design[kept].T @ design[kept] + penalty, design[kept].T @ y_centred[kept])
            errors.append(float((y_centred[i] - design[i] @ solved).item()))
        best = min(best, float(np.mean(np.square(errors))))
    assert float(found.scale_tril) ** 2 == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize(("n", "n_features", "n_targets"), [(3, 2, 10), (5, 40, 3), (20, 1, 100), (2, 1, 1)])
def test_it_exists_for_fewer_rows_than_targets_or_features(n, n_features, n_targets):
    rng = np.random.default_rng(2)
    x, y = (torch.from_numpy(rng.normal(size=(n, k))) for k in (n_features, n_targets))
    found = LinearGaussian.fit(x, y)
    assert found.forecast(x).log_prob(y).isfinite().all()
    assert (found.scale_tril.diagonal() > 0).all()


def test_constant_duplicated_and_collinear_columns_do_no_harm():
    x, y, _, _ = linear_table(200, 4, 3)
    x = torch.cat([x, x[:, :1], torch.full((200, 1), 7.0)], 1)
    y = torch.cat([y, y[:, :1], y[:, :1] + y[:, 1:2], x[:, :1]], 1)  # the last is known exactly
    found = LinearGaussian.fit(x, y)
    assert found.forecast(x).log_prob(y).isfinite().all()
    plain = LinearGaussian.fit(x[:, :4], y)
    torch.testing.assert_close(found.forecast(x).mean, plain.forecast(x[:, :4]).mean, rtol=0, atol=0.05)


def test_correlations_are_shrunk_where_rows_are_few_and_kept_where_they_are_many():
    def correlation(n: int) -> float:
        rng = np.random.default_rng(3)
        common = rng.normal(size=(n, 1))
        y = torch.from_numpy(0.8 * common + 0.6 * rng.normal(size=(n, 30)))
        factor = LinearGaussian.fit(torch.zeros(n, 1), y).scale_tril
        covariance = factor @ factor.T
        spread = covariance.diagonal().sqrt()
        return float(((covariance / spread / spread[:, None]).sum() - 30) / (30 * 29))

    few, many = correlation(8), correlation(2000)
    assert abs(many - 0.64) < 0.05  # five standard errors of the mean square of the common factor are 0.1
    assert 0 < few < many


def test_rows_of_weight_zero_have_no_influence_and_only_ratios_count():
    x, y, _, _ = linear_table(60, 2, 2)
    weights = torch.arange(60) % 3
    one = LinearGaussian.fit(x, torch.where(weights[:, None] > 0, y, 1e6), weights)
    other = LinearGaussian.fit(x[weights > 0], y[weights > 0], 4.0 * weights[weights > 0])
    torch.testing.assert_close(one.slope, other.slope)
    torch.testing.assert_close(one.scale_tril, other.scale_tril)
