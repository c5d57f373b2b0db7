"""The mixture network: valid mixtures whatever its output, and models that depend on their seed alone."""

import math

import pytest
import torch

from prerank.models import MixtureNetwork
from prerank.models.network import mixture_from


def test_every_output_is_a_valid_mixture():
    """Extreme outputs too: the floor keeps the diagonal away from zero, so no covariance needs repair.

    A density may underflow to zero when outputs are absurd (1e4 in units of the targets), but it is never NaN.
    """
    generator = torch.Generator().manual_seed(0)
    for scale in (0.0, 1.0, 10.0, 1e4):
        law = mixture_from(scale * torch.randn(200, 3 * (1 + 4 + 10), generator=generator), 4, 3, floor=1e-3)
        diagonal = law.scale_tril.diagonal(dim1=-2, dim2=-1)
        assert diagonal.min() >= 1e-3
        assert torch.equal(law.scale_tril, law.scale_tril.tril())
        log_density = law.log_prob(torch.zeros(200, 4))
        assert not log_density.isnan().any()
        assert log_density.isfinite().all() or scale > 10
        torch.testing.assert_close(law.weights.sum(-1), torch.ones(200))


def test_the_output_is_split_into_logits_means_and_rows_of_factors():
    c, d = 2, 3
    output = torch.arange(c * (1 + d + 6), dtype=torch.float64)
    law = mixture_from(output, d, c, floor=0.5)
    assert law.logits.tolist() == [0, 1]
    assert law.loc.tolist() == [[2, 3, 4], [5, 6, 7]]
    first = law.scale_tril[0]
    assert [first[1, 0], first[2, 0], first[2, 1]] == [9, 11, 12]
    softplus = [math.log1p(math.exp(value)) + 0.5 for value in (8, 10, 13)]
    assert first.diagonal().tolist() == pytest.approx(softplus)


def test_a_model_depends_on_its_seed_alone_and_starts_like_torch():
    fleet = MixtureNetwork(6, 2, seeds=[3, 1, 3])
    alone = MixtureNetwork(6, 2, seeds=[3])
    for together, one in zip(fleet.parameters(), alone.parameters(), strict=True):
        assert torch.equal(together[0], one[0])
        assert torch.equal(together[0], together[2])
        assert not torch.equal(together[0], together[1])
    # uniform within one over the root of the fan-in: the variance is a third of the bound's square
    hidden = MixtureNetwork(100, 2, hidden=(100, 100)).weight[1]
    assert hidden.abs().max() <= 0.1
    assert hidden.var().item() == pytest.approx(0.01 / 3, rel=0.05)  # 10,000 numbers: sd of the ratio is 0.009


def test_it_is_a_module_whose_gradients_reach_every_parameter():
    network = MixtureNetwork(3, 2, seeds=[0, 1], dtype=torch.float64)
    x = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    law = network(x)
    assert law.batch_shape == (2, 7)
    assert law.event_shape == (2,)
    (-law.log_prob(torch.zeros(2, 7, 2, dtype=torch.float64)).mean()).backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in network.parameters())
    again = MixtureNetwork(3, 2, seeds=[8, 9], dtype=torch.float64)
    again.load_state_dict(network.state_dict())
    torch.testing.assert_close(again(x).loc, law.loc)


def test_making_one_leaves_the_global_generator_alone():
    before = torch.random.get_rng_state()
    MixtureNetwork(3, 2)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_networks_without_features_targets_or_components_are_refused():
    for bad in ((0, 2, 5), (3, 0, 5), (3, 2, 0)):
        with pytest.raises(ValueError, match=r"at least one (feature|target|component), got 0"):
            MixtureNetwork(*bad)


@pytest.mark.parametrize("n_targets", [1, 2, 3, 5])
def test_the_factors_of_an_output_have_first_and_second_derivatives(n_targets):
    outputs = 2 * (1 + n_targets + n_targets * (n_targets + 1) // 2)
    output = 3 * torch.randn(2, 3, outputs, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def factors(output):
        return mixture_from(output, n_targets, 2, 1e-3).scale_tril

    given = (output.requires_grad_(),)
    assert torch.autograd.gradcheck(factors, given)
    assert torch.autograd.gradgradcheck(factors, given)
    found = factors(output).detach()
    assert torch.equal(found, found.tril())
    assert (found.diagonal(dim1=-2, dim2=-1) > 1e-3).all()
