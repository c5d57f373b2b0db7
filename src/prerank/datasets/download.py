"""A file from the web, verified before anyone sees it.

What is promised: the destination either holds the verified file or does not exist. Bytes arrive in `DESTINATION.part`,
which survives a broken connection so that the next attempt resumes, and is discarded on a wrong digest, on a body
above the size limit and on a full disk. A lock lets one process at a time fetch; the others find the result.
"""

import errno
import hashlib
import http.client
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import urlsplit

from prerank._progress import Tell, silent
from prerank._reading import require_regular
from prerank.io.errors import DataError, DownloadError, IntegrityError, StorageError


def data_folder() -> Path | None:
    """The folder in PRERANK_DATA, or None where the variable is not set."""
    value = os.environ.get("PRERANK_DATA", "")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise DataError(f"PRERANK_DATA is {value!r}, which is not a folder; correct it or unset it.")
    return folder


def cache_folder() -> Path:
    """Where downloads are kept: PRERANK_CACHE, or `prerank` in the platform's cache folder."""
    if value := os.environ.get("PRERANK_CACHE"):
        return Path(value).expanduser()
    if value := os.environ.get("XDG_CACHE_HOME"):
        return Path(value).expanduser() / "prerank"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "prerank"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "prerank" / "Cache"
    return Path.home() / ".cache" / "prerank"


_CHUNK = 1 << 20


class Digest(Protocol):
    """What a file's content must hash to."""

    @property
    def expected(self) -> str:
        """The digest, in hexadecimal."""

    def of(self, path: Path) -> str:
        """The digest of a file on disk."""


@dataclass(frozen=True)
class GitBlob:
    """The id git gives to a file: SHA-1 over `blob <size>`, a zero byte and the content."""

    expected: str

    def of(self, path: Path) -> str:
        """The blob id of a file on disk."""
        return _hash(path, hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False))


@dataclass(frozen=True)
class Sha256:
    """The SHA-256 of the content."""

    expected: str

    def of(self, path: Path) -> str:
        """The SHA-256 of a file on disk."""
        return _hash(path, hashlib.sha256())


def matches(path: Path, digest: Digest) -> bool:
    """Whether a file exists and has the expected digest."""
    return path.is_file() and digest.of(path) == digest.expected


