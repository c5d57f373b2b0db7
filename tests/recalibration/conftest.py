"""Forecasts whose errors are known."""

import pytest
import torch
from torch.distributions import Distribution

from prerank import GaussianMixture
from prerank.recalibration import HeldOut
from prerank.recalibration.folds import folds_of


def _standard(n_cases, n_targets=2, spread=1.0, seed=0):
    """Normal forecasts about means that differ from case to case."""
    generator = torch.Generator().manual_seed(seed)
    loc = torch.randn(n_cases, 1, n_targets, generator=generator, dtype=torch.float64)
    factor = spread * torch.eye(n_targets, dtype=torch.float64)
    return GaussianMixture(torch.zeros(n_cases, 1), loc, factor.expand(n_cases, 1, n_targets, n_targets))


def _mixed(n_cases, n_targets=2, n_components=2, seed=0, dtype=torch.float64):
    """Mixtures whose weights, means, spreads and correlations all differ."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (n_cases, n_components, n_targets)
    logits, loc = (torch.randn(shape, generator=generator, dtype=dtype) for shape in (sizes[:2], sizes))
    tril = 0.5 * torch.randn(*sizes, n_targets, generator=generator, dtype=dtype).tril(-1)
    scale = 0.5 + torch.rand(sizes, generator=generator, dtype=dtype)
    return GaussianMixture(logits, 2 * loc, tril + torch.diag_embed(scale))


def _observed(forecast, seed):
    """Observations for which the forecast is right."""
    return forecast.ensemble(1, seed, "observations").members[:, 0]


def _held_out(y, n_folds=2, weights=None, blocks=None, preranks=(), seed=0, features=None):
    """Observations as a step is given them; weights are to have mean one."""
    weights = torch.ones(len(y), dtype=torch.float64) if weights is None else weights / weights.mean()
    return HeldOut(y, weights, folds_of(len(y), n_folds, blocks, seed, y.device), preranks, seed, features)


class Opaque(Distribution):
    """A law that is asked through its methods alone, as one of another library: it cannot be cut into cases."""

    arg_constraints = {}  # noqa: RUF012

    def __init__(self, law):
        self.hidden = law
        super().__init__(law.batch_shape, law.event_shape, validate_args=False)

    def sample(self, sample_shape=()):
        return self.hidden.sample(sample_shape)

    def log_prob(self, value):
        return self.hidden.log_prob(value)


@pytest.fixture(scope="session")
def opaque():
    return Opaque


@pytest.fixture(scope="session")
def standard():
    return _standard


@pytest.fixture(scope="session")
def mixed():
    return _mixed


@pytest.fixture
def observed():
    return _observed


@pytest.fixture(scope="session")
def held_out():
    return _held_out


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
