"""What the scores must satisfy whatever the numbers: closed forms, unbiasedness, propriety, invariance."""

import math

import pytest
import torch
from scipy.special import gamma

from builders import normal
from prerank.forecasts import Ensemble, GaussianMixture
from prerank.scores import Fair, Paper, TwoSets, crps, energy_score, nll, variogram_score

ESTIMATORS = [Fair(), Paper(), TwoSets()]


def mean_and_error(values):
    return values.mean().item(), values.std().item() / math.sqrt(values.numel())


def mean_norm(targets):
    """E|X| of a standard Gaussian vector."""
    return math.sqrt(2) * gamma((targets + 1) / 2) / gamma(targets / 2)


# --- closed forms ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_energy_score_of_one_target_is_the_crps(estimator):
    y, members = normal(20, 1), normal(20, 11, 1, seed=1)
    torch.testing.assert_close(energy_score(y, members, estimator), crps(y, members, estimator=estimator)[:, 0])


def test_crps_of_weighted_sets_is_the_energy_score_of_each_column():
    t, members, weights = normal(6, 3), normal(6, 9, 3, seed=1), normal(6, 9, seed=2).exp()
    other = Ensemble(normal(6, 4, 3, seed=3), normal(6, 4, seed=4).exp())
    ours = crps(t, members, TwoSets(other), weights=weights)
    for k in range(3):
        column = TwoSets(Ensemble(other.members[..., k : k + 1], other.weights))
        expected = energy_score(t[:, k : k + 1], members[..., k : k + 1], column, weights=weights)
        torch.testing.assert_close(ours[:, k], expected)


def test_crps_of_gaussian_members_has_the_gaussian_closed_form_on_average():
    t = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64).expand(20_000, 3)
    scores = crps(t, normal(20_000, 4, 3))
    for k, value in enumerate(t[0].tolist()):
        cdf, density = 0.5 * math.erfc(-value / math.sqrt(2)), math.exp(-(value**2) / 2) / math.sqrt(2 * math.pi)
        expected = value * (2 * cdf - 1) + 2 * density - 1 / math.sqrt(math.pi)
        mean, error = mean_and_error(scores[:, k])
        assert abs(mean - expected) < 4 * error


def test_a_point_forecast_scores_its_distance():
    y, point = normal(5, 3), normal(5, 1, 3, seed=1)
    torch.testing.assert_close(energy_score(y, point, Paper()), (y - point[:, 0]).norm(dim=-1))
    torch.testing.assert_close(crps(y, point, estimator=Paper()), (y - point[:, 0]).abs())


def test_nll_is_minus_the_log_density():
    law = torch.distributions.MultivariateNormal(normal(4, 2), torch.eye(2, dtype=torch.float64))
    y = normal(4, 2, seed=1)
    expected = 0.5 * (y - law.loc).square().sum(-1) + math.log(2 * math.pi)
    torch.testing.assert_close(nll(y, law), expected)
    mixture = GaussianMixture(torch.zeros(4, 1).double(), law.loc[:, None], law.scale_tril[:, None])
    torch.testing.assert_close(nll(y, mixture), expected)
    torch.testing.assert_close(nll(y.expand(3, 4, 2), mixture), expected.expand(3, 4))
    torch.testing.assert_close(nll(y, mixture.expand((3, 4))), expected.expand(3, 4))


# --- unbiasedness and propriety --------------------------------------------------------------------------------------


@pytest.mark.parametrize("targets", [1, 2, 5])
@pytest.mark.parametrize("members", [2, 3, 10])
def test_fair_and_two_sets_are_unbiased_and_paper_is_too_high_by_spread_over_2m(targets, members):
    # 4 standard errors: one false alarm in 16,000 tests
    y, draws = torch.zeros(20_000, targets, dtype=torch.float64), normal(20_000, members, targets)
    truth, spread = mean_norm(targets) * (1 - 1 / math.sqrt(2)), mean_norm(targets) * math.sqrt(2)
    bias = {Fair(): 0.0, TwoSets(): 0.0, Paper(): spread / (2 * members)}
    for estimator, expected in bias.items():
        mean, error = mean_and_error(energy_score(y, Ensemble(draws), estimator))
        assert abs(mean - truth - expected) < 4 * error, estimator


def test_fair_is_unbiased_for_weights_that_do_not_look_at_the_members():
    y, draws, weights = torch.zeros(20_000, 2).double(), normal(20_000, 4, 2), normal(20_000, 4, seed=1).exp()
    mean, error = mean_and_error(energy_score(y, draws, weights=weights))
    assert abs(mean - mean_norm(2) * (1 - 1 / math.sqrt(2))) < 4 * error


