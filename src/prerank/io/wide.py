"""Wide tables: a row per case and target, a column per member or model, and a column of observations.

A column of times may be split into cases and targets, such as days and hours.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from prerank._wording import counted
from prerank.io.delimited import INDEX
from prerank.io.errors import DataError, by_option, listed
from prerank.io.formats import Csv, as_frame, format_of
from prerank.io.long_form import Matched, coded, filled, names_of_members, refuse_twice, refuse_unlabelled
from prerank.io.time_parts import PARTS, SPLITS, as_times

_OBSERVATIONS = ("observation", "observed", "obs", "y")


@dataclass(frozen=True)
class WideLayout:
    """Where the values of members stand in a wide table, for `prerank.io.layouts`."""

    path: Path
    members: tuple[str, ...]
    observation: str | None
    cases: pd.Index
    targets: pd.Index
    case: np.ndarray
    """For every row the number of its case, and that of its target."""
    target: np.ndarray


def read_wide(
    forecasts: Path,
    observations: Path | None = None,
    *,
    members: Sequence[str],
    observation: str | None = None,
    time: str | None = None,
    case: Sequence[str] = (),
    joint: Sequence[str] = (),
    keep: Sequence[str] = (),
    need_observations: bool = True,
) -> Matched:
    """Members from columns, named one by one, by wildcards (`LEAR *`), by an expression (`/DNN \\d/`) or all (`*`).

    `joint` names columns of targets, or what to split the column `time` by: hour, weekday, day or month. Without a name
    the column of times is the only one that holds dates.
    """
    table = _table(forecasts)
    if observation is None and observations is None:
        observation = next((name for name in _OBSERVATIONS if name in table.columns), None)
    named = [*case, *joint, *([time] if time else [])]
    named += [observation] if observation and (observations is None or observation in table.columns) else []
    for name in named:
        if name not in table.columns and not (name in joint and name in SPLITS):
            raise DataError(_not_there(forecasts, name, table, named))
    columns = _members(forecasts, table, members, [*named, *keep])
    time = time or _only_time(forecasts, table, [*named, *columns], bool(case))
    notes = [f"members: the {len(columns)} columns {listed(columns)}"]
    proposed = False
    if time is not None:
        table = table.assign(**{time: as_times(forecasts, table[time], time)})
        where = "the first column" if time == INDEX else repr(time)
        zone = getattr(table[time].dt, "tz", None)
        if zone is not None:
            notes.append(f"{where} is taken in the time zone {zone}")
        if not joint and table[time].dt.normalize().duplicated().any() and not case:
            joint, proposed = ["hour"], True
            notes.append(f"joint: the hours of a day, by the times in {where}, as nothing else was said")
    case_columns, target_columns = _split(forecasts, table, time, case, joint, proposed)
    case_codes, case_labels = coded(case_columns)
    if target_columns:
        target_codes, target_labels = coded(target_columns)
    else:
        name = observation or "value"
        target_codes, target_labels = np.zeros(len(table), dtype=np.int64), pd.Index([name])
    if isinstance(target_labels, pd.MultiIndex):
        target_labels = pd.Index([", ".join(map(str, label)) for label in target_labels])
    spot = np.ravel_multi_index((case_codes, target_codes), (len(case_labels), len(target_labels)))
    labels = pd.concat([column.reset_index(drop=True) for column in (*case_columns, *target_columns)], axis=1)
    refuse_twice(spot, labels, "forecasts")
    shape = (len(case_labels), len(target_labels))
    keys = [*case, *(name for name in joint if name in table.columns), time]
    seen, more = _observed(forecasts, table, observations, observation, keys, need_observations)
    values = [filled(spot, table[name], shape, "forecasts") for name in columns]
    y = np.full(shape, np.nan) if seen is None else filled(spot, seen, shape, "observations")
    whole = shape[0] * shape[1]
    if whole > len(table):
        notes.append(
            f"{whole - len(table):,} of {counted(whole, 'row')} of {shape[0]:,} cases by {shape[1]} targets are absent"
        )
    kept = {name: _per_case(name, table, time, case_codes, case_labels) for name in keep}
    layout = WideLayout(forecasts, tuple(columns), observation, case_labels, target_labels, case_codes, target_codes)
    return Matched(
        pd.DataFrame(y, index=case_labels, columns=target_labels),
        np.stack(values, axis=1),
        pd.DataFrame(kept, index=case_labels),
        (*notes, *more),
        layout=layout,
        member_names=names_of_members(columns),
    )


def _table(path: Path) -> pd.DataFrame:
    form = format_of(path)
    found = form.read_with_index(path) if isinstance(form, Csv) else form.read(path)
    return as_frame(found, path)


def _not_there(path: Path, name: str, table: pd.DataFrame, named: Sequence[str]) -> str:
    return (
        f"{path} has no column {name!r}; not named yet are {listed(one for one in table.columns if one not in named)}"
    )


def _members(path: Path, table: pd.DataFrame, patterns: Sequence[str], named: Sequence[str]) -> list[str]:
    """The columns of members, in the order in which they are asked for."""
    free = [str(name) for name in table.columns if name not in named]
    found: list[str] = []
    for pattern in _asked(patterns, free):
        if pattern in free:
            fitting = [pattern]
        elif len(pattern) > 2 and pattern[0] == pattern[-1] == "/":
            try:
                fitting = [name for name in free if re.fullmatch(pattern[1:-1], name)]
            except re.error as error:
                raise DataError(f"--members {pattern}: no regular expression, {error}") from None
        else:
            fitting = [name for name in free if fnmatchcase(name, pattern)]
            if pattern == "*":
                fitting = [name for name in fitting if pd.api.types.is_any_real_numeric_dtype(table[name].dtype)]
                fitting = [name for name in fitting if name != INDEX]
        if not fitting:
            raise DataError(
                f"{path} has no column {pattern!r} for members; not named yet are {listed(free)}; name some "
                f"{by_option('members')}"
            )
        found += fitting
    found = list(dict.fromkeys(found))
    if len(found) < 2:
        raise DataError(f"{path}: a single column of members, {found[0]!r}; name at least two {by_option('members')}")
    return found


def _asked(patterns: Sequence[str], free: Sequence[str]) -> list[str]:
    """Patterns one by one; a comma separates them unless it is part of a column's name or of an expression."""
    every = []
    for pattern in patterns:
        whole = pattern in free or pattern.startswith("/")
        every += [pattern] if whole else [part.strip() for part in pattern.split(",") if part.strip()]
    return every


