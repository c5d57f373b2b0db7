"""Forecasts and their observations from files, whatever the format: NPZ, NetCDF, or a table in long form."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from prerank.data.arrayfile import read_npz
from prerank.data.errors import DataError
from prerank.data.formats import format_of
from prerank.data.longform import Matched, from_long
from prerank.data.netcdf import read_netcdf

NETCDF = (".nc", ".nc4", ".cdf", ".netcdf")


@dataclass(frozen=True)
class Naming:
    """What columns, arrays, variables and dimensions of files are called; where nothing is said, the format's own names."""

    case: tuple[str, ...] = ()
    member: str | None = None
    target: tuple[str, ...] = ()
    value: str | None = None
    observation: str | None = None
    axes: tuple[str, ...] | None = None
    keep: tuple[str, ...] = ()


def read_forecasts(
    forecasts: Path, observations: Path | None = None, naming: Naming | None = None, *, need_observations: bool = True
) -> Matched:
    """Observations and members from one file, or from two of one kind; the suffix says the format.

    NPZ has arrays, NetCDF has variables, and CSV, TSV, Parquet and Feather are tables for `from_long`. With
    `need_observations=False` the observations of a file that has none are NaN: forecasts of what is still to come.
    """
    naming = naming or Naming()
    kinds = {kind_of(path) for path in (forecasts, observations) if path is not None}
    if len(kinds) > 1:
        raise DataError(
            f"{forecasts} and {observations} are of different kinds; give two of NPZ, two of NetCDF or two tables"
        )
    (kind,) = kinds
    if naming.axes is not None and kind != "npz":
        raise DataError(
            "axes are for arrays of NPZ files; dimensions and columns have names: say case, member and target"
        )
    names = {"value": naming.value, "observation": naming.observation}
    said = {role: name for role, name in names.items() if name is not None}
    if kind == "npz":
        if naming.case or naming.member is not None or naming.target:
            raise DataError("arrays of NPZ files have no named case, member or target; say the order of their axes")
        return read_npz(
            forecasts, observations, axes=naming.axes, keep=naming.keep, need_observations=need_observations, **said
        )
    if kind == "netcdf":
        return read_netcdf(
            forecasts,
            observations,
            case=naming.case,
            member=naming.member,
            target=naming.target,
            keep=naming.keep,
            need_observations=need_observations,
            **said,
        )
    if len(naming.target) > 1:
        raise DataError(f"targets {', '.join(naming.target)}: a table in long form has one column of targets; name one")
    if naming.member is not None:
        said["member"] = naming.member
    if naming.target:
        said["target"] = naming.target[0]
    table, case = _table(forecasts), naming.case or ("case",)
    seen = None if observations is None else _table(observations)
    if seen is None and not need_observations and said.get("observation", "observation") not in table.columns:
        labels = [name for name in (*case, said.get("target", "target")) if name in table.columns]
        seen = table[labels].drop_duplicates().assign(**{said.get("observation", "observation"): np.nan})
    return from_long(table, seen, case=case, keep=naming.keep, **said)


def kind_of(path: Path) -> str:
    """What a file's suffix stands for: npz, netcdf or table."""
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return "npz"
    if suffix in NETCDF:
        return "netcdf"
    try:
        format_of(path)
    except DataError:
        raise DataError(
            f"{path.name}: cannot tell the format from {suffix!r}; give .npz, .nc, .csv, .tsv, .parquet or .feather"
        ) from None
    return "table"


def _table(path: Path) -> pd.DataFrame:
    return format_of(path).read(path).to_pandas(date_as_object=False)  # so that a day is one in every format
