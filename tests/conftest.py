"""What several folders of tests share: golden values of other software, and the benchmark scripts as modules."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from scripts import load_script

# Tests run in two processes; two threads in each would spend their time waiting for one another.
torch.set_num_threads(int(os.environ.get("PRERANK_TEST_THREADS", "1")))

_ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Any]:
    """Arrays (name.npz) or records (name.json) of tests/golden."""

    def load(name: str) -> Any:
        path = _ROOT / "tests" / "golden" / name
        if path.suffix == ".json":
            return json.loads(path.read_text())
        with np.load(path) as arrays:
            return {key: arrays[key] for key in arrays.files}

    return load


@pytest.fixture(scope="session")
def benchmark_script() -> Callable[[str], ModuleType]:
    """A script of benchmarks/ as a module, by its name."""
    return lambda name: load_script(_ROOT / "benchmarks" / f"{name}.py")
