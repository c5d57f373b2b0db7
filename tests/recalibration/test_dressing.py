"""Dressing by its formulas: the penalised likelihood, its optimum, the gain on folds, and the mixture that it makes."""

import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal
from torch.testing import assert_close

from prerank import Ensemble, GaussianMixture, Recalibrator, energy_score
from prerank.recalibration import Dressing
from prerank.recalibration.dressing import FittedDressing, _Problem
from prerank.recalibration.folds import mean_and_error

FITTED = FittedDressing(
    torch.tensor([1.0, -2.0]).double(),
    torch.tensor([2.0, 0.5]).double(),
    torch.tensor([[3.0, 0.0], [-4.0, 3.0]]).double(),
)


@pytest.fixture(scope="module")
def wrong():
    """Weighted members of 40 cases, observations that are shifted and sometimes far off, and weights of the cases."""
    rng = np.random.default_rng(0)
    signal = 3 * rng.normal(size=(40, 1, 2))
    members = Ensemble(signal + 0.4 * rng.normal(size=(40, 4, 2)), rng.uniform(0.5, 1.5, size=(40, 4)))
    size = np.where(np.arange(40) % 5 == 0, 6.0, 1.0)[:, None]
    noise = rng.normal(size=(40, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
    return members, torch.as_tensor(signal[:, 0] + [1.0, -0.5] + size * noise), torch.as_tensor(rng.uniform(0.5, 2, 40))


def dressed_log_density(step, forecast, y, tails=(0.0, 1.0)):
    """Log density (N,), component by component; tails are the share of wide kernels and their factor."""
    mean = (forecast.probabilities[..., None] * forecast.members).sum(1, keepdim=True)
    loc = mean + step["shift"] + step["scale"] * (forecast.members - mean)
    share, factor = tails
    wide = MultivariateNormal(loc, scale_tril=factor * step["tril"]).log_prob(y[:, None]).exp()
    own = MultivariateNormal(loc, scale_tril=step["tril"]).log_prob(y[:, None]).exp()
    return (forecast.probabilities * ((1 - share) * own + share * wide)).sum(1).log()


def unit_of(forecast, y, weights):
    residual = y - (forecast.probabilities[..., None] * forecast.members).sum(1)
    share = (weights / weights.sum())[:, None]
    return (share * (residual - (share * residual).sum(0)).square()).sum(0).sqrt()


def slope_of(step, forecast, y, weights, prior_cases, n_blocks):
    """Of the penalised mean log likelihood at what a step has learnt, with respect to its own parameters."""
    unit = unit_of(forecast, y, weights)
    factor = step.kernel_tril / unit[:, None]
    parts = [step.shift / unit, step.scale.log(), factor[1, :1], factor.diagonal().log()]
    if step.tail_share:
        odds = math.log(step.tail_share / (1 - step.tail_share))
        parts.append(torch.tensor([odds, math.log(math.log(step.tail_factor))]).double())
    parameters = torch.cat(parts).requires_grad_()
    tril = torch.diag(parameters[5:7].exp()) + torch.nn.functional.pad(parameters[4].reshape(1, 1), (0, 1, 1, 0))
    found = {"shift": unit * parameters[:2], "scale": parameters[2:4].exp(), "tril": unit[:, None] * tril}
    tails = (torch.sigmoid(parameters[7]), parameters[8].exp().exp()) if step.tail_share else (0.0, 1.0)
    density = dressed_log_density(found, forecast, y, tails)
    # shifts are pulled by the size of a usual residual, which a bias makes larger than the spread
    residual = y - (forecast.probabilities[..., None] * forecast.members).sum(1)
    size = ((weights / weights.sum())[:, None] * residual.square()).sum(0).sqrt()
    still = 0.5 * torch.cat([parameters[:2] * unit / size, parameters[2:4]]).square().sum()
    if step.tail_share:
        still = still + 0.5 * (parameters[7:] - torch.tensor([-2.0, math.log(math.log(2.0))])).square().sum()
    # pseudo-observations half a unit away along every target
    pull = parameters[5:7].sum() + 0.5 * (0.5 * torch.linalg.inv(tril)).square().sum()
    objective = (weights * density).sum() / weights.sum() - prior_cases * (pull / weights.sum() + still / n_blocks)
    return torch.autograd.grad(objective, parameters)[0]


@pytest.mark.parametrize("prior_cases", [2.0, 30.0])
@pytest.mark.parametrize("blocks", [None, np.arange(40) // 4])
def test_parameters_maximise_the_penalised_likelihood(prior_cases, blocks, wrong, held_out):
    forecast, y, weights = wrong
    weights = weights / weights.mean()
    step = Dressing(prior_cases).fit(forecast, held_out(y, weights=weights, blocks=blocks))
    slope = slope_of(step, forecast, y, weights, prior_cases, 40 if blocks is None else 10)
    assert slope.abs().max() < 1e-3
    assert step.shift.abs().min() > 0.05


@pytest.mark.parametrize("tails", [False, True])
def test_the_likelihood_is_the_density_of_the_mixture_that_it_describes(tails, wrong):
    forecast, y, weights = wrong
    problem = _Problem.of(forecast, y, weights, 2.0, 40)
    generator = torch.Generator().manual_seed(1)
    parameters = 0.3 * torch.randn(10 if tails else 8, generator=generator, dtype=torch.float64)
    density = problem.fitted(parameters).transform(forecast).log_prob(y)
    torch.testing.assert_close(problem.log_likelihood(parameters), density + problem.unit.log().sum())
    torch.testing.assert_close(problem.unit, unit_of(forecast, y, weights))
    single = _Problem.of(Ensemble(forecast.members.float(), forecast.weights.float()), y.float(), weights, 2.0, 40)
    assert {part.dtype for part in (single.residual, single.deviation, single.log_weights)} == {torch.float64}
    with pytest.raises(FrozenInstanceError):
        single.unit = None


def test_wide_kernels_are_taken_where_errors_are_of_two_sizes_and_only_there(wrong, held_out):
    forecast, y, weights = wrong
    assert Dressing().prior_cases == 2.0
    assert Dressing().fit(forecast, held_out(y, weights=weights)).tail_share > 0.02
    rng = np.random.default_rng(1)
    near = forecast.mean + torch.as_tensor(rng.uniform(-1, 1, size=(40, 2)))  # tails lighter than those of a kernel
    step = Dressing().fit(forecast, held_out(near))
    assert (step.tail_share, step.tail_factor) == (0.0, 1.0)


def test_the_gain_is_that_of_fits_without_the_fold(wrong, held_out):
    """The residuals of one fold are those of the other in another order, so that both have the same unit."""
    forecast, _, _ = wrong
    rng = np.random.default_rng(2)
    fold = held_out(forecast.mean, 2, seed=3).folds.fold
    residual = torch.as_tensor(rng.normal(size=(20, 2)) * np.where(np.arange(20) % 3 == 0, 20.0, 1.0)[:, None])
    weight = torch.as_tensor(rng.uniform(0.5, 2, 20))
    y, weights = forecast.mean + 1.0, torch.empty(40, dtype=torch.float64)
    for f, order in enumerate((torch.arange(20), torch.arange(20).flip(0))):
        y[fold == f] += residual[order]
        weights[fold == f] = weight[order]
    whole = held_out(y, 2, weights, seed=3)
    step = Dressing().fit(forecast, whole)
    before, after = energy_score(y, forecast), torch.empty(40, dtype=torch.float64)
    for f in range(2):
        part = Dressing().fit(forecast, held_out(y, 2, seed=4)._replace(weights=whole.weights * (fold != f)))
        assert min(part.tail_share, step.tail_share) > 0.1
        inside = (fold == f).nonzero()[:, 0]
        after[inside] = energy_score(y[inside], part.transform(forecast.select(inside)), seed=3)
    expected = mean_and_error(before - after, weights, torch.arange(40))
    assert (step.gain, step.gain_error) == pytest.approx(expected, abs=2e-3)
    assert step.score == pytest.approx(float((weights * before).sum() / weights.sum()))
    assert step.gain > 0.1


def test_a_fold_is_scored_by_what_the_others_say(wrong, held_out):
    """Folds with opposite biases: each is moved further away by what is learnt from the other."""
    forecast, _, _ = wrong
    fold = held_out(forecast.mean, 2, seed=3).folds.fold
    noise = torch.as_tensor(np.random.default_rng(4).normal(size=(40, 2)))
    y = forecast.mean + 0.1 * noise + torch.where(fold == 0, 5.0, -5.0)[:, None]
    assert Dressing().fit(forecast, held_out(y, 2, seed=3)).gain < -2.0


def test_units_of_the_targets_change_nothing_but_the_units(wrong, held_out):
    forecast, y, weights = wrong
    unit = torch.tensor([10.0, 0.02]).double()
    first = Dressing().fit(forecast, held_out(y, weights=weights))
    second = Dressing().fit(Ensemble(unit * forecast.members, forecast.weights), held_out(unit * y, weights=weights))
    torch.testing.assert_close(second.shift, unit * first.shift, rtol=1e-2, atol=0)
    torch.testing.assert_close(second.kernel_tril, unit[:, None] * first.kernel_tril, rtol=1e-2, atol=0)


def test_residuals_without_spread_are_measured_in_units_of_one(held_out):
    middle = torch.arange(32.0).reshape(32, 1, 1).double()
    members = middle + torch.tensor([[-1.0, -2.0], [1.0, 2.0]])
    y = members.mean(1)
    y[:, 1] += torch.linspace(-2, 2, 32)
    step = Dressing().fit(Ensemble(members), held_out(y))
    assert (step.kernel_tril.diagonal() > 0.01).all()
    assert (step.kernel_tril.diagonal() < 1.0).all()


def test_members_become_kernels_about_their_moved_places():
    members, weights = torch.tensor([[[0.0, 0.0], [4.0, 8.0]]]), torch.tensor([[3.0, 1.0]])
    dressed = FITTED.transform(Ensemble(members, weights))
    assert isinstance(dressed, GaussianMixture)
    # means 1 and 2: 1 + 1 + 2 * (0 - 1), 2 - 2 + 0.5 * (0 - 2), ...
    assert dressed.loc.tolist() == [[[0.0, -1.0], [8.0, 3.0]]]
    assert torch.equal(dressed.scale_tril, FITTED.kernel_tril.float().expand(1, 2, 2, 2))
    torch.testing.assert_close(dressed.weights, torch.tensor([[0.75, 0.25]]))
    assert FITTED.changed is True
    assert (FITTED.gain, FITTED.gain_error, FITTED.score, FITTED.tail_share, FITTED.tail_factor) == (0, 0, 0, 0, 1)


def test_a_member_of_weight_zero_is_no_component_to_speak_of():
    dressed = FITTED.transform(Ensemble(torch.zeros(1, 2, 2), torch.tensor([[1.0, 0.0]])))
    assert dressed.logits.isfinite().all()
    assert dressed.weights.tolist() == [[1.0, pytest.approx(0.0, abs=1e-30)]]


def test_a_share_of_the_kernels_is_wider():
    step = replace(FITTED, tail_share=0.2, tail_factor=3.0)
    members, weights = torch.tensor([[[0.0, 0.0], [4.0, 8.0]]]), torch.tensor([[3.0, 1.0]])
    dressed = step.transform(Ensemble(members, weights))
    torch.testing.assert_close(dressed.weights, torch.tensor([[0.6, 0.2, 0.15, 0.05]]))
    assert dressed.loc.tolist() == [[[0.0, -1.0], [8.0, 3.0]] * 2]
    torch.testing.assert_close(dressed.scale_tril[0, 1], FITTED.kernel_tril.float())
    torch.testing.assert_close(dressed.scale_tril[0, 2], 3 * FITTED.kernel_tril.float())


def test_the_summary_of_a_dressing_has_its_numbers():
    said = replace(FITTED, gain=0.5, gain_error=0.25, score=2.0)
    # a kernel's standard deviations are those of the rows of its factor: 3 and 5
    assert said.summary() == (
        "dressing: members shifted by +1, -2, spreads multiplied by 2, 0.5, kernels with standard deviations 3, 5; energy "
        "score 2 before, gain 0.5 ± 0.25"
    )
    assert "3, 5, 20% of them 3 times as wide; energy" in replace(said, tail_share=0.2, tail_factor=3.0).summary()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (torch.zeros(10, 1, 2), r"Dressing\(\) needs at least 2 members per case to know the spread, got 1"),
        (torch.arange(20.0).reshape(10, 2, 1) * torch.tensor([1.0, 0.0]), r"members of target 2 agree in every case"),
    ],
)
def test_members_without_spread_are_refused(members, message, held_out):
    with pytest.raises(ValueError, match=message):
        Dressing().fit(Ensemble(members), held_out(torch.zeros(10, 2)))


def test_members_that_agree_in_some_cases_will_do(held_out):
    members = torch.randn(20, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    members[4, :, 1] = 7.0
    assert Dressing().fit(Ensemble(members), held_out(members[:, 0] + 0.1)).kernel_tril.isfinite().all()


@pytest.mark.parametrize("bias", [2.0, 100.0])
def test_a_bias_much_larger_than_the_spread_of_the_residuals_is_learnt(bias):
    generator = torch.Generator().manual_seed(0)
    members = torch.randn(20, 8, 2, generator=generator, dtype=torch.float64) * 0.1
    y = members.mean(1) + bias + 0.1 * torch.randn(20, 2, generator=generator, dtype=torch.float64)
    fitted = Recalibrator(steps=[Dressing()]).fit(Ensemble(members), y).steps_[0]
    assert_close(fitted.shift, torch.full((2,), bias, dtype=torch.float64), rtol=0, atol=0.15)


def test_residuals_that_are_all_the_same_are_a_shift():
    members = torch.randn(20, 8, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = members.mean(1) + 3.0
    fitted = Recalibrator(steps=[Dressing()]).fit(Ensemble(members), y).steps_[0]
    assert abs(float(fitted.shift) - 3.0) < 1.0
    assert bool(fitted.kernel_tril.isfinite().all())
