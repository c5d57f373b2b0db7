"""A tiny problem that every test of training shares."""

from collections.abc import Callable

import pytest

from builders import small_options, tiny_training_set
from prerank.training import FitOptions, TrainingSet


@pytest.fixture(scope="session")
def tiny() -> Callable[..., TrainingSet]:
    return tiny_training_set


@pytest.fixture(scope="session")
def small() -> Callable[..., FitOptions]:
    return small_options
