"""Where a dataset is: the folder in PRERANK_DATA, the user's cache, or upstream.

`PRERANK_DATA` names a folder of local data (see `prerank_paper.datasets.mirror`). The cache is `PRERANK_CACHE`, or the
platform's cache folder. Upstream is reached over HTTPS only.
"""

from dataclasses import dataclass
from pathlib import Path

from prerank._progress import progress_bar, silent
from prerank.datasets.download import GITHUB, GitBlob, Upstream, cache_folder, data_folder, download, matches
from prerank.io import DataError, DownloadError, IntegrityError
from prerank_paper.datasets.catalogue import PAPER_DATASETS, Copy, Dataset
from prerank_paper.datasets.mirror import MirrorEntry, entries, raw_file


@dataclass(frozen=True)
class CleanedHere:
    """A cleaned Parquet file in PRERANK_DATA."""

    entry: MirrorEntry


@dataclass(frozen=True)
class RawHere:
    """Upstream's file in PRERANK_DATA, not verified yet."""

    path: Path


@dataclass(frozen=True)
class Cached:
    """Upstream's file in the cache, not verified yet."""

    path: Path
    blob: GitBlob


@dataclass(frozen=True)
class Elsewhere:
    """Only upstream has it."""


DatasetSource = CleanedHere | RawHere | Cached | Elsewhere


def locate(dataset: Dataset) -> DatasetSource:
    """The first place that has the dataset, without opening it."""
    folder = data_folder()
    if folder is not None:
        entry = entries(folder).get(dataset.name)
        if entry is not None:
            return CleanedHere(entry)
        raw = raw_file(folder, dataset)
        if raw is not None:
            return RawHere(raw)
    for copy in dataset.copies:
        path = cached_path(dataset, copy)
        if path.is_file():
            return Cached(path, copy.blob)
    return Elsewhere()


def available_locally(accept_licence: bool) -> tuple[str, ...]:
    """The paper's datasets that need no download, smallest first, without those whose agreement is not accepted."""
    found = [
        entry
        for entry in PAPER_DATASETS
        if not isinstance(locate(entry), Elsewhere) and (accept_licence or not entry.agreement)
    ]
    if not found:
        raise DataError(
            "none of the paper's datasets is available locally: set PRERANK_DATA, run `prerank-paper datasets fetch "
            "NAME`, name some with --datasets (they are downloaded), or try --quick"
        )
    return tuple(entry.name for entry in sorted(found, key=lambda entry: entry.n_rows))


def cached_path(dataset: Dataset, copy: Copy) -> Path:
    """Where a copy is kept in the cache; its blob id is part of the name, so another version never shadows it."""
    stem, _, suffix = dataset.file_name.rpartition(".")
    return cache_folder() / "datasets" / f"{stem}-{copy.blob.expected[:12]}.{suffix}"


def fetch_to_cache(dataset: Dataset, upstream: Upstream = GITHUB) -> Cached:
    """Bring upstream's file to the cache, verified, unless it is there already."""
    for copy in dataset.copies:
        path = cached_path(dataset, copy)
        if matches(path, copy.blob):
            return Cached(path, copy.blob)
    failures: list[DataError] = []
    with progress_bar(dataset.name, "bytes") as progress:
        for blob in dict.fromkeys(copy.blob for copy in dataset.copies):  # one destination per content
            same = [copy for copy in dataset.copies if copy.blob == blob]
            urls = [f"{upstream.base}/{copy.address}" for copy in same]
            try:
                return Cached(
                    download(urls, cached_path(dataset, same[0]), blob, upstream.policy, progress or silent), blob
                )
            except (DownloadError, IntegrityError) as error:
                failures.append(error)
    wrong = all(isinstance(failure, IntegrityError) for failure in failures)
    raise (IntegrityError if wrong else DownloadError)(
        f"{dataset.name!r} could not be downloaded. {' '.join(map(str, failures))} "
        f"If you have the file, put {dataset.file_name} in a folder and set PRERANK_DATA to it."
    )
