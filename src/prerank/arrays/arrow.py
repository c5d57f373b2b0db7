"""Tables that hand over Arrow (`__arrow_c_stream__`), such as those of pyarrow, polars and DuckDB, as data frames."""

from typing import Any


def is_arrow(value: object) -> bool:
    """Whether a value is a table that hands over Arrow more than once and is no array or data frame by itself.

    >>> import pyarrow as pa
    >>> is_arrow(pa.table({"a": [1.0]})), is_arrow([1.0])
    (True, False)
    """
    kind = type(value)
    streams = hasattr(kind, "__arrow_c_stream__") and not hasattr(kind, "read_next_batch")
    is_column = not hasattr(kind, "columns") and (hasattr(kind, "type") or hasattr(kind, "dtype"))
    return streams and not is_column and not hasattr(kind, "iloc")


def from_arrow(value: Any) -> Any:
    """A table that hands over Arrow as a pandas DataFrame; anything else as it is."""
    if not is_arrow(value):
        return value
    import pyarrow as pa

    return pa.table(value).to_pandas(date_as_object=False)
