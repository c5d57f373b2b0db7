"""Type and shape of a score follow the input, whatever torch's defaults are."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from prerank._chunks import at_once
from prerank.forecasts import Ensemble
from prerank.scores import Fair, Paper, TwoSets, crps, energy_score, nll, variogram_score

SCORES = [energy_score, variogram_score, crps]


@pytest.fixture
def double_by_default():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("double_by_default")
@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.__name__)
@pytest.mark.parametrize("estimator", [Fair(), Paper(), "two sets"], ids=str)
def test_a_score_in_single_precision_stays_there(score, estimator):
    generator = torch.Generator().manual_seed(0)
    y, members, others = (torch.randn(*shape, generator=generator).float() for shape in ((4, 3), (4, 6, 3), (4, 5, 3)))
    weights = torch.rand(4, 6, generator=generator).float()
    used = TwoSets(Ensemble(others)) if estimator == "two sets" else estimator
    assert score(y, members, estimator=used).dtype == torch.float32
    assert score(y, members, estimator=used, weights=weights).dtype == torch.float32


@pytest.mark.usefixtures("double_by_default")
def test_a_likelihood_in_single_precision_stays_there():
    law = MultivariateNormal(torch.zeros(4, 3).float(), torch.eye(3).float())
    assert nll(torch.zeros(4, 3).float(), law).dtype == torch.float32


@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.__name__)
def test_one_array_among_the_arguments_is_enough_to_get_an_array_back(score):
    generator = torch.Generator().manual_seed(0)
    y, members = torch.randn(4, 3, generator=generator), torch.randn(4, 6, 3, generator=generator)
    weights = torch.rand(4, 6, generator=generator)
    assert isinstance(score(y, members, weights=weights), torch.Tensor)
    assert isinstance(score(y.numpy(), members), np.ndarray)
    assert isinstance(score(y.tolist(), members), np.ndarray)
    assert isinstance(score(y, members, weights=weights.numpy()), np.ndarray)


def test_a_likelihood_of_an_array_is_an_array():
    law = MultivariateNormal(torch.zeros(4, 3), torch.eye(3))
    assert isinstance(nll(np.zeros((4, 3), dtype=np.float32), law), np.ndarray)
    assert isinstance(nll(torch.zeros(4, 3), law), torch.Tensor)


@pytest.mark.parametrize(
    ("score", "needed"),
    [(energy_score, 40 * 40), (variogram_score, 40 * 3), (crps, 40 * 3)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_chunks_are_told_at_least_the_size_of_one_temporary(score, needed, monkeypatch):
    """Pairs of members for the energy score, members and targets for the others; told less, chunks would fill the memory."""
    told = []

    def recorded(values_each, device):
        told.append(values_each)
        return at_once(values_each, device)

    monkeypatch.setattr("prerank.scores.estimators.at_once", recorded)
    score(torch.zeros(2, 3), torch.zeros(2, 40, 3))
    assert [needed <= size <= 20 * needed for size in told] == [True]


@pytest.mark.parametrize("score", [energy_score, variogram_score], ids=lambda score: score.__name__)
def test_a_distribution_is_scored_by_a_hundred_draws_of_seed_zero_unless_said_otherwise(score):
    law = MultivariateNormal(torch.zeros(4, 3), torch.eye(3))
    y = torch.ones(4, 3)
    assert torch.equal(score(y, law), score(y, law, n_draws=100, seed=0))
    assert not torch.equal(score(y, law), score(y, law, seed=1))
    assert not torch.equal(score(y, law), score(y, law, n_draws=99))


def test_of_several_bad_values_the_first_is_named():
    y = torch.zeros(4, 3)
    y[1, 2] = y[3, 0] = float("nan")
    with pytest.raises(ValueError, match=r"2 of 12 values of y are NaN or infinite, the first at index \(1, 2\)"):
        energy_score(y, torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(0)))


def test_a_case_without_any_weight_is_refused_in_whichever_model_it_is():
    weights = torch.ones(2, 4, 6)
    weights[1, 2] = 0.0
    with pytest.raises(ValueError, match=r"all weights of the forecast are zero in 1 of 8 cases"):
        energy_score(torch.zeros(4, 3), torch.zeros(2, 4, 6, 3), weights=weights)
    weights[1, 2, 0] = 1.0  # one member with weight is enough for the weights to be weights
    assert energy_score(torch.zeros(4, 3), torch.zeros(2, 4, 6, 3), Paper(), weights=weights).shape == (2, 4)


def test_distances_of_near_duplicates_keep_their_digits():
    """Sixteenths are exact at 2^16 in single precision; from |a|^2 + |b|^2 - 2ab, nothing of them would be left."""
    offsets = torch.rand(1, 30, 2, generator=torch.Generator().manual_seed(0)).mul(16).round() / 16
    y = torch.zeros(1, 2)
    near, far = (energy_score(y + shift, offsets + shift, Paper()) for shift in (0.0, 2.0**16))
    torch.testing.assert_close(far, near, rtol=1e-5, atol=0)  # sums of 900 terms, each rounded to 6e-8


def test_one_case_of_one_target_can_be_scored_and_none_cannot():
    assert energy_score(torch.zeros(1, 1), torch.tensor([[[1.0], [3.0]]]), Paper()).tolist() == [2.0 - 0.5]
    with pytest.raises(ValueError, match=r"y of shape \(0, 3\) holds no case"):
        nll(torch.zeros(0, 3), MultivariateNormal(torch.zeros(4, 3), torch.eye(3)))


def test_a_second_set_is_not_printed_member_by_member():
    assert str(TwoSets(Ensemble(torch.zeros(4, 5, 3)))) == "TwoSets()"


def test_one_set_of_observations_scores_several_models():
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    loc = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    together = nll(y, MultivariateNormal(loc, torch.eye(3).double()))
    assert together.shape == (2, 4)
    for e in range(2):
        alone = nll(y, MultivariateNormal(loc[e], torch.eye(3).double()))
        np.testing.assert_allclose(together[e].numpy(), alone.numpy(), rtol=1e-13)


def test_the_variogram_score_takes_square_roots_and_equal_pairs_unless_said_otherwise():
    generator = torch.Generator().manual_seed(1)
    y, members = (torch.randn(*size, generator=generator, dtype=torch.float64) for size in ((4, 3), (4, 6, 3)))
    default = variogram_score(y, members)
    assert torch.equal(default, variogram_score(y, members, exponent=0.5, pair_weights=torch.ones(3, 3)))
    assert torch.equal(default, variogram_score(y, members, estimator=Fair()))
    for score in (energy_score, crps):
        assert torch.equal(score(y, members), score(y, members, estimator=Fair()))


def test_estimators_cannot_be_changed_and_are_equal_by_value():
    for estimator in (Fair(), Paper(), TwoSets()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            estimator.other = 1
        assert estimator == type(estimator)()
        assert hash(estimator) == hash(type(estimator)())


def test_a_member_that_carries_nearly_all_the_weight_is_no_single_member():
    """Four units in the last place of one: the rest below is rounding, above it is a pair."""
    y, members = torch.zeros(1, 3).double(), torch.ones(1, 2, 3).double()
    small = 2.0**-52
    for rest in (small, 2 * small):
        with pytest.raises(ValueError, match="in 1 of 1 cases one member carries all the weight"):
            energy_score(y, members, weights=torch.tensor([[1.0, rest]]).double())
    for rest in (2.25 * small, 8 * small):
        assert energy_score(y, members, weights=torch.tensor([[1.0, rest]]).double()).isfinite().all()
