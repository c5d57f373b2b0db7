"""A web server that can misbehave."""

import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def url(self, path: str, answer: Answer) -> str:
        self.answers[path] = answer
        return self.base + path


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
