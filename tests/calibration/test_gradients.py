"""Gradients: closed-form and smooth PITs are differentiable in logits, means and factors, and say so when they are not."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.distributions import Independent, MultivariateNormal, Poisson

from prerank import (
    HDR,
    PCA,
    Contrast,
    Copula,
    Dependency,
    Ensemble,
    GaussianMixture,
    Location,
    Marginal,
    Scale,
    projected_pit,
)
from prerank.calibration import ClosedForm, SmoothRank, pce_kde, smooth_pit
from prerank.calibration.smooth_rank import spread
from prerank.preranks import (
    DistributionView,
    EnergyScore,
    Mahalanobis,
    Maximum,
    Minimum,
    Range,
    ReferenceDistance,
    Sliced,
    SquaredDifference,
    Variogram,
)

LINEAR = [Marginal(), Location(), PCA(), Contrast()]
PRERANKS = [
    *(*LINEAR, Scale(), Dependency(), HDR(), Copula(n_reference=30), SquaredDifference(), Sliced()),
    *(EnergyScore(30), Mahalanobis(n_reference=30), ReferenceDistance(), Variogram(), Maximum(), Minimum(), Range()),
]
HOW = SmoothRank(temperature=5.0)


def parameters(n_cases=2, n_components=2, n_targets=3):
    generator = torch.Generator().manual_seed(3)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    factor = 0.4 * normal(n_cases, n_components, n_targets, n_targets).tril(-1)
    factor = factor + torch.diag_embed(torch.tensor([1.0, 0.7, 1.4], dtype=torch.float64)).expand_as(factor)
    values = (normal(n_cases, n_components), normal(n_cases, n_components, n_targets), factor)
    return [value.clone().requires_grad_() for value in values], normal(n_cases, n_targets)


@pytest.mark.parametrize("prerank", LINEAR, ids=lambda p: p.name)
def test_closed_form_pits(prerank):
    inputs, y = parameters()
    projection = prerank.given(GaussianMixture(*(value.detach().clone() for value in inputs)))

    def pit(logits, loc, factor):
        law = GaussianMixture(logits, loc, factor)
        return law.cdf_along(projection.directions, projection(y[:, None]))

    assert gradcheck(pit, inputs)
    for gradient in torch.autograd.grad(pit(*inputs).square().sum(), inputs):
        assert gradient.abs().max() > 1e-3


def test_closed_form_pits_with_attached_principal_directions():
    inputs, y = parameters()

    def pit(logits, loc, factor):
        return projected_pit(y, GaussianMixture(logits, loc, factor), PCA(attached=True), ClosedForm()).values

    # distinct eigenvalues: directions are differentiable there
    assert torch.linalg.eigvalsh(GaussianMixture(*inputs).covariance_matrix).diff(dim=-1).min() > 0.05
    assert gradcheck(pit, inputs)
    attached = torch.autograd.grad(pit(*inputs).sum(), inputs[1])[0]
    detached = torch.autograd.grad(projected_pit(y, GaussianMixture(*inputs), PCA()).values.sum(), inputs[1])[0]
    assert not torch.allclose(attached, detached)


@pytest.mark.parametrize("prerank", PRERANKS, ids=lambda p: p.name)
def test_smooth_pits_with_the_projection_and_its_scale_held_fixed(prerank):
    inputs, y = parameters()
    fixed = GaussianMixture(*(value.detach().clone() for value in inputs))
    projection = prerank.given(DistributionView(fixed, smooth=True))
    draws = fixed.draw(8, seed=1)
    scale = spread(projection(draws.members), draws.probabilities[..., None])

    def pit(logits, loc, factor):  # common random numbers: the seed is the same in every call
        return smooth_pit(y, GaussianMixture(logits, loc, factor).draw(8, seed=1), projection, HOW, scale)

    assert gradcheck(pit, inputs)
    for gradient in torch.autograd.grad(pit(*inputs).square().sum(), inputs):
        assert gradient.abs().max() > 1e-4


@pytest.mark.parametrize("prerank", PRERANKS, ids=lambda p: p.name)
def test_gradients_of_every_smooth_pit_reach_every_parameter(prerank):
    inputs, y = parameters(n_cases=20)
    pit = projected_pit(y, GaussianMixture(*inputs), prerank, HOW, n_draws=12)
    assert pit.values.requires_grad
    for gradient in torch.autograd.grad(pce_kde(pit.values).sum(), inputs):
        assert gradient.isfinite().all()
        assert gradient.abs().max() > 0


@pytest.mark.parametrize("prerank", PRERANKS, ids=lambda p: p.name)
def test_gradients_reach_differentiable_members(prerank):
    members = torch.randn(6, 10, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    pit = projected_pit(torch.zeros(6, 4, dtype=torch.float64), Ensemble(members), prerank, HOW)
    (gradient,) = torch.autograd.grad(pit.values.sum(), members)
    assert gradient.isfinite().all()
    assert gradient.abs().max() > 0


def test_smooth_pits_of_reparameterised_draws_are_seeded():
    loc = torch.zeros(5, 3, requires_grad=True)
    law = MultivariateNormal(loc, torch.eye(3))
    before = torch.random.get_rng_state()
    first = projected_pit(torch.ones(5, 3), law, Scale(), HOW, seed=1).values
    assert torch.equal(first, projected_pit(torch.ones(5, 3), law, Scale(), HOW, seed=1).values)
    assert torch.equal(torch.random.get_rng_state(), before)
    (gradient,) = torch.autograd.grad(first.sum(), loc)
    assert gradient.abs().max() > 1e-4


def test_a_distribution_without_reparameterised_draws_is_refused():
    law = Independent(Poisson(torch.ones(5, 3, requires_grad=True)), 1)
    with pytest.raises(TypeError, match=r"Independent has no reparameterised draws .* silently zero gradient"):
        projected_pit(torch.ones(5, 3), law, Location(), SmoothRank())


@pytest.mark.parametrize("prerank", PRERANKS, ids=lambda p: p.name)
def test_a_smooth_pit_tends_to_the_weighted_share_of_draws_below_as_the_temperature_grows(prerank):
    if prerank.name == "copula":
        return  # its projection is smooth as well: a limit of its own
    inputs, y = parameters(n_cases=10)
    law = GaussianMixture(*(value.detach().clone() for value in inputs))
    draws = law.draw(40, seed=0)
    smooth = projected_pit(y, law, prerank, SmoothRank(1e9), n_draws=40).values
    projection = prerank.given(law)
    below = projection(draws.members) < projection(y[:, None])
    torch.testing.assert_close(smooth, (draws.probabilities[..., None] * below).sum(-2), rtol=0, atol=1e-9)
