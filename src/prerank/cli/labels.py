"""A word of the command line as a label of the cases of a file, of the same kind as theirs."""

import re
from decimal import Decimal, InvalidOperation
from typing import Any

import pandas as pd

from prerank.arrays.labels import label_text

# ISO 8601 alone: other forms leave open what is the day and what the month, and "12h" would be a time of the year 1
_DATE = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d)(?::?(\d\d)(?::?(\d\d)(?:\.\d{1,9})?)?)?)?)?)?(Z|[+-]\d\d(?::?\d\d)?)?"
)


def as_label(text: str, labels: pd.Index) -> Any:
    """The word as a label like `labels`, for `--before`; one that is of no such kind is refused.

    >>> as_label("2024-02", pd.DatetimeIndex(["2024-01-31", "2024-02-29"]))
    Timestamp('2024-02-01 00:00:00')
    """
    like = label_text(labels[0])
    try:
        found = _read(text, labels)
    except (ValueError, InvalidOperation, OverflowError):
        raise ValueError(f"--before {text}: the labels are like {like}; give one of that kind") from None
    if found is None:
        kind = type(labels[0]).__name__
        raise ValueError(
            f"--before {text}: no word stands for a label like {like} (of kind {kind}); "
            "give --share, or name a column of dates, numbers or text by --case or --block"
        )
    return found


def _read(text: str, labels: pd.Index) -> Any:
    """The label, or None where labels are of a kind that has no spelling here."""
    kinds, first = pd.api.types, labels[0]
    if kinds.is_bool_dtype(labels.dtype) or isinstance(first, bool):
        return {"false": False, "true": True}.get(text.lower())
    if kinds.is_datetime64_any_dtype(labels.dtype):
        return _moment(text, getattr(labels, "tz", None))
    if kinds.is_timedelta64_dtype(labels.dtype):
        if not re.search(r"[A-Za-z:]", text):
            raise ValueError("a length of time has a unit")
        return pd.Timedelta(text)
    if kinds.is_numeric_dtype(labels.dtype):
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    if len({type(label) for label in labels}) > 1:
        return None
    if isinstance(first, str):
        return text
    if isinstance(first, bytes):
        return text.encode()
    if isinstance(first, Decimal):
        return Decimal(text)
    if hasattr(first, "calendar"):  # a date of cftime
        found = _DATE.fullmatch(text)
        if found is None or found[7]:
            raise ValueError("no date")
        return type(first)(*(int(part) for part in (found[1], found[2] or 1, found[3] or 1, *found.groups("0")[3:6])))
    return None


def _moment(text: str, zone: Any) -> pd.Timestamp:
    """A date in ISO 8601, in the time zone of the labels where it has none of its own."""
    if not _DATE.fullmatch(text):
        raise ValueError("no date")
    found = pd.Timestamp(text)
    if zone is None and found.tz is not None:
        raise ValueError("the labels have no time zone")
    if zone is None:
        return found
    return found.tz_localize(zone) if found.tz is None else found.tz_convert(zone)
