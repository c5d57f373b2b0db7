"""Type and shape of a score follow the input, whatever torch's defaults are."""

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from prerank.forecast import Ensemble
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


def test_one_set_of_observations_scores_several_models():
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    loc = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    together = nll(y, MultivariateNormal(loc, torch.eye(3).double()))
    assert together.shape == (2, 4)
    for e in range(2):
        alone = nll(y, MultivariateNormal(loc[e], torch.eye(3).double()))
        np.testing.assert_allclose(together[e].numpy(), alone.numpy(), rtol=1e-13)
