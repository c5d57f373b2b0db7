"""The order of labels: numbers and dates by size, text with its numbers by size ("h2" before "h10")."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from prerank.io.errors import DataError


def coded_labels(column: pd.Series) -> tuple[np.ndarray, pd.Index]:
    """Whole numbers 0, 1, ... in the place of labels, in their order, and the labels that there are.

    An ordered categorical stands in the order of its categories.

    >>> coded_labels(pd.Series(["h10", "h2", "h10"]))
    (array([1, 0, 1]), Index(['h2', 'h10'], dtype='str'))
    """
    if isinstance(column.dtype, pd.CategoricalDtype) and column.dtype.ordered:
        used = column.cat.remove_unused_categories()
        return used.cat.codes.to_numpy().astype(np.int64), pd.Index(used.cat.categories, name=column.name)
    codes, found = factorised(column)
    labels = pd.Index(found, name=column.name)
    order = np.asarray(labels.argsort()) if _have_a_size(labels) else _order_of_others(labels)
    rank = np.empty(len(labels), dtype=np.int64)
    rank[order] = np.arange(len(labels))
    return rank[codes], labels[order]


def n_before(labels: pd.Index, label: Any) -> int:
    """How many of the labels, which are in their order, come before one of the same kind.

    >>> n_before(pd.Index(["day 4", "day 9", "day 31"]), "day 31")
    2
    """
    if _have_a_size(labels):
        return int(np.asarray(labels < label).sum())
    key = _own_key(labels)
    return sum(key(one) < key(label) for one in labels)


def factorised(column: pd.Series) -> tuple[np.ndarray, Any]:
    """Numbers in the place of labels as they occur, -1 for a missing one, and the labels; what is no label is refused."""
    try:
        return pd.factorize(own_values(column))
    except TypeError:
        kind = type(column.iloc[0]).__name__
        raise DataError(
            f"the column {column.name!r} holds {kind}s, which are no labels; give numbers, text or dates"
        ) from None


def own_values(column: pd.Series) -> pd.Series:
    """A categorical column as the values it stands for."""
    return column.astype(column.cat.categories.dtype) if isinstance(column.dtype, pd.CategoricalDtype) else column


def _have_a_size(labels: pd.Index) -> bool:
    kinds = pd.api.types
    return bool(
        kinds.is_numeric_dtype(labels) or kinds.is_datetime64_any_dtype(labels) or kinds.is_timedelta64_dtype(labels)
    )


def _order_of_others(labels: pd.Index) -> np.ndarray:
    key = _own_key(labels)
    return np.asarray(sorted(range(len(labels)), key=lambda place: key(labels[place])), dtype=np.int64)


def _own_key(labels: pd.Index) -> Callable[[Any], Any]:
    """What sorts labels: themselves, if they are of one kind with an order, such as decimals."""
    kinds = {type(label) for label in labels}
    if len(kinds) == 1 and not issubclass(next(iter(kinds)), str | bytes):
        try:
            sorted(labels)
        except (TypeError, ValueError):  # dates with and without a time zone, or of two calendars
            return _sort_key
        return lambda label: label
    return _sort_key


def _sort_key(label: Any) -> tuple[Any, ...]:
    """Text with its numbers by size; labels of different kinds kind by kind."""
    text = label.decode(errors="backslashreplace") if isinstance(label, bytes) else str(label)
    pieces = re.split(r"([0-9]+)", text)
    return type(label).__name__, [_size(piece) if k % 2 else piece for k, piece in enumerate(pieces)], text


def _size(digits: str) -> tuple[int, str]:
    """What orders whole numbers by size, however many digits they have."""
    digits = digits.lstrip("0")
    return len(digits), digits
