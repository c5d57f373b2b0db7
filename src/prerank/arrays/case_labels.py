"""One label per case: identifiers, and the labels of blocks and groups, as arrays of one kind."""

import hashlib
from datetime import date
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prerank.arrays.conversion import described


def checked_case_ids(values: Any, n_cases: int) -> Tensor:
    """Identifiers of the cases as int64 (N,): whole numbers as they are, other labels (text, dates) by a hash of their text.

    One per case, each its own. The hash is 63 bits of BLAKE2b, the same everywhere.

    >>> checked_case_ids([7, 3], 2)
    tensor([7, 3])
    >>> checked_case_ids(["Oslo", "Bergen"], 2).equal(checked_case_ids(["Bergen", "Oslo"], 2).flip(0))
    True
    """
    labels = label_array(values, "case_ids", n_cases)
    if labels.dtype.kind == "u" and labels.size and int(labels.max()) > np.iinfo(np.int64).max:
        labels = labels.astype(object)
    if labels.dtype.kind == "f":
        if not (np.isfinite(labels).all() and (labels == np.round(labels)).all()):
            raise ValueError("case_ids are numbers with fractions; an identifier is a whole number or a label")
        labels = labels.astype(np.int64)
    if labels.dtype.kind in "iub":
        ids = labels.astype(np.int64)
    else:
        ids = np.array([_identifier(label) for label in labels], dtype=np.int64)
    places: dict[int, int] = {}
    for place, identifier in enumerate(ids.tolist()):
        if identifier in places:
            raise ValueError(
                f"case_ids: cases {places[identifier]} and {place} are both called {_label_text(labels[place])}; "
                "an identifier belongs to one case"
            )
        places[identifier] = place
    return torch.from_numpy(ids)


def label_array(values: Any, what: str, n_cases: int) -> np.ndarray:
    """One label per case as an array, of any kind; a missing label is refused."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    if isinstance(values, str | type) or not hasattr(values, "__len__"):
        raise TypeError(f"{what} is {described(values)}; one label per case is needed, {n_cases} in all")
    missing = None
    if isinstance(values, np.ma.MaskedArray):
        missing, values = np.ma.getmaskarray(values), values.data
    if isinstance(values, list | tuple):  # by hand: NumPy would turn NaN among text into text, and tuples into rows
        array = np.empty(len(values), dtype=object)
        for place, value in enumerate(values):
            array[place] = value
        array = _plain_kind(array)
    else:
        array = _plain_kind(np.asarray(values.to_numpy() if hasattr(type(values), "to_numpy") else values))
    if array.shape != (n_cases,):
        raise ValueError(f"{what} has shape {array.shape}; one label per case is ({n_cases},)")
    missing = _is_missing(array) if missing is None else missing | _is_missing(array)
    if missing.any():
        raise ValueError(
            f"{what} has {int(missing.sum())} missing labels (NaN, NaT or None), the first for case "
            f"{int(missing.argmax())}; give every case a label"
        )
    return array


def _plain_kind(array: np.ndarray) -> np.ndarray:
    """Objects that are all whole numbers, or all numbers, as such; other objects as they are."""
    if array.dtype == object and array.ndim == 1 and len(array):
        kinds = {type(item) for item in array}
        if all(issubclass(kind, int | np.integer) for kind in kinds):
            try:
                return array.astype(np.int64)
            except OverflowError:
                return array
        if all(issubclass(kind, int | float | np.number) for kind in kinds):
            return array.astype(np.float64)
    return array


def _is_missing(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "f":
        return np.isnan(array)
    if array.dtype.kind in "mM":
        return np.isnat(array)
    if array.dtype != object:
        return np.zeros(array.shape, dtype=bool)
    return np.array([_is_no_label(item) for item in array], dtype=bool).reshape(array.shape)


def _is_no_label(item: Any) -> bool:
    if item is None or type(item).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(item, float | np.floating | np.datetime64) and item != item


def _identifier(label: Any) -> int:
    digest = hashlib.blake2b(_label_text(label).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _label_text(label: Any) -> str:
    """The text of a label, the same whichever library made it: a date by its ISO form, a tuple by its parts."""
    if isinstance(label, tuple):
        return "\x1f".join(_label_text(part) for part in label)
    if isinstance(label, date | np.datetime64):
        import pandas as pd

        return str(pd.Timestamp(label).isoformat())
    return str(label)
