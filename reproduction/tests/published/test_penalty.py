"""The penalty of the published experiments: soft draws that are no draws, with gradients, for mixtures alone."""

from pathlib import Path

import pytest
import torch

from builders import normal
from prerank.calibration import pce
from prerank.forecasts import GaussianMixture
from prerank.models import MixtureNetwork
from prerank.preranks import HDR, PCA, Copula, Dependency, Location, Marginal, Scale
from prerank.training import PreRankPenalty
from prerank_paper.published import PublishedPenalty, published_expected_pce, published_pce, soft_draws
from scripts import load_script

ROOT = Path(__file__).parents[3]
SEVEN = [Marginal(), Location(), Scale(), Dependency(), PCA(), HDR(), Copula()]


def parameters(cases=4, components=2, targets=3):
    """Logits, means and factors that ask for gradients, and observations."""
    factor = 0.4 * normal(cases, components, targets, targets, seed=1).tril(-1)
    factor = factor + torch.diag_embed(0.5 + normal(cases, components, targets, seed=2).abs())
    given = normal(cases, components, seed=3), normal(cases, components, targets, seed=4), factor
    return [part.clone().requires_grad_() for part in given], normal(cases, targets, seed=5)


def test_soft_draws_carry_gradients():
    inputs, _ = parameters()
    noise = normal(4, 5, 2, 4)
    assert torch.autograd.gradcheck(lambda *given: soft_draws(GaussianMixture(*given), noise), inputs)


@pytest.mark.parametrize("prerank", [*SEVEN, (Location(), Copula())], ids=str)
def test_the_published_penalty_has_gradients_too(prerank):
    inputs, y = parameters()
    gradients = torch.autograd.grad(PublishedPenalty(prerank, n_draws=8)(y, GaussianMixture(*inputs)), inputs)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert all(gradient.abs().max() > 0 for gradient in gradients)


def test_published_soft_draws_make_a_perfect_forecast_look_miscalibrated():
    """About 0.0735 for five equal N(0, I); true draws give the null level."""
    script = load_script(ROOT / "benchmarks" / "calibration_of_training.py")
    assert script.published_training_pce(2000) == pytest.approx(0.0735, abs=0.01)
    factor = torch.eye(2).expand(2000, 5, 2, 2)
    law = GaussianMixture(torch.zeros(2000, 5), torch.zeros(2000, 5, 2), factor)
    y = law.ensemble(1, seed=1).members[:, 0]
    (pit,) = PreRankPenalty(Marginal()).pits(y, law)
    assert pce(pit).mean() < 1.1 / 2000**0.5
    # per minibatch of 256 the sampling noise of the null comes on top, almost hidden by the bias
    assert published_pce(y, law, [Marginal()])[0] == pytest.approx(0.0735, abs=0.01)
    assert published_expected_pce(2000) == pytest.approx(0.0196, abs=0.002)


def test_several_models_at_once_are_those_models_one_by_one():
    network = MixtureNetwork(2, 3, 2, (8,), seeds=[0, 1, 2], dtype=torch.float64)
    laws, y = network(normal(20, 2)), normal(20, 3, seed=1)
    penalty = PublishedPenalty(tuple(SEVEN), n_draws=10)
    together = penalty(y.expand(3, -1, -1), laws)
    alone = [penalty(y, GaussianMixture(laws.logits[e], laws.loc[e], laws.scale_tril[e])) for e in range(3)]
    torch.testing.assert_close(together, torch.stack(alone), rtol=0, atol=1e-12)


def test_its_parts_are_what_it_is_the_mean_of():
    inputs, y = parameters(cases=20)
    law, penalty = GaussianMixture(*inputs), PublishedPenalty(tuple(SEVEN), n_draws=10)
    assert [part.preranks for part in penalty.parts()] == [(item,) for item in SEVEN]
    each = torch.stack([part(y, law) for part in penalty.parts()])
    torch.testing.assert_close(penalty(y, law), each.mean(), rtol=0, atol=1e-12)


def test_what_it_cannot_be_used_for_is_refused():
    parts = torch.distributions.MultivariateNormal(torch.zeros(10, 2, 2), torch.eye(2))
    mixture = torch.distributions.MixtureSameFamily(torch.distributions.Categorical(logits=torch.zeros(10, 2)), parts)
    with pytest.raises(TypeError, match=r"for a GaussianMixture, not a MixtureSameFamily"):
        PublishedPenalty(Location())(torch.zeros(10, 2), mixture)
    with pytest.raises(TypeError, match=r"3 is not a pre-rank"):
        PublishedPenalty((Location(), 3))
    with pytest.raises(ValueError, match=r"temperature=0"):
        PublishedPenalty(Location(), temperature=0)
