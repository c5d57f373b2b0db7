"""Forecasts into files that `read_forecasts` reads, under the same names, with the observations if they are known."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from prerank._writing import require_file, whole_file
from prerank.io.errors import DataError
from prerank.io.formats import Csv, Feather, Parquet, format_of
from prerank.io.hub.reading import HubLayout
from prerank.io.hub.writing import admissible_samples, require_hub, write_hub
from prerank.io.layouts import long_table, wide_table, write_stored
from prerank.io.long_form import LongLayout, Matched
from prerank.io.read import Naming, kind_of
from prerank.io.stores import is_zarr
from prerank.io.variables_layout import VariablesLayout, write_variables
from prerank.io.wide import WideLayout

_TABLES = (Csv, Parquet, Feather)


def require_output(path: Path, like: Any = None) -> None:
    """Refuse a place where no forecasts can be written, before any work is done; `like` is a layout."""
    if isinstance(like, HubLayout):
        require_hub(path, like)
        return
    if kind_of(path) == "table" and not isinstance(format_of(path), _TABLES):
        raise DataError(f"{path.name}: forecasts are not written as {path.suffix}; give .npz, .nc, .csv or .parquet")
    if is_zarr(path):
        raise DataError(f"{path.name}: forecasts are not written as Zarr; give .npz, .nc, .csv or .parquet")
    if kind_of(path) == "variables":
        try:
            import xarray  # noqa: F401 - needed at the end, so asked for at the start
        except ImportError:
            raise DataError(f"{path.name} needs xarray; install it with: pip install xarray") from None
    require_file(path)


def admissible(members: np.ndarray, like: Any) -> tuple[np.ndarray, list[str]]:
    """Members as the rules of a layout allow them, such as whole numbers in a hub, and what was changed for it."""
    return admissible_samples(members, like.rules) if isinstance(like, HubLayout) else (members, [])


def write_forecasts(path: Path, found: Matched, naming: Naming | None = None, *, like: Any = None) -> None:
    """Write members, labels and kept columns in the format of the suffix, whole; observations where any is known.

    `read_forecasts` with the same names reads it again. In NPZ the axes are (case, member, target), whatever they
    were; NetCDF has one dimension of cases, with its labels as coordinates. With `like`, what a file had is kept: names,
    attributes, units, coordinates, columns and their order, rows, types; where the suffix stands for another kind
    of file, or a table in long form has another number of members, the plain form is written.

    Parameters
    ----------
    path : pathlib.Path
        Where to write; .npz, .nc, .csv, .tsv, .parquet or .feather.
    found : Matched
        Observations, members and kept columns.
    naming : Naming, optional
        What things are to be called in the file.
    like : object, optional
        The `layout` of what was read.

    Raises
    ------
    DataError
        If the suffix stands for a format that is not written.

    Examples
    --------
    >>> import tempfile
    >>> y = pd.DataFrame({"rain": [1.0, 2.0], "wind": [3.0, 4.0]})
    >>> path = Path(tempfile.mkdtemp()) / "forecasts.csv"
    >>> write_forecasts(path, Matched(y, np.zeros((2, 5, 2)), pd.DataFrame(index=y.index)))
    >>> pd.read_csv(path).columns.tolist()
    ['case', 'member', 'target', 'value', 'observation']
    """
    naming = naming or Naming()
    require_output(path, like)
    if isinstance(like, HubLayout):
        write_hub(path, found, like)
        return
    with whole_file(path) as partial:
        _writer(kind_of(path), like, found.members.shape[1])(partial, path, found, naming)


def _writer(kind: str, like: Any, n_members: int) -> Callable[[Path, Path, Matched, Naming], None]:
    """How a kind of file is written, after a layout that fits it."""
    if isinstance(like, VariablesLayout) and kind == "variables":
        return lambda partial, _, found, __: write_variables(partial, found, like)
    if isinstance(like, WideLayout) and kind == "table" and len(like.members) == n_members:
        return lambda partial, path, found, _: write_stored(wide_table(found, like), partial, path)
    if isinstance(like, LongLayout) and kind == "table" and like.path is not None and like.shape[1] == n_members:
        return lambda partial, path, found, _: write_stored(long_table(found, like), partial, path)
    return {"npz": _write_npz, "variables": _write_netcdf, "table": _write_table}[kind]


def _known(found: Matched) -> bool:
    return not bool(found.y.isna().to_numpy().all())


def _write_npz(partial: Path, path: Path, found: Matched, naming: Naming) -> None:
    arrays: dict[str, Any] = {naming.value or "members": found.members}
    if _known(found):
        arrays[naming.observation or "observations"] = found.y.to_numpy()
    if not isinstance(found.y.columns, pd.RangeIndex):
        arrays["targets"] = found.y.columns.to_numpy(dtype=str)
    labels = {} if isinstance(found.y.index, pd.RangeIndex) else _case_labels(found, naming)
    labels |= {str(name): column.to_numpy() for name, column in found.columns.items()}
    for name, values in labels.items():
        arrays[name] = values.astype(str) if values.dtype == object else values
    with partial.open("wb") as stream:
        np.savez(stream, **arrays)


def _case_labels(found: Matched, naming: Naming) -> dict[str, np.ndarray]:
    """The labels of the cases, a column for each of their levels."""
    index = found.y.index
    names = naming.case if len(naming.case) == index.nlevels else [name or "case" for name in index.names]
    return {str(name): index.get_level_values(level).to_numpy() for level, name in enumerate(names)}


def _write_table(partial: Path, path: Path, found: Matched, naming: Naming) -> None:
    n_cases, n_members, n_targets = found.members.shape
    case = np.repeat(np.arange(n_cases), n_members * n_targets)
    target = np.tile(np.arange(n_targets), n_cases * n_members)
    columns: dict[str, Any] = {name: values[case] for name, values in _case_labels(found, naming).items()}
    columns |= {str(name): values.to_numpy()[case] for name, values in found.columns.items() if name not in columns}
    columns[naming.member or "member"] = np.tile(np.repeat(np.arange(n_members), n_targets), n_cases)
    columns[naming.target[0] if naming.target else "target"] = found.y.columns.to_numpy()[target]
    columns[naming.value or "value"] = found.members.reshape(-1)
    if _known(found):
        columns[naming.observation or "observation"] = found.y.to_numpy()[case, target]
    frame, form = pd.DataFrame(columns), format_of(path)
    if isinstance(form, Csv):
        frame.to_csv(partial, index=False, sep=form.delimiter)
    elif isinstance(form, Parquet):
        frame.to_parquet(partial, index=False)
    else:
        frame.to_feather(partial)


def _write_netcdf(partial: Path, path: Path, found: Matched, naming: Naming) -> None:
    import xarray

    labels = {name: _of_netcdf(values) for name, values in _case_labels(found, naming).items()}
    dim = next(iter(labels)) if len(labels) == 1 else "case"
    member, target = naming.member or "member", naming.target[0] if len(naming.target) == 1 else "target"
    coords: dict[str, Any] = {name: (dim, values) for name, values in labels.items()}
    coords[target] = (target, found.y.columns.to_numpy())
    variables: dict[str, Any] = {naming.value or "forecast": ((dim, member, target), found.members)}
    if _known(found):
        variables[naming.observation or "observation"] = ((dim, target), found.y.to_numpy())
    kept = {
        str(name): (dim, _of_netcdf(values.to_numpy())) for name, values in found.columns.items() if name not in coords
    }
    # kept columns are coordinates, so that they are not taken for observations
    xarray.Dataset(variables, {**coords, **kept}).to_netcdf(partial, engine="scipy")


def _of_netcdf(values: np.ndarray) -> np.ndarray:
    """Labels of kinds that NetCDF does not have, such as decimals and dates of a time zone, as text."""
    strange = (Decimal, pd.Timestamp, pd.Period, pd.Interval)
    return values.astype(str) if values.dtype == object and isinstance(values[0], strange) else values
