"""Members as an xarray array or a long table, with the labels of cases and targets."""

from typing import Any

import numpy as np
import pandas as pd

from prerank.arrays.labels import labels_of


def as_data_array(members: np.ndarray, like: Any = None) -> Any:
    """Members (cases, members, targets) as a DataArray; labels, and names of its dimensions, are those of `like`."""
    try:
        import xarray
    except ImportError:
        raise ImportError("to_xarray needs xarray; install it with: pip install xarray") from None
    cases, targets = _labels(members, like)
    coords: dict[str, Any] = {"member": np.arange(1, members.shape[1] + 1), "target": ("target", np.asarray(targets))}
    if isinstance(cases, pd.MultiIndex):
        coords |= {str(name): ("case", np.asarray(cases.get_level_values(str(name)))) for name in cases.names}
    else:
        coords["case"] = ("case", np.asarray(cases))
    array = xarray.DataArray(members, dims=("case", "member", "target"), coords=coords, name="forecast")
    named = like.dims if isinstance(like, xarray.DataArray) else ()
    taken = {"case", "target", *array.coords}
    return array.rename({old: new for old, new in zip(("case", "target"), named, strict=False) if new not in taken})


def as_long_frame(members: np.ndarray, like: Any = None) -> pd.DataFrame:
    """Members (cases, members, targets) as a table with a row per value, which `from_long` reads."""
    cases, targets = _labels(members, like)
    n_cases, n_members, n_targets = members.shape
    case = np.repeat(np.arange(n_cases), n_members * n_targets)
    columns: dict[str, Any] = {str(name): cases.get_level_values(str(name))[case] for name in cases.names}
    columns["member"] = np.tile(np.repeat(np.arange(1, n_members + 1), n_targets), n_cases)
    columns["target"] = np.tile(np.asarray(targets), n_cases * n_members)
    return pd.DataFrame({**columns, "value": members.reshape(-1)})


def _labels(members: np.ndarray, like: Any) -> tuple[pd.Index, pd.Index]:
    if members.ndim != 3:
        raise ValueError(f"members have shape {members.shape}; pick one of the models: (cases, members, targets)")
    n_cases, _, n_targets = members.shape
    found = labels_of(like, 2)
    if like is not None and tuple(np.shape(like)) != (n_cases, n_targets):
        raise ValueError(
            f"labels are to come from {np.shape(like)} values; cases and targets are ({n_cases}, {n_targets})"
        )
    cases = pd.RangeIndex(n_cases) if found.cases is None else found.cases
    targets = pd.Index([f"y{k + 1}" for k in range(n_targets)]) if found.targets is None else found.targets
    several = isinstance(cases, pd.MultiIndex)
    names = [str(name or f"case {k}") for k, name in enumerate(cases.names)] if several else ["case"]
    return cases.set_names(names), targets
