"""A column of times read, and split into cases and targets, such as days and hours."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from prerank.io.errors import DataError

Times = pd.Series
SPLITS: dict[str, tuple[str, Callable[[Times], Times], Callable[[Times], Times]]] = {
    "hour": ("day", lambda times: times.dt.normalize(), lambda times: _time_of_day(times)),
    "weekday": (
        "week",
        lambda times: times.dt.normalize() - pd.to_timedelta(times.dt.day_of_week, unit="D"),
        lambda times: times.dt.day_of_week + 1,
    ),
    "day": (
        "month",
        lambda times: times.dt.normalize() - pd.to_timedelta(times.dt.day - 1, unit="D"),
        lambda times: times.dt.day,
    ),
    "month": ("year", lambda times: times.dt.year, lambda times: times.dt.month),
}
"""What a column of times can be split into: the name of the cases, the cases, and the targets."""
PARTS: dict[str, Callable[[Times], Times]] = {
    "year": lambda times: times.dt.year,
    "season": lambda times: times.dt.month.map(lambda month: ("DJF", "MAM", "JJA", "SON")[month % 12 // 3]),
    "month": lambda times: times.dt.month,
    "weekday": lambda times: times.dt.day_of_week + 1,
}


def as_times(path: Path, column: pd.Series, name: str) -> pd.Series:
    absent = column.isna().to_numpy()
    if absent.any():
        raise DataError(f"{path}: row {int(absent.argmax()) + 1:,} has no {name!r}; every row needs one")
    if pd.api.types.is_datetime64_any_dtype(column):
        return column
    if pd.api.types.is_string_dtype(column):
        try:
            return pd.to_datetime(column, format="ISO8601")
        except (ValueError, TypeError):
            pass
    raise DataError(
        f"{path}: column {name!r} holds {column.iloc[0]!r}, which is no date; write dates as 2024-01-31 13:00"
    )


def _time_of_day(times: pd.Series) -> pd.Series:
    whole = (times == times.dt.floor("h")).all()
    return times.dt.hour if whole else times.dt.strftime("%H:%M")
