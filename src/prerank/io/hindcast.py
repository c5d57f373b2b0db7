"""Hindcasts on start, member and lead: their dimensions recognised, observations on a time axis joined on start + lead.

Dimensions are known by the CF conventions' `standard_name` (realization, forecast_reference_time, forecast_period, time)
or by the names that climate services give them (https://cfconventions.org, https://iridl.ldeo.columbia.edu, cfgrib).
"""

import re
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from prerank._wording import counted
from prerank.io.errors import DataError, by_option, listed
from prerank.io.time_axes import ValidTimes, comparable, times_of

STANDARD_NAMES = {
    "realization": "member",
    "forecast_reference_time": "start",
    "forecast_period": "lead",
    "time": "time",
}
NAMES = {
    "member": "m e members realizations ensemble_member ensemble_members ensemble_id ens_member ensmem nens num "
    "perturbation perturbation_number perturbationnumber member_id realization_id",
    "start": "s init inits init_time init_date inittime initial_time initialization initialization_time initialisation "
    "start starts start_time start_date starttime startdate reference_time ref_time reftime base_time issue_time "
    "issue_date hdate analysis_time forecast_reference_time forecast_start initial_time0 initial_time0_hours",
    "lead": "l lead leads lead_time leadtime lead_times step forecast_period forecast_lead forecast_time forecast_time0 "
    "forecast_hour fhour fxx prediction_timedelta forecastmonth forecast_month leadtime_month lead_month lead_months "
    "lead_day lead_days lead_week lead_weeks lead_year lead_years lead_hour lead_hours tau horizon timestep",
    "time": "time t valid_time validtime valid date dates verification_time verif_time target_time",
}
"""What dimensions are called, in lower case."""
_ROLE = {name: role for role, names in NAMES.items() for name in names.split()}
_FIRST_IS_ONE = ("leadtime_month", "forecastmonth", "forecast_month")  # the month of the start is month 1
_UNITS = {
    "second": ("s", 1.0),
    "minute": ("s", 60.0),
    "hour": ("s", 3600.0),
    "day": ("s", 86400.0),
    "pentad": ("s", 5 * 86400.0),
    "week": ("s", 7 * 86400.0),
    "month": ("M", 1.0),
    "season": ("M", 3.0),
    "year": ("M", 12.0),
}
_SHORT = {
    "s": "second",
    "sec": "second",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "d": "day",
    "mon": "month",
    "yr": "year",
}
LEAD_UNITS = tuple(f"{name}s" for name in _UNITS)


def roles_of(dataset: Any) -> dict[Hashable, str]:
    """What the dimensions of a dataset hold, as far as attributes and names say so: member, start, lead or time."""
    found: dict[Hashable, str] = {}
    for dim in dataset.dims:
        about = dataset[dim].attrs if dim in dataset.variables else {}
        role = STANDARD_NAMES.get(str(about.get("standard_name", "")).lower(), _ROLE.get(str(dim).lower()))
        if role is not None:
            found[dim] = role
    if "lead" in found.values() and "start" not in found.values():  # as cfgrib has it: time is that of the start
        times = [dim for dim, role in found.items() if role == "time"]
        if len(times) == 1:
            found[times[0]] = "start"
    for role in ("member", "start", "lead"):  # two dimensions of one role: none is known
        if list(found.values()).count(role) > 1:
            found = {dim: one for dim, one in found.items() if one != role}
    return found


class Joined(NamedTuple):
    """Observations along start and lead, and what was noticed."""

    observed: Any
    notes: tuple[str, ...]


def observed_along(
    forecast: Any, start: Hashable, lead: Hashable, observed: Any, time: Hashable, units: str | None
) -> Joined:
    """Observations on a time axis taken at start + lead, NaN where there is none."""
    valid, step, how = _valid_times(forecast, start, lead, units)
    observed, notes = _with_a_time(observed, time)
    seen = times_of(observed[time], time)
    if (seen.unit == "number") != (valid.unit == "number"):
        raise DataError(
            f"{time!r} holds {seen.like} and {start!r} + {lead!r} is like {valid.like}, so they cannot be matched; give "
            "both dates, or both numbers"
        )
    wanted, keys, resolution = comparable(valid, seen, step, time)
    order = np.argsort(keys, kind="stable")
    place = np.clip(np.searchsorted(keys, wanted, sorter=order), 0, len(keys) - 1)
    rows = order[place]
    there = np.asarray(keys[rows] == wanted)
    if not there.any():
        raise DataError(
            f"no observation is at any {start!r} + {lead!r} ({how}): these are like {_said(forecast, start)} + "
            f"{_said(forecast, lead)}, observations like {_said(observed, time)}; give other units "
            f"{by_option('lead_units')}, or other files"
        )
    import xarray

    index = xarray.DataArray(rows, dims=(start, lead))
    # labels of the time axis would stand beside those of start and lead
    taken = (
        observed.drop_vars(time, errors="ignore").isel({time: index}).where(xarray.DataArray(there, dims=(start, lead)))
    )
    taken = taken.assign_coords({dim: forecast[dim] for dim in (start, lead) if dim in forecast.coords})
    notes.append(f"observations: at {start} + {lead} ({how}{resolution})")
    absent = int((~there).sum())
    if absent:
        notes.append(f"{absent:,} of {counted(there.size, 'pair')} of {start} and {lead} have no observation")
    return Joined(taken, tuple(notes))


