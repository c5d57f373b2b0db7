"""`load(name)`, `load_file(path, targets)` and `fetch(name)`: from a name or a file to a table."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from prerank.datasets import Card, Table
from prerank.datasets.download import GitBlob, verify
from prerank.io import DataError, IntegrityError
from prerank.io.formats import Format, format_of
from prerank_paper.datasets import builtin
from prerank_paper.datasets.catalogue import PAPER_DATASETS, Dataset, dataset
from prerank_paper.datasets.cleaning import Cleaned, clean
from prerank_paper.datasets.errors import LicenceError, NotLocalError
from prerank_paper.datasets.mirror import MirrorEntry, entries, read_cleaned
from prerank_paper.datasets.selection import NamedColumns, Selection, select
from prerank_paper.datasets.sources import (
    GITHUB,
    Cached,
    CleanedHere,
    RawHere,
    Upstream,
    data_folder,
    fetch_to_cache,
    locate,
)


def load(
    name: str,
    *,
    accept_licence: bool = False,
    download: bool = True,
    dtype: DTypeLike = np.float32,
    upstream: Upstream = GITHUB,
) -> Table:
    """The dataset of a name, cleaned by the paper's rules, rows in the order of the source.

    It comes from the folder in PRERANK_DATA, else from the cache, else from upstream, verified each time.

    Parameters
    ----------
    name : str
        Name of a dataset; an unknown name is refused with the list of them.
    accept_licence : bool, default False
        True says that you accept the agreement of a dataset that has one (the three MEPS panels).
    download : bool, default True
        Whether upstream may be asked.
    dtype : dtype_like, default numpy.float32
        Floating type; the conversion is the last step.
    upstream : Upstream, default GitHub
        Which server to ask, and how far to go.

    Returns
    -------
    Table
        Features, targets and a card.

    Raises
    ------
    DataError
        `LicenceError`, `NotLocalError`, `DownloadError`, `IntegrityError` or `StorageError` say what went wrong.

    See Also
    --------
    load_file : a file of your own
    fetch : download only

    Examples
    --------
    >>> load("diabetes")
    Table 'diabetes': 442 cases, 4 features, 6 targets (total_cholesterol, ldl, hdl, cholesterol_ratio, ...)
    """
    if name in builtin.BUILTIN:
        return builtin.BUILTIN[name].table().astype(dtype)
    for entry in extra_datasets():
        if entry.name == name:
            return _from_mirror(entry, None, dtype)
    chosen = _known(name)
    require_acceptance(chosen, accept_licence)
    location = locate(chosen)
    if isinstance(location, CleanedHere):
        return _from_mirror(location.entry, chosen, dtype)
    if isinstance(location, RawHere):
        verify(location.path, _blob_of(location.path, chosen))
        return _from_raw(location.path, chosen, "PRERANK_DATA, upstream's file", dtype)
    if isinstance(location, Cached):
        try:
            verify(location.path, location.blob)
            return _from_raw(location.path, chosen, "cache", dtype)
        except IntegrityError:
            location.path.unlink(missing_ok=True)
    if not download:
        raise NotLocalError(
            f"{name!r} is neither in PRERANK_DATA nor in the cache. Allow the download (download=True), "
            f"or run `prerank-paper datasets fetch {name}` first."
        )
    return _from_raw(fetch_to_cache(chosen, upstream).path, chosen, "upstream, now in the cache", dtype)


def load_file(
    path: str | os.PathLike[str],
    targets: Sequence[str],
    *,
    drop: Sequence[str] = (),
    file_format: Format | None = None,
    dtype: DTypeLike = np.float32,
) -> Table:
    r"""Your own CSV, ARFF, Parquet or Feather file, cleaned by the same rules; every other column is a feature.

    Parameters
    ----------
    path : str or path-like
        The file.
    targets : sequence of str
        Columns that are targets.
    drop : sequence of str, default ()
        Columns that are left out.
    file_format : Format, optional
        How the file is read, such as `Csv(header=False, delimiter=";")`; by its suffix if None.
    dtype : dtype_like, default numpy.float32
        Floating type of the table.

    Returns
    -------
    Table
        Features, targets and a card.

    Raises
    ------
    DataError
        If a column is missing, or holds what is no number.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "rivers.csv"
    >>> _ = path.write_text("rain,level,flow\n" + "\n".join(f"{i},{i / 2},{i * i}" for i in range(20)))
    >>> load_file(path, targets=["level", "flow"])
    Table 'rivers': 20 cases, 1 feature, 2 targets (level, flow)
    """
    path = Path(path)
    if isinstance(targets, str):
        raise DataError(f"targets is a list of names; write targets=[{targets!r}].")
    raw = (file_format or format_of(path)).read(path)
    cleaned = clean(*select(raw, Selection(NamedColumns(tuple(targets)), drop=tuple(drop))))
    card = Card(path.stem, origin=str(path), status="your own file", cleaning=cleaned.log)
    return to_table(cleaned, card, dtype)


def fetch(name: str, *, accept_licence: bool = False, upstream: Upstream = GITHUB) -> Path:
    """Bring a dataset's file to the cache, verified; nothing is downloaded twice.

    Parameters
    ----------
    name : str
        Name of one of the paper's datasets.
    accept_licence : bool, default False
        True says that you accept the agreement of a dataset that has one.
    upstream : Upstream, default GitHub
        Which server to ask, and how far to go.

    Returns
    -------
    pathlib.Path
        Where the file is.

    Raises
    ------
    DataError
        If there is nothing to fetch, or it cannot be had.
    """
    if name in builtin.BUILTIN:
        raise DataError(f"{name!r} is built in: there is nothing to fetch; load it.")
    chosen = _known(name)
    require_acceptance(chosen, accept_licence)
    return fetch_to_cache(chosen, upstream).path


def extra_datasets() -> list[MirrorEntry]:
    """What the folder in PRERANK_DATA holds beyond the paper's datasets; `load` knows these by name too."""
    folder = data_folder()
    paper = {chosen.name for chosen in PAPER_DATASETS}
    return [] if folder is None else [entry for name, entry in entries(folder).items() if name not in paper]


