"""Corrected forecasts in the layout of the file that the raw ones came from: the same names, labels, order and types.

A layout says where in a file every member's value stands. The rows of the cases that were corrected are taken from the file
as they are, and other values put there.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from prerank.io.delimited import INDEX
from prerank.io.errors import DataError
from prerank.io.formats import Csv, Feather, Parquet, format_of
from prerank.io.long_form import LongLayout, Matched
from prerank.io.wide import WideLayout


def in_order(found: Matched, cases: pd.Index, targets: pd.Index) -> tuple[np.ndarray, np.ndarray]:
    """Values (all cases that were read, members, targets), NaN for a case that is not there, and which are."""
    if not cases.is_unique:
        raise DataError(f"two cases are called {cases[cases.duplicated()][0]!r}; give every case a label of its own")
    rows, columns = cases.get_indexer(found.y.index), targets.get_indexer(found.y.columns)
    if (rows < 0).any() or (columns < 0).any():
        raise DataError("the cases or targets to write are not those that were read; write them without a layout")
    values = np.full((len(cases), found.members.shape[1], len(targets)), np.nan)
    values[np.ix_(rows, np.arange(values.shape[1]), columns)] = found.members
    there = np.zeros(len(cases), dtype=bool)
    there[rows] = True
    return values, there


def long_table(found: Matched, layout: LongLayout) -> pa.Table:
    """The rows of the corrected cases, with other values."""
    if layout.path is None:
        raise DataError("the forecasts came from a table in memory, which has no file to take after")
    values, there = in_order(found, layout.cases, layout.targets)
    chosen = np.flatnonzero(there[layout.place // (layout.shape[1] * layout.shape[2])])
    table = as_stored(layout.path).take(pa.array(chosen))
    place = layout.place[chosen]
    table = _replaced(table, layout.value, values.reshape(-1)[place])
    if layout.apart and found.y.notna().any(axis=None) and layout.observation not in table.column_names:
        case, _, target = np.unravel_index(place, layout.shape)
        table = table.append_column(layout.observation, _numbers(table, _observed(found, layout)[case, target]))
    return table


def wide_table(found: Matched, layout: WideLayout) -> pa.Table:
    """The rows of the corrected cases, with other values in the columns of members."""
    values, there = in_order(found, layout.cases, layout.targets)
    chosen = np.flatnonzero(there[layout.case])
    table = as_stored(layout.path).take(pa.array(chosen))
    case, target = layout.case[chosen], layout.target[chosen]
    for number, name in enumerate(layout.members):
        table = _replaced(table, name, values[case, number, target])
    name = layout.observation or "observation"
    if name not in table.column_names and found.y.notna().any(axis=None):
        table = table.append_column(name, _numbers(table, _observed(found, layout)[case, target]))
    return table


def _observed(found: Matched, layout: LongLayout | WideLayout) -> np.ndarray:
    return found.y.reindex(index=layout.cases, columns=layout.targets).to_numpy()


def as_stored(path: Path) -> pa.Table:
    """The table with all columns; those of CSV as the text that stands there."""
    form = format_of(path)
    return form.read_as_text(path, index=True) if isinstance(form, Csv) else form.read(path)


def write_stored(table: pa.Table, partial: Path, path: Path) -> None:
    """A table of stored columns in the format of a path."""
    form = format_of(path)
    if isinstance(form, Csv):
        frame = table.to_pandas().rename(columns={INDEX: ""})
        packed = {"method": "gzip", "mtime": 0} if path.suffix.lower() == ".gz" else None
        frame.to_csv(partial, index=False, sep=form.delimiter, compression=packed)
    elif isinstance(form, Parquet):
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, partial)
    elif isinstance(form, Feather):
        import pyarrow.feather

        pyarrow.feather.write_feather(table, partial)


def _replaced(table: pa.Table, name: str, values: np.ndarray) -> pa.Table:
    place = table.column_names.index(name)
    return table.set_column(place, _field(table, name), _numbers(table, values, table.schema.field(name).type))


def _field(table: pa.Table, name: str) -> pa.Field:
    field = table.schema.field(name)
    kind = field.type
    return field.with_type(kind if pa.types.is_floating(kind) or pa.types.is_string(kind) else pa.float64())


def _numbers(table: pa.Table, values: np.ndarray, kind: Any = None) -> pa.Array:
    """Numbers of a column's type, or as the shortest text that means them where the table is text."""
    text = pa.types.is_string(kind) if kind is not None else all(pa.types.is_string(one) for one in table.schema.types)
    if text:
        return pa.array(["" if np.isnan(value) else repr(float(value)) for value in values], pa.string())
    return pa.array(values, kind if kind is not None and pa.types.is_floating(kind) else pa.float64(), from_pandas=True)