@pytest.mark.parametrize("estimator", [Fair(), TwoSets()])
def test_the_fair_variogram_score_does_not_depend_on_the_number_of_members(estimator):
    # for p = 2 and a standard Gaussian, E|X_1 - X_2|^2 = 2: the score at y = 0 is 2 * 2^2
    y, draws = torch.zeros(20_000, 2).double(), normal(20_000, 4, 2)
    mean, error = mean_and_error(variogram_score(y, draws, 2.0, estimator=estimator))
    assert abs(mean - 8) < 4 * error


@pytest.mark.parametrize(
    "score", [energy_score, variogram_score, lambda y, members: crps(y, members).mean(-1)], ids=["es", "vs", "crps"]
)
@pytest.mark.parametrize(
    "distort",
    [
        lambda members: members + torch.tensor([0.7, 0.0, 0.0], dtype=torch.float64),
        lambda members: 1.8 * members,
        lambda members: 0.4 * members,
    ],
    ids=["biased", "wide", "narrow"],
)
def test_the_true_forecast_scores_better(score, distort):
    factor = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.5, 0.5, 0.7]], dtype=torch.float64)
    y, members = normal(4000, 3) @ factor.mT, normal(4000, 20, 3, seed=1) @ factor.mT
    mean, error = mean_and_error(score(y, distort(members)) - score(y, members))
    assert mean > 4 * error


def test_wrong_dependence_is_seen_by_energy_and_variogram_scores_and_not_by_the_crps():
    factor = torch.tensor([[1.0, 0.0], [0.9, math.sqrt(1 - 0.81)]], dtype=torch.float64)
    y, independent = normal(4000, 2) @ factor.mT, normal(4000, 20, 2, seed=1)
    for score in (energy_score, variogram_score):
        mean, error = mean_and_error(score(y, independent) - score(y, independent @ factor.mT))
        assert mean > 4 * error
    mean, error = mean_and_error((crps(y, independent) - crps(y, independent @ factor.mT)).mean(-1))
    assert abs(mean) < 4 * error


# --- invariance ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_energy_score_is_unchanged_by_translation_and_rotation_and_scales_with_the_unit(estimator):
    y, members = normal(8, 4), normal(8, 10, 4, seed=1)
    score, shift = energy_score(y, members, estimator), normal(4, seed=2)
    rotation = torch.linalg.qr(normal(4, 4, seed=3)).Q
    torch.testing.assert_close(energy_score(y + shift, members + shift, estimator), score)
    torch.testing.assert_close(energy_score(y @ rotation, members @ rotation, estimator), score)
    torch.testing.assert_close(energy_score(3 * y, 3 * members, estimator), 3 * score)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_variogram_score_is_unchanged_by_a_common_shift_and_scales_with_twice_the_power(estimator):
    y, members = normal(8, 4), normal(8, 10, 4, seed=1)
    score = variogram_score(y, members, 1.5, estimator=estimator)
    torch.testing.assert_close(variogram_score(y + 7, members + 7, 1.5, estimator=estimator), score)
    torch.testing.assert_close(variogram_score(2 * y, 2 * members, 1.5, estimator=estimator), 8 * score)


def scores_of(y, members, weights, estimator):
    return [
        energy_score(y, members, estimator, weights=weights),
        variogram_score(y, members, estimator=estimator, weights=weights),
        crps(y, members, estimator, weights=weights),
    ]


def test_splitting_a_member_in_two_halves_leaves_paper_unchanged():
    y, members, weights = normal(8, 3), normal(8, 5, 3, seed=1), normal(8, 5, seed=2).exp()
    halves = torch.cat([weights[:, :1] / 2, weights[:, 1:], weights[:, :1] / 2], 1)
    doubled = torch.cat([members, members[:, :1]], 1)
    for whole, split in zip(
        scores_of(y, members, weights, Paper()), scores_of(y, doubled, halves, Paper()), strict=True
    ):
        torch.testing.assert_close(whole, split)


@pytest.mark.parametrize("estimator", [Fair(), Paper()])
def test_weights_are_relative_equal_ones_change_nothing_and_zero_ones_leave_a_member_out(estimator):
    y, members = normal(8, 3), normal(8, 6, 3, seed=1)
    equal = torch.full((8, 6), 5.0, dtype=torch.float64)
    without = torch.cat([torch.ones(8, 5), torch.zeros(8, 1)], 1).double()
    plain, weighted = scores_of(y, members, None, estimator), scores_of(y, members, equal, estimator)
    fewer, left_out = scores_of(y, members[:, :5], None, estimator), scores_of(y, members, without, estimator)
    for a, b in [*zip(plain, weighted, strict=True), *zip(fewer, left_out, strict=True)]:
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("estimator", [Fair(), Paper()])
def test_the_order_of_members_does_not_matter(estimator):
    y, members, weights = normal(8, 3), normal(8, 6, 3, seed=1), normal(8, 6, seed=2).exp()
    for a, b in zip(
        scores_of(y, members, weights, estimator),
        scores_of(y, members.flip(1), weights.flip(1), estimator),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
