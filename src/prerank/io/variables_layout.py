"""Corrected forecasts as the variable of a NetCDF file that they came from: names, attributes, coordinates, types kept."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from prerank.io.layouts import in_order
from prerank.io.long_form import Matched
from prerank.io.stores import opened_as_stored

_PACKING = (
    "scale_factor",
    "add_offset",
    "dtype",
    "_FillValue",
    "missing_value",
    "chunksizes",
    "chunks",
    "preferred_chunks",
)


@dataclass(frozen=True)
class VariablesLayout:
    """Which variable of a file, or of a store, holds the forecast, and where its cases and targets stand in it."""

    path: Path
    value: str
    member: str
    case_dims: tuple[str, ...]
    target_dims: tuple[str, ...]
    cases: pd.Index
    targets: pd.Index
    order: dict[str, np.ndarray]
    """For every dimension of cases or targets, the positions in the file in the order in which they were read."""
    observation: str | None
    about: dict[str, Any]
    """The name that observations get in the file, None where they are there already; and their attributes."""


def write_variables(partial: Path, found: Matched, layout: VariablesLayout) -> None:
    """The dataset with other values in the variable of the forecast, for the corrected cases alone."""
    import xarray

    stored = opened_as_stored(layout.path)
    raw = stored[layout.value]
    values, there = in_order(found, layout.cases, layout.targets)
    n_draws = values.shape[1]
    dims = [*layout.case_dims, layout.member, *layout.target_dims]
    lengths = [n_draws if dim == layout.member else len(layout.order[dim]) for dim in dims]
    # in the order of the file, the cases that were not corrected left out
    array = xarray.DataArray(values.reshape(lengths), dims=dims)
    known = there.reshape([len(layout.order[dim]) for dim in layout.case_dims])
    seen = None
    if layout.observation is not None and found.y.notna().any(axis=None):
        y = found.y.reindex(index=layout.cases, columns=layout.targets).to_numpy()
        of_y = [dim for dim in dims if dim != layout.member]
        seen = xarray.DataArray(y.reshape([len(layout.order[dim]) for dim in of_y]), dims=of_y)
    keep: dict[str, np.ndarray] = {}
    for axis, dim in enumerate(dims):
        if dim == layout.member:
            continue
        back = np.argsort(layout.order[dim], kind="stable")
        array = array.isel({dim: back})
        seen = None if seen is None else seen.isel({dim: back})
        if dim in layout.case_dims:
            others = tuple(k for k in range(known.ndim) if k != axis)
            chosen = np.flatnonzero(np.asarray(known.any(axis=others))[back])
            array = array.isel({dim: chosen})
            seen = None if seen is None else seen.isel({dim: chosen})
            keep[dim] = np.sort(layout.order[dim])[chosen]
    single = [dim for dim in raw.dims if dim not in dims]  # of length one, taken away when it was read
    written = stored.isel(keep)
    if n_draws != raw.sizes[layout.member]:
        about = stored[layout.member].attrs if layout.member in stored.variables else {}
        gone = [name for name, variable in written.variables.items() if layout.member in variable.dims]
        written = written.drop_vars(gone).assign_coords(
            {layout.member: (layout.member, np.arange(1, n_draws + 1), about)}
        )
    array = array.expand_dims(single).transpose(*raw.dims)
    kind = raw.dtype if raw.dtype.kind == "f" else np.dtype(np.float64)
    encoding = {key: item for key, item in raw.encoding.items() if key not in _PACKING and key in ("zlib", "complevel")}
    variable = xarray.Variable(raw.dims, array.values.astype(kind), raw.attrs, encoding)
    written[layout.value] = variable
    if seen is not None:
        written[layout.observation] = xarray.Variable(seen.dims, seen.values, layout.about)
    written.encoding = {key: item for key, item in stored.encoding.items() if key == "unlimited_dims"}
    for one in written.variables.values():
        one.encoding = {
            key: item for key, item in one.encoding.items() if key not in ("chunksizes", "chunks", "source")
        }
    _to_netcdf(written[[*(name for name in stored.data_vars if name in written), *_new(written, stored)]], partial)


def _new(written: Any, stored: Any) -> list[str]:
    return [name for name in written.data_vars if name not in stored.data_vars]


def _to_netcdf(dataset: Any, partial: Path) -> None:
    try:
        import netCDF4  # noqa: F401 - keeps whole numbers of 64 bits and text of any length
    except ImportError:
        dataset.to_netcdf(partial, engine="scipy")
    else:
        dataset.to_netcdf(partial, engine="netcdf4")
