"""Forecasts whose errors are known."""

import pytest
import torch

from prerank import GaussianMixture


def _standard(n_cases, n_targets=2, spread=1.0, seed=0):
    """Normal forecasts about means that differ from case to case."""
    generator = torch.Generator().manual_seed(seed)
    loc = torch.randn(n_cases, 1, n_targets, generator=generator, dtype=torch.float64)
    factor = spread * torch.eye(n_targets, dtype=torch.float64)
    return GaussianMixture(torch.zeros(n_cases, 1), loc, factor.expand(n_cases, 1, n_targets, n_targets))


def _observed(forecast, seed):
    """Observations for which the forecast is right."""
    return forecast.ensemble(1, seed, "observations").members[:, 0]


@pytest.fixture(scope="session")
def standard():
    return _standard


@pytest.fixture
def observed():
    return _observed


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
