"""Read forecast hubs in the hubverse layout: samples of one target with their observations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from prerank._wording import counted
from prerank.io.errors import DataError, by_option
from prerank.io.hub.files import MODEL, Submission, Task
from prerank.io.hub.placing import Placed, about_blocks, kept_columns, observed_by_task, placed
from prerank.io.hub.rows import rows_of
from prerank.io.hub.tasks import TaskColumns, taken_apart
from prerank.io.label_order import coded_labels
from prerank.io.long_form import Matched, refuse_twice


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
    rows, names, files, target, notes = rows_of(Path(hub), model, target, "sample")
    parts = taken_apart(rows, Path(hub), names, target, joint)
    found = placed(parts)
    _refuse_unlinked(parts, found, names)
    seen = observed_by_task(Path(hub), parts, found, observations, observation, need_observations, "sample")
    n_cases, n_targets = len(found.case_labels), len(found.target_labels)
    member, n_members = _member_numbers(found.case, parts.rows["output_type_id"])
    shape = (n_cases, n_members, n_targets)
    place = np.ravel_multi_index((found.case, member, found.target), shape)
    refuse_twice(place, parts.rows[[*parts.cases, *parts.joint, "output_type_id"]], "forecasts")
    members = np.full(shape, np.nan)
    members.reshape(-1)[place] = parts.rows["value"].to_numpy()
    columns = kept_columns(parts, found, keep)
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
    said = [*notes, *parts.notes, *seen.notes, about_blocks(parts, columns)]
    y = pd.DataFrame(seen.y, index=found.case_labels, columns=found.target_labels)
    return Matched(y, members, columns, tuple(said), parts.origin, MODEL if len(names) > 1 else None, layout)


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


def _refuse_unlinked(parts: TaskColumns, found: Placed, names: Sequence[str]) -> None:
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
