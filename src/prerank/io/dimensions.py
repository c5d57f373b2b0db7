"""Which dimensions of a file hold what, in which order their labels stand, and what is known of every case."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from prerank.io.errors import DataError, listed
from prerank.io.hindcast import roles_of


def start_and_lead(
    forecast: Any, roles: dict[Any, str], case: Sequence[str], targets: Sequence[str]
) -> tuple[str, str] | None:
    """The dimensions of starts and leads of a hindcast, as they are named or recognised; None for another forecast."""
    found = {role: dim for dim, role in roles.items() if dim in forecast.dims}
    start = found.get("start", case[0] if len(case) == 1 and found.get("lead") else None)
    lead = found.get("lead", targets[0] if len(targets) == 1 and found.get("start") else None)
    return None if start is None or lead is None or start == lead else (start, lead)


def time_axis(observed: Any, forecast: Any, dataset: Any) -> str:
    """The dimension of observations that holds times."""
    roles = roles_of(dataset)
    times = [dim for dim in observed.dims if roles.get(dim) in ("time", "start")]
    times = times or [dim for dim in observed.dims if dim not in forecast.dims]
    if len(times) != 1 or times[0] not in observed.coords:
        raise DataError(
            f"the observations {observed.name!r} have the dimensions {listed(observed.dims)}, of which one must be of "
            "times with a coordinate; call it time"
        )
    return str(times[0])


def without_single(forecast: Any, observed: Any, member: str, hindcast: tuple[str, str] | None) -> tuple[Any, Any]:
    """Both without dimensions of length one that the other lacks, such as a height."""
    kept = {member, *(hindcast or ())}
    only = [dim for dim in forecast.dims if forecast.sizes[dim] == 1 and dim not in kept and dim not in observed.dims]
    left = {*forecast.dims} - {*only}
    alone = [dim for dim in observed.dims if observed.sizes[dim] == 1 and dim not in forecast.dims]
    if hindcast is not None and len(observed.dims) - len(alone) < 1:
        alone = [dim for dim in alone if dim not in roles_of(observed.to_dataset(name="observed"))]
    if not left - {member}:
        return forecast, observed
    return forecast.isel(dict.fromkeys(only, 0), drop=True), observed.isel(dict.fromkeys(alone, 0), drop=True)


MODELS = ("model", "models", "system", "centre", "center", "institution", "source")  # each forecasts the same
PARTS = ("year", "season", "month")


def part_of_date(observed: Any, cases: Sequence[str], name: str) -> np.ndarray:
    """The year, season or month of the dates of the cases."""
    dated = [dim for dim in cases if dim in observed.coords and hasattr(observed[dim], "dt")]
    dated = [dim for dim in dated if np.asarray(observed[dim].values).dtype.kind == "M"] or dated[:0]
    if len(dated) != 1:
        raise DataError(
            f"there is no variable {name!r}, and no dimension of dates among {listed(cases)} that has a {name}"
        )
    part = getattr(observed[dated[0]].dt, name)
    return per_case(part.to_dataset(name=name), name, cases, observed)


def about_overlap(
    forecast: Any, start: str, lead: str, columns: dict[str, np.ndarray], observed: Any, cases: Sequence[str]
) -> tuple[tuple[str, ...], str | None]:
    """Starts that follow each other before the last lead is over share observations: years of starts as blocks."""
    starts = forecast.indexes.get(start)
    if not isinstance(starts, pd.DatetimeIndex) or len(starts) < 2 or lead not in (*cases, *observed.dims):
        return (), None
    gap = np.diff(np.sort(starts.asi8.astype(float))).min() / {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[starts.unit]
    years = starts.year.nunique()
    if years < 2 or years == len(starts) or gap > 300 * 86400:
        return (), None
    if "year" not in columns:
        columns["year"] = part_of_date(observed, cases, "year")
    return (
        f"blocks: {years} years of {start}, as neighbouring starts depend on each other; say otherwise with --block "
        "COLUMN, or none",
    ), "year"


def in_order_of(observed: Any, array: Any, dims: Sequence[str], what: str) -> Any:
    """The array with the labels of its dimensions in the order of the observations; others than theirs are refused."""
    from prerank.arrays.labels import positions  # torch loads slowly

    for dim in dims:
        found = positions(array.indexes.get(dim), observed.indexes.get(dim), what, dim, "the observations")
        array = array if found is None else array.isel({dim: found})
    return array


def per_case(dataset: Any, name: str, cases: Sequence[str], observed: Any) -> np.ndarray:
    if name not in dataset.variables and name not in dataset.dims:
        raise DataError(f"there is no variable {name!r}, only {listed(dataset.variables)}; name one along the cases")
    array = dataset[name]
    if not array.dims or not {*array.dims} <= {*cases}:
        raise DataError(
            f"{name!r} has the dimensions {listed(array.dims)}; it needs one value per case, along {listed(cases)}"
        )
    array = in_order_of(observed, array, array.dims, repr(name))
    whole = array.expand_dims({dim: observed.sizes[dim] for dim in cases if dim not in array.dims})
    return np.asarray(whole.transpose(*cases).values).reshape(-1)
