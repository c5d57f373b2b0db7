"""Records on disk: every table as CSV to read and as Parquet to compute with."""

from pathlib import Path

import pandas as pd

from prerank._writing import whole_file


def require_folder(folder: Path) -> Path:
    """The folder, made if it is missing; refused before any work if nothing can be written there."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; give a folder for the figures and tables")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".prerank-writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(f"cannot write to {folder}: {error.strerror}; give another folder") from error
    return folder


def write_table(table: pd.DataFrame, stem: Path) -> list[Path]:
    """Write a table beside its figure as `stem`.csv and `stem`.parquet and return the files."""
    csv, parquet = stem.with_name(f"{stem.name}.csv"), stem.with_name(f"{stem.name}.parquet")
    with whole_file(csv) as partial:
        table.to_csv(partial, index=False, float_format="%.6g")
    with whole_file(parquet) as partial:
        table.to_parquet(partial, index=False)
    return [csv, parquet]
