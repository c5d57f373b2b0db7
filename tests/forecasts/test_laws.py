"""Laws, case by case: closed forms against loops, draws that belong to their case, chunks that cover, ensembles, arrays."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from builders import random_mixture
from prerank._chunks import ELEMENTS, at_once, chunks
from prerank.arrays import as_tensor
from prerank.arrays.conversion import accepts_arrays
from prerank.forecasts import Ensemble, GaussianMixture, differentiable_draws, equally_weighted_draws
from prerank.forecasts.mixture import allocate

CPU = torch.device("cpu")


def standing_still(lead):
    """Forecasts that are practically points, all different: a draw says which case it belongs to."""
    loc = torch.arange(math.prod(lead) * 2, dtype=torch.float64).reshape(*lead, 1, 2)
    return GaussianMixture(torch.zeros(*lead, 1).double(), loc, 1e-6 * torch.eye(2).double().expand(*lead, 1, 2, 2))


@pytest.mark.parametrize("lead", [(5,), (2, 3)], ids=["cases", "models and cases"])
@pytest.mark.parametrize("own", [True, False], ids=["own directions", "the same for all"])
def test_the_pit_along_a_direction_is_a_mixture_of_normal_cdfs(own, lead):
    law = random_mixture(*lead)
    generator = torch.Generator().manual_seed(1)
    y = torch.randn(*lead, 3, generator=generator, dtype=torch.float64)
    directions = torch.randn(*(lead if own else (1,)), 3, 4, generator=generator, dtype=torch.float64)
    found = law.pit_along(directions, y)
    assert found.shape == (*lead, 4)
    for *case, k in np.ndindex(*lead, 4):
        n = tuple(case)
        u = (directions[n] if own else directions[0])[:, k].numpy()
        weights = np.exp(law.logits[n].numpy())
        total = 0.0
        for c in range(2):
            deviation = math.sqrt(float(np.square(law.scale_tril[n][c].numpy().T @ u).sum()))
            z = float(u @ (y[n] - law.loc[n][c]).numpy()) / deviation
            total += weights[c] / weights.sum() * 0.5 * math.erfc(-z / math.sqrt(2))
        assert float(found[n][k]) == pytest.approx(total, rel=1e-11)


def test_a_density_of_many_samples_of_many_models_is_that_of_torch():
    law = random_mixture(2, 3)
    twin = MixtureSameFamily(Categorical(logits=law.logits), MultivariateNormal(law.loc, scale_tril=law.scale_tril))
    y = torch.randn(4, 5, 2, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(law.log_prob(y), twin.log_prob(y), rtol=1e-11, atol=1e-11)


def test_the_largest_remainders_are_rounded_up():
    """Shares of 5.2, 2.8 and 2.0: the eight tenths win, not the largest weight."""
    assert allocate(torch.tensor([0.52, 0.28, 0.2]), 10, 0).tolist() == [5, 3, 2]
    assert allocate(torch.tensor([0.52, 0.28, 0.2]), 13, 1).tolist() == [6, 4, 3]


def test_a_cdf_never_leaves_the_unit_interval_though_weights_round():
    """In single precision the softmax of some logits sums to a little more than one."""
    logits = torch.randn(2000, 7, generator=torch.Generator().manual_seed(0))
    law = GaussianMixture(logits, torch.zeros(2000, 7, 1), torch.ones(2000, 7, 1, 1))
    assert law.weights.sum(-1).max() > 1
    far = law.cdf_along(torch.ones(1, 1, 1), torch.full((2000, 1, 1), 100.0))
    assert far.max() <= 1
    assert far.min() > 0.99


@pytest.mark.parametrize("lead", [(4,), (2, 3)])
def test_every_kind_of_draw_belongs_to_its_case(lead):
    law = standing_still(lead)
    place = law.loc[..., 0, :]
    near = {"rtol": 0, "atol": 1e-4}
    torch.testing.assert_close(law.sample((5, 2)), place.expand(5, 2, *lead, 2), **near)
    torch.testing.assert_close(law.sample(), place, **near)
    members = place[..., None, :].expand(*lead, 6, 2)
    torch.testing.assert_close(law.ensemble(6).members, members, **near)
    torch.testing.assert_close(law.draw(6).members, members, **near)
    some = law.select(torch.tensor([2, 0]))
    torch.testing.assert_close(some.mean, place[..., [2, 0], :], **near)


def test_a_law_without_an_axis_of_cases_is_the_only_case_of_a_batch():
    batch = random_mixture(1)
    alone = GaussianMixture(batch.logits[0], batch.loc[0], batch.scale_tril[0])
    assert alone.sample((5, 2)).shape == (5, 2, 3)
    assert torch.equal(alone.mean, batch.mean[0])
    y = torch.zeros(3, dtype=torch.float64)
    torch.testing.assert_close(alone.log_prob(y), batch.log_prob(y[None])[0], rtol=1e-13, atol=0)


def test_draws_for_training_weigh_pi_over_n():
    law = random_mixture(1)
    draws = law.draw(9)
    share = law.weights[0, 0]
    # two each, and five more by weight: the larger remainder is rounded up
    count = 2 + math.floor(5 * float(share) + 0.5)
    expected = [float(share) / count] * count + [float(1 - share) / (9 - count)] * (9 - count)
    assert draws.weights[0].tolist() == pytest.approx(expected, rel=1e-12)
    assert law.draw(9, at_least=4).weights[0].unique().numel() == 2


def test_noise_given_is_noise_used():
    law = random_mixture(1)
    noise = torch.zeros(1, 6, 3, dtype=torch.float64)
    found = law.draw(6, noise=noise).members[0]
    assert torch.isin(found, law.loc[0]).all()
    sets = law.draws_from([noise, noise + 1])
    count = int((sets[0].weights[0] == sets[0].weights[0, 0]).sum())
    expected = law.loc[0, 0] + law.scale_tril[0, 0].sum(-1)
    torch.testing.assert_close(sets[1].members[0, :count], expected.expand(count, 3), rtol=1e-12, atol=0)


def test_models_may_share_their_noise():
    law = random_mixture(3, 2)
    noise = torch.randn(2, 2, 6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    owner = torch.tensor([1, 0, 1])
    (shared,), (copied,) = law.draws_from([noise], owner=owner), law.draws_from([noise[owner]])
    assert torch.equal(shared.members, copied.members)
    assert torch.equal(shared.weights, copied.weights)


def test_two_streams_two_seeds_and_two_cases_have_different_draws():
    law = random_mixture(4).select(torch.tensor([0, 0]))  # the same law twice
    first = law.ensemble(5)
    assert not torch.isin(first.members[0], first.members[1]).any()
    for other in (law.ensemble(5, seed=1), law.ensemble(5, stream="others")):
        assert not torch.isin(other.members, first.members).any()
    # the component is chosen by numbers of its own: where the noise is the same, choices are not a function of it
    draws = law.draw(5)
    assert not torch.isin(draws.members, law.draw(5, seed=1).members).any()


def test_a_mixture_in_two_precisions_takes_the_wider():
    for place in range(3):
        parts = [torch.zeros(4, 2), torch.zeros(4, 2, 3), torch.eye(3).expand(4, 2, 3, 3)]
        parts[place] = parts[place].double()
        law = GaussianMixture(*parts)
        assert {law.logits.dtype, law.loc.dtype, law.scale_tril.dtype} == {torch.float64}


def test_sizes_of_a_mixture_are_those_of_its_parts():
    law = random_mixture(5, n_components=2, n_targets=3)
    assert (law.n_components, law.n_targets, law.batch_shape, law.event_shape) == (2, 3, (5,), (3,))
    wide = law.expand((4, 5))
    assert (wide.batch_shape, wide.event_shape) == ((4, 5), (3,))
    torch.testing.assert_close(wide.log_prob(law.mean), law.log_prob(law.mean).expand(4, 5), rtol=1e-13, atol=0)


def test_the_covariance_is_within_plus_between():
    law = random_mixture(2, 3)
    twin = MixtureSameFamily(Categorical(logits=law.logits), MultivariateNormal(law.loc, scale_tril=law.scale_tril))
    torch.testing.assert_close(law.covariance_matrix.diagonal(dim1=-2, dim2=-1), twin.variance, rtol=1e-11, atol=0)
    e, n = 1, 2
    weights, loc, factor = law.weights[e, n].numpy(), law.loc[e, n].numpy(), law.scale_tril[e, n].numpy()
    mean = weights @ loc
    parts = [factor[c] @ factor[c].T + np.outer(loc[c] - mean, loc[c] - mean) for c in range(2)]
    np.testing.assert_allclose(law.covariance_matrix[e, n].numpy(), weights[0] * parts[0] + weights[1] * parts[1])


class TestDraws:
    """The two functions that draw from any law."""

    def test_for_training_they_carry_gradients_and_a_seed(self):
        loc = torch.zeros(5, 3, requires_grad=True)
        law = MultivariateNormal(loc, torch.eye(3))
        before = torch.random.get_rng_state()
        draws = differentiable_draws(law, 7, seed=1)
        assert torch.equal(torch.random.get_rng_state(), before)
        assert (draws.members.shape, draws.weights) == ((5, 7, 3), None)
        (gradient,) = torch.autograd.grad(draws.members.sum(), loc)
        assert gradient.unique().tolist() == [7.0]
        assert torch.equal(differentiable_draws(law, 7, seed=1).members, draws.members)
        for other in (differentiable_draws(law, 7, seed=2), differentiable_draws(law, 7, seed=1, stream="others")):
            assert not torch.isin(other.members, draws.members).any()

    def test_for_evaluation_they_carry_none(self):
        law = MultivariateNormal(torch.zeros(5, 3, requires_grad=True), torch.eye(3))
        assert not equally_weighted_draws(law, 7).members.requires_grad
        first = equally_weighted_draws(law, 7, stream="a").members
        assert not torch.isin(equally_weighted_draws(law, 7, stream="b").members, first).any()

    def test_those_of_a_mixture_are_its_own(self):
        law, ids = random_mixture(4), torch.tensor([9, 3, 5, 1])
        ours = equally_weighted_draws(law, 6, 2, "s", ids)
        assert torch.equal(ours.members, law.ensemble(6, 2, "s", ids).members)
        assert not torch.equal(ours.members, law.ensemble(6, 2, "s").members)
        ours, theirs = differentiable_draws(law, 6, 2, "s", ids), law.draw(6, 2, "s", case_ids=ids)
        assert torch.equal(ours.members, theirs.members)
        assert torch.equal(ours.weights, theirs.weights)

    @pytest.mark.parametrize("draw", [equally_weighted_draws, differentiable_draws])
    def test_a_law_of_scalars_or_without_cases_is_refused(self, draw):
        with pytest.raises(ValueError, match=r"event shape \(\) and batch shape \(5,\).*Independent\(forecast, 1\)"):
            draw(torch.distributions.Normal(torch.zeros(5), 1.0), 7)
        with pytest.raises(ValueError, match="no axis of cases"):
            draw(MultivariateNormal(torch.zeros(3), torch.eye(3)), 7)

    def test_a_law_without_reparameterised_draws_is_refused_in_training_only(self):
        parts = MultivariateNormal(torch.zeros(5, 2, 3), torch.eye(3))
        law = MixtureSameFamily(Categorical(logits=torch.zeros(5, 2)), parts)
        with pytest.raises(TypeError, match="MixtureSameFamily has no reparameterised draws"):
            differentiable_draws(law, 7)
        assert equally_weighted_draws(law, 7).members.shape == (5, 7, 3)


class TestChunks:
    """A few cases at a time."""

    def test_a_chunk_is_as_large_as_fits_and_at_least_one(self):
        assert [at_once(size, CPU) for size in (0, 1, ELEMENTS // 2, ELEMENTS // 2 + 1, ELEMENTS, ELEMENTS + 1)] == [
            *(ELEMENTS, ELEMENTS, 2, 1, 1, 1)
        ]

    def test_a_temporary_is_about_a_million_numbers(self):
        assert ELEMENTS == 2**20

    def test_chunks_cover_every_case_once_in_order(self):
        assert chunks(5, ELEMENTS // 2, CPU) == [slice(0, 2), slice(2, 4), slice(4, 5)]
        assert chunks(4, ELEMENTS // 2, CPU) == [slice(0, 2), slice(2, 4)]
        assert chunks(3, 1, CPU) == [slice(0, 3)]
        assert chunks(0, 1, CPU) == []


class TestEnsembles:
    """What an ensemble knows of itself."""

    def test_sizes_are_read_from_the_end_of_the_shape(self):
        found = Ensemble(torch.zeros(2, 7, 20, 3))
        assert (found.n_cases, found.n_members, found.n_targets) == (7, 20, 3)

    def test_probabilities_sum_to_one_with_or_without_weights(self):
        members = torch.zeros(2, 4, 3)
        assert torch.equal(Ensemble(members).probabilities, torch.full((2, 4), 0.25))
        weights = torch.tensor([[1.0, 1.0, 2.0, 4.0], [2.0, 0.0, 0.0, 0.0]])
        expected = torch.tensor([[0.125, 0.125, 0.25, 0.5], [1.0, 0.0, 0.0, 0.0]])
        assert torch.equal(Ensemble(members, weights).probabilities, expected)

    def test_moments_are_those_of_numpy(self):
        members = torch.randn(3, 9, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        found = Ensemble(members)
        for n in range(3):
            np.testing.assert_allclose(found.mean[n].numpy(), members[n].numpy().mean(0), rtol=1e-12)
            covariance = np.cov(members[n].numpy().T, ddof=0)
            np.testing.assert_allclose(found.covariance_matrix[n].numpy(), covariance, rtol=1e-11)

    def test_cases_are_picked_by_number_in_any_order_in_every_model(self):
        members = torch.arange(2 * 3 * 4.0).reshape(2, 3, 4, 1)
        found = Ensemble(members, members[..., 0]).select(torch.tensor([2, 0]))
        assert torch.equal(found.members, members[:, [2, 0]])
        assert torch.equal(found.weights, members[:, [2, 0], :, 0])

    def test_whole_numbers_become_floats(self):
        assert Ensemble(torch.zeros(2, 4, 3, dtype=torch.int64)).members.dtype == torch.get_default_dtype()

    @pytest.mark.parametrize("shape", [(4, 6, 3), (5, 6, 2)], ids=["cases", "targets"])
    def test_a_reference_for_other_cases_or_targets_is_refused(self, shape):
        with pytest.raises(ValueError, match=f"for {shape[0]} cases and {shape[2]} targets, the members for 5 and 3"):
            Ensemble(torch.zeros(5, 4, 3), reference=Ensemble(torch.zeros(shape)))

    def test_two_ensembles_are_equal_only_if_they_are_one(self):
        """Tensors have no single truth value, so comparing their contents would fail."""
        one, other = Ensemble(torch.zeros(2, 4, 3)), Ensemble(torch.zeros(2, 4, 3))
        assert one == one
        assert one != other
        assert len({one, other}) == 2

    def test_an_ensemble_cannot_be_changed(self):
        with pytest.raises(AttributeError):
            Ensemble(torch.zeros(2, 4, 3)).members = torch.ones(2, 4, 3)


class TestDoor:
    """Arrays in, arrays out."""

    def test_results_of_every_shape_come_back_as_arrays(self):
        from typing import NamedTuple

        class Pair(NamedTuple):
            first: torch.Tensor
            second: object

        @accepts_arrays("x", "w")
        def several(x, w=None, how="plain"):
            assert isinstance(x, torch.Tensor)
            assert w is None or isinstance(w, torch.Tensor)
            return {"plain": x, "tuple": (x, how), "named": Pair(x, how), "nested": (Pair(x, 1), 2)}[how]

        array = np.ones((2, 2))
        assert isinstance(several(array), np.ndarray)
        assert isinstance(several(torch.ones(2), w=[1.0]), np.ndarray)
        assert isinstance(several(torch.ones(2)), torch.Tensor)
        found = several(array, how="tuple")
        assert isinstance(found[0], np.ndarray)
        assert found[1] == "tuple"
        named = several(array, how="named")
        assert isinstance(named, Pair)
        assert isinstance(named.first, np.ndarray)
        assert isinstance(several(array, how="nested")[0].first, np.ndarray)

    def test_memory_is_shared_where_it_can_be_and_precision_kept(self):
        array = np.zeros((2, 3), dtype=np.float32)
        tensor = as_tensor(array)
        assert tensor.dtype == torch.float32
        array[0, 0] = 5
        assert float(tensor[0, 0]) == 5
        assert as_tensor(np.zeros(2, dtype=np.float16)).dtype == torch.float32
        assert as_tensor(np.array([True, False])).tolist() == [1.0, 0.0]
        assert as_tensor(np.arange(6.0).reshape(2, 3).T).tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
        whole = torch.arange(3)
        assert as_tensor(whole.double()).dtype == torch.float64


@pytest.mark.parametrize("draw", [differentiable_draws, equally_weighted_draws])
def test_the_default_seed_is_zero(draw):
    loc = torch.zeros(3, 2)
    for law in (
        MultivariateNormal(loc, torch.eye(2)),
        GaussianMixture(torch.zeros(3, 1), loc[:, None], torch.eye(2).expand(3, 1, 2, 2)),
    ):
        assert torch.equal(draw(law, 4).members, draw(law, 4, 0).members)
        assert not torch.equal(draw(law, 4).members, draw(law, 4, 1).members)


@pytest.mark.parametrize("with_gradients", [False, True])
def test_a_pit_of_a_mixture_never_exceeds_one_with_or_without_gradients(with_gradients):
    """In single precision the softmax of some logits sums to a little more than one."""
    logits = torch.randn(2000, 7, generator=torch.Generator().manual_seed(0))
    loc = torch.zeros(2000, 7, 1, requires_grad=with_gradients)
    law = GaussianMixture(logits, loc, torch.ones(2000, 7, 1, 1))
    assert law.weights.sum(-1).max() > 1
    high, low = (law.pit_along(torch.ones(1, 1, 1), torch.full((2000, 1), end)) for end in (100.0, -100.0))
    assert high.requires_grad == with_gradients
    assert high.max() <= 1
    assert high.min() > 0.99
    assert (low == 0).all()
