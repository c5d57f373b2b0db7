"""File formats as values: `Csv(header=False)`, `Arff()`, `Parquet()`, `Feather()`; each reads a path to a table."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from prerank._reading import require_regular
from prerank.io.arff import read_arff
from prerank.io.delimited import read_csv
from prerank.io.errors import DataError
from prerank.io.memory import refuse_beyond_memory


@dataclass(frozen=True)
class Csv:
    """Delimited text, with a header unless told otherwise."""

    header: bool = True
    delimiter: str = ","

    def read(self, path: Path) -> pa.Table:
        """The file as a table of raw columns."""
        if len(self.delimiter) != 1 or not self.delimiter.isascii():
            raise DataError(f"A delimiter is one ASCII character, got {self.delimiter!r}.")
        return read_csv(path, self.header, self.delimiter)

    def read_as_text(self, path: Path, index: bool = False) -> pa.Table:
        """The file as a table of text, whatever it looks like: places such as "01" keep their zero."""
        return read_csv(path, self.header, self.delimiter, as_text=True, index=index)

    def read_with_index(self, path: Path) -> pa.Table:
        """The file as a table, with its first column if that has no name."""
        return read_csv(path, self.header, self.delimiter, index=True)


@dataclass(frozen=True)
class Arff:
    """Weka's attribute-relation format, dense rows."""

    def read(self, path: Path) -> pa.Table:
        """The file as a table of raw columns."""
        return read_arff(path)


@dataclass(frozen=True)
class Parquet:
    """Apache Parquet."""

    def read(self, path: Path) -> pa.Table:
        """The file as a table of raw columns."""
        import pyarrow.parquet

        # `read_table` would load the machinery of partitioned datasets, 40 MB, for the sake of one file
        def read(file: Path) -> pa.Table:
            opened = pyarrow.parquet.ParquetFile(file)
            about = opened.metadata
            groups = [about.row_group(place) for place in range(about.num_row_groups)]
            # a run of equal values takes no space in the file, and eight bytes each as numbers
            at_least = 8 * about.num_rows * about.num_columns
            refuse_beyond_memory(file, max(at_least, sum(group.total_byte_size for group in groups)))
            return opened.read()

        return _read_arrow(path, read)


@dataclass(frozen=True)
class Feather:
    """Feather, also known as the Arrow file format."""

    def read(self, path: Path) -> pa.Table:
        """The file as a table of raw columns."""
        import pyarrow.feather

        return _read_arrow(path, pyarrow.feather.read_table)


Format = Csv | Arff | Parquet | Feather

_SUFFIXES: dict[str, Format] = {
    ".csv": Csv(),
    ".tsv": Csv(delimiter="\t"),
    ".arff": Arff(),
    ".parquet": Parquet(),
    ".pq": Parquet(),
    ".feather": Feather(),
    ".arrow": Feather(),
}


def format_of(path: Path) -> Format:
    """The format a file's suffix stands for; delimited text may be compressed by gzip, as in `rivers.csv.gz`.

    >>> format_of(Path("rivers.tsv"))
    Csv(header=True, delimiter='\\t')
    """
    suffix = Path(path.stem).suffix if path.suffix.lower() == ".gz" else path.suffix
    try:
        form = _SUFFIXES[suffix.lower()]
        if suffix != path.suffix and not isinstance(form, Csv):
            raise KeyError(suffix)
        return form
    except KeyError:
        known = ", ".join(_SUFFIXES)
        raise DataError(f"{path.name}: cannot tell the format from {path.suffix!r}; known are {known}.") from None


def as_frame(table: pa.Table, path: Path) -> pd.DataFrame:
    """A table as a data frame, in which a day is a date in every format."""
    try:
        return table.to_pandas(date_as_object=False)
    except (
        pa.ArrowException,
        ValueError,
        KeyError,
        TypeError,
    ) as error:  # of damaged metadata, or of dates out of range
        raise DataError(f"{path} cannot be read, it may be damaged: {str(error)[:200]}") from error


def _read_arrow(path: Path, read: Callable[[Path], pa.Table]) -> pa.Table:
    require_regular(path, DataError)
    try:
        table = read(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    # pandas stores an unnamed index as a column of this name
    index = [name for name in table.column_names if re.fullmatch(r"__index_level_\d+__", name)]
    table = table.drop_columns(index)
    duplicates = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if duplicates:
        raise DataError(f"{path.name} has more than one column named {duplicates[0]!r}; rename them.")
    if table.num_rows == 0:
        raise DataError(f"{path.name} has {table.num_columns} columns and no rows.")
    return table
