"""What can go wrong with data, and nothing else: every error of `prerank.io` and `prerank.datasets` is a `DataError`."""

from collections.abc import Iterable


class DataError(ValueError):
    """The data cannot be used as they are; the message says why and what to do."""


class IntegrityError(DataError):
    """A file is not the one that was asked for: its digest differs."""


class DownloadError(DataError):
    """A file could not be had from upstream."""


class StorageError(DataError):
    """The cache could not be written: the disk is full, the folder is read-only or locked."""


def by_option(name: str) -> str:
    """How a name is given, in the command line and in Python.

    >>> by_option("lead_units")
    'with --lead-units (lead_units= in Python)'
    """
    return f"with --{name.replace('_', '-')} ({name}= in Python)"


def listed(names: Iterable[object], most: int = 12) -> str:
    """Names in quotes, as many as fit in a line.

    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    every = [repr(name) for name in names]
    if not every:
        return "none"
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")
