"""The columns of a hub's tasks by their meaning: joint, labels of cases, or following from others."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from prerank.io.errors import DataError, by_option, listed
from prerank.io.hub.files import MODEL, OUTPUT_COLUMNS, Task, are_one, is_day, task_of
from prerank.io.long_form import refuse_unlabelled

_SUBMITTERS = ("model_id", "team_abbr", "model_abbr")
_ORIGINS = ("reference_date", "origin_date", "forecast_date", "nowcast_date", "origin_epiweek", "round_id", "round")


class TaskColumns(NamedTuple):
    """Rows whose columns have their meaning."""

    rows: pd.DataFrame
    joint: list[str]
    cases: list[str]
    following: list[str]
    origin: str
    rules: Task
    target: str | None
    notes: tuple[str, ...]


def taken_apart(
    rows: pd.DataFrame, hub: Path, names: Sequence[str], target: str | None, joint: Sequence[str]
) -> TaskColumns:
    """Which columns are joint, which label the cases, and which follow from the others."""
    rules = task_of(hub, target)
    own = {*OUTPUT_COLUMNS, *_SUBMITTERS, MODEL, "round", "file", "row", *rules.keys, "target"}
    tasks = [name for name in rows.columns if name not in own and rows[name].notna().any()]
    notes = []
    if not joint:
        if "horizon" not in tasks:
            raise DataError(
                f"the tasks have the columns {listed(tasks)}; say across which the forecast is joint "
                f"{by_option('joint')}"
            )
        joint = ["horizon"]
        notes.append("joint: horizon, as nothing else was said")
    for name in joint:
        if name not in tasks:
            raise DataError(f"the tasks have no column {name!r}, only {listed(tasks)}; name one {by_option('joint')}")
    origin = next((name for name in (rules.origin, *_ORIGINS) if name in tasks and name not in joint), None)
    if origin is None:
        origin = "round"
        tasks = ["round", *tasks]
    refuse_unlabelled(rows, tasks, "the forecasts", rows["row"])
    others = [name for name in tasks if name not in joint]
    following = [
        name
        for name in others
        if name != origin
        and (
            name in rules.derived
            or _follows(rows, name, [one for one in others if one != name], joint)
            or _repeats(rows, name, [one for one in others if one not in (name, origin)], origin)
        )
    ]
    cases = [*([MODEL] if len(names) > 1 else []), *(name for name in others if name not in following)]
    cases.sort(key=lambda name: (name != MODEL, name != origin))
    rows, more = _common(rows, list(joint))
    return TaskColumns(rows, list(joint), cases, following, origin, rules, target, (*notes, *more))


def _follows(rows: pd.DataFrame, name: str, others: Sequence[str], joint: Sequence[str]) -> bool:
    """Whether a column varies within a case and is known from it and the joint columns, as the day that is forecast."""
    case = rows.groupby([MODEL, *others], sort=False, dropna=False)[name]
    within = rows.groupby([MODEL, *others, *joint], sort=False, dropna=False)[name]
    return bool((case.nunique() > 1).any() and (within.nunique() == 1).all())


def _repeats(rows: pd.DataFrame, name: str, others: Sequence[str], origin: str) -> bool:
    """Whether a column of days says the same as another one in every round, as the horizon does."""
    return is_day(rows[name]) and any(are_one(rows, [origin], name, other) for other in others)


def _common(rows: pd.DataFrame, joint: list[str]) -> tuple[pd.DataFrame, list[str]]:
    """The rows of what every model forecasts: a case without one of the targets would have no complete member."""
    if rows[MODEL].nunique() == 1:
        return rows, []
    there = rows[[MODEL, *joint]].drop_duplicates()
    count = there.groupby(joint, sort=False)[MODEL].transform("size")
    lacking = there[count < rows[MODEL].nunique()]
    if lacking.empty:
        return rows, []
    if len(lacking) == len(there):
        raise DataError(f"the models have no {', '.join(joint)} in common; check them one by one {by_option('model')}")
    said = lacking[joint].drop_duplicates().astype(str).agg(", ".join, axis=1).tolist()
    kept = rows.merge(lacking[joint].drop_duplicates(), on=joint, how="left", indicator=True)["_merge"] == "left_only"
    note = f"{', '.join(joint)} {', '.join(said[:12])} {'is' if len(said) == 1 else 'are'} left out: not every model has it"
    return rows[kept.to_numpy()].reset_index(drop=True), [note]
