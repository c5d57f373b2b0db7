"""What can go wrong with data, and nothing else: every error of `prerank.io` and `prerank.datasets` is a `DataError`."""


class DataError(ValueError):
    """The data cannot be used as they are; the message says why and what to do."""


class IntegrityError(DataError):
    """A file is not the one that was asked for: its digest differs."""


class DownloadError(DataError):
    """A file could not be had from upstream."""


class StorageError(DataError):
    """The cache could not be written: the disk is full, the folder is read-only or locked."""
