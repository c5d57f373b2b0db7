"""Forecasts and observations as variables of NetCDF files and Zarr stores, matched by the labels of their dimensions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from prerank.io.errors import DataError
from prerank.io.long_form import Matched, require_real
from prerank.io.stores import opened


def read_variables(
    forecasts: Path,
    observations: Path | None = None,
    *,
    case: Sequence[str] = (),
    member: str | None = None,
    target: Sequence[str] = (),
    value: str | None = None,
    observation: str | None = None,
    keep: Sequence[str] = (),
    need_observations: bool = True,
) -> Matched:
    """Members and observations from variables with named dimensions.

    Dimensions with usual names, such as those of the CF conventions, are recognised; `case`, `member` and `target` name
    others. Several dimensions of cases, or of targets, are taken together. `value` and `observation` are needed
    where a file has several variables to choose from. `keep` names variables or coordinates along the cases. With
    `need_observations=False` observations that are not there are NaN.
    """
    own = opened(forecasts, case)
    other = own if observations is None else opened(observations, case)
    from prerank.arrays.labels import NAMES as USUAL_NAMES  # torch loads slowly

    members_dims = (member,) if member is not None else USUAL_NAMES["member"]
    forecast = _variable(own, value, forecasts, members_dims, None, keep)
    others = {*forecast.dims} - {*members_dims}
    along = [dim for dim in forecast.dims if dim in members_dims]
    if len(along) != 1:
        raise DataError(
            f"{forecast.name!r} has the dimensions {_listed(forecast.dims)}; exactly one holds the members, say which"
        )
    if (
        need_observations
        or observations is not None
        or observation is not None
        or _fitting(own, members_dims, others, keep)
    ):
        observed = _variable(other, observation, observations or forecasts, members_dims, others, keep)
    else:
        observed = forecast.isel({along[0]: 0}, drop=True).astype(float) * np.nan
    cases, targets = _roles([dim for dim in forecast.dims if dim != along[0]], case, target, str(forecast.name))
    if set(observed.dims) != {*cases, *targets}:
        raise DataError(
            f"the observations {observed.name!r} have the dimensions {_listed(observed.dims)} and the forecasts "
            f"{forecast.name!r} {_listed(forecast.dims)}; they need the same, apart from the members"
        )
    _refuse_other_units(forecast, observed)
    forecast = _in_order_of(observed, forecast, (*cases, *targets), "the forecast")
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
    columns = {name: _per_case(own if name in own.variables else other, name, cases, observed) for name in keep}
    members = members.reshape(n_cases, sizes[len(cases)], n_targets)
    if not isinstance(members, np.ndarray):
        members = type(forecast)(members, dims=("case", "member", "target"))
    return Matched(frame, members, pd.DataFrame(columns, index=frame.index))


def _refuse_other_units(forecast: Any, observed: Any) -> None:
    own, other = (str(array.attrs.get("units", "")).strip() for array in (forecast, observed))
    if own and other and own != other:
        raise DataError(f"the forecasts are in {own!r} and the observations in {other!r}; convert one of them")


def _variable(
    dataset: Any, name: str | None, path: Path, members: Sequence[str], along: set[str] | None, keep: Sequence[str]
) -> Any:
    """The variable of a name; or the only one with a dimension of members, or the only one without.

    Of several without, the one along the dimensions that the forecasts have (`along`).
    """
    there = list(dataset.data_vars)
    if name is not None:
        if name not in there:
            raise DataError(f"{path} has no variable {name!r}, only {_listed(there)}; say which one is meant")
        return dataset[name]
    what = "forecasts" if along is None else "observations"
    fitting = _fitting(dataset, members, along, keep)
    if len(fitting) != 1:
        described = ", ".join(f"{key!r} {_listed(dataset[key].dims)}" for key in there[:12]) or "none at all"
        raise DataError(
            f"{path} has {len(fitting)} variables that could be the {what}, among {described}; say which one is"
        )
    return dataset[fitting[0]]


def _fitting(dataset: Any, members: Sequence[str], along: set[str] | None, keep: Sequence[str]) -> list[str]:
    """The variables with a dimension of members, or, `along` the dimensions of forecasts, those without."""
    dims = {key: {*item.dims} for key, item in dataset.data_vars.items() if key not in keep}
    if along is None:
        return [key for key, own in dims.items() if own & {*members} and own - {*members}]
    fitting = [key for key, own in dims.items() if own and not own & {*members}]
    return [key for key in fitting if dims[key] == along] if len(fitting) > 1 else fitting


def _roles(dims: Sequence[str], case: Sequence[str], target: Sequence[str], name: str) -> tuple[list[str], list[str]]:
    """Which of the dimensions of a variable are cases and which are targets."""
    from prerank.arrays.labels import NAMES as USUAL_NAMES  # torch loads slowly

    for dim in (*case, *target):
        if dim not in dims:
            raise DataError(f"{name!r} has no dimension {dim!r}, only {_listed(dims)}; name one of them")
    cases = [dim for dim in dims if dim in case or (not case and dim in USUAL_NAMES["case"] and dim not in target)]
    left = [dim for dim in dims if dim not in cases]
    unknown = [
        dim for dim in left if dim not in target and dim not in USUAL_NAMES["target"] and not (len(left) == 1 and cases)
    ]
    if unknown or not cases:
        which = f"whether {unknown[0]!r} holds cases or targets" if unknown else "which one holds the cases"
        raise DataError(f"{name!r} has the dimensions {_listed(dims)}; say {which}")
    return cases, left


def _in_order_of(observed: Any, array: Any, dims: Sequence[str], what: str) -> Any:
    """The array with the labels of its dimensions in the order of the observations; others than theirs are refused."""
    from prerank.arrays.labels import positions  # torch loads slowly

    for dim in dims:
        found = positions(array.indexes.get(dim), observed.indexes.get(dim), what, dim, "the observations")
        array = array if found is None else array.isel({dim: found})
    return array


def _labels(observed: Any, dims: Sequence[str]) -> pd.Index | None:
    found = [observed.indexes.get(dim, pd.RangeIndex(observed.sizes[dim], name=dim)) for dim in dims]
    if not dims or all(isinstance(index, pd.RangeIndex) for index in found):
        return None
    return found[0] if len(found) == 1 else pd.MultiIndex.from_product(found, names=list(dims))


def _target_labels(observed: Any, dims: Sequence[str]) -> pd.Index | None:
    labels = _labels(observed, dims) if dims else pd.Index([str(observed.name)])
    return pd.Index([", ".join(map(str, label)) for label in labels]) if isinstance(labels, pd.MultiIndex) else labels


def _per_case(dataset: Any, name: str, cases: Sequence[str], observed: Any) -> np.ndarray:
    if name not in dataset.variables and name not in dataset.dims:
        raise DataError(f"there is no variable {name!r}, only {_listed(dataset.variables)}; name one along the cases")
    array = dataset[name]
    if not array.dims or not {*array.dims} <= {*cases}:
        raise DataError(
            f"{name!r} has the dimensions {_listed(array.dims)}; it needs one value per case, along {_listed(cases)}"
        )
    array = _in_order_of(observed, array, array.dims, repr(name))
    whole = array.expand_dims({dim: observed.sizes[dim] for dim in cases if dim not in array.dims})
    return np.asarray(whole.transpose(*cases).values).reshape(-1)


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names) or "none"
