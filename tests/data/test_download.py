"""A destination holds the verified file or does not exist, whatever the server, the disk and the neighbours do."""

import hashlib
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

import prerank.datasets
from prerank.datasets.download import GitBlob, Policy, download, locked
from prerank.io import DownloadError, IntegrityError, StorageError
from web_server import Server, send, serve

BODY = bytes(range(256)) * 1024
QUICK = Policy(timeout_s=2.0, attempts=3, backoff_s=0.01, schemes=frozenset({"http"}))


def blob(body: bytes) -> GitBlob:
    return GitBlob(hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest())


@pytest.fixture
def goal(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "file.csv"


def left_behind(goal: Path) -> list[str]:
    return sorted(path.name for path in goal.parent.iterdir())


def test_a_download_is_verified_and_leaves_nothing_else(server: Server, goal: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    download([server.url("/f", serve(BODY))], goal, blob(BODY), QUICK, lambda done, total: seen.append((done, total)))
    assert goal.read_bytes() == BODY
    assert left_behind(goal) == ["file.csv"]
    assert seen[0] == (0, len(BODY))
    assert seen[-1] == (len(BODY), len(BODY))


def test_nothing_is_downloaded_twice(server: Server, goal: Path) -> None:
    url = server.url("/f", serve(BODY))
    for _ in range(2):
        download([url], goal, blob(BODY), QUICK)
    assert server.asked["/f"] == 1


def test_a_broken_file_at_the_destination_is_replaced(server: Server, goal: Path) -> None:
    goal.parent.mkdir()
    goal.write_bytes(b"rotten")
    download([server.url("/f", serve(BODY))], goal, blob(BODY), QUICK)
    assert goal.read_bytes() == BODY


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_error_is_tried_again(server: Server, goal: Path, status: int) -> None:
    def answer(request: BaseHTTPRequestHandler, count: int) -> None:
        request.send_error(status) if count < 3 else send(request, BODY)

    download([server.url("/f", answer)], goal, blob(BODY), QUICK)
    assert goal.read_bytes() == BODY
    assert server.asked["/f"] == 3


def test_a_lasting_error_is_reported_and_not_tried_again(server: Server, goal: Path) -> None:
    with pytest.raises(DownloadError, match="HTTP 404"):
        download([server.base + "/none"], goal, blob(BODY), QUICK)
    assert server.asked["/none"] == 1
    assert left_behind(goal) == []


def test_attempts_run_out(server: Server, goal: Path) -> None:
    with pytest.raises(DownloadError, match=r"gave up after 3 attempts \(HTTP 500"):
        download([server.url("/f", lambda request, _: request.send_error(500))], goal, blob(BODY), QUICK)
    assert server.asked["/f"] == 3
    assert left_behind(goal) == []


def test_waits_double(server: Server, goal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    policy = Policy(attempts=4, backoff_s=1.0, schemes=QUICK.schemes)
    with pytest.raises(DownloadError):
        download([server.url("/f", lambda request, _: request.send_error(503))], goal, blob(BODY), policy)
    assert [wait for wait in waits if wait >= 1] == [1.0, 2.0, 4.0]


def test_the_second_address_serves_when_the_first_does_not(server: Server, goal: Path) -> None:
    download([server.base + "/none", server.url("/f", serve(BODY))], goal, blob(BODY), QUICK)
    assert goal.read_bytes() == BODY


def test_a_truncated_body_is_resumed_from_where_it_broke(server: Server, goal: Path) -> None:
    def answer(request: BaseHTTPRequestHandler, count: int) -> None:
        send(request, BODY[:100_000], claimed=len(BODY)) if count == 1 else serve(BODY)(request, count)

    download([server.url("/f", answer)], goal, blob(BODY), QUICK)
    assert goal.read_bytes() == BODY
    assert server.ranges == [None, "bytes=100000-"]
    assert left_behind(goal) == ["file.csv"]


def test_a_body_that_stays_truncated_is_kept_for_the_next_call_only_as_part(server: Server, goal: Path) -> None:
    def cut(request: BaseHTTPRequestHandler, count: int) -> None:
        send(request, BODY[:1000], claimed=len(BODY)) if count == 1 else request.send_error(503)

    url = server.url("/f", cut)
    with pytest.raises(DownloadError, match="1,000 bytes are kept"):
        download([url], goal, blob(BODY), QUICK)
    assert left_behind(goal) == ["file.csv.part"]
    server.answers["/f"] = serve(BODY)
    download([url], goal, blob(BODY), QUICK)
    assert server.ranges[-1] == "bytes=1000-"
    assert goal.read_bytes() == BODY


def test_a_server_that_ignores_ranges_is_read_from_the_start(server: Server, goal: Path) -> None:
    goal.parent.mkdir()
    goal.with_name("file.csv.part").write_bytes(BODY[:500])
    download([server.url("/f", lambda request, _: send(request, BODY))], goal, blob(BODY), QUICK)
    assert goal.read_bytes() == BODY


@pytest.mark.parametrize(
    "remains", [b"of another file", BODY + b"too long"], ids=["other bytes", "longer than the file"]
)
def test_remains_that_do_not_fit_are_thrown_away(server: Server, goal: Path, remains: bytes) -> None:
    goal.parent.mkdir()
    goal.with_name("file.csv.part").write_bytes(remains)
    download([server.url("/f", serve(BODY))], goal, blob(BODY), QUICK)
    assert goal.read_bytes() == BODY
    assert server.ranges[-1] is None


def test_a_wrong_digest_is_refused_and_leaves_nothing(server: Server, goal: Path) -> None:
    with pytest.raises(IntegrityError, match="another file than expected"):
        download([server.url("/f", serve(BODY + b"!"))], goal, blob(BODY), QUICK)
    assert left_behind(goal) == []
    assert server.asked["/f"] == 1


def test_a_truncated_body_without_a_length_fails_verification(server: Server, goal: Path) -> None:
    def answer(request: BaseHTTPRequestHandler, _: int) -> None:
        request.send_response(200)
        request.end_headers()
        request.wfile.write(BODY[:1000])

    with pytest.raises(IntegrityError):
        download([server.url("/f", answer)], goal, blob(BODY), QUICK)
    assert left_behind(goal) == []


def redirect(location: str):  # type: ignore[no-untyped-def]
    def answer(request: BaseHTTPRequestHandler, _: int) -> None:
        request.send_response(302)
        request.send_header("Location", location)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


def test_a_redirect_to_another_host_is_refused(server: Server, goal: Path) -> None:
    elsewhere = server.url("/f", serve(BODY)).replace("127.0.0.1", "localhost")
    url = server.url("/r", redirect(elsewhere))
    with pytest.raises(DownloadError, match="redirects to another host, localhost"):
        download([url], goal, blob(BODY), QUICK)
    assert server.asked["/f"] == 0
    assert left_behind(goal) == []
    allowed = Policy(schemes=QUICK.schemes, redirect_hosts=frozenset({"localhost"}))
    download([url], goal, blob(BODY), allowed)
    assert goal.read_bytes() == BODY


def test_a_redirect_within_the_host_is_followed(server: Server, goal: Path) -> None:
    server.answers["/f"] = serve(BODY)
    download([server.url("/r", redirect("/f"))], goal, blob(BODY), QUICK)
    assert goal.read_bytes() == BODY


@pytest.mark.parametrize("url", ["http://127.0.0.1/f", "file:///etc/hostname", "ftp://127.0.0.1/f"])
def test_only_https_by_default(goal: Path, url: str) -> None:
    with pytest.raises(DownloadError, match="only https is allowed"):
        download([url], goal, blob(BODY))


def test_a_file_above_the_limit_is_refused_from_its_header(server: Server, goal: Path) -> None:
    policy = Policy(max_bytes=1000, schemes=QUICK.schemes)
    with pytest.raises(DownloadError, match=r"262,144 bytes or more; the limit is 1,000"):
        download([server.url("/f", serve(BODY))], goal, blob(BODY), policy)
    assert left_behind(goal) == []


def test_a_file_above_the_limit_is_refused_while_it_arrives(server: Server, goal: Path) -> None:
    def endless(request: BaseHTTPRequestHandler, _: int) -> None:
        request.send_response(200)
        request.end_headers()
        try:
            while True:
                request.wfile.write(BODY)
        except OSError:
            pass

    with pytest.raises(DownloadError, match="the limit is 1,000,000"):
        download([server.url("/f", endless)], goal, blob(BODY), Policy(max_bytes=1_000_000, schemes=QUICK.schemes))
    assert left_behind(goal) == []


def test_a_silent_server_times_out(server: Server, goal: Path) -> None:
    policy = Policy(timeout_s=0.1, attempts=2, backoff_s=0.01, schemes=QUICK.schemes)
    with pytest.raises(DownloadError, match="timed out"):
        download([server.url("/f", lambda request, _: time.sleep(0.5))], goal, blob(BODY), policy)


def test_a_server_that_drips_is_left(server: Server, goal: Path) -> None:
    def drip(request: BaseHTTPRequestHandler, _: int) -> None:
        request.send_response(200)
        request.end_headers()
        try:
            for _ in range(100):
                request.wfile.write(b".")
                time.sleep(0.02)
        except OSError:
            pass

    policy = Policy(total_timeout_s=0.2, schemes=QUICK.schemes)
    with pytest.raises(DownloadError, match=r"not finished after 0.2 s"):
        download([server.url("/f", drip)], goal, blob(BODY), policy)


def test_nobody_listens(goal: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(DownloadError, match="refused"):
        download([f"http://127.0.0.1:{port}/f"], goal, blob(BODY), QUICK)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_a_full_disk_is_named_and_leaves_nothing(server: Server, goal: Path) -> None:
    goal.parent.mkdir()
    goal.with_name("file.csv.part").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"No space left in .* set PRERANK_CACHE"):
        download([server.url("/f", serve(BODY))], goal, blob(BODY), QUICK)
    assert left_behind(goal) == []


def test_a_cache_that_cannot_be_written_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="cannot be written"):
        download([server.url("/f", serve(BODY))], tmp_path / "file" / "goal", blob(BODY), QUICK)


# The packages' own imports (torch, scipy, ...) take seconds and play no part: only their folders are needed here.
_FETCH = """
import sys, types
from pathlib import Path
for name, folder in zip(("prerank", "prerank.datasets"), sys.argv[4:]):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from prerank.datasets.download import GitBlob
from prerank.datasets.download import download, Policy
download([sys.argv[1]], Path(sys.argv[2]), GitBlob(sys.argv[3]), Policy(schemes=frozenset({"http"})))
"""


@pytest.mark.slow
def test_two_processes_fetching_at_once_download_once(server: Server, goal: Path) -> None:
    def slow(request: BaseHTTPRequestHandler, _: int) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(BODY)))
        request.end_headers()
        for start in range(0, len(BODY), len(BODY) // 8):
            request.wfile.write(BODY[start : start + len(BODY) // 8])
            time.sleep(0.25)

    url = server.url("/f", slow)
    folder = Path(prerank.datasets.__file__).parent
    command = [sys.executable, "-c", _FETCH, url, str(goal), blob(BODY).expected, str(folder.parent), str(folder)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    assert goal.read_bytes() == BODY
    assert left_behind(goal) == ["file.csv"]
    assert server.asked["/f"] == 1


def test_a_lock_that_is_never_released_is_reported(tmp_path: Path) -> None:
    second = locked(tmp_path / "a.lock", 0.1)
    with locked(tmp_path / "a.lock", 1.0), pytest.raises(StorageError, match=r"held .*a\.lock for 0.1 s"), second:
        pass
    assert list(tmp_path.glob("*.lock")) == []


def test_a_lock_of_a_process_that_died_is_free(tmp_path: Path) -> None:
    (tmp_path / "a.lock").touch()
    with locked(tmp_path / "a.lock", 0.5):
        pass
