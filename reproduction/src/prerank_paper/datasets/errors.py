"""What can go wrong with a dataset of the paper, beside what `prerank.io` names; all are a `DataError`."""

from prerank.io import DataError


class LicenceError(DataError):
    """A dataset asks every user to accept an agreement, and it was not accepted."""


class NotLocalError(DataError):
    """The dataset is neither in PRERANK_DATA nor in the cache, and downloading was not allowed."""
