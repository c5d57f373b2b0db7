"""A web server that can misbehave, and a cache of its own for every test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from web_server import Server


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
