"""Read forecast hubs in the hubverse layout: samples, or quantiles, of one target with their observations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from prerank._wording import counted
from prerank.io.errors import DataError, by_option, listed
from prerank.io.hub.files import MODEL, Submission, Task, chosen_models
from prerank.io.hub.observed import Tasks, observed_values
from prerank.io.hub.rows import rows_of
from prerank.io.hub.tasks import TaskColumns, taken_apart
from prerank.io.label_order import coded_labels
from prerank.io.long_form import Matched, coded, refuse_twice


class Quantiles(NamedTuple):
    """Quantiles of every target by itself, with observations. They say nothing about how targets go together.

    Attributes
    ----------
    y : pandas.DataFrame, shape (n_cases, n_targets)
        Observations with labelled cases and targets.
    values : numpy.ndarray, shape (n_cases, n_targets, n_levels)
        The quantiles, NaN where a model gives none.
    levels : numpy.ndarray, shape (n_levels,)
        Their levels, increasing.
    columns : pandas.DataFrame
        Model, round and the other identifiers of tasks, a row per case.
    notes : tuple of str
        What was noticed on the way, a sentence each.
    """

    y: pd.DataFrame
    values: np.ndarray
    levels: np.ndarray
    columns: pd.DataFrame
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class HubLayout:
    """Where the values of samples stand in the files of a hub, for `prerank.io.hub.writing`."""

    hub: Path
    target: str | None
    rules: Task
    files: tuple[Submission, ...]
    observations: Path | None
    cases: pd.Index
    targets: pd.Index
    shape: tuple[int, int, int]
    file: np.ndarray
    """For every row that was read, the number of its file, its number there, and its place in the members."""
    row: np.ndarray
    place: np.ndarray


def read_hub(
    hub: Path,
    observations: Path | None = None,
    *,
    model: Sequence[str] = (),
    target: str | None = None,
    joint: Sequence[str] = (),
    observation: str | None = None,
    keep: Sequence[str] = (),
    need_observations: bool = True,
) -> Matched:
    """Samples of a forecast hub as members, with the observations of its target data.

    A case is a task without the columns of `joint`: a round, a place and so on. Samples are linked by their `output_type_id`
    within a case, whatever they are called in each.

    Parameters
    ----------
    hub : pathlib.Path
        The folder of the hub, with `model-output` and `target-data`.
    observations : pathlib.Path, optional
        A file of observations, or another hub; by default those in `target-data`.
    model : sequence of str, default ()
        Models, by the names of their folders; wildcards * and ? are allowed. Not needed where there is one.
    target : str, optional
        The target, as in the column `target`; not needed where only one has samples.
    joint : sequence of str, default ()
        Columns across which the forecast is joint; the horizon, if nothing is said.
    observation : str, optional
        Column of the observations' file.
    keep : sequence of str, default ()
        Columns that must be among those kept, such as one for blocks.
    need_observations : bool, default True
        False for forecasts of what is still to come.

    Returns
    -------
    Matched
        Observations, members, and the identifiers of tasks as kept columns; `block` is the column of rounds.

    Raises
    ------
    DataError
        If there are no samples, they are not linked across `joint`, or nothing has been observed.

    See Also
    --------
    read_hub_quantiles : quantiles in the place of samples
    read_forecasts : the same, and any other kind of file
    """
    names = chosen_models(Path(hub), model)
    rows, files, target, notes = rows_of(Path(hub), names, target, "sample")
    parts = taken_apart(rows, Path(hub), names, target, joint)
    found = _placed(parts)
    _refuse_unlinked(parts, found, names)
    seen = _observed(Path(hub), parts, found, observations, observation, need_observations, "sample")
    n_cases, n_targets = len(found.case_labels), len(found.target_labels)
    member, n_members = _member_numbers(found.case, parts.rows["output_type_id"])
    shape = (n_cases, n_members, n_targets)
    place = np.ravel_multi_index((found.case, member, found.target), shape)
    refuse_twice(place, parts.rows[[*parts.cases, *parts.joint, "output_type_id"]], "forecasts")
    members = np.full(shape, np.nan)
    members.reshape(-1)[place] = parts.rows["value"].to_numpy()
    columns = _kept(parts, found, keep)
    layout = HubLayout(
        Path(hub),
        target,
        parts.rules,
        tuple(files),
        seen.path,
        found.case_labels,
        found.target_labels,
        shape,
        parts.rows["file"].to_numpy(),
        parts.rows["row"].to_numpy(),
        place,
    )
    said = [*notes, *parts.notes, *seen.notes, _about_blocks(parts, columns)]
    y = pd.DataFrame(seen.y, index=found.case_labels, columns=found.target_labels)
    return Matched(y, members, columns, tuple(said), parts.origin, MODEL if len(names) > 1 else None, layout)


def read_hub_quantiles(
    hub: Path,
    observations: Path | None = None,
    *,
    model: Sequence[str] = (),
    target: str | None = None,
    joint: Sequence[str] = (),
    observation: str | None = None,
    need_observations: bool = True,
) -> Quantiles:
    """Quantiles of a forecast hub as arrays, with the observations of its target data.

    Parameters
    ----------
    hub : pathlib.Path
        The folder of the hub, with `model-output` and `target-data`.
    observations : pathlib.Path, optional
        A file of observations, or another hub; by default those in `target-data`.
    model : sequence of str, default ()
        Models, by the names of their folders; wildcards * and ? are allowed. Not needed where there is one.
    target : str, optional
        The target, as in the column `target`; not needed where only one has quantiles.
    joint : sequence of str, default ()
        Columns whose values are the targets of a case; the horizon, if nothing is said.
    observation : str, optional
        Column of the observations' file.
    need_observations : bool, default True
        False for forecasts of what is still to come.

    Returns
    -------
    Quantiles
        Observations, quantiles, their levels, and the identifiers of tasks as kept columns.

    Raises
    ------
    DataError
        If there are no quantiles, levels are no probabilities, or nothing has been observed.

    See Also
    --------
    read_hub : samples, which say how targets go together
    """
    names = chosen_models(Path(hub), model)
    rows, _, target, notes = rows_of(Path(hub), names, target, "quantile")
    parts = taken_apart(rows, Path(hub), names, target, joint)
    found = _placed(parts)
    seen = _observed(Path(hub), parts, found, observations, observation, need_observations, "quantile")
    level = pd.to_numeric(parts.rows["output_type_id"], errors="coerce").to_numpy(dtype=float)
    wrong = ~((level > 0) & (level < 1))
    if wrong.any():
        word = parts.rows["output_type_id"].iloc[int(wrong.argmax())]
        raise DataError(f"a quantile has the level {word!r} in output_type_id; levels are between 0 and 1")
    levels, number = np.unique(level, return_inverse=True)
    shape = (len(found.case_labels), len(found.target_labels), len(levels))
    place = np.ravel_multi_index((found.case, found.target, number), shape)
    refuse_twice(place, parts.rows[[*parts.cases, *parts.joint, "output_type_id"]], "forecasts")
    values = np.full(shape, np.nan)
    values.reshape(-1)[place] = parts.rows["value"].to_numpy()
    y = pd.DataFrame(seen.y, index=found.case_labels, columns=found.target_labels)
    return Quantiles(y, values, levels, _kept(parts, found, ()), (*notes, *parts.notes, *seen.notes))


class _Placed(NamedTuple):
    """Numbers of cases and targets of every row, and their labels."""

    case: np.ndarray
    case_labels: pd.Index
    target: np.ndarray
    target_labels: pd.Index


def _placed(parts: TaskColumns) -> _Placed:
    case, case_labels = coded([_as_numbers_if_all(parts.rows[name]) for name in parts.cases])
    target, labels = coded([_as_numbers_if_all(parts.rows[name]) for name in parts.joint])
    if isinstance(labels, pd.MultiIndex):
        labels = pd.Index([", ".join(map(str, label)) for label in labels], name=", ".join(parts.joint))
    return _Placed(case, case_labels, target, labels)


def _as_numbers_if_all(column: pd.Series) -> pd.Series:
    """Whole numbers in the place of their spelling, such as horizons; codes with leading zeros stay text."""
    words = column.unique()
    if all(str(word).lstrip("-").isdecimal() and str(int(word)) == word for word in words):
        return column.map({word: int(word) for word in words}).astype(np.int64)
    return column


def _member_numbers(case: np.ndarray, names: pd.Series) -> tuple[np.ndarray, int]:
    """Samples of every case numbered in the order of their names, and the largest number of them."""
    absent = names.isna().to_numpy()
    if absent.any():
        raise DataError(
            f"{counted(int(absent.sum()), 'sample')} have no output_type_id, which says what belongs together"
        )
    codes = coded_labels(names)[0]
    pairs, place = np.unique(case * (int(codes.max()) + 1) + codes, return_inverse=True)
    owner = pairs // (int(codes.max()) + 1)
    first = np.searchsorted(owner, owner)
    number = np.arange(len(pairs)) - first
    return number[place], int(number.max()) + 1


def _refuse_unlinked(parts: TaskColumns, found: _Placed, names: Sequence[str]) -> None:
    """Samples whose names differ at every value of `joint` were drawn one by one."""
    if len(found.target_labels) == 1:
        return
    rows = parts.rows
    for name in names:
        mine = (rows[MODEL] == name).to_numpy()
        pairs = pd.DataFrame({"case": found.case[mine], "sample": rows["output_type_id"].to_numpy()[mine]})
        several = pd.Series(found.target[mine]).groupby(found.case[mine]).transform("nunique").to_numpy() > 1
        if several.any() and not pairs[several].duplicated().any():
            raise DataError(
                f"{name} draws its samples for each {' and '.join(parts.joint)} separately (no output_type_id occurs "
                f"twice in a case), so they are no joint forecast; name columns that link them {by_option('joint')}"
            )


class _Seen(NamedTuple):
    y: np.ndarray
    path: Path | None
    notes: tuple[str, ...]


def _observed(
    hub: Path,
    parts: TaskColumns,
    found: _Placed,
    given: Path | None,
    column: str | None,
    needed: bool,
    output_type: str,
) -> _Seen:
    """Observations (cases, targets), joined task by task."""
    shape = (len(found.case_labels), len(found.target_labels))
    y = np.full(shape, np.nan)
    if not needed and given is None and not (hub / "target-data").is_dir():
        return _Seen(y, None, ())
    spot = np.ravel_multi_index((found.case, found.target), shape)
    there, first = np.unique(spot, return_index=True)
    names = list(dict.fromkeys([*parts.cases, *parts.joint, *parts.following]))
    labels = parts.rows[[name for name in names if name != MODEL]].iloc[first].reset_index(drop=True)
    tasks = Tasks(labels, parts.origin, parts.following, parts.rules)
    try:
        seen = observed_values(hub, tasks, given, column, output_type, parts.target)
    except DataError:
        if needed or given is not None:
            raise
        return _Seen(y, None, ("the forecasts have not been observed",))
    y.reshape(-1)[there] = seen.values
    return _Seen(y, seen.path, seen.notes)


def _kept(parts: TaskColumns, found: _Placed, keep: Sequence[str]) -> pd.DataFrame:
    """The identifiers of cases, by their columns, and the model."""
    names = list(dict.fromkeys([MODEL, *parts.cases]))
    for name in keep:
        if name not in names:
            raise DataError(f"cases have no column {name!r}, only {listed(names)}; name one of them")
    first = np.unique(found.case, return_index=True)[1]
    return parts.rows[names].iloc[first].set_axis(found.case_labels)


def _about_blocks(parts: TaskColumns, columns: pd.DataFrame) -> str:
    n_blocks = columns[parts.origin].nunique()
    return (
        f"blocks: {counted(n_blocks, 'value')} of {parts.origin}, as cases of one round depend on each other; say otherwise "
        "with --block COLUMN, or none"
    )
