"""Numbers, forecasts and small problems that tests of all folders are made from."""

import torch
from torch import Tensor

from prerank import GaussianMixture
from prerank.datasets import Heteroscedastic
from prerank.training import FitOptions, TrainingSet


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


def tiny_training_set(
    n_targets: int = 3, seed: int = 0, rows: int = 96, dtype: torch.dtype = torch.float64
) -> TrainingSet:
    """96 rows to train on and 40 to stop by, in double precision."""
    table = Heteroscedastic(n_targets).table(rows + 40, seed)
    x, y = torch.from_numpy(table.x).to(dtype), torch.from_numpy(table.y).to(dtype)
    return TrainingSet(x[:rows], y[:rows], x[rows:], y[rows:])


def small_options(**changes: object) -> FitOptions:
    """Options under which a model trains in a moment; a minibatch of 32, so that 96 rows make three steps an epoch."""
    options: dict[str, object] = {
        "n_components": 3,
        "hidden": (8, 8),
        "batch_size": 32,
        "learning_rate": 1e-2,
        "max_epochs": 4,
        "patience": 3,
    }
    return FitOptions(**options | changes)  # type: ignore[arg-type]
