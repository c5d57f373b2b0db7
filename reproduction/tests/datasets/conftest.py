"""A web server that can misbehave, a cache of its own for every test, and the real data where they are at hand."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from web_server import Server

REAL = os.environ.get("PRERANK_DATA", "")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real datasets; set PRERANK_DATA to run the tests that need it."""
    if not REAL or not Path(REAL).is_dir():
        pytest.skip("needs the real datasets: set PRERANK_DATA to a folder with cleaned Parquet files and raw/")
    return Path(REAL)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the user's data, cache or proxy."""
    monkeypatch.delenv("PRERANK_DATA", raising=False)
    monkeypatch.setenv("PRERANK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    return tmp_path / "cache"


@pytest.fixture
def server() -> Iterator[Server]:
    """A local web server for one test."""
    running = Server()
    yield running
    running.close()
