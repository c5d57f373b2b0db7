"""A file from the web, verified before anyone sees it.

What is promised: the destination either holds the verified file or does not exist. Bytes arrive in `DESTINATION.part`,
which survives a broken connection so that the next attempt resumes, and is discarded on a wrong digest, on a body
above the size limit and on a full disk. A lock lets one process at a time fetch; the others find the result.
"""

import errno
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from prerank._progress import Tell, silent
from prerank.datasets.digest import Digest, matches, verify
from prerank.datasets.lock import locked
from prerank.io.errors import DownloadError, IntegrityError, StorageError

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
