"""Forecasts and their observations from files, whatever the format: NPZ, NetCDF, Zarr, tables, forecast hubs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from prerank.io.errors import DataError, by_option, listed
from prerank.io.formats import as_frame, format_of
from prerank.io.hub import read_hub
from prerank.io.hub.files import OUTPUT_COLUMNS, is_hub
from prerank.io.long_form import Matched, from_long
from prerank.io.netcdf import read_variables
from prerank.io.npz import read_npz
from prerank.io.sample_paths import as_long_form
from prerank.io.stores import NETCDF, is_zarr
from prerank.io.wide import read_wide


@dataclass(frozen=True)
class Naming:
    """What columns, arrays, variables and dimensions of files are called; where nothing is said, the format's own names.

    Parameters
    ----------
    case : tuple of str, default ()
        Columns or dimensions that label the cases.
    member : str, optional
        Column or dimension of members.
    target : tuple of str, default ()
        Column or dimension of targets; several names are dimensions that are taken together. In a hub the target's name.
    value : str, optional
        Column, array or variable of the members' values.
    observation : str, optional
        Column, array or variable of the observations.
    axes : tuple of str, optional
        Order of the axes of arrays in NPZ files, of case, member and target.
    keep : tuple of str, default ()
        Columns that are kept with the cases, such as a date for blocks.
    joint : tuple of str, default ()
        Columns or dimensions across which the forecast is joint, such as a horizon; another word for `target`, and the one
        for hubs.
    model : tuple of str, default ()
        Models of a hub, with wildcards * and ?.
    lead_units : str, optional
        What leads of a hindcast are counted in, such as days, where the file does not say.
    members : tuple of str, default ()
        Columns of members of a wide table: names, wildcards such as "LEAR *", expressions such as "/DNN \\d/", or "*".
    time : str, optional
        Column of times of a wide table, which `joint` may split: hour, weekday, day or month.
    """

    case: tuple[str, ...] = ()
    member: str | None = None
    target: tuple[str, ...] = ()
    value: str | None = None
    observation: str | None = None
    axes: tuple[str, ...] | None = None
    keep: tuple[str, ...] = ()
    joint: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    lead_units: str | None = None
    members: tuple[str, ...] = ()
    time: str | None = None


def read_forecasts(
    forecasts: Path, observations: Path | None = None, naming: Naming | None = None, *, need_observations: bool = True
) -> Matched:
    """Observations and members from one file, or from two of one kind; the suffix says the format.

    A folder with `model-output` is a forecast hub, as for `read_hub`. NPZ has arrays, NetCDF and Zarr have variables, and
    CSV, TSV, Parquet and Feather are tables for `from_long`. Columns that neuralforecast and GluonTS write are recognised.

    Parameters
    ----------
    forecasts : pathlib.Path
        The file of the forecasts; its suffix says the format.
    observations : pathlib.Path, optional
        The file of the observations, of the same kind; by default they are in the first.
    naming : Naming, optional
        What things are called in the files.
    need_observations : bool, default True
        False for forecasts of what is still to come: the observations of a file that has none are NaN.

    Returns
    -------
    Matched
        Observations, members and kept columns.

    Raises
    ------
    DataError
        If the files are of different kinds, do not match, or hold no numbers.

    See Also
    --------
    write_forecasts : the way back
    from_long : from a data frame
    """
    naming = naming or Naming()
    if kind_of(forecasts) == "hub":
        return _of_hub(forecasts, observations, naming, need_observations)
    if naming.model:
        raise DataError(f"{forecasts} is no forecast hub, which has a folder model-output; --model is for hubs")
    if naming.joint and naming.target:
        raise DataError("--joint and --target both name the targets; give one of them")
    joint = naming.joint
    naming = replace(naming, target=naming.target or joint, joint=())
    kinds = {kind_of(path) for path in (forecasts, observations) if path is not None}
    if len(kinds) > 1:
        raise DataError(
            f"{forecasts} and {observations} are of different kinds; give two of NPZ, two of NetCDF or Zarr, or two tables"
        )
    (kind,) = kinds
    if naming.members and kind != "table":
        raise DataError(f"--members names columns of a table, and {forecasts} is none; name a dimension with --member")
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
    if kind == "variables":
        return read_variables(
            forecasts,
            observations,
            case=naming.case,
            member=naming.member,
            target=() if joint else naming.target,
            joint=joint,
            keep=naming.keep,
            lead_units=naming.lead_units,
            need_observations=need_observations,
            **said,
        )
    if naming.members:
        for name, given in (("member", naming.member), ("value", naming.value)):
            if given is not None:
                raise DataError(f"--members names a column for every member, so there is no --{name}; leave it out")
        return read_wide(
            forecasts,
            observations,
            members=naming.members,
            observation=naming.observation,
            time=naming.time,
            case=naming.case,
            joint=naming.target,
            keep=naming.keep,
            need_observations=need_observations,
        )
    if naming.time is not None:
        raise DataError("--time is for wide tables, which have a column per member; name these with --members")
    if len(naming.target) > 1:
        raise DataError(f"targets {', '.join(naming.target)}: a table in long form has one column of targets; name one")
    if naming.member is not None:
        said["member"] = naming.member
    if naming.target:
        said["target"] = naming.target[0]
    tables = read_table(forecasts), None if observations is None else read_table(observations)
    if not (naming.case or said.keys() & {"member", "target"}):
        tables, found = as_long_form(*tables, said.get("value"))
        said = {**found, **said}
    case = naming.case or said.pop("case", ("case",))
    own, seen = tables
    _refuse_wide(forecasts, own, (*case, said.get("member", "member"), said.get("value", "value")))
    observation = said.get("observation", "observation")
    if seen is None and not need_observations and observation not in own.columns:
        labels = [name for name in (*case, said.get("target", "target")) if name in own.columns]
        seen = own[labels].drop_duplicates().assign(**{observation: np.nan})
    matched = from_long(own, seen, case=case, keep=naming.keep, **said)
    return matched._replace(layout=replace(matched.layout, path=forecasts))


def _refuse_wide(path: Path, table: pd.DataFrame, names: Sequence[str]) -> None:
    """A table without any of the columns of the long form is perhaps a wide one."""
    if not any(name in table.columns for name in names):
        only = str(table.columns[0])
        sign = next((sign for sign in (";", "|", " ") if sign in only), None) if len(table.columns) == 1 else None
        advice = (
            f"columns are separated by {sign!r}, and should be by commas"
            if sign is not None
            else "name those of a table with a row per member with --case, --member, --target and --value, or of one with a "
            "column per member with --members and --observation"
        )
        raise DataError(
            f"{path} has no column {', '.join(map(repr, names[:-1]))} or {names[-1]!r}, only {listed(table.columns)}; "
            f"{advice}"
        )


def hub_target(forecasts: Path, naming: Naming) -> str | None:
    """The target to read of a hub, if one is named; several are refused, and names of columns that a hub knows."""
    for name, option in (
        ("case", naming.case),
        ("member", naming.member),
        ("value", naming.value),
        ("axes", naming.axes),
    ):
        if option:
            raise DataError(f"{forecasts} is a forecast hub, whose columns are known; leave out --{name}")
    if len(naming.target) > 1:
        raise DataError(
            f"targets {', '.join(naming.target)}: a hub is read a target at a time; name one {by_option('target')}"
        )
    return naming.target[0] if naming.target else None


def _of_hub(forecasts: Path, observations: Path | None, naming: Naming, need_observations: bool) -> Matched:
    return read_hub(
        forecasts,
        observations,
        model=naming.model,
        target=hub_target(forecasts, naming),
        joint=naming.joint,
        observation=naming.observation,
        keep=naming.keep,
        need_observations=need_observations,
    )


def kind_of(path: Path) -> str:
    """What a path stands for: a hub (a folder), or by its suffix npz, variables (of NetCDF or Zarr) or table."""
    if is_hub(path):
        return "hub"
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return "npz"
    if suffix in NETCDF or is_zarr(path):
        return "variables"
    try:
        format_of(path)
    except DataError:
        hub = next((folder for folder in list(path.parents)[:2] if is_hub(folder)), None) if path.is_dir() else None
        if hub is not None:
            raise DataError(f"{path} is part of a forecast hub; give the hub's folder, {hub}, and --model") from None
        if path.is_dir():
            raise DataError(
                f"{path} is a folder, but no Zarr store and no forecast hub, which has a folder model-output; "
                "give the name of a file in it"
            ) from None
        raise DataError(
            f"{path.name}: cannot tell the format from {suffix!r}; give .npz, .nc, .zarr, .csv, .tsv, .parquet or .feather"
        ) from None
    return "table"


def read_table(path: Path) -> pd.DataFrame:
    """A table of any format as it is; a single file of a hub is refused."""
    table = format_of(path).read(path)
    if {*OUTPUT_COLUMNS} <= {*table.column_names}:
        raise DataError(f"{path} is a file of a forecast hub; give the hub's folder, which has model-output in it")
    return as_frame(table, path)
