"""The Gaussian mixture: its density, moments, closed-form CDFs, and two kinds of draws."""

import pytest
import torch
from scipy import stats
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from prerank import GaussianMixture
from prerank.forecasts import equally_weighted_draws
from prerank.forecasts.mixture import allocate


def mixture(n_cases=6, n_components=3, n_targets=4, seed=0, lead=()):
    generator = torch.Generator().manual_seed(seed)
    shape = (*lead, n_cases, n_components)
    factor = torch.randn(*shape, n_targets, n_targets, generator=generator, dtype=torch.float64).tril(-1) * 0.4
    diagonal = 0.5 + torch.rand(*shape, n_targets, generator=generator, dtype=torch.float64)
    return GaussianMixture(
        torch.randn(*shape, generator=generator, dtype=torch.float64),
        torch.randn(*shape, n_targets, generator=generator, dtype=torch.float64),
        factor + torch.diag_embed(diagonal),
    )


def torch_twin(law):
    return MixtureSameFamily(Categorical(logits=law.logits), MultivariateNormal(law.loc, scale_tril=law.scale_tril))


def test_density_and_moments_are_those_of_torch():
    law = mixture()
    twin = torch_twin(law)
    y = twin.sample((5,))
    torch.testing.assert_close(law.log_prob(y), twin.log_prob(y), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(law.log_prob(y[0]), twin.log_prob(y[0]), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(law.mean, twin.mean, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(law.variance, twin.variance, rtol=1e-10, atol=1e-12)


def test_cdf_along_a_direction_has_the_density_of_the_projection_as_its_derivative():
    law = mixture(n_cases=2)
    direction = torch.randn(2, 4, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    grid = torch.linspace(-12.0, 12.0, 4001, dtype=torch.float64)[None, :, None].expand(2, -1, 1)
    cdf = law.cdf_along(direction, grid)[..., 0]
    loc, scale = law.along(direction)
    density = (
        law.weights[..., None, None]
        * torch.distributions.Normal(loc[..., None, :], scale[..., None, :]).log_prob(grid[:, None]).exp()
    ).sum(1)[..., 0]
    step = 24.0 / 4000
    torch.testing.assert_close(
        torch.gradient(cdf, spacing=step, dim=-1)[0][:, 1:-1], density[:, 1:-1], rtol=0, atol=1e-5
    )
    assert cdf[:, 0].max() < 1e-6
    assert cdf[:, -1].min() > 1 - 1e-6


def test_leading_axes_hold_several_models_that_share_their_noise():
    fleet = mixture(lead=(3,))
    draws = fleet.ensemble(10, seed=4).members
    for e in range(3):
        one = GaussianMixture(fleet.logits[e], fleet.loc[e], fleet.scale_tril[e])
        torch.testing.assert_close(one.ensemble(10, seed=4).members, draws[e])
        torch.testing.assert_close(one.draw(30, seed=4).members, fleet.draw(30, seed=4).members[e])


def test_evaluation_draws_follow_the_mixture():
    law = mixture(n_cases=1)
    draws = law.ensemble(40_000, seed=3)
    assert draws.weights is None
    # the projection on any direction has a known law: Kolmogorov-Smirnov at level 1e-4
    direction = torch.tensor([1.0, -0.5, 0.3, 2.0], dtype=torch.float64)[None, :, None]
    z = law.cdf_along(direction, draws.members @ direction)
    assert stats.kstest(z.flatten().numpy(), "uniform").pvalue > 1e-4


def test_evaluation_draws_depend_on_the_case_alone():
    law = mixture()
    ids = torch.tensor([10, 4, 7, 1, 0, 99])
    draws = law.ensemble(8, seed=2, case_ids=ids).members
    some = law.select(torch.tensor([3, 1])).ensemble(8, seed=2, case_ids=ids[[3, 1]]).members
    assert torch.equal(some, draws[[3, 1]])


def test_training_draws_are_unbiased_in_value_and_gradient():
    """The weighted mean of f over draws, averaged over seeds, is E f(Y); so are its derivatives in the parameters."""
    law = mixture(n_cases=1, n_components=3, n_targets=2)
    parameters = [law.logits, law.loc, law.scale_tril]
    for parameter in parameters:
        parameter.requires_grad_()
    estimates = []
    for seed in range(400):
        draws = law.draw(20, seed)
        value = (draws.probabilities * draws.members.square().sum(-1)).sum()  # E |Y|^2 is known
        gradients = torch.autograd.grad(value, parameters)
        estimates.append(torch.cat([value.detach()[None], *(g.flatten() for g in gradients)]))
    second_moment = (law.covariance_matrix + law.mean[..., :, None] * law.mean[..., None, :]).diagonal(dim1=-2, dim2=-1)
    exact = torch.cat(
        [second_moment.sum().detach()[None]]
        + [g.flatten() for g in torch.autograd.grad(second_moment.sum(), parameters)]
    )
    found = torch.stack(estimates)
    error = (found.mean(0) - exact).abs()
    assert (error <= 4 * found.std(0) / 20 + 1e-9).all()  # four standard errors of 400 repetitions


def test_every_component_is_drawn_and_too_few_draws_are_refused():
    law = GaussianMixture(torch.tensor([[20.0, 0.0]]), torch.tensor([[[0.0], [100.0]]]), torch.ones(1, 2, 1, 1))
    draws = law.draw(10)
    assert (draws.members > 50).sum() == 2
    assert draws.weights.sum() == pytest.approx(1.0)
    with pytest.raises(ValueError, match="3 draws are too few for 2 components with at least 2 each; ask for 4"):
        law.draw(3)


def test_allocation_is_whole_complete_and_fair():
    weights = torch.softmax(torch.randn(50, 5, generator=torch.Generator().manual_seed(0)), -1)
    counts = allocate(weights, 37, 2)
    assert (counts.sum(-1) == 37).all()
    assert counts.min() >= 2
    assert ((counts - 2 - weights * 27).abs() < 1).all()


def test_shapes_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match=r"got loc \(4, 3, 5\) and scale_tril \(4, 3, 5, 4\)"):
        GaussianMixture(torch.zeros(4, 3), torch.zeros(4, 3, 5), torch.zeros(4, 3, 5, 4))
    law = mixture()
    with pytest.raises(ValueError, match=f"for {law.n_targets} targets"):
        law.log_prob(torch.zeros(law.n_targets + 1))


def test_one_set_of_values_serves_several_models():
    law = mixture()
    y = law.mean
    several = GaussianMixture(*(part.expand(3, *part.shape) for part in (law.logits, law.loc, law.scale_tril)))
    torch.testing.assert_close(several.log_prob(y), law.log_prob(y).expand(3, *law.batch_shape), rtol=0, atol=0)


def test_draws_of_any_distribution_are_seeded_and_leave_the_global_generator_alone():
    law = MultivariateNormal(torch.zeros(5, 3), torch.eye(3))
    before = torch.random.get_rng_state()
    draws = equally_weighted_draws(law, 7, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert draws.members.shape == (5, 7, 3)
    assert torch.equal(equally_weighted_draws(law, 7, seed=1).members, draws.members)
    assert not torch.equal(equally_weighted_draws(law, 7, seed=2).members, draws.members)
    with pytest.raises(ValueError, match=r"event shape \(\) and batch shape \(5,\).*Independent\(forecast, 1\)"):
        equally_weighted_draws(torch.distributions.Normal(torch.zeros(5), 1.0), 7)
    with pytest.raises(ValueError, match=r"expand\(\(N,\)\)"):
        equally_weighted_draws(MultivariateNormal(torch.zeros(3), torch.eye(3)), 7)


def test_sample_is_torchs_way():
    law = mixture()
    assert law.sample((2, 3)).shape == (2, 3, 6, 4)
    assert law.sample().shape == (6, 4)
    assert law.expand((5, 6)).sample().shape == (5, 6, 4)


def test_draws_have_first_and_second_derivatives_and_chunks_change_nothing(monkeypatch):
    generator = torch.Generator().manual_seed(2)
    logits, loc, raw, noise = (
        torch.randn(*shape, dtype=torch.float64, generator=generator)
        for shape in ((2, 3, 2), (2, 3, 2, 3), (2, 3, 2, 3, 3), (2, 3, 6, 3))
    )
    tril = raw.tril(-1) + torch.diag_embed(raw.diagonal(dim1=-2, dim2=-1).exp())

    def members(loc, tril):
        return GaussianMixture(logits, loc, tril.tril(), validate_args=False).draw(6, noise=noise).members

    given = (loc.requires_grad_(), tril.requires_grad_())
    assert torch.autograd.gradcheck(members, given)
    assert torch.autograd.gradgradcheck(members, given)
    whole = members(*given)
    monkeypatch.setattr("prerank.forecasts._component_draws.chunks", lambda n, *_: [slice(i, i + 1) for i in range(n)])
    torch.testing.assert_close(members(*given), whole, rtol=0, atol=1e-13)


def test_the_cdf_along_directions_is_the_same_with_and_without_gradients():
    generator = torch.Generator().manual_seed(21)
    logits, loc = torch.randn(5, 3, generator=generator), torch.randn(5, 3, 2, generator=generator)
    factor = torch.eye(2).expand(5, 3, 2, 2) * (0.5 + torch.rand(5, 3, 1, 1, generator=generator))
    directions, values = torch.randn(1, 2, 4, generator=generator), torch.randn(5, 6, 4, generator=generator)
    plain = GaussianMixture(logits, loc, factor).cdf_along(directions, values)
    learnt = GaussianMixture(logits, loc.clone().requires_grad_(), factor).cdf_along(directions, values)
    assert learnt.requires_grad
    torch.testing.assert_close(learnt.detach(), plain)
    far = torch.full_like(values, 1e6)
    highest = GaussianMixture(logits, loc.requires_grad_(), factor).cdf_along(directions, far).detach().max()
    assert float(highest) <= 1.0
