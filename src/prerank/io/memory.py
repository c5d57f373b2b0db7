"""A small file may hold more numbers than there is memory for: asked before it is unpacked."""

import os
from pathlib import Path

from prerank.io.errors import DataError


def available() -> int | None:
    """Bytes of memory that this machine has, None where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # pragma: no cover - not on Unix
        return None


def refuse_beyond_memory(path: Path, n_bytes: int) -> None:
    """Refuse a file whose content takes more memory than the machine has."""
    there = available()
    if there is not None and n_bytes > there:
        raise DataError(
            f"{path} cannot be read: its content takes {_size(n_bytes)}, more than the {_size(there)} of memory here; "
            "give fewer cases, or a Zarr store, which is read in chunks"
        )


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:,.3g} GB"
