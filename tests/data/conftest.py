"""A web server that can misbehave, a cache of its own for every test, and the real data where they are at hand."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

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


Answer = Callable[[BaseHTTPRequestHandler, int], None]


class Server:
    """Answers each path with a function of the request and of how often the path was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: Counter[str] = Counter()
        self.ranges: list[str | None] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.asked[self.path] += 1
                owner.ranges.append(self.headers.get("Range"))
                answer = owner.answers.get(self.path)
                if answer is None:
                    self.send_error(404)
                else:
                    answer(self, owner.asked[self.path])

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def url(self, path: str, answer: Answer) -> str:
        self.answers[path] = answer
        return self.base + path


@pytest.fixture
def server() -> Iterator[Server]:
    """A local web server for one test."""
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


def send(request: BaseHTTPRequestHandler, body: bytes, claimed: int | None = None, status: int = 200) -> None:
    """Answer with a body, and a Content-Length that may promise more."""
    request.send_response(status)
    request.send_header("Content-Length", str(len(body) if claimed is None else claimed))
    request.end_headers()
    request.wfile.write(body)


def serve(body: bytes) -> Answer:
    """An honest server that understands ranges."""

    def answer(request: BaseHTTPRequestHandler, _: int) -> None:
        wanted = request.headers.get("Range")
        if wanted is None:
            return send(request, body)
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if start >= len(body):
            return request.send_error(416)
        request.send_response(206)
        request.send_header("Content-Length", str(len(body) - start))
        request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        request.end_headers()
        request.wfile.write(body[start:])
        return None

    return answer
