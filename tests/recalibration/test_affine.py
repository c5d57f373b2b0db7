"""The affine step by its formulas: laws of single targets, the optimum, the gain, and what becomes of each forecast."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import (
    Cauchy,
    Dirichlet,
    Gamma,
    Independent,
    Laplace,
    LogNormal,
    MultivariateNormal,
    Normal,
    Poisson,
    StudentT,
    Uniform,
)

from builders import normal
from prerank import Ensemble, GaussianMixture, energy_score
from prerank.forecasts import Moved, equally_weighted_draws
from prerank.recalibration import Affine, affine
from prerank.recalibration._lbfgs import smallest
from prerank.recalibration.affine import FittedAffine, marginals
from prerank.recalibration.folds import mean_and_error

ONLY = 1e-6  # a ridge so weak that it changes nothing


def moved_log_density(forecast, y, shift, scale):
    """Log densities (N,) of single targets of a moved mixture, added up."""
    mean = forecast.mean[:, None]
    loc = mean + shift + scale * (forecast.loc - mean)
    spread = scale * forecast.scale_tril.square().sum(-1).sqrt()
    parts = forecast.log_weights[..., None] + Normal(loc, spread).log_prob(y[:, None])
    return torch.logsumexp(parts, 1).sum(-1)


@pytest.fixture
def wrong(mixed, observed):
    """A mixture of 24 cases, observations that are shifted and spread out, and weights of the cases."""
    forecast = mixed(24)
    y = forecast.mean + torch.tensor([1.5, -0.8]) + 1.6 * (observed(forecast, 1) - forecast.mean)
    return forecast, y, 0.2 + torch.rand(24, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def test_single_targets_of_a_mixture_have_its_marginal_densities(mixed):
    forecast, values = mixed(5, 3, dtype=torch.float32), normal(7, 5, 3)
    law = marginals(forecast, 0)
    assert all(part.dtype == torch.float64 for part in law[:4])
    assert law.freedom is None
    torch.testing.assert_close(law.centre, forecast.mean.double())
    expected = sum(
        forecast.weights[:, c, None]
        * Normal(forecast.loc[:, c], forecast.scale_tril[:, c].square().sum(-1).sqrt()).log_prob(values).exp()
        for c in range(2)
    )
    torch.testing.assert_close(law.log_density(values), expected.log().double(), rtol=1e-5, atol=1e-5)


def test_an_observation_among_few_members_follows_students_law():
    members, values = 3 * normal(6, 5, 2), normal(6, 2, seed=1)
    law = marginals(Ensemble(members.float()), 0)
    scale = members.std(1) * math.sqrt(1 + 1 / 5)
    expected = stats.t(4, members.mean(1).numpy(), scale.numpy()).logpdf(values.numpy())
    np.testing.assert_allclose(law.log_density(values), expected, rtol=1e-4)
    assert law.log_density(values).dtype == torch.float64


def test_members_that_are_worth_fewer_than_two_leave_one_degree_of_freedom():
    members, weights = normal(3, 3, 2), torch.tensor([[0.9, 0.05, 0.05]]).double().expand(3, 3)
    law = marginals(Ensemble(members, weights), 0)
    size = 1 / (0.81 + 2 * 0.0025)
    mean = (weights[..., None] * members).sum(1)
    variance = (weights[..., None] * (members - mean[:, None]).square()).sum(1) * size / (size - 1)
    assert law.freedom.unique().tolist() == [1.0]
    torch.testing.assert_close(law.scale[:, 0], (variance * (1 + 1 / size)).sqrt())


def test_members_that_agree_in_a_case_say_nothing_of_their_target():
    members = torch.tensor([[[0.0, 0.0], [2.0, 8.0]], [[0.0, 3.0], [6.0, 3.0]]]).double()
    law = marginals(Ensemble(members), 0)
    # variances 2 and 18 of the first target, 32 and 0 of the second, and half as much again for an error of the mean
    expected = torch.tensor([[math.sqrt(3.0), math.sqrt(48.0)], [math.sqrt(27.0), 0.1 * 4.0]]).double()
    torch.testing.assert_close(law.scale[:, 0], expected)
    assert law.told.tolist() == [[1.0, 1.0], [1.0, 0.0]]


def agreeing_in_a_few_cells(n_cases, seed):
    """Members a little too narrow and too low; in 2.3 % of cells all agree, far from the observation."""
    rng = np.random.default_rng(seed)
    centre, spread = rng.normal(size=(n_cases, 1, 3)), np.exp(rng.normal(-0.8, 0.3, size=(n_cases, 1, 1)))
    members = centre + spread * rng.normal(size=(n_cases, 100, 3))
    y = centre[:, 0] + 0.2 + 1.3 * spread[:, 0] * rng.normal(size=(n_cases, 3))
    agree = rng.random((n_cases, 3)) < 0.023
    members = np.where(agree[:, None], centre, members)
    y = np.where(agree, centre[:, 0] + rng.uniform(1, 3, size=agree.shape), y)
    return Ensemble(members), torch.as_tensor(y)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_few_cells_in_which_members_agree_do_not_decide(seed, held_out):
    forecast, y = agreeing_in_a_few_cells(300, seed)
    fresh, later = agreeing_in_a_few_cells(300, seed + 50)
    step = Affine().fit(forecast, held_out(y, 5))
    assert bool(((step.scale > 1.1) & (step.scale < 1.6)).all())  # 1.3 in truth
    assert float(energy_score(later, step.transform(fresh)).mean()) < float(energy_score(later, fresh).mean())


def test_moved_members_that_score_worse_on_held_out_folds_are_not_kept(held_out, monkeypatch):
    members, y = Ensemble(normal(60, 20, 2)), 1.2 * normal(60, 2, seed=1)
    given = held_out(y, 5)
    one = torch.ones(5, 2).double()
    assert affine._harms(members, given, 9 * one, one)
    assert affine._harms(members, given, 0 * one, 45 * one)
    assert not affine._harms(members, given, 0 * one, 1.2 * one)
    weighted = Ensemble(members.members, torch.ones(60, 20).double())
    assert affine._harms(weighted, given, 9 * one, one)
    monkeypatch.setattr(affine, "_harms", lambda *_: True)
    step = Affine().fit(members, held_out(y + 3, 5))
    assert (step.changed, step.why) == (False, "harm")
    assert "the energy score is worse" in step.summary()


BOUNDED = {
    "LogNormal": Independent(LogNormal(normal(40, 2), 0.5), 1),
    "Gamma": Independent(Gamma(2.0 * torch.ones(40, 2), torch.ones(2)), 1),
    "Dirichlet": Dirichlet(torch.ones(40, 2)),
    "Uniform": Independent(Uniform(normal(40, 2), 9.0), 1),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_a_law_with_bounds_is_never_moved_beyond_them_and_the_summary_says_so(name, held_out):
    forecast = BOUNDED[name]
    step = Affine().fit(forecast, held_out(9 * normal(40, 2)))
    assert (step.changed, step.why) == (False, "bounded")
    assert step.transform(forecast) is forecast
    assert "has bounds within reach" in step.summary()


def test_bounds_out_of_reach_are_no_bounds(held_out):
    far = Independent(Gamma(1e4 * torch.ones(40, 2), torch.ones(2)), 1)  # a hundred spreads from zero
    assert Affine().fit(far, held_out(far.mean + 300 + 100 * normal(40, 2))).changed


def test_a_law_without_a_mean_or_a_variance_is_not_moved(held_out):
    for law in (Cauchy(normal(40, 2), 1.0), StudentT(1.5, normal(40, 2), 1.0)):
        step = Affine().fit(Independent(law, 1), held_out(9 * normal(40, 2)))
        assert (step.changed, step.why) == (False, "no moments")
        assert "no finite mean and variance" in step.summary()


def test_a_distribution_that_knows_its_moments_is_taken_for_a_normal_one():
    forecast, values = Independent(Laplace(normal(4, 2), torch.tensor([1.0, 3.0]).double()), 1), normal(4, 2, seed=1)
    law = marginals(forecast, 0)
    assert law.freedom is None
    expected = Normal(forecast.mean, forecast.variance.sqrt()).log_prob(values)
    torch.testing.assert_close(law.log_density(values), expected)


def test_shift_and_spread_maximise_the_penalised_likelihood(wrong, held_out):
    forecast, y, weights = wrong
    ridge = 0.3
    step = Affine(ridges=(ridge,)).fit(forecast, held_out(y, weights=weights))
    assert step.ridge == ridge
    unit = forecast.scale_tril.square().sum(-1).mean((0, 1)).sqrt()
    parameters = torch.stack([step.shift / unit, step.scale.log()]).requires_grad_()
    density = moved_log_density(forecast, y, parameters[0] * unit, parameters[1].exp())
    objective = (weights * density).sum() / weights.sum() - 0.5 * ridge * parameters.square().sum()
    (slope,) = torch.autograd.grad(objective, parameters)
    assert slope.abs().max() < 1e-3
    assert parameters.abs().min() > 0.05


def test_the_gain_is_that_of_fits_without_the_fold(wrong, held_out):
    forecast, y, weights = wrong
    whole = held_out(y, 3, weights)
    step = Affine(ridges=(ONLY,)).fit(forecast, whole)
    gains = torch.empty(24, dtype=torch.float64)
    for f in range(3):
        rest, inside = (whole.folds.fold != f).nonzero()[:, 0], (whole.folds.fold == f).nonzero()[:, 0]
        other = Affine(ridges=(ONLY,)).fit(forecast.select(rest), held_out(y[rest], weights=weights[rest]))
        one = torch.ones(2, dtype=torch.float64)
        part = forecast.select(inside), y[inside]
        gains[inside] = moved_log_density(*part, other.shift, other.scale) - moved_log_density(*part, 0 * one, one)
    expected = mean_and_error(gains, weights, torch.arange(24))
    assert (step.gain, step.gain_error) == pytest.approx(expected, abs=2e-3)
    assert step.gain > step.gain_error > 0.1


def test_units_of_the_targets_change_nothing_but_the_units(wrong, held_out):
    forecast, y, weights = wrong
    unit = torch.tensor([10.0, 0.02]).double()
    other = GaussianMixture(forecast.logits, unit * forecast.loc, unit[:, None] * forecast.scale_tril)
    first, second = (Affine().fit(law, held_out(z, weights=weights)) for law, z in ((forecast, y), (other, unit * y)))
    torch.testing.assert_close(second.shift, unit * first.shift, rtol=1e-3, atol=0)
    torch.testing.assert_close(second.scale, first.scale, rtol=1e-3, atol=0)
    assert second.ridge == first.ridge
    assert second.gain == pytest.approx(first.gain, abs=1e-4)


def test_the_ridge_that_gains_most_is_taken_in_whatever_order_they_are_given(wrong, held_out):
    forecast, y, weights = wrong
    assert Affine().ridges == (1.0, 0.1, 0.01, 0.001)
    far = y + 20.0  # so far away that every ridge costs
    for ridges in ((1.0, 0.1, 1e-5), (1e-5, 1.0, 0.1)):
        assert Affine(ridges=ridges).fit(forecast, held_out(far, weights=weights)).ridge == 1e-5


def test_without_evidence_nothing_is_changed_and_the_forecast_comes_back_itself(standard, held_out):
    forecast = standard(20)
    y = forecast.mean + torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).repeat(10, 1).double()  # as spread out as it says
    step = Affine().fit(forecast, held_out(y, seed=7))
    assert (step.ridge, step.changed, step.gain, step.gain_error, step.seed, step.discrete) == (
        None,
        False,
        0.0,
        0.0,
        7,
        False,
    )
    assert torch.equal(step.shift, torch.zeros(2).double())
    assert torch.equal(step.scale, torch.ones(2).double())
    assert step.transform(forecast) is forecast
    assert "no shift or spread is supported" in step.summary()


def test_a_discrete_forecast_is_left_alone_and_the_summary_says_why(held_out):
    forecast = Independent(Poisson(torch.full((10, 3), 2.0)), 1)
    step = Affine().fit(forecast, held_out(torch.full((10, 3), 9.0), seed=5))
    assert (step.ridge, step.changed, step.gain, step.gain_error, step.seed) == (None, False, 0.0, 0.0, 5)
    assert torch.equal(step.shift, torch.zeros(3).double())
    assert torch.equal(step.scale, torch.ones(3).double())
    assert step.discrete is True
    assert "moved atoms would meet no observation" in step.summary()


FITTED = FittedAffine(torch.tensor([1.0, -2.0]).double(), torch.tensor([2.0, 0.5]).double(), 0.1, 0.25, 0.0625, 3)


def test_components_are_moved_about_the_mean_of_their_mixture(mixed):
    forecast = mixed(3, dtype=torch.float32)
    found = FITTED.transform(forecast)
    mean = forecast.mean[:, None]
    torch.testing.assert_close(
        found.loc, mean + torch.tensor([1.0, -2.0]) + torch.tensor([2.0, 0.5]) * (forecast.loc - mean)
    )
    rows = torch.tensor([2.0, 0.5])[:, None]
    torch.testing.assert_close(found.scale_tril, rows * forecast.scale_tril)
    torch.testing.assert_close(found.mean, forecast.mean + torch.tensor([1.0, -2.0]))
    assert torch.equal(found.logits, forecast.logits)
    assert found.loc.dtype == torch.float32


def test_members_are_moved_about_their_weighted_mean_and_keep_their_weights():
    members, weights = torch.tensor([[[0.0, 0.0], [4.0, 8.0]]]), torch.tensor([[3.0, 1.0]])
    found = FITTED.transform(Ensemble(members, weights))
    # means 1 and 2: 1 + 1 + 2 * (0 - 1), 2 - 2 + 0.5 * (0 - 2), ...
    assert found.members.tolist() == [[[0.0, -1.0], [8.0, 3.0]]]
    assert torch.equal(found.weights, weights)


def test_a_normal_becomes_a_mixture_and_another_distribution_a_moved_one():
    gaussian = MultivariateNormal(normal(3, 2), torch.eye(2).double())
    torch.testing.assert_close(FITTED.transform(gaussian).mean, gaussian.mean + FITTED.shift)
    other = Independent(Laplace(normal(3, 2), torch.ones(2).double()), 1)
    found = FITTED.transform(other)
    assert type(found) is Moved
    assert found.base is other
    assert torch.equal(found.centre, other.mean)
    assert torch.equal(found.shift, FITTED.shift)
    assert torch.equal(found.scale, FITTED.scale)


def test_the_summary_of_an_affine_step_has_its_numbers():
    assert FITTED.changed is True
    assert FITTED.summary() == (
        "affine: targets shifted by +1, -2, spreads multiplied by 2, 0.5; gain 0.2500 ± 0.0625 nats per case in the "
        "log scores of single targets, added up"
    )
    assert "nothing was changed" in replace(FITTED, ridge=None).summary()


def test_a_moved_normal_is_the_normal_that_it_should_be():
    mean, spread = normal(4, 2), torch.tensor([1.0, 3.0]).double()
    shift, scale = torch.tensor([0.5, -1.0]), torch.tensor([2.0, 0.5])
    moved = Moved(Independent(Normal(mean, spread), 1), mean, shift, scale)
    exact = Independent(Normal(mean + shift, scale * spread), 1)
    points = normal(6, 4, 2, seed=1)
    torch.testing.assert_close(moved.log_prob(points), exact.log_prob(points))
    torch.testing.assert_close(moved.mean, exact.mean)
    torch.testing.assert_close(moved.variance, exact.variance)
    assert (moved.batch_shape, moved.event_shape) == (exact.batch_shape, exact.event_shape)
    assert (moved.has_rsample, moved.shift.dtype, moved.scale.dtype) == (False, torch.float64, torch.float64)
    assert moved.support is torch.distributions.constraints.real_vector


def test_draws_of_a_moved_law_are_moved_draws():
    base = Independent(Laplace(normal(4, 2), torch.ones(2).double()), 1)
    centre, shift, scale = base.mean, torch.tensor([0.5, -1.0]).double(), torch.tensor([2.0, 0.5]).double()
    moved = Moved(base, centre, shift, scale)
    drawn = equally_weighted_draws(base, 5, 0, "members").members
    expected = centre[:, None] + shift + scale * (drawn - centre[:, None])
    torch.testing.assert_close(moved.ensemble(5).members, expected)
    drawn = equally_weighted_draws(base, 5, 3, "other").members
    expected = centre[:, None] + shift + scale * (drawn - centre[:, None])
    torch.testing.assert_close(moved.ensemble(5, 3, "other").members, expected)
    torch.manual_seed(1)
    plain = base.sample((3,))
    torch.manual_seed(1)
    torch.testing.assert_close(moved.sample((3,)), centre + shift + scale * (plain - centre))
    assert moved.sample().shape == (4, 2)


class Elementwise(Gamma):
    """Says of its support what it is for each target by itself, and takes vectors."""

    def __init__(self, n_cases):
        super().__init__(torch.full((n_cases, 2), 2.0), torch.ones(2))
        self._batch_shape, self._event_shape = torch.Size((n_cases,)), torch.Size((2,))

    def log_prob(self, value):
        return (value.log() - value).sum(-1)


class Unbounded(Elementwise):
    support = None


def test_one_target_outside_the_moved_support_is_enough():
    moved = Moved(Elementwise(3), torch.full((3, 2), 2.0), torch.ones(2), torch.full((2,), 0.5))
    points = torch.tensor([[3.0, 3.0], [1.9, 3.0], [3.0, 1.9]])  # zero goes to 2
    assert moved.log_prob(points).isneginf().tolist() == [False, True, True]
    assert float(moved.log_prob(points)[0]) == pytest.approx(2 * (math.log(2.0) - 2.0) - 2 * math.log(0.5))
    anywhere = Moved(Unbounded(3), torch.full((3, 2), 2.0), torch.ones(2), torch.full((2,), 0.5))
    assert anywhere.log_prob(points).isnan().tolist() == [False, True, True]  # asked, and no number


def test_the_smallest_loss_is_found_and_keeps_its_shape():
    wanted = normal(2, 3)
    with torch.no_grad():
        found = smallest(
            lambda x: (x - wanted).square().sum(),
            [lambda x: (x - wanted)[0].abs().pow(4).sum(), lambda x: (x - wanted)[1].abs().pow(4).sum()],
            torch.zeros(2, 3).double(),
        )
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)
    assert found.dtype == torch.float64