def _with_a_time(observed: Any, time: Hashable) -> tuple[Any, list[str]]:
    """The observations whose time is known, and how many are not."""
    absent = pd.isna(observed[time].values)
    if not absent.any():
        return observed, []
    if absent.all():
        raise DataError(f"no observation has a time: all of {time!r} is missing")
    note = f"{int(absent.sum()):,} of {counted(len(absent), 'observation')} left out: {time} is missing"
    return observed.isel({time: ~absent}), [note]


def _valid_times(forecast: Any, start: Hashable, lead: Hashable, units: str | None) -> tuple[ValidTimes, str, str]:
    """When the forecast is for (starts, leads): of a coordinate, or start + lead; what it is counted in, and how it came."""
    known = _valid_coordinate(forecast, start, lead)
    if known is not None and units is None:
        times = times_of(known.transpose(start, lead), known.name)
        return (
            ValidTimes(times.unit, times.seconds, times.months, times.like, times.calendar),
            "s",
            f"as {known.name} says",
        )
    for dim in (start, lead):
        if dim not in forecast.coords:
            raise DataError(f"the dimension {dim!r} has no coordinate, so when a forecast is for is not known; add one")
    begin = times_of(forecast[start], start)
    ahead = np.asarray(forecast[lead].values)
    if ahead.dtype.kind == "m" and units is None:
        seconds = ahead.astype("timedelta64[s]").astype(float)
        return (
            ValidTimes("time", begin.seconds[:, None] + seconds, None, begin.like, begin.calendar),
            "s",
            "a length of time",
        )
    if ahead.dtype.kind not in "iufm":
        raise DataError(f"{lead!r} holds {ahead.ravel()[0]!r}, which is no length of time; give numbers")
    unit = _unit_of(forecast[lead], lead, units)
    if begin.unit == "number":
        total = begin.seconds[:, None] + ahead.astype(float)
        return ValidTimes("number", total, None, begin.like, "standard"), "number", "numbers"
    if unit is None:
        raise DataError(
            f"{lead!r} has no units, such as days; say them {by_option('lead_units')}, one of {', '.join(LEAD_UNITS)}"
        )
    kind, size = _UNITS[unit]
    if kind == "M":
        steps = np.floor(ahead.astype(float) * size + 1e-9) - (str(lead).lower() in _FIRST_IS_ONE)
        words = f"{unit}s" + (", the first one that of the start" if str(lead).lower() in _FIRST_IS_ONE else "")
        return ValidTimes("time", None, begin.months[:, None] + steps, begin.like, begin.calendar), unit, words
    seconds = ahead.astype(float) * size
    centred = bool(len(ahead)) and np.allclose(ahead.astype(float) % 1, 0.5)
    if centred:  # the middle of a day is that day's mean
        seconds = np.floor(ahead.astype(float)) * size
    words = f"{unit}s" + (f", {ahead.ravel()[0]:g} being the first" if centred else "")
    return ValidTimes("time", begin.seconds[:, None] + seconds, None, begin.like, begin.calendar), "s", words


def _valid_coordinate(forecast: Any, start: Hashable, lead: Hashable) -> Any:
    """A coordinate along start and lead that says when the forecast is for."""
    for name, coordinate in forecast.coords.items():
        about = str(coordinate.attrs.get("standard_name", "")).lower()
        if {*coordinate.dims} == {start, lead} and (about == "time" or _ROLE.get(str(name).lower()) == "time"):
            return coordinate
    return None


def _unit_of(coordinate: Any, name: Hashable, given: str | None) -> str | None:
    """The unit of a lead: as given, of the attribute `units`, or of the words of its names."""
    if given is not None:
        unit = _unit_named(given)
        if unit is None:
            raise DataError(f"--lead-units {given}: give one of {', '.join(LEAD_UNITS)}")
        return unit
    said = str(coordinate.attrs.get("units", "")).strip()
    if said:
        unit = _unit_named(said.split()[0])
        if unit is not None:
            return unit
    words = " ".join([str(name), *(str(coordinate.attrs.get(key, "")) for key in ("long_name", "standard_name"))])
    found = {one for one in _UNITS if re.search(one, words.lower())}
    return found.pop() if len(found) == 1 else None


def _unit_named(word: str) -> str | None:
    word = word.lower()
    word = _SHORT.get(word, word)
    return next((one for one in (word, word.removesuffix("s")) if one in _UNITS), _SHORT.get(word.removesuffix("s")))


def _said(array: Any, dim: Hashable) -> str:
    values = array[dim].values
    return listed([str(values[0]).removesuffix("T00:00:00.000000000")]) if len(values) else "nothing"
