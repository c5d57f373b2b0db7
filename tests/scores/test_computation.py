"""How the scores compute: gradients, chunks, leading axes, types, devices, draws of a distribution."""

import numpy as np
import pandas as pd
import pytest
import torch

from builders import normal
from prerank.forecasts import Ensemble, GaussianMixture, equally_weighted_draws
from prerank.inputs import as_ensemble
from prerank.scores import Fair, Paper, TwoSets, crps, energy, energy_score, nll, variogram_score

ESTIMATORS = [Fair(), Paper(), TwoSets()]
SCORES = {
    "energy": energy_score,
    "variogram": lambda y, forecast, estimator: variogram_score(y, forecast, estimator=estimator),
    "madogram": lambda y, forecast, estimator: variogram_score(y, forecast, 1.0, estimator=estimator),
    "crps": lambda y, forecast, estimator: crps(y, forecast, estimator=estimator),
}
every_score = pytest.mark.parametrize("score", SCORES.values(), ids=SCORES.keys())
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


@pytest.fixture
def tiny_chunks(monkeypatch):
    monkeypatch.setattr("prerank._chunks.ELEMENTS", 50)
    monkeypatch.setattr(energy, "ELEMENTS", 50)


# --- gradients -------------------------------------------------------------------------------------------------------


@every_score
@every_estimator
def test_gradients_in_observations_and_members(score, estimator):
    inputs = normal(3, 2).requires_grad_(), normal(3, 4, 2, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda y, members: score(y, Ensemble(members), estimator), inputs)


@every_score
@pytest.mark.parametrize("estimator", [Fair(), Paper()])
def test_gradients_in_weights(score, estimator):
    y, members, weights = normal(3, 2), normal(3, 4, 2, seed=1), normal(3, 4, seed=2).exp().requires_grad_()
    assert torch.autograd.gradcheck(lambda weights: score(y, Ensemble(members, weights), estimator), (weights,))


def test_gradients_in_the_second_set():
    y, members, other = normal(3, 2), normal(3, 4, 2, seed=1), normal(3, 5, 2, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda other: energy_score(y, Ensemble(members), TwoSets(Ensemble(other))), (other,)
    )


def test_gradients_of_the_nll():
    logits, loc = normal(3, 2).requires_grad_(), normal(3, 2, 2, seed=1).requires_grad_()
    factor = torch.eye(2, dtype=torch.float64).expand(3, 2, 2, 2)
    y = normal(3, 2, seed=2)
    assert torch.autograd.gradcheck(lambda *inputs: nll(y, GaussianMixture(*inputs, factor)), (logits, loc))


@every_score
@every_estimator
def test_gradients_are_finite_where_members_targets_and_observation_coincide(score, estimator):
    members = normal(4, 6, 3)
    members[:, 3] = members[:, 0]
    members[:, 4] = members[:, 1] + 1e-300
    members[0] = 2.0
    y = members[:, 0].clone().requires_grad_()
    members.requires_grad_()
    score(y, Ensemble(members), estimator).sum().backward()
    assert torch.isfinite(members.grad).all()
    assert torch.isfinite(y.grad).all()


def test_the_energy_score_of_near_duplicates_far_from_zero_keeps_its_digits():
    # |a|^2 + |b|^2 - 2ab would lose every digit here: distances 1e-3 at distance 1e3 in single precision
    gaps = 2.0**-10 * torch.arange(4, dtype=torch.float32)
    members = (1024.0 + gaps)[None, :, None].expand(1, 4, 3)
    y = torch.full((1, 3), 1024.0)
    exact = energy_score(y.double() - 1024.0, members.double() - 1024.0)
    torch.testing.assert_close(energy_score(y, members).double(), exact, rtol=1e-6, atol=0)


