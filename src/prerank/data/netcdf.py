"""Forecasts and observations as variables of NetCDF files, through xarray, matched by the labels of their dimensions."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from prerank.data.errors import DataError
from prerank.data.longform import Matched, require_real

MEMBER_NAMES = ("member", "realization", "realisation", "number", "ensemble", "ens", "sample", "draw")
CASE_NAMES = ("case", "time", "date", "valid_time", "init_time", "forecast_reference_time")
TARGET_NAMES = ("target", "station", "lead", "lead_time", "step", "lat", "lon", "latitude", "longitude")


def read_netcdf(
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

    Dimensions called as in `MEMBER_NAMES`, `CASE_NAMES` and `TARGET_NAMES` are recognised; `case`, `member` and `target`
    name others. Several dimensions of cases, or of targets, are taken together. `value` and `observation` are needed
    where a file has several variables to choose from. `keep` names variables or coordinates along the cases. With
    `need_observations=False` observations that are not there are NaN.
    """
    own = _dataset(forecasts)
    other = own if observations is None else _dataset(observations)
    members_dims = (member,) if member is not None else MEMBER_NAMES
    forecast = _variable(own, value, forecasts, members_dims, True)
    along = [dim for dim in forecast.dims if dim in members_dims]
    if len(along) != 1:
        raise DataError(
            f"{forecast.name!r} has the dimensions {_listed(forecast.dims)}; exactly one holds the members, say which"
        )
    if need_observations or observations is not None or observation is not None or _fitting(own, members_dims, False):
        observed = _variable(other, observation, observations or forecasts, members_dims, False)
    else:
        observed = forecast.isel({along[0]: 0}, drop=True).astype(float) * np.nan
    cases, targets = _roles([dim for dim in forecast.dims if dim != along[0]], case, target, str(forecast.name))
    if set(observed.dims) != {*cases, *targets}:
        raise DataError(
            f"the observations {observed.name!r} have the dimensions {_listed(observed.dims)} and the forecasts "
            f"{forecast.name!r} {_listed(forecast.dims)}; they need the same, apart from the members"
        )
    forecast = _in_order_of(observed, forecast, (*cases, *targets), "the forecast")
    n_cases, n_targets = (int(np.prod([observed.sizes[dim] for dim in dims])) for dims in (cases, targets))
    y = require_real(observed.transpose(*cases, *targets).values, f"the variable {observed.name!r}")
    members = require_real(forecast.transpose(*cases, along[0], *targets).values, f"the variable {forecast.name!r}")
    sizes = [forecast.sizes[dim] for dim in (*cases, along[0], *targets)]
    if sizes[: len(cases)] + sizes[len(cases) + 1 :] != list(y.shape):
        raise DataError(
            f"{forecast.name!r} and {observed.name!r} differ in size: {dict(forecast.sizes)}, {dict(observed.sizes)}"
        )
    frame = pd.DataFrame(
        y.reshape(n_cases, n_targets), index=_labels(observed, cases), columns=_target_labels(observed, targets)
    )
    columns = {name: _per_case(own if name in own.variables else other, name, cases, observed) for name in keep}
    return Matched(frame, members.reshape(n_cases, -1, n_targets), pd.DataFrame(columns, index=frame.index))


def _dataset(path: Path) -> Any:
    try:
        import xarray
    except ImportError:
        raise DataError(f"{path.name} needs xarray; install it with: pip install xarray netCDF4") from None
    if not path.is_file():
        raise DataError(f"{path} cannot be read: no such file")
    try:
        with path.open("rb") as file:
            classic = file.read(4) in (b"CDF\1", b"CDF\2")
        # SciPy reads the classic format; from memory, since it would keep a damaged file mapped
        source = (
            {"filename_or_obj": io.BytesIO(path.read_bytes()), "engine": "scipy"}
            if classic
            else {"filename_or_obj": path}
        )
        with xarray.open_dataset(**source) as dataset:
            return dataset.load()
    except Exception as error:  # a damaged file makes its parser fail in any way
        text = str(error).strip().partition("\n")[0]
        if "xarray's IO backends" in text or "no match" in text:
            text = "xarray finds no reader for it (NetCDF 4 needs the package netCDF4 or h5netcdf)"
        raise DataError(
            f"{path} cannot be read as NetCDF, it may be damaged: {text or type(error).__name__}"
        ) from error


def _variable(dataset: Any, name: str | None, path: Path, members: Sequence[str], with_members: bool) -> Any:
    """The variable of a name, or the only one that has, or has not, a dimension of members."""
    there = list(dataset.data_vars)
    if name is not None:
        if name not in there:
            raise DataError(f"{path} has no variable {name!r}, only {_listed(there)}; say which one is meant")
        return dataset[name]
    what = "forecasts" if with_members else "observations"
    fitting = _fitting(dataset, members, with_members)
    if len(fitting) != 1:
        described = ", ".join(f"{key!r} {_listed(dataset[key].dims)}" for key in there[:12]) or "none at all"
        raise DataError(
            f"{path} has {len(fitting)} variables that could be the {what}, among {described}; say which one is"
        )
    return dataset[fitting[0]]


def _fitting(dataset: Any, members: Sequence[str], with_members: bool) -> list[str]:
    """The variables that have, or have not, a dimension of members."""
    return [
        key for key, item in dataset.data_vars.items() if item.dims and bool({*item.dims} & {*members}) is with_members
    ]


def _roles(dims: Sequence[str], case: Sequence[str], target: Sequence[str], name: str) -> tuple[list[str], list[str]]:
    """Which of the dimensions of a variable are cases and which are targets."""
    for dim in (*case, *target):
        if dim not in dims:
            raise DataError(f"{name!r} has no dimension {dim!r}, only {_listed(dims)}; name one of them")
    cases = [dim for dim in dims if dim in case or (not case and dim in CASE_NAMES and dim not in target)]
    left = [dim for dim in dims if dim not in cases]
    unknown = [dim for dim in left if dim not in target and dim not in TARGET_NAMES and not (len(left) == 1 and cases)]
    if unknown or not cases:
        which = f"whether {unknown[0]!r} holds cases or targets" if unknown else "which one holds the cases"
        raise DataError(f"{name!r} has the dimensions {_listed(dims)}; say {which}")
    return cases, left


def _in_order_of(observed: Any, array: Any, dims: Sequence[str], what: str) -> Any:
    """The array with the labels of its dimensions in the order of the observations; others than theirs are refused."""
    from prerank.forecast import positions  # torch loads slowly

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
