"""A tiny problem that every test of training shares."""

from collections.abc import Callable

import pytest
import torch

from prerank.datasets import Heteroscedastic
from prerank.training import FitOptions, TrainingSet


@pytest.fixture(scope="session")
def tiny() -> Callable[..., TrainingSet]:
    """96 rows to train on and 40 to stop by, in double precision."""

    def make(n_targets: int = 3, seed: int = 0, rows: int = 96, dtype: torch.dtype = torch.float64) -> TrainingSet:
        table = Heteroscedastic(n_targets).table(rows + 40, seed)
        x, y = torch.from_numpy(table.x).to(dtype), torch.from_numpy(table.y).to(dtype)
        return TrainingSet(x[:rows], y[:rows], x[rows:], y[rows:])

    return make


@pytest.fixture(scope="session")
def small() -> Callable[..., FitOptions]:
    """Options under which a model trains in a moment; a minibatch of 32, so that 96 rows make three steps an epoch."""

    def make(**changes: object) -> FitOptions:
        return FitOptions(
            **{  # type: ignore[arg-type]
                "n_components": 3,
                "hidden": (8, 8),
                "batch_size": 32,
                "learning_rate": 1e-2,
                "max_epochs": 4,
                "patience": 3,
                **changes,
            }
        )

    return make