def require_acceptance(chosen: Dataset, accepted: bool) -> None:
    """Refuse a dataset whose agreement has not been accepted."""
    if chosen.agreement and not accepted:
        raise LicenceError(
            f"{chosen.name!r} may be used only by those who accept {chosen.agreement}. If you accept it, pass "
            "accept_licence=True (on the command line: --accept-licence)."
        )


def read_raw(path: Path, chosen: Dataset) -> Cleaned:
    """Upstream's file, read and cleaned, still in the source's numeric types."""
    return clean(*select(chosen.format.read(path), chosen.selection))


def to_table(cleaned: Cleaned, card: Card, dtype: DTypeLike = np.float32) -> Table:
    """The cleaned columns as arrays of one floating type."""
    x, y = _array(cleaned.features, dtype), _array(cleaned.targets, dtype)
    return Table(x, y, tuple(cleaned.features.column_names), tuple(cleaned.targets.column_names), card)


def _array(columns: pa.Table, dtype: DTypeLike) -> NDArray[np.floating]:
    array = np.empty((columns.num_rows, columns.num_columns), dtype=dtype)
    for position, name in enumerate(columns.column_names):
        with np.errstate(over="ignore"):
            array[:, position] = columns[name].to_numpy()
        if not np.isfinite(array[:, position]).all():
            raise DataError(f"Column {name!r} holds values missing or too large for {array.dtype}; try dtype=float64.")
    return array


def _known(name: str) -> Dataset:
    try:
        return dataset(name)
    except DataError:
        known = ", ".join([entry.name for entry in PAPER_DATASETS] + list(builtin.BUILTIN))
        raise DataError(
            f"There is no dataset {name!r}. Known are {known}. For a file of yours use load_file."
        ) from None


def _blob_of(path: Path, chosen: Dataset) -> GitBlob:
    """The blob id a raw file must have: that of the copy it equals, else the catalogue's own."""
    usual = chosen.copies[0].blob
    found = usual.of(path)
    return next((copy.blob for copy in chosen.copies if copy.blob.expected == found), usual)


def _from_mirror(entry: MirrorEntry, chosen: Dataset | None, dtype: DTypeLike) -> Table:
    card = Card(
        name=entry.name,
        summary=chosen.summary if chosen else "",
        origin="PRERANK_DATA, cleaned Parquet",
        status=entry.status,
        licence=entry.licence,
        rows_in_paper=entry.rows_in_paper,
        notes=(entry.notes,) if entry.notes else (),
    )
    return to_table(read_cleaned(entry), card, dtype)


def _from_raw(path: Path, chosen: Dataset, origin: str, dtype: DTypeLike) -> Table:
    cleaned = read_raw(path, chosen)
    card = Card(
        name=chosen.name,
        summary=chosen.summary,
        origin=origin,
        licence=chosen.licence,
        rows_in_paper=chosen.n_rows,
        cleaning=cleaned.log,
    )
    table = to_table(cleaned, card, dtype)
    found, paper = (*table.x.shape, table.n_targets), (chosen.n_rows, chosen.n_features, chosen.n_targets)
    if found != paper:
        about = " (its number of rows was inferred)" if chosen.n_rows_inferred else ""
        note = f"rows, features and targets are {found}; the paper has {paper}{about}"
        return replace(table, card=replace(card, notes=(note,)))
    return table
