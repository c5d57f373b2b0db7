"""One process at a time: an advisory lock on a file, released by the system if its holder dies."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prerank.io.errors import StorageError

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