def verify(path: Path, digest: Digest) -> None:
    """Refuse a file whose digest is not the expected one.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "hello"
    >>> _ = path.write_bytes(b"hello\\n")
    >>> verify(path, GitBlob("ce013625030ba8dba906f756967f9e9ca394464a"))
    """
    try:
        found = digest.of(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    if found != digest.expected:
        kind = type(digest).__name__
        raise IntegrityError(
            f"{path} is not the expected file: its {kind} is {found}, {digest.expected} was expected "
            f"({path.stat().st_size:,} bytes). It was not used; replace or remove it."
        )


def _hash(path: Path, state: "hashlib._Hash") -> str:
    require_regular(path, DataError)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            state.update(chunk)
    return state.hexdigest()


_POLL_S = 0.05


@contextmanager
def locked(path: Path, timeout_s: float) -> Iterator[None]:
    """Hold the lock `path`, waiting for another holder for at most `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while (handle := _try(path)) is None:
        if time.monotonic() > deadline:
            raise StorageError(
                f"Another process has held {path} for {timeout_s:g} s. Wait for it to finish, or end it, and try again."
            )
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        # removed while still held, so that nobody can take a lock on a file that is about to vanish unnoticed
        with suppress(OSError):
            path.unlink()
        os.close(handle)


def _try(path: Path) -> int | None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _lock(handle)
        if os.name == "nt" or os.fstat(handle).st_ino == path.stat().st_ino:
            return handle
    except OSError:  # held by another, or removed by its last holder between our open and our lock
        pass
    os.close(handle)
    return None


if os.name == "nt":  # pragma: no cover

    def _lock(handle: int) -> None:
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]

else:

    def _lock(handle: int) -> None:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


_CHUNK = 1 << 16
_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True)
class Policy:
    """How far a download may go.

    A redirect to another host is refused unless that host is in `redirect_hosts`. `timeout_s` is the longest silence of
    the server, `total_timeout_s` the longest transfer. Waits between attempts double, starting from `backoff_s`.
    """

    max_bytes: int = 256 * 2**20
    timeout_s: float = 30.0
    total_timeout_s: float = 900.0
    attempts: int = 5
    backoff_s: float = 1.0
    schemes: frozenset[str] = frozenset({"https"})
    redirect_hosts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Upstream:
    """A server of public repositories: `BASE/owner/repository/commit/path`, and how far to go with it."""

    base: str = "https://raw.githubusercontent.com"
    policy: Policy = field(default_factory=Policy)


GITHUB = Upstream(policy=Policy(redirect_hosts=frozenset({"media.githubusercontent.com"})))
"""Where files of public repositories are. GitHub may answer from its large-file host, and from no other."""


class _Passing(Exception):
    """A failure that may not happen again."""


class _TooLarge(DownloadError):
    """More bytes than the policy allows."""


def download(
    urls: Sequence[str], destination: Path, digest: Digest, policy: Policy | None = None, progress: Tell = silent
) -> Path:
    """Bring a file from the first of `urls` that serves it, verified, to `destination`."""
    policy = policy or Policy()
    part = destination.with_name(destination.name + ".part")
    failures: list[DownloadError | IntegrityError] = []
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with locked(destination.with_name(destination.name + ".lock"), policy.total_timeout_s):
            if matches(destination, digest):
                return destination
            destination.unlink(missing_ok=True)
            for url in urls:
                try:
                    _fetch(url, part, digest, policy, progress)
                    os.replace(part, destination)
                    return destination
                except (DownloadError, IntegrityError) as error:
                    failures.append(error)
    except OSError as error:
        raise _storage_error(error, part) from error
    wrong = all(isinstance(failure, IntegrityError) for failure in failures)
    raise (IntegrityError if wrong else DownloadError)(" ".join(map(str, failures)) or "No address was given.")


def _fetch(url: str, part: Path, digest: Digest, policy: Policy, progress: Tell) -> None:
    """Fill `part` and verify it, or raise; after an IntegrityError there is no `part`."""
    reason = "?"
    for attempt in range(policy.attempts):
        if attempt:
            time.sleep(policy.backoff_s * 2 ** (attempt - 1))
        resumed = part.exists() and part.stat().st_size > 0
        try:
            _transfer(url, part, policy, progress)
            verify(part, digest)
            return
        except IntegrityError:
            size = part.stat().st_size
            part.unlink(missing_ok=True)
            if not resumed:
                raise IntegrityError(
                    f"{url} served another file than expected ({size:,} bytes, {type(digest).__name__} is not "
                    f"{digest.expected}); it was discarded."
                ) from None
            reason = "what was left of an earlier download did not fit"  # so the next attempt starts afresh
        except _Passing as failure:
            reason = str(failure)
    kept = f" {part.stat().st_size:,} bytes are kept and will be resumed." if part.exists() else ""
    raise DownloadError(f"{url}: gave up after {policy.attempts} attempts ({reason}).{kept}")


def _transfer(url: str, part: Path, policy: Policy, progress: Tell) -> None:
    """One attempt: append what is missing to `part`."""
    have = part.stat().st_size if part.exists() else 0
    try:
        with _open(url, have, policy) as response:
            if have and not _continues(response, have):
                have = 0
            length = response.headers.get("Content-Length", "")
            total = have + int(length) if length.isdigit() else None
            if total is not None:
                _check_size(url, total, policy)
            have = _copy(response, part, have, total, url, policy, progress)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # nothing after what we have: the remains belong to another file
            part.unlink(missing_ok=True)
            raise _Passing("the remains of an earlier download did not fit") from None
        if error.code in _RETRIED_STATUS:
            raise _Passing(f"HTTP {error.code} {error.reason}") from None
        raise DownloadError(f"{url}: HTTP {error.code} {error.reason}.") from None
    except urllib.error.URLError as error:
        raise _Passing(str(error.reason)) from None
    except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
        raise _Passing(str(error) or type(error).__name__) from None
    except _TooLarge:
        part.unlink(missing_ok=True)
        raise
    if total is not None and have < total:
        raise _Passing(f"the body ended after {have:,} of {total:,} bytes")


def _copy(
    response: http.client.HTTPResponse,
    part: Path,
    have: int,
    total: int | None,
    url: str,
    policy: Policy,
    progress: Tell,
) -> int:
    deadline = time.monotonic() + policy.total_timeout_s
    with part.open("ab" if have else "wb") as file:
        progress(have, total)
        while chunk := _read(response):
            have += len(chunk)
            _check_size(url, have, policy)
            if time.monotonic() > deadline:
                raise DownloadError(f"{url}: not finished after {policy.total_timeout_s:g} s, {have:,} bytes came.")
            file.write(chunk)
            progress(have, total)
        file.flush()
        os.fsync(file.fileno())
    return have


def _read(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_CHUNK)
    except OSError as error:  # told apart here from the OSError of a full disk
        raise _Passing(str(error) or type(error).__name__) from None


def _open(url: str, offset: int, policy: Policy) -> http.client.HTTPResponse:
    _check_scheme(url, policy)
    headers = {"User-Agent": "prerank", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    opener = urllib.request.build_opener(_Redirects(urlsplit(url).hostname, policy))
    response: http.client.HTTPResponse = opener.open(
        urllib.request.Request(url, headers=headers), timeout=policy.timeout_s
    )
    return response


def _continues(response: http.client.HTTPResponse, offset: int) -> bool:
    # a server may ignore the range and send the whole file, or, worse, another range
    return response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, host: str | None, policy: Policy) -> None:
        self.host, self.policy = host, policy

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        _check_scheme(newurl, self.policy)
        host = urlsplit(newurl).hostname
        if host != self.host and host not in self.policy.redirect_hosts:
            raise DownloadError(
                f"{req.full_url} redirects to another host, {host}, which is not among the allowed ones "
                f"({', '.join(sorted(self.policy.redirect_hosts)) or 'none'}); refused."
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def _check_scheme(url: str, policy: Policy) -> None:
    scheme = urlsplit(url).scheme
    if scheme not in policy.schemes:
        raise DownloadError(f"{url}: only {', '.join(sorted(policy.schemes))} is allowed, not {scheme or 'no scheme'}.")


def _check_size(url: str, size: int, policy: Policy) -> None:
    if size > policy.max_bytes:
        raise _TooLarge(f"{url} has {size:,} bytes or more; the limit is {policy.max_bytes:,}. Nothing was kept.")


def _storage_error(error: OSError, part: Path) -> StorageError:
    if error.errno in _FULL:
        part.unlink(missing_ok=True)
        return StorageError(
            f"No space left in {part.parent}; the unfinished download was removed. "
            "Free some space, or set PRERANK_CACHE to a folder on another disk."
        )
    return StorageError(
        f"{error.filename or part.parent} cannot be written: {error.strerror or error}. "
        "Set PRERANK_CACHE to a folder you can write to."
    )
