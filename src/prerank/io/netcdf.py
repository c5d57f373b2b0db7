"""Forecasts and observations as variables of NetCDF files and Zarr stores, matched by the labels of their dimensions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from prerank.io.dimensions import (
    MODELS,
    PARTS,
    about_overlap,
    in_order_of,
    part_of_date,
    per_case,
    start_and_lead,
    time_axis,
    without_single,
)
from prerank.io.errors import DataError, by_option, listed
from prerank.io.hindcast import observed_along, roles_of
from prerank.io.long_form import Matched, names_of_members, require_real
from prerank.io.stores import opened
from prerank.io.variables_layout import VariablesLayout


def read_variables(
    forecasts: Path,
    observations: Path | None = None,
    *,
    case: Sequence[str] = (),
    member: str | None = None,
    target: Sequence[str] = (),
    value: str | None = None,
    joint: Sequence[str] = (),
    observation: str | None = None,
    keep: Sequence[str] = (),
    lead_units: str | None = None,
    need_observations: bool = True,
) -> Matched:
    """Members and observations from variables with named dimensions.

    Dimensions with usual names, such as those of the CF conventions, are recognised; `case`, `member` and `target` name
    others. Several dimensions of cases, or of targets, are taken together; with `joint` those are the targets, and all
    others are cases. `value` and `observation` are needed where a file has several variables to choose from. `keep` names
    variables or coordinates along the cases, or "year", "season" or "month" of their dates. Observations on a time axis
    are joined on start + lead. With `need_observations=False` observations that are not there are NaN.
    """
    own = opened(forecasts, case)
    other = own if observations is None else opened(observations, case)
    from prerank.arrays.labels import NAMES as USUAL_NAMES  # torch loads slowly

    roles = roles_of(own)
    known = (*USUAL_NAMES["member"], *(str(dim) for dim, role in roles.items() if role == "member"))
    members_dims = (member,) if member is not None else known
    forecast = _variable(own, value, forecasts, members_dims, None, keep)
    others = {*forecast.dims} - {*members_dims}
    along = [dim for dim in forecast.dims if dim in members_dims]
    if len(along) != 1:
        raise DataError(
            f"{forecast.name!r} has the dimensions {listed(forecast.dims)}; exactly one holds the members, say which "
            f"{by_option('member')}"
        )
    hindcast = start_and_lead(forecast, roles, case, joint or target)
    if (
        need_observations
        or observations is not None
        or observation is not None
        or _fitting(own, members_dims, others, keep)
    ):
        observed = _variable(
            other, observation, observations or forecasts, members_dims, others, keep, forecast, hindcast is not None
        )
    else:
        observed = forecast.isel({along[0]: 0}, drop=True).astype(float) * np.nan
    notes: tuple[str, ...] = ()
    forecast, observed = without_single(forecast, observed, along[0], hindcast)
    if hindcast is not None and not {*hindcast} <= {*observed.dims}:
        time = time_axis(observed, forecast, other)
        observed, notes = observed_along(forecast, *hindcast, observed, time, lead_units)
    dims = [dim for dim in forecast.dims if dim != along[0]]
    cases, targets = _roles(dims, case, target, joint, hindcast, str(forecast.name))
    for dim in (dim for dim in cases if dim in MODELS and dim not in observed.dims):
        observed = observed.expand_dims({dim: forecast.indexes.get(dim, range(forecast.sizes[dim]))})
        notes += (f"observations: the same for every {dim}",)
    if set(observed.dims) != {*cases, *targets}:
        raise DataError(
            f"the observations {observed.name!r} have the dimensions {listed(observed.dims)} and the forecasts "
            f"{forecast.name!r} {listed(forecast.dims)}; they need the same, apart from the members"
        )
    _refuse_other_units(forecast, observed)
    order = {dim: np.arange(forecast.sizes[dim]) for dim in (*cases, *targets)}
    for dim in order:
        place = type(forecast)(order[dim], dims=(dim,), coords={dim: forecast[dim]} if dim in forecast.coords else None)
        order[dim] = in_order_of(observed, place, (dim,), "the forecast").values
    forecast = in_order_of(observed, forecast, (*cases, *targets), "the forecast")
    n_cases, n_targets = (int(np.prod([observed.sizes[dim] for dim in dims])) for dims in (cases, targets))
    y = require_real(observed.transpose(*cases, *targets), f"the variable {observed.name!r}").values
    members = require_real(forecast.transpose(*cases, along[0], *targets), f"the variable {forecast.name!r}").data
    sizes = [forecast.sizes[dim] for dim in (*cases, along[0], *targets)]
    if sizes[: len(cases)] + sizes[len(cases) + 1 :] != list(y.shape):
        raise DataError(
            f"{forecast.name!r} and {observed.name!r} differ in size: {dict(forecast.sizes)}, {dict(observed.sizes)}; "
            "give both the same cases and targets"
        )
    if 0 in sizes:
        raise DataError(f"{forecast.name!r} is empty: {dict(forecast.sizes)}; give at least one of each")
    frame = pd.DataFrame(
        y.reshape(n_cases, n_targets), index=_labels(observed, cases), columns=_target_labels(observed, targets)
    )
    columns = {
        name: part_of_date(observed, cases, name)
        if name in PARTS and name not in own.variables and name not in other.variables
        else per_case(own if name in own.variables else other, name, cases, observed)
        for name in keep
    }
    block = None
    if hindcast is not None and hindcast[0] in cases:
        more, block = about_overlap(forecast, *hindcast, columns, observed, cases)
        notes += more
    members = members.reshape(n_cases, sizes[len(cases)], n_targets)
    if not isinstance(members, np.ndarray):
        members = type(forecast)(members, dims=("case", "member", "target"))
    layout = VariablesLayout(
        forecasts,
        str(forecast.name),
        str(along[0]),
        tuple(cases),
        tuple(targets),
        frame.index,
        frame.columns,
        order,
        _name_of_observations(own, other, observed, observation, cases, targets),
        dict(observed.attrs),
    )
    names = names_of_members(forecast.indexes.get(along[0]))
    kept = pd.DataFrame(columns, index=frame.index)
    return Matched(frame, members, kept, notes, block, layout=layout, member_names=names)


def _name_of_observations(
    own: Any, other: Any, observed: Any, given: str | None, cases: Sequence[str], targets: Sequence[str]
) -> str | None:
    """What observations are called beside the forecast; None where they are in its file already, on the same dimensions."""
    name = given or str(observed.name)
    if other is own and name in own and {*own[name].dims} == {*cases, *targets}:
        return None
    return (
        name if name not in own.variables else next(one for one in ("observation", "observed", "y") if one not in own)
    )


def _refuse_other_units(forecast: Any, observed: Any) -> None:
    own, other = (str(array.attrs.get("units", "")).strip() for array in (forecast, observed))
    if own and other and own != other:
        raise DataError(f"the forecasts are in {own!r} and the observations in {other!r}; convert one of them")


def _variable(
    dataset: Any,
    name: str | None,
    path: Path,
    members: Sequence[str],
    along: set[str] | None,
    keep: Sequence[str],
    forecast: Any = None,
    hindcast: bool = False,
) -> Any:
    """The variable of a name; or the only one with a dimension of members, or the only one without.

    Of several without, the one along the dimensions that the forecasts have (`along`), or else the one called like them.
    """
    option = by_option("value" if along is None else "observation")
    there = list(dataset.data_vars)
    if name is not None:
        if name not in there:
            raise DataError(f"{path} has no variable {name!r}, only {listed(there)}; name one {option}")
        return dataset[name]
    what = "forecasts" if along is None else "observations"
    fitting = _fitting(dataset, members, along, keep, hindcast)
    if len(fitting) > 1 and forecast is not None:
        own = str(forecast.attrs.get("standard_name", ""))
        alike = [key for key in fitting if str(key).lower() == str(forecast.name).lower()]
        alike = alike or [key for key in fitting if own and dataset[key].attrs.get("standard_name") == own]
        fitting = alike if len(alike) == 1 else fitting
    if len(fitting) != 1:
        described = ", ".join(f"{key!r} {listed(dataset[key].dims)}" for key in there[:12]) or "none at all"
        missing = ", or give a second file with them" if forecast is not None and forecast.name in there else ""
        raise DataError(
            f"{path} has {len(fitting)} variables that could be the {what}, among {described}; name one {option}{missing}"
        )
    return dataset[fitting[0]]


def _fitting(
    dataset: Any, members: Sequence[str], along: set[str] | None, keep: Sequence[str], hindcast: bool = False
) -> list[str]:
    """The variables with a dimension of members, or, `along` the dimensions of forecasts, those without.

    Observations of a hindcast may have a dimension of times instead.
    """
    bounds = {str(item.attrs["bounds"]) for item in dataset.variables.values() if "bounds" in item.attrs}
    dims = {key: {*item.dims} for key, item in dataset.data_vars.items() if key not in (*keep, *bounds)}
    if along is None:
        return [key for key, own in dims.items() if own & {*members} and own - {*members}]
    fitting = [key for key, own in dims.items() if own and not own & {*members}]
    if len(fitting) < 2:
        return fitting
    same = [key for key in fitting if dims[key] == along]
    return same or [key for key in fitting if not dims[key] <= along] if hindcast else same


def _roles(
    dims: Sequence[str],
    case: Sequence[str],
    target: Sequence[str],
    joint: Sequence[str],
    hindcast: tuple[str, str] | None,
    name: str,
) -> tuple[list[str], list[str]]:
    """Which of the dimensions of a variable are cases and which are targets."""
    from prerank.arrays.labels import NAMES as USUAL_NAMES  # torch loads slowly

    for dim in (*case, *target, *joint):
        if dim not in dims:
            raise DataError(f"{name!r} has no dimension {dim!r}, only {listed(dims)}; name one of them")
    if joint:
        target, case = joint, [dim for dim in dims if dim not in joint]
        if not case:
            raise DataError(f"{name!r} is joint across all of {listed(dims)}, so there are no cases; leave one out")
    elif hindcast is not None and not case:
        case = [hindcast[0]]
    case = [*case, *(dim for dim in dims if dim in MODELS and dim not in (*case, *target))] if case else case
    usual = (*USUAL_NAMES["case"], *MODELS)
    cases = [dim for dim in dims if dim in case or (not case and dim in usual and dim not in target)]
    left = [dim for dim in dims if dim not in cases]
    unknown = [
        dim
        for dim in left
        if dim not in (*target, *USUAL_NAMES["target"], *(hindcast or ())) and not (len(left) == 1 and cases)
    ]
    if unknown or not cases:
        which = f"whether {unknown[0]!r} holds cases or targets" if unknown else "which one holds the cases"
        raise DataError(
            f"{name!r} has the dimensions {listed(dims)}; say {which} with --case or --joint (case= or joint= in Python)"
        )
    return cases, left


def _labels(observed: Any, dims: Sequence[str]) -> pd.Index | None:
    found = [observed.indexes.get(dim, pd.RangeIndex(observed.sizes[dim], name=dim)) for dim in dims]
    if not dims or all(isinstance(index, pd.RangeIndex) for index in found):
        return None
    return found[0] if len(found) == 1 else pd.MultiIndex.from_product(found, names=list(dims))


def _target_labels(observed: Any, dims: Sequence[str]) -> pd.Index | None:
    labels = _labels(observed, dims) if dims else pd.Index([str(observed.name)])
    return pd.Index([", ".join(map(str, label)) for label in labels]) if isinstance(labels, pd.MultiIndex) else labels
