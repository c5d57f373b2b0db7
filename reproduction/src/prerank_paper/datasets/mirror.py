"""A folder with local data: cleaned Parquet files described by a manifest, or upstream's raw files.

The manifest is a JSON object whose `datasets` maps a name to its `file`, `sha256`, `status`, `n_rows`, `n_features`,
`n_targets`, `licence` and `notes`. In the Parquet files features are the columns `x:NAME`, targets `y:NAME`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from prerank.datasets.download import Sha256, verify
from prerank.io import DataError
from prerank.io.formats import Parquet
from prerank_paper.datasets.catalogue import Dataset
from prerank_paper.datasets.cleaning import Cleaned

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class MirrorEntry:
    """What the manifest says of one dataset."""

    name: str
    path: Path
    sha256: str
    status: str
    n_rows: int
    n_features: int
    n_targets: int
    rows_in_paper: int | None = None
    licence: str = ""
    notes: str = ""


def entries(folder: Path) -> dict[str, MirrorEntry]:
    """The datasets the folder's manifest describes and whose files are there; none without a manifest."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        described: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["datasets"]
        found = {name: _entry(folder, name, fields) for name, fields in described.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not a manifest of datasets: {type(error).__name__} {error}.") from error
    return {name: entry for name, entry in found.items() if entry.path.is_file()}


def _entry(folder: Path, name: str, fields: dict[str, Any]) -> MirrorEntry:
    file = str(fields["file"])
    if Path(file).name != file:
        raise ValueError(f"{name}: {file!r} is not the name of a file in the same folder")
    paper = fields.get("n_rows_in_paper")
    return MirrorEntry(
        name=name,
        path=folder / file,
        sha256=str(fields["sha256"]),
        status=str(fields.get("status", "exact")),
        n_rows=int(fields["n_rows"]),
        n_features=int(fields["n_features"]),
        n_targets=int(fields["n_targets"]),
        rows_in_paper=None if paper is None else int(paper),
        licence=str(fields.get("licence", "")),
        notes=str(fields.get("notes", "")),
    )


def raw_file(folder: Path, dataset: Dataset) -> Path | None:
    """Where upstream's file of a dataset lies in the folder, in `raw/`, or under upstream's own path."""
    for candidate in (dataset.path, f"raw/{dataset.file_name}", dataset.file_name):
        if (folder / candidate).is_file():
            return folder / candidate
    return None


def read_cleaned(entry: MirrorEntry) -> Cleaned:
    """A verified Parquet file of the mirror, features and targets told apart by their prefix."""
    verify(entry.path, Sha256(entry.sha256))
    table = Parquet().read(entry.path)
    features, targets = _with_prefix(table, "x:"), _with_prefix(table, "y:")
    found = (table.num_rows, features.num_columns, targets.num_columns)
    promised = (entry.n_rows, entry.n_features, entry.n_targets)
    if found != promised or sum(found[1:]) != table.num_columns:
        raise DataError(f"{entry.path} holds (rows, features, targets) = {found}; its manifest says {promised}.")
    return Cleaned(features, targets, ())


def _with_prefix(table: pa.Table, prefix: str) -> pa.Table:
    names = [name for name in table.column_names if name.startswith(prefix)]
    return table.select(names).rename_columns([name.removeprefix(prefix) for name in names])
