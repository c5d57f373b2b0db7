"""The rows of a hub's tasks brought into cases and targets, with their observations and labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from prerank._wording import counted
from prerank.io.errors import DataError, listed
from prerank.io.hub.files import MODEL
from prerank.io.hub.observed import Tasks, observed_values
from prerank.io.hub.tasks import TaskColumns
from prerank.io.long_form import coded


class Placed(NamedTuple):
    """Numbers of cases and targets of every row, and their labels."""

    case: np.ndarray
    case_labels: pd.Index
    target: np.ndarray
    target_labels: pd.Index


def placed(parts: TaskColumns) -> Placed:
    case, case_labels = coded([_as_numbers_if_all(parts.rows[name]) for name in parts.cases])
    target, labels = coded([_as_numbers_if_all(parts.rows[name]) for name in parts.joint])
    if isinstance(labels, pd.MultiIndex):
        labels = pd.Index([", ".join(map(str, label)) for label in labels], name=", ".join(parts.joint))
    return Placed(case, case_labels, target, labels)


def _as_numbers_if_all(column: pd.Series) -> pd.Series:
    """Whole numbers in the place of their spelling, such as horizons; codes with leading zeros stay text."""
    words = column.unique()
    if all(str(word).lstrip("-").isdecimal() and str(int(word)) == word for word in words):
        return column.map({word: int(word) for word in words}).astype(np.int64)
    return column


class Seen(NamedTuple):
    y: np.ndarray
    path: Path | None
    notes: tuple[str, ...]


def observed_by_task(
    hub: Path,
    parts: TaskColumns,
    found: Placed,
    given: Path | None,
    column: str | None,
    needed: bool,
    output_type: str,
) -> Seen:
    """Observations (cases, targets), joined task by task."""
    shape = (len(found.case_labels), len(found.target_labels))
    y = np.full(shape, np.nan)
    if not needed and given is None and not (hub / "target-data").is_dir():
        return Seen(y, None, ())
    spot = np.ravel_multi_index((found.case, found.target), shape)
    there, first = np.unique(spot, return_index=True)
    names = list(dict.fromkeys([*parts.cases, *parts.joint, *parts.following]))
    labels = parts.rows[[name for name in names if name != MODEL]].iloc[first].reset_index(drop=True)
    tasks = Tasks(labels, parts.origin, parts.following, parts.rules)
    try:
        seen = observed_values(hub, tasks, given, column, output_type, parts.target)
    except DataError:
        if needed or given is not None:
            raise
        return Seen(y, None, ("the forecasts have not been observed",))
    y.reshape(-1)[there] = seen.values
    return Seen(y, seen.path, seen.notes)


def kept_columns(parts: TaskColumns, found: Placed, keep: Sequence[str]) -> pd.DataFrame:
    """The identifiers of cases, by their columns, and the model."""
    names = list(dict.fromkeys([MODEL, *parts.cases]))
    for name in keep:
        if name not in names:
            raise DataError(f"cases have no column {name!r}, only {listed(names)}; name one of them")
    first = np.unique(found.case, return_index=True)[1]
    return parts.rows[names].iloc[first].set_axis(found.case_labels)


def about_blocks(parts: TaskColumns, columns: pd.DataFrame) -> str:
    """That cases of a round stay together, and how to say otherwise."""
    n_blocks = columns[parts.origin].nunique()
    return (
        f"blocks: {counted(n_blocks, 'value')} of {parts.origin}, as cases of one round depend on each other; say otherwise "
        "with --block COLUMN, or none"
    )
