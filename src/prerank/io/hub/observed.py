"""The observations of a hub's tasks, from the files in its folder `target-data`.

Known are `oracle-output` (a value per task), `time-series` (a value per place and date, perhaps in several versions
`as_of`, of which the latest counts), each a file or a folder of partitions such as `as_of=2024-11-02/part-0.parquet`, and
tables of other names.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from prerank._wording import counted
from prerank.io.errors import DataError, by_option, listed
from prerank.io.hub.files import Task, are_one, is_day, is_table, read_as_text, spelt, target_settings

_VALUES = ("oracle_value", "observation", "observed", "value", "obs")
_VERSIONS = ("as_of", "issue", "issue_date", "version")
_DATES = ("target_end_date", "target_date", "date", "time", "week_end", "week_ending_date", "reference_period")
_SCENARIOS = ("scenario", "scenario_id", "scenario_name")
_STEPS = {"day": "D", "week": "W", "month": "M", "year": "Y"}


class Tasks(NamedTuple):
    """The tasks to find observations of."""

    labels: pd.DataFrame
    """Their identifiers as text, a row per task."""
    origin: str
    """The column of rounds."""
    following: Sequence[str]
    """Columns that follow from others, such as the day that is forecast."""
    rules: Task


class Observed(NamedTuple):
    """A value per task, NaN where there is none; where they come from, and what was noticed."""

    values: np.ndarray
    path: Path
    notes: tuple[str, ...]


def observed_values(
    hub: Path, tasks: Tasks, given: Path | None, column: str | None, output_type: str, target: str | None
) -> Observed:
    """Observations of the tasks: of the file that is `given`, or else of the first in `target-data` that has the target."""
    if given is not None and given.is_dir() and (given / "target-data").is_dir():
        hub, given = given, None
    tried = [given] if given is not None else _tables(hub)
    for path in tried:
        table = _of_target(_read(path), tasks.rules.keys, output_type)
        if len(table):
            return _joined(table, path, tasks, column, _named_date(hub), target)
    raise DataError(
        f"{listed([_short(path, hub) for path in tried])} {'has' if len(tried) == 1 else 'have'} no row of the target "
        f"{target!r}; give the file of its observations as a second argument"
    )


def _tables(hub: Path) -> list[Path]:
    """Files and folders of observations, those of known names first."""
    folder = hub / "target-data"
    if not folder.is_dir():
        raise DataError(f"{hub} has no folder target-data; give a file of observations as a second argument")
    there = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and _holds_tables(path))
    if not there:
        raise DataError(
            f"{folder} has no CSV, Parquet or Feather file; give a file of observations as a second argument"
        )
    stems = {path: path.name.split(".")[0] for path in there}
    known = [path for name in ("oracle-output", "time-series") for path in there if stems[path] == name]
    others = [path for path in there if path not in known]
    if not known and len(others) > 1:
        with_targets = [path for path in others if "target" in _read(path).columns]
        if not with_targets:
            names = listed(path.name for path in others)
            raise DataError(
                f"{folder} has {names}, none of which says which target it is for; give one of them as a second argument"
            )
        others = with_targets
    return known + others


def _holds_tables(path: Path) -> bool:
    return any(is_table(one) for one in path.rglob("*") if one.is_file()) if path.is_dir() else is_table(path)


def _read(path: Path) -> pd.DataFrame:
    """A file, or the files of a folder with what the names of their folders say, as text."""
    if not path.exists():
        raise DataError(f"{path} cannot be read: no such file; give a file of observations")
    files = sorted(one for one in path.rglob("*") if one.is_file() and is_table(one)) if path.is_dir() else [path]
    frames = []
    for file in files:
        table = read_as_text(file)
        frame = pa.table({name: spelt(table[name]) for name in table.column_names}).to_pandas()
        for part in file.relative_to(path).parts[:-1] if path.is_dir() else ():
            name, equals, value = part.partition("=")
            if equals:
                frame[name] = value
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def _of_target(table: pd.DataFrame, keys: Mapping[str, str], output_type: str) -> pd.DataFrame:
    """The rows of a target that hold a value, not the probability of a category."""
    for name, wanted in keys.items():
        if name in table.columns:
            table = table[table[name] == wanted]
    if "output_type" in table.columns:
        kinds = table["output_type"]
        same = kinds == output_type
        table = table[same if same.any() else ~kinds.isin(["pmf", "cdf"])]
    return table


def _joined(
    table: pd.DataFrame, path: Path, tasks: Tasks, column: str | None, named_date: str | None, target: str | None
) -> Observed:
    labels = tasks.labels
    value = _value_column(table, path, column, labels.columns)
    left, right, notes = _keys(table.drop(columns=value), path, tasks, named_date)
    seen = pd.DataFrame({name: table[of] for name, of in right.items()})
    seen["value"] = _as_numbers(table[value], path, value)
    version = next((name for name in _VERSIONS if name in table.columns and name not in right.values()), None)
    if version is not None:
        seen = seen.assign(version=table[version]).sort_values("version", kind="stable")
        latest = str(seen["version"].iloc[-1])
        seen = seen.drop_duplicates(list(right), keep="last").drop(columns="version")
        notes.append(f"observations: the latest version of each, up to {version} {latest}")
    seen = seen.drop_duplicates()
    twice = seen.duplicated(list(right)).to_numpy()
    if twice.any():
        row = seen.iloc[int(twice.argmax())]
        said = ", ".join(f"{name} {row[name]}" for name in right)
        others = [name for name in table.columns if name not in (*right.values(), value, version)]
        raise DataError(
            f"{path} has several values of {said}, which other columns may tell apart ({listed(others)}); give a file with "
            "one value of each"
        )
    found = left.merge(seen, on=list(right), how="left")["value"].to_numpy(dtype=float)
    absent = int(np.isnan(found).sum())
    if absent == len(found):
        mine, theirs = (", ".join(f"{name} {frame[name].iloc[0]}" for name in right) for frame in (left, seen))
        raise DataError(
            f"{path} has no observation of any of {counted(len(found), 'task')}: they are like {mine}, "
            f"the observations like {theirs}; write both alike, or give another file"
        )
    if "target" not in table.columns and target is not None:
        notes.append(f"observations: column {value!r} of {path.name}, which does not say that it is {target!r}")
    else:
        notes.append(f"observations: column {value!r} of {path.name}")
    if absent:
        notes.append(f"{absent:,} of {counted(len(found), 'task')} have no observation")
    return Observed(found, path, tuple(notes))


def _keys(
    table: pd.DataFrame, path: Path, tasks: Tasks, named_date: str | None
) -> tuple[pd.DataFrame, dict[str, str], list[str]]:
    """What to join by: labels of the tasks, the column of the table for each of them, and what was noticed."""
    labels, notes = tasks.labels, []
    ignored = {"output_type", "output_type_id", *_VERSIONS, *tasks.rules.keys}
    shared = {name: name for name in labels.columns if name in table.columns and name not in ignored}
    dated = [name for name in shared if name != tasks.origin and is_day(labels[name])]
    if not dated:
        candidates = [named_date, *_DATES] if named_date else list(_DATES)
        theirs = next((name for name in candidates if name in table.columns and is_day(table[name])), None)
        alone = [name for name in table.columns if name not in ignored and name != tasks.origin and is_day(table[name])]
        theirs = theirs or (alone[0] if len(alone) == 1 else None)
        if theirs is None:
            raise DataError(f"{path} has no column of dates, only {listed(table.columns)}; call it target_end_date")
        mine = next((name for name in _DATES if name in labels.columns and is_day(labels[name])), None)
        if mine is None:
            mine = "target_end_date"
            labels = labels.assign(**{mine: _day_forecast(tasks, path)})
        shared.pop(tasks.origin, None)  # a series by date knows no rounds
        shared[mine] = theirs
    day = next(name for name in shared if name != tasks.origin and is_day(labels[name]))
    for name in labels.columns:
        following = name in (*tasks.following, tasks.origin) or are_one(labels, [tasks.origin], name, day)
        if name in shared or following or name in ignored or labels[name].nunique() == 1:
            continue
        if name not in _SCENARIOS:
            raise DataError(
                f"{path} has no column {name!r}, only {listed(table.columns)}, so its values cannot be told apart; "
                f"call the column that holds it {name!r}"
            )
        notes.append(f"observations: the same for every {name}")
    return labels[list(shared)], shared, notes


def _day_forecast(tasks: Tasks, path: Path) -> pd.Series:
    """The day that is forecast, from the day of the round and the horizon."""
    labels, step = tasks.labels, _STEPS.get(str(tasks.rules.unit).rstrip("s").lower())
    if "horizon" not in labels.columns or step is None or not is_day(labels[tasks.origin]):
        raise DataError(
            f"{path} is a series by date, and the forecasts have no column of the day that is forecast, only "
            f"{listed(labels.columns)}; add target_end_date"
        )
    start = pd.to_datetime(labels[tasks.origin])
    ahead = pd.to_numeric(labels["horizon"]).astype(int)
    if step in ("D", "W"):
        days = start + pd.to_timedelta(ahead * (7 if step == "W" else 1), unit="D")
    else:
        pairs = zip(start, ahead, strict=True)
        months = 1 if step == "M" else 12
        days = pd.Series([day + pd.DateOffset(months=months * n) for day, n in pairs], labels.index)
    return days.dt.strftime("%Y-%m-%d")


def _value_column(table: pd.DataFrame, path: Path, column: str | None, labels: pd.Index) -> str:
    if column is not None:
        if column not in table.columns:
            raise DataError(
                f"{path} has no column {column!r}, only {listed(table.columns)}; name one {by_option('observation')}"
            )
        return column
    found = next((name for name in _VALUES if name in table.columns), None)
    if found is None:
        raise DataError(
            f"{path} has the columns {listed(table.columns)}, of which none is called {' or '.join(_VALUES[:4])}; "
            f"name the one of observations {by_option('observation')}"
        )
    return found


def _as_numbers(column: pd.Series, path: Path, name: str) -> pd.Series:
    words = column.where(~column.isin(["", "NA", "NaN", "nan", "null"]))
    numbers = pd.to_numeric(words, errors="coerce")
    wrong = (numbers.isna() & words.notna()).to_numpy()
    if wrong.any():
        raise DataError(f"{path}: column {name!r} holds not only numbers but, for instance, {words[wrong].iloc[0]!r}")
    return numbers.astype(float)


def _named_date(hub: Path) -> str | None:
    found = target_settings(hub).get("date_col")
    return found if isinstance(found, str) else None


def _short(path: Path, hub: Path) -> str:
    return str(path.relative_to(hub)) if path.is_relative_to(hub) else str(path)
