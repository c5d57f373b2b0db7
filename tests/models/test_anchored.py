"""Networks that start at the reference, and mixtures whose components share their correlations."""

import pytest
import torch

from prerank.forecasts import GaussianMixture
from prerank.models import LinearGaussian
from prerank.models.anchored import ScaledMixture, anchored_mixture, anchored_output, anchored_weights

FLOOR = 1e-3


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape)))


def references(n_targets):
    x, y = numbers(80, 3), numbers(80, n_targets, 1)[..., 0]
    return x, y, [LinearGaussian.fit(x, y + x[:, :1]), LinearGaussian.fit(x, 2 * y)]


def weights_of(found, common, dtype=torch.float64):
    return anchored_weights(found, 3, (8,), [0, 1], common, FLOOR, dtype, torch.device("cpu"))


def law_of(weights, x, n_targets):
    return anchored_mixture(anchored_output(weights, x), weights, x, n_targets, 3, FLOOR)


@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize("n_targets", [1, 2, 5])
def test_a_network_that_adds_nothing_forecasts_the_reference(n_targets, common):
    x, y, found = references(n_targets)
    weights = weights_of(found, common)
    for last in weights[2:4]:  # weight and bias of the last layer
        last.zero_()
    law = law_of(weights, x, n_targets)
    for model, reference in enumerate(found):
        expected = reference.forecast(x).log_prob(y)
        torch.testing.assert_close(law.log_prob(y)[model], expected, rtol=0, atol=1e-9)


def test_at_first_components_differ_in_their_means_alone():
    x, _, found = references(4)
    law = law_of(weights_of(found, True), x, 4)
    assert law.loc.std(-2).min() > 0
    torch.testing.assert_close(law.scale_tril, law.scale_tril[:, :, :1].expand_as(law.scale_tril))
    torch.testing.assert_close(law.weights, torch.full_like(law.weights, 1 / 3))
    spread = found[0].scale_tril.square().sum(-1).sqrt()
    # the last layer of eight inputs below one in size, each with a weight below a third: means within four spreads
    assert ((law.loc[0] - found[0].forecast(x).mean[:, None]).abs() < 4 * spread).all()


@pytest.mark.parametrize("common", [True, False])
def test_every_output_is_a_valid_mixture_above_the_floor(common):
    x, y, found = references(4)
    weights = weights_of(found, common)
    for scale in (1.0, 10.0, 1e3):
        output = scale * numbers(2, 80, anchored_output(weights, x).shape[-1])
        law = anchored_mixture(output, weights, x, 4, 3, FLOOR)
        assert torch.equal(law.scale_tril, law.scale_tril.tril())
        assert (law.scale_tril.diagonal(dim1=-2, dim2=-1) >= FLOOR**2).all()
        assert law.log_prob(y).isfinite().all()


def scaled(requires_grad=False):
    root = numbers(2, 3, 4, 4).tril()
    root = root - torch.diag_embed(root.diagonal(dim1=-2, dim2=-1) - 0.7)
    parts = [numbers(2, 5, 3), numbers(2, 5, 3, 4), numbers(2, 5, 3, 4).exp(), root]
    return [part.requires_grad_(requires_grad) for part in parts]


def test_the_likelihood_of_a_scaled_mixture_is_that_of_the_mixture_it_is():
    law = ScaledMixture(*scaled())
    plain = GaussianMixture(law.logits, law.loc, law.scale_tril)
    for y in (numbers(2, 5, 4), numbers(5, 4), numbers(7, 2, 5, 4)):
        torch.testing.assert_close(law.log_prob(y), plain.log_prob(y), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(law.covariance_matrix, plain.covariance_matrix)
    assert (law.ensemble(3).members == plain.ensemble(3).members).all()


def test_and_so_are_its_gradients():
    y = numbers(2, 5, 4)
    own, other = scaled(True), scaled(True)
    gradients = torch.autograd.grad(ScaledMixture(*own).log_prob(y).sum(), own)
    logits, loc, scale, root = other
    plain = GaussianMixture(logits, loc, scale[..., None] * root[:, None])
    for one, two in zip(gradients, torch.autograd.grad(plain.log_prob(y).sum(), other), strict=True):
        torch.testing.assert_close(one.tril() if one.ndim == 4 and one.shape[-1] == one.shape[-2] else one, two)
