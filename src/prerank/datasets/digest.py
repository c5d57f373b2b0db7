"""Is this file the file that was meant? By git blob id or by SHA-256."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from prerank._reading import require_regular
from prerank.io.errors import DataError, IntegrityError

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