def _only_time(path: Path, table: pd.DataFrame, named: Sequence[str], cases_are_named: bool) -> str | None:
    dates = [
        str(name) for name in table.columns if name not in named and pd.api.types.is_datetime64_any_dtype(table[name])
    ]
    if len(dates) == 1:
        return dates[0]
    if cases_are_named:
        return None
    free = [name for name in table.columns if name not in named]
    raise DataError(
        f"{path} has {len(dates)} columns of dates among those not named yet ({listed(free)}); name one "
        f"{by_option('time')}, or columns of cases {by_option('case')}"
    )


def _split(
    path: Path, table: pd.DataFrame, time: str | None, case: Sequence[str], joint: Sequence[str], proposed: bool
) -> tuple[list[pd.Series], list[pd.Series]]:
    """The columns of cases and those of targets, with the column of times cut into both where `joint` says so."""
    parts = [name for name in joint if name not in table.columns or (proposed and name in SPLITS)]
    targets = [table[name] for name in joint if name not in parts]
    cases = [table[name] for name in case]
    if len(parts) > 1:
        raise DataError(f"--joint {' and '.join(parts)} both split times; give one of {', '.join(SPLITS)}")
    if parts:
        if time is None:
            raise DataError(
                f"{path} has no column {parts[0]!r}, and no column of times to split by {by_option('time')}"
            )
        of_case, cut, of_target = SPLITS[parts[0]]
        cases.append(cut(table[time]).rename(of_case))
        targets.append(of_target(table[time]).rename(parts[0]))
    elif time is not None and time not in case and time not in joint:
        cases.append(table[time])
    for column in (*cases, *targets):
        refuse_unlabelled(column.to_frame(), [str(column.name)], str(path))
    return cases, targets


def _observed(
    path: Path,
    table: pd.DataFrame,
    observations: Path | None,
    observation: str | None,
    keys: Sequence[str | None],
    needed: bool,
) -> tuple[pd.Series | None, list[str]]:
    """The observation of every row, of a column or of a second table with the same labels."""
    if observations is None:
        if observation is None and needed:
            raise DataError(
                f"{path} has no column 'observation'; name the one of observations {by_option('observation')}, of "
                f"{listed(table.columns)}"
            )
        return (None if observation is None else table[observation]), []
    other = _table(observations)
    labels = [name for name in keys if name is not None]
    for name in labels:
        if name not in other.columns:
            raise DataError(_not_there(observations, name, other, []))
    value = observation or next((name for name in (*_OBSERVATIONS, "value") if name in other.columns), None)
    if value is None or value not in other.columns:
        raise DataError(
            f"{observations} has no column {value or 'observation'!r}; name the one of observations "
            f"{by_option('observation')}, of {listed(name for name in other.columns if name not in labels)}"
        )
    for name in labels:
        if pd.api.types.is_datetime64_any_dtype(table[name]):
            other = other.assign(**{name: as_times(observations, other[name], name).astype(table[name].dtype)})
    refuse_twice(pd.factorize(pd.MultiIndex.from_frame(other[labels]))[0], other[labels], "observations")
    try:
        joined = table[labels].merge(other[[*labels, value]].rename(columns={value: "\0"}), on=labels, how="left")["\0"]
    except ValueError as error:
        raise DataError(f"labels of forecasts and observations are of different kinds: {error}") from None
    absent = int(joined.isna().sum())
    if absent == len(joined):
        raise DataError(
            f"{observations} has no observation for any of {counted(len(joined), 'row')}; give both the "
            f"same {listed(labels)}"
        )
    notes = [f"{absent:,} of {counted(len(joined), 'row')} have no observation"] if absent else []
    return joined.set_axis(table.index), notes


def _per_case(name: str, table: pd.DataFrame, time: str | None, codes: np.ndarray, cases: pd.Index) -> np.ndarray:
    """A column, or a part of the dates, that is the same in all rows of a case."""
    level = cases.get_level_values(name) if name in cases.names else None
    if level is not None:
        return np.asarray(level)
    if name in table.columns:
        column: Any = table[name]
    elif time is not None and name in PARTS:
        column = PARTS[name](table[time])
    else:
        raise DataError(
            f"there is no column {name!r}, only {listed(table.columns)}, or of dates {', '.join(PARTS)}; name one"
        )
    numbers, labels = pd.factorize(column)
    first = np.empty(len(cases), dtype=np.int64)
    first[codes] = numbers
    if (numbers < 0).any() or (first[codes] != numbers).any():
        row = int(((numbers < 0) | (first[codes] != numbers)).argmax())
        why = "is missing" if numbers[row] < 0 else "has more than one value"
        raise DataError(f"column {name!r} {why} in the case of row {row + 1:,}; it needs one value per case")
    return np.asarray(labels)[first]
