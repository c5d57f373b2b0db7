"""Sums, densities and draws against their definitions, whatever the number of points, targets and components."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, MultivariateNormal, Normal

from builders import normal, random_mixture
from prerank._parameters import require_whole
from prerank._reproducible_math import BYTES, LONG, blocks, gaussian_log_density, log_sum_exp, total
from prerank.forecasts import Ensemble, GaussianMixture, differentiable_draws, equally_weighted_draws
from prerank.forecasts._component_draws import Draw
from prerank.forecasts.mixture import allocate

CPU = torch.device("cpu")


def of_torch(law):
    return MixtureSameFamily(Categorical(logits=law.logits), MultivariateNormal(law.loc, scale_tril=law.scale_tril))


# -- sums


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 7, 8, 11, 64])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_total_is_the_sum_over_its_axis(length, overwrite):
    for dim in (0, 1, -1):
        x = normal(*(length if axis == dim % 3 else size for axis, size in enumerate((2, 3, 4))), seed=length)
        kept = x.clone()
        torch.testing.assert_close(total(x.clone(), dim, overwrite), kept.sum(dim))
        total(x, dim)
        assert torch.equal(x, kept)  # nothing is overwritten unless allowed


def test_the_logarithm_of_a_sum_of_exponentials_is_that_of_torch_also_far_out():
    x = normal(4, 5, seed=2) * 800
    x[0] = -torch.inf
    x[1, 2] = -torch.inf
    for dim in (0, 1, -1):
        torch.testing.assert_close(log_sum_exp(x, dim), torch.logsumexp(x, dim))


@pytest.mark.parametrize(
    ("n_cases", "n_points", "each"), [(1, 1, 1), (5, 7, 10**6), (300, 40, 500), (3, 10**6, 3), (0, 4, 1)]
)
def test_blocks_cover_every_point_once_and_stay_small(n_cases, n_points, each):
    seen = np.zeros((n_cases, n_points), dtype=int) if n_cases * n_points < 10**5 else None
    count = 0
    for cases, points in blocks(n_cases, n_points, each, 8, CPU):
        size = (cases.stop - cases.start) * (points.stop - points.start)
        assert size == 1 or size * each * 8 <= BYTES
        count += size
        if seen is not None:
            seen[cases, points] += 1
    assert count == n_cases * n_points
    assert seen is None or (seen == 1).all()


def test_few_points_make_one_block():
    assert blocks(3, 4, 5, 8, CPU) == [(slice(0, 3), slice(0, 4))]
    whole = BYTES // 8
    assert blocks(2, 3, whole // 3, 8, CPU) == [(slice(0, 1), slice(0, 3)), (slice(1, 2), slice(0, 3))]
    assert blocks(1, 4, whole // 2, 8, CPU) == [(slice(0, 1), slice(0, 2)), (slice(0, 1), slice(2, 4))]
    assert len(blocks(2, 2, whole + 1, 8, CPU)) == len(blocks(2, 2, 2 * whole, 8, CPU)) == 4
    assert blocks(2, 2, 0, 8, CPU) == [(slice(0, 2), slice(0, 2))]


# -- densities


@pytest.mark.parametrize("n_points", [1, 5, LONG - 1, LONG, LONG + 9])
@pytest.mark.parametrize(("n_components", "n_targets"), [(1, 1), (2, 3), (3, 2), (1, 4)])
def test_the_density_of_few_and_of_many_points_is_that_of_torch(n_points, n_components, n_targets):
    law = random_mixture(4, n_components=n_components, n_targets=n_targets)
    points = normal(4, n_points, n_targets, seed=3) * 2
    expected = of_torch(law).log_prob(points.movedim(1, 0)).movedim(0, 1)
    torch.testing.assert_close(law.log_density(points), expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        law.log_density(points.clone().requires_grad_()).detach(), expected, rtol=1e-10, atol=1e-10
    )
    torch.testing.assert_close(law.log_prob(points.movedim(1, 0)).movedim(0, 1), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n_points", [3, 40])
def test_the_density_does_not_depend_on_the_blocks_it_is_computed_in(n_points, monkeypatch):
    law, points = random_mixture(6), normal(6, n_points, 3, seed=4)
    whole = law.log_density(points)
    monkeypatch.setattr("prerank._reproducible_math.BYTES", 8 * 2 * 3 * 4)
    torch.testing.assert_close(law.log_density(points), whole, rtol=1e-13, atol=1e-13)
    for case in range(6):
        torch.testing.assert_close(law.select(torch.tensor([case])).log_density(points[case, None]), whole[case, None])


def test_log_weights_are_added_component_by_component():
    points, loc = normal(2, 35, 1, seed=5), normal(2, 3, 1, seed=6)
    factor, log_weights = torch.full((2, 3, 1, 1), 0.7).double(), normal(2, 3, seed=7)
    square = ((points[:, :, None, 0] - loc[:, None, :, 0]) / 0.7).square()
    for some in (points, points[:, :4]):
        expected = (log_weights[:, None] - 0.5 * square[:, : some.shape[1]]).logsumexp(-1)
        torch.testing.assert_close(gaussian_log_density(some, log_weights, loc, factor), expected)


def test_the_density_of_a_law_without_cases_and_of_models_with_common_points():
    law = random_mixture(2, 4)
    common = normal(4, 6, 3, seed=8)
    found = law.log_density(common)
    for e in range(2):
        one = GaussianMixture(law.logits[e], law.loc[e], law.scale_tril[e])
        torch.testing.assert_close(found[e], one.log_density(common))
    assert law.log_prob(common[:, 0]).shape == (2, 4)
    with pytest.raises(ValueError, match=r"value has shape \(4, 2\), but the forecast is for 3 targets"):
        law.log_prob(torch.zeros(4, 2))


def test_moments_of_a_mixture_are_those_of_torch_in_every_model():
    law = random_mixture(2, 4)
    twin = of_torch(law)
    torch.testing.assert_close(law.mean, twin.mean)
    torch.testing.assert_close(law.variance, twin.variance)
    assert law.covariance_matrix.shape == (2, 4, 3, 3)
    torch.testing.assert_close(law.weights.log(), law.log_weights)
    assert law.expand((5, 2, 4)).batch_shape == (5, 2, 4)
    torch.testing.assert_close(law.expand((5, 2, 4)).mean[3], law.mean)
    torch.testing.assert_close(law.select(slice(1, 3)).covariance_matrix, law.covariance_matrix[:, 1:3])


def test_means_and_spreads_along_directions_are_those_of_projected_draws():
    law = random_mixture(5)
    directions = normal(5, 3, 2, seed=9)
    loc, scale = law.along(directions)
    for n in range(5):
        for c in range(2):
            covariance = law.scale_tril[n, c] @ law.scale_tril[n, c].T
            torch.testing.assert_close(loc[n, c], directions[n].T @ law.loc[n, c])
            torch.testing.assert_close(scale[n, c].square(), (directions[n].T @ covariance @ directions[n]).diagonal())
    values = normal(5, 4, 2, seed=10)
    expected = (law.weights[:, :, None, None] * Normal(loc[:, :, None], scale[:, :, None]).cdf(values[:, None])).sum(1)
    torch.testing.assert_close(law.cdf_along(directions, values), expected)
    torch.testing.assert_close(law.cdf_along(directions, values.clone().requires_grad_()).detach(), expected)


# -- draws


def test_draws_of_a_law_without_cases_are_refused_with_the_remedy():
    batch = random_mixture(3)
    alone = GaussianMixture(batch.logits[0], batch.loc[0], batch.scale_tril[0])
    for draw in (alone.ensemble, alone.draw):
        with pytest.raises(ValueError, match=r"got shape \(50, 3\);.* for one case members\[None\]"):
            draw(50)


def test_chosen_components_are_drawn_from():
    law = random_mixture(4, n_components=3)
    noise = normal(4, 20, 3, seed=11)
    choice = torch.randint(0, 3, (4, 20), generator=torch.Generator().manual_seed(12))
    found = Draw.apply(law.loc, law.scale_tril, choice, noise)
    for n in range(4):
        for s in range(20):
            c = int(choice[n, s])
            torch.testing.assert_close(found[n, s], law.loc[n, c] + law.scale_tril[n, c] @ noise[n, s])
    loc, tril = law.loc.clone().requires_grad_(), law.scale_tril.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: Draw.apply(a, b, choice[:, :5], noise[:, :5]), (loc, tril))


def test_components_are_drawn_as_often_as_they_weigh():
    logits = torch.tensor([[0.0, 1.0, 2.0]]).double()
    loc = torch.tensor([[[0.0], [10.0], [20.0]]]).double()
    law = GaussianMixture(logits, loc, torch.full((1, 3, 1, 1), 1e-3).double())
    members = law.ensemble(4000).members[0, :, 0]
    share = torch.stack([((members - place).abs() < 1).double().mean() for place in (0.0, 10.0, 20.0)])
    assert (share - law.weights[0]).abs().max() < 5 * 0.5 / 4000**0.5
    draws = law.draw(100)
    counts = [int(((draws.members[0, :, 0] - place).abs() < 1).sum()) for place in (0.0, 10.0, 20.0)]
    assert counts == allocate(law.weights[0], 100, 2).tolist()
    torch.testing.assert_close(draws.weights.sum(-1), torch.ones(1).double())
    assert law.draw(6).members.shape == (1, 6, 1)
    with pytest.raises(
        ValueError, match="5 draws are too few for 3 components with at least 2 each; ask for 6 or more"
    ):
        law.draw(5)
    assert law.draw(5, at_least=1).members.shape == (1, 5, 1)
    assert law.draws_from([normal(1, 6, 1, seed=15)])[0].members.shape == (1, 6, 1)
    with pytest.raises(ValueError, match="ask for 6 or more"):
        law.draws_from([normal(1, 5, 1, seed=15)])


def test_draws_of_any_law_are_keyed_by_seed_and_stream():
    law = Independent(Normal(torch.zeros(4, 2), 1.0), 1)
    for draw in (equally_weighted_draws, differentiable_draws):
        first = draw(law, 5).members
        assert first.shape == (4, 5, 2)
        assert torch.equal(first, draw(law, 5, seed=0).members)
        assert not torch.equal(first, draw(law, 5, seed=1).members)
        assert not torch.equal(first, draw(law, 5, stream="another").members)


def test_an_ensemble_keeps_the_precision_and_weights_of_what_it_is_made_of():
    members = normal(2, 3, 4, 2, seed=13)
    weights = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(14)).double()
    ensemble = Ensemble(members, weights)
    share = weights / weights.sum(-1, keepdim=True)
    torch.testing.assert_close(ensemble.probabilities, share)
    torch.testing.assert_close(ensemble.mean, (share[..., None] * members).sum(-2))
    centred = members - ensemble.mean[..., None, :]
    expected = torch.einsum("enm,enmi,enmj->enij", share, centred, centred)
    torch.testing.assert_close(ensemble.covariance_matrix, expected)
    torch.testing.assert_close(ensemble.effective_size, 1 / share.square().sum(-1))
    equal = Ensemble(members)
    torch.testing.assert_close(equal.mean, members.mean(-2))
    torch.testing.assert_close(equal.effective_size, torch.full((2, 3), 4.0).double())
    cut = ensemble.select(torch.tensor([2, 0]))
    assert torch.equal(cut.members, members[:, [2, 0]])
    assert torch.equal(cut.weights, weights[:, [2, 0]])


def test_a_reference_is_for_the_cases_of_the_members_or_one_law_for_all():
    members = normal(2, 4, 5, 3, seed=16)
    for batch in ((2, 4), (4,), (1,)):
        law = Independent(Normal(torch.zeros(*batch, 3), 1.0), 1)
        assert Ensemble(members, reference=law).reference is law
    for batch in ((4, 2), (2,), (2, 4, 5)):
        with pytest.raises(ValueError, match=f"for {batch[-1]} cases and 3 targets, the members for 4 and 3"):
            Ensemble(members, reference=Independent(Normal(torch.zeros(*batch, 3), 1.0), 1))
    with pytest.raises(ValueError, match="for 1 cases and 3 targets"):
        Ensemble(members, reference=normal(1, 5, 3, seed=17))


def test_whole_numbers_are_taken_from_anything_that_is_one():
    assert require_whole(np.int32(3), "n") == require_whole(torch.tensor(3), "n") == 3
    assert require_whole(1, "n") == 1
    assert require_whole(-5, "seed", at_least=None) == -5
    assert require_whole(0, "n", at_least=0) == 0
    for bad in (2.0, None, True, np.True_, "3"):
        with pytest.raises(TypeError, match=r"n=.*a whole number of at least 1"):
            require_whole(bad, "n")
    for bad in (0, -1):
        with pytest.raises(ValueError, match=f"n={bad}: a whole number of at least 1"):
            require_whole(bad, "n")
    with pytest.raises(TypeError, match=r"seed=0\.5: a whole number$"):
        require_whole(0.5, "seed", at_least=None)


def test_allocation_gives_every_component_its_share_and_the_rest_to_the_largest_remainders():
    weights = torch.tensor([[0.5, 0.3, 0.2], [1 / 3, 1 / 3, 1 / 3]]).double()
    assert allocate(weights, 10, 0).tolist()[0] == [5, 3, 2]
    found = allocate(weights, 17, 2)
    assert found.sum(-1).tolist() == [17, 17]
    assert (found >= 2).all()
    assert found[0].tolist() == [2 + 6, 2 + 3, 2 + 2]  # shares 5.5, 3.3 and 2.2 of the eleven that are free
    assert math.isclose(float(found[1].max() - found[1].min()), 1.0)
