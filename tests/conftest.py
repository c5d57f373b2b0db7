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


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--fast`: one set of parameters for every test, and none that is marked slow."""
    parser.addoption("--fast", action="store_true", help="one set of parameters for every test, without slow ones")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what `--fast` asks for."""
    if not config.getoption("--fast"):
        return
    first: dict[tuple[str, str], pytest.Item] = {}
    for item in items:
        name = getattr(item, "originalname", None) or item.name
        owner = item.parent.nodeid if item.parent is not None else ""
        if item.get_closest_marker("slow") is None:
            first.setdefault((owner, name), item)
    kept = {id(item) for item in first.values()}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = [item for item in items if id(item) in kept]
