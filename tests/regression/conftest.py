"""A small table with a known law and models that train on it in a moment."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from prerank.datasets import Bimodal
from prerank.regression import MixtureRegressor


@pytest.fixture(scope="session")
def table() -> tuple[np.ndarray, np.ndarray]:
    """300 rows: features (N, 2) and targets (N, 2)."""
    made = Bimodal().table(300, seed=1)
    return made.x, made.y


@pytest.fixture(scope="session")
def small() -> Callable[..., MixtureRegressor]:
    """A regressor with small settings, and whatever else it is given."""

    def make(**parameters: Any) -> MixtureRegressor:
        settings: dict[str, Any] = {"n_components": 2, "hidden": (8,), "learning_rate": 0.05, "patience": 3}
        return MixtureRegressor(**{**settings, "random_state": 0, **parameters})

    return make
