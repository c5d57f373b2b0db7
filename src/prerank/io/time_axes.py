"""Times of files as numbers that are equal where times are the same, whatever kind of dates they were."""

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from prerank.io.errors import DataError


class Times(NamedTuple):
    """Times as numbers: seconds and months since 1970, or plain numbers (then they are years, or count something)."""

    unit: str
    seconds: np.ndarray
    months: np.ndarray
    like: str
    calendar: str = "standard"


def times_of(coordinate: Any, name: Hashable) -> Times:
    values = np.asarray(coordinate.values)
    like = str(coordinate.values.ravel()[0]).removesuffix("T00:00:00.000000000") if values.size else "nothing"
    if values.dtype.kind in "OUS":
        values = _from_objects(values, name)
        if hasattr(values.ravel()[0], "calendar"):
            return _of_calendar(values, like)
    if values.dtype.kind == "M":
        seconds = values.astype("datetime64[s]").astype(np.int64).astype(float)
        return Times("time", seconds, values.astype("datetime64[M]").astype(np.int64), like)
    if values.dtype.kind not in "iuf":
        raise DataError(f"{name!r} holds {like!r}, which is neither a date nor a number")
    numbers = values.astype(float)
    return Times("number", numbers, np.floor(numbers), like)


def _from_objects(values: np.ndarray, name: Hashable) -> np.ndarray:
    first = values.ravel()[0]
    if hasattr(first, "calendar"):
        ordinary = ("standard", "gregorian", "proleptic_gregorian")
        if all(one.calendar in ordinary for one in values.ravel()):
            return np.array([one.isoformat() for one in values.ravel()], "datetime64[s]").reshape(values.shape)
        return values
    try:
        return np.array([np.datetime64(str(one)) for one in values.ravel()], "datetime64[s]").reshape(values.shape)
    except ValueError:
        raise DataError(f"{name!r} holds {str(first)!r}, which is no date; write dates as 2024-01-31") from None


def _of_calendar(values: np.ndarray, like: str) -> Times:
    """Dates of a calendar with other lengths of years, as seconds in that calendar."""
    import cftime

    calendar = values.ravel()[0].calendar
    seconds = cftime.date2num(values, "seconds since 1970-01-01", calendar=calendar)
    months = np.array([12 * (one.year - 1970) + one.month - 1 for one in values.ravel()]).reshape(values.shape)
    return Times("time", np.asarray(seconds, dtype=float), months, like, calendar)


class ValidTimes(NamedTuple):
    unit: str
    seconds: np.ndarray | None
    months: np.ndarray | None
    like: str
    calendar: str


def comparable(valid: ValidTimes, seen: Times, step: str, time: Hashable) -> tuple[np.ndarray, np.ndarray, str]:
    """Numbers that are equal where times are the same: to the second, or by day, month or year as observations are."""
    if valid.unit == "number":
        assert valid.seconds is not None
        return valid.seconds, _once(seen.seconds, valid.seconds, time, "number"), ""
    if valid.seconds is None:
        assert valid.months is not None
        if step == "year":
            return valid.months // 12, _once(seen.months // 12, valid.months // 12, time, "year"), ", by calendar year"
        return valid.months, _once(seen.months, valid.months, time, "month"), ", by calendar month"
    if valid.calendar != seen.calendar:
        raise DataError(
            f"forecasts are in the calendar {valid.calendar!r} and observations in {seen.calendar!r}; convert one of them"
        )
    if np.isin(valid.seconds, seen.seconds).any():
        return valid.seconds, _once(seen.seconds, valid.seconds, time, "time"), ""
    days, seen_days = valid.seconds // 86400, seen.seconds // 86400
    if len(np.unique(seen_days)) == len(seen_days) and np.isin(days, seen_days).any() and _distinct(days):
        return days, seen_days, ", by day"
    if valid.months is None and valid.calendar == "standard":
        months = valid.seconds.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)
        alone = len(np.unique(seen.months)) == len(seen.months)
        if alone and np.isin(months, seen.months).any() and _distinct(months):
            return months, seen.months, ", by calendar month"
    return valid.seconds, _once(seen.seconds, valid.seconds, time, "time"), ""


def _distinct(keys: np.ndarray) -> bool:
    """Whether the leads of every start have keys of their own."""
    return all(len(np.unique(row)) == len(row) for row in keys)


def _once(keys: np.ndarray, wanted: np.ndarray, time: Hashable, what: str) -> np.ndarray:
    """The keys of observations; one that is wanted and occurs twice is refused."""
    there, count = np.unique(keys, return_counts=True)
    twice = there[(count > 1) & np.isin(there, wanted)]
    if len(twice):
        places = np.flatnonzero(keys == twice[0])
        advice = "keep one of each" if what in ("time", "number") else f"give means of each {what}"
        raise DataError(
            f"{len(places)} observations stand at one {what} of {time!r}, at positions {places[0]} and {places[1]}; {advice}"
        )
    return keys
