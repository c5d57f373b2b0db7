"""Numbers and forecasts that tests of all folders are made from."""

import torch
from torch import Tensor

from prerank import GaussianMixture


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers, the same for the same shape and seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def uniform(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Numbers between 0 and 1, the same for the same shape and seed."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def random_mixture(
    *lead: int, n_components: int = 2, n_targets: int = 3, seed: int = 0, dtype: torch.dtype = torch.float64
) -> GaussianMixture:
    """Mixtures with random weights, means and covariances, (*lead) of them; the last axis of `lead` is that of cases."""
    factor = 0.4 * normal(*lead, n_components, n_targets, n_targets, seed=seed, dtype=dtype).tril(-1)
    diagonal = 0.5 + normal(*lead, n_components, n_targets, seed=seed + 1, dtype=dtype).abs()
    return GaussianMixture(
        normal(*lead, n_components, seed=seed + 2, dtype=dtype),
        normal(*lead, n_components, n_targets, seed=seed + 3, dtype=dtype),
        factor + torch.diag_embed(diagonal),
    )


def standard_mixture(*lead: int, n_components: int = 2, n_targets: int = 3) -> GaussianMixture:
    """Mixtures whose components are all standard normal."""
    factor = torch.eye(n_targets).expand(*lead, n_components, n_targets, n_targets)
    return GaussianMixture(torch.zeros(*lead, n_components), torch.zeros(*lead, n_components, n_targets), factor)