# --- chunks and axes -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@every_score
@every_estimator
def test_chunks_change_neither_values_nor_gradients(score, estimator, request):
    def value_and_gradient():
        members = normal(7, 9, 4, seed=1).requires_grad_()
        scores = score(normal(7, 4), Ensemble(members), estimator)
        scores.sum().backward()
        return scores.detach(), members.grad

    whole = value_and_gradient()
    request.getfixturevalue("tiny_chunks")
    for a, b in zip(whole, value_and_gradient(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


@every_score
def test_leading_axes_broadcast(score):
    y, members, weights = normal(5, 3), normal(2, 4, 5, 6, 3, seed=1), normal(2, 4, 5, 6, seed=2).exp()
    scores = score(y, Ensemble(members, weights), Fair())
    assert scores.shape[:3] == (2, 4, 5)
    torch.testing.assert_close(scores[1, 2], score(y, Ensemble(members[1, 2], weights[1, 2]), Fair()))
    shared = score(y.expand(2, 5, 3) + 1, Ensemble(members[0, 0]), Fair())
    torch.testing.assert_close(shared[1], score(y + 1, Ensemble(members[0, 0]), Fair()))


def test_members_may_lie_in_memory_in_any_order():
    y, sample_first = normal(5, 3), normal(6, 5, 3, seed=1)
    forecast = as_ensemble(sample_first, axes=("member", "case", "target"))
    torch.testing.assert_close(energy_score(y, forecast), energy_score(y, sample_first.transpose(0, 1).contiguous()))


def test_two_sets_cut_the_members_in_halves_or_take_the_second_set():
    y, members = normal(5, 3), normal(5, 7, 3, seed=1)
    explicit = TwoSets(Ensemble(members[:, 3:]))
    torch.testing.assert_close(energy_score(y, members, TwoSets()), energy_score(y, Ensemble(members[:, :3]), explicit))


# --- types, devices, distributions -----------------------------------------------------------------------------------


def test_arrays_come_back_as_arrays():
    y, members, weights = normal(5, 3), normal(5, 6, 3, seed=1), normal(5, 6, seed=2).exp()
    expected = energy_score(y, Ensemble(members, weights))
    assert isinstance(expected, torch.Tensor)
    ours = energy_score(y.numpy(), members.numpy(), weights=weights.numpy())
    np.testing.assert_array_equal(ours, expected.numpy())
    np.testing.assert_array_equal(energy_score(pd.DataFrame(y.numpy()), Ensemble(members, weights)), expected.numpy())
    assert isinstance(crps(y.numpy(), members.numpy()), np.ndarray)
    assert isinstance(variogram_score(y.numpy(), members.numpy(), pair_weights=np.ones((3, 3))), np.ndarray)


@every_score
def test_the_type_follows_the_input_and_single_precision_is_accurate(score):
    y, members = normal(50, 4), normal(50, 20, 4, seed=1)
    single = score(y.float(), Ensemble(members.float()), Paper())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), score(y, Ensemble(members), Paper()), rtol=1e-4, atol=1e-5)
    assert score(y, Ensemble(members.float()), Paper()).dtype == torch.float64


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@every_score
@every_estimator
def test_a_gpu_gives_the_same_scores_and_gradients_ties_included(score, estimator):
    y, members = normal(5, 3), normal(5, 6, 3, seed=1)
    members[:, 1] = members[:, 0]
    here, there = members.clone().requires_grad_(), members.cuda().requires_grad_()
    ours, on_device = score(y, Ensemble(here), estimator), score(y.cuda(), Ensemble(there), estimator)
    assert on_device.is_cuda
    torch.testing.assert_close(on_device.cpu(), ours)
    ours.sum().backward()
    on_device.sum().backward()
    torch.testing.assert_close(there.grad.cpu(), here.grad)


def test_a_distribution_is_scored_by_equally_weighted_draws_of_its_seed():
    law = torch.distributions.MultivariateNormal(normal(5, 3), torch.eye(3, dtype=torch.float64))
    mixture = GaussianMixture(torch.zeros(5, 1).double(), law.loc[:, None], law.scale_tril[:, None])
    y, state = normal(5, 3, seed=1), torch.get_rng_state()
    for forecast in (law, mixture):
        draws = equally_weighted_draws(forecast, 30, seed=4)
        for score in (energy_score, variogram_score):
            torch.testing.assert_close(score(y, forecast, n_draws=30, seed=4), score(y, draws))
    assert torch.equal(state, torch.get_rng_state())


def test_projections_as_many_as_members_are_no_riddle():
    t, members = normal(6, 6), normal(6, 6, 6, seed=1)
    torch.testing.assert_close(crps(t, members)[:, 2], crps(t[:, 2:3], members[..., 2:3])[:, 0])


def test_estimators_are_values_that_name_themselves():
    assert Fair() == Fair()
    assert [str(estimator) for estimator in ESTIMATORS] == ["Fair()", "Paper()", "TwoSets()"]
