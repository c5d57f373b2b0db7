"""Reading CSV: strict about its shape, typed by its values.

Every row must have as many fields as the header. A column's type is inferred from all of its values: integers, then
booleans, then floating numbers (exactly rounded), then text. An unnamed first column is a row index, as R and pandas
write it, and is left out.
"""

import csv
import io
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from prerank._reading import require_regular
from prerank.io.errors import DataError

INDEX = "Unnamed: 0"
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "#N/A", "?")
"""The texts that mean "no value", in CSV and in ARFF; and what pandas calls a first column without a name."""

_LARGEST = 2**31 - 2  # one block holds the file, so that types are inferred from all rows; a block is an int32


def read_csv(
    path: Path, header: bool = True, delimiter: str = ",", as_text: bool = False, index: bool = False
) -> pa.Table:
    """A CSV file as a table; without a header the columns are named 0, 1, 2, ...

    With `as_text` all values stay text. With `index` an unnamed first column stays, under the name that pandas gives it.
    """
    data = file_bytes(path)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path.name} is not UTF-8: byte {error.start:,} cannot be read. Save it as UTF-8.") from None
    table = parse(data, str(path.name), header=header, delimiter=delimiter, as_text=as_text)
    if not header:
        return table.rename_columns([str(i) for i in range(table.num_columns)])
    if index and not table.column_names[0].strip():
        table = table.rename_columns([INDEX, *table.column_names[1:]])
    return without_index(table, path.name)


def parse(
    data: bytes,
    source: str,
    header: bool = True,
    delimiter: str = ",",
    quote: str = '"',
    names: list[str] | None = None,
    as_text: bool = False,
) -> pa.Table:
    """Delimited text as a table; `names`, if given, are the columns and the text has no header.

    With `as_text` nothing is taken for a number, a date or missing.

    >>> parse(b"a,b\\n1,2.5\\n2,?\\n", "example").schema.types
    [DataType(int64), DataType(double)]
    """
    if not data.strip():
        raise DataError(f"{source} is empty.")
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(
                block_size=len(data) + 1, column_names=names, autogenerate_column_names=not header and names is None
            ),
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, quote_char=quote, newlines_in_values=True),
            convert_options=_all_text(data, delimiter, quote)
            if as_text
            else pyarrow.csv.ConvertOptions(
                null_values=list(MISSING), strings_can_be_null=True, quoted_strings_can_be_null=True
            ),
        )
        duplicates = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    except (pa.ArrowException, UnicodeDecodeError, OverflowError) as error:
        raise DataError(f"{source} is malformed: {error}") from error
    if duplicates:
        raise DataError(f"{source} has more than one column named {duplicates[0]!r}; rename them.")
    if table.num_rows == 0:
        raise DataError(f"{source} has a header of {table.num_columns} columns and no rows.")
    return table


def _all_text(data: bytes, delimiter: str, quote: str) -> pyarrow.csv.ConvertOptions:
    """Every column of the header as text."""
    lines = csv.reader(io.StringIO(data.removeprefix(b"\xef\xbb\xbf").decode()), delimiter=delimiter, quotechar=quote)
    names = next((line for line in lines if line), [])
    return pyarrow.csv.ConvertOptions(
        column_types={name: pa.string() for name in names}, null_values=[], strings_can_be_null=False
    )


def without_index(table: pa.Table, source: str) -> pa.Table:
    """The table without an unnamed first column; an unnamed column elsewhere is refused."""
    if not table.column_names[0].strip() and table.num_columns > 1:
        table = table.drop_columns([table.column_names[0]])
    for position, name in enumerate(table.column_names):
        if not name.strip():
            raise DataError(f"{source}: column {position + 1} has no name; give it one.")
    return table


def file_bytes(path: Path) -> bytes:
    """The content of a file, or a `DataError` that says why it cannot be had."""
    require_regular(path, DataError)
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            raise DataError(f"{path} has {size:,} bytes; text files above {_LARGEST:,} are not read. Use Parquet.")
        data = path.read_bytes()
        return data if path.suffix.lower() != ".gz" else _unpacked(data, path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


def _unpacked(data: bytes, path: Path) -> bytes:
    """The content of a gzip file; one that would be larger than a text file may be is refused before it is unpacked."""
    unpack = zlib.decompressobj(wbits=31)
    try:
        found = unpack.decompress(data, _LARGEST)
    except zlib.error as error:
        raise DataError(f"{path} cannot be read as gzip, it may be damaged: {error}") from None
    if unpack.unconsumed_tail:
        raise DataError(f"{path} unpacks to more than {_LARGEST:,} bytes; text files above are not read. Use Parquet.")
    if not unpack.eof:
        raise DataError(f"{path} is cut short: its compressed content has no end")
    return found
