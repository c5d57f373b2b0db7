"""Read the quantiles of a forecast hub into arrays."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from prerank.io.errors import DataError
from prerank.io.hub.files import task_of
from prerank.io.hub.placing import about_blocks, kept_columns, observed_by_task, placed
from prerank.io.hub.rows import rows_of
from prerank.io.hub.tasks import taken_apart
from prerank.io.long_form import refuse_twice


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
    block : str or None
        Kept column that says which cases depend on each other: the rounds of a hub.
    lower : float or None
        Smallest possible value, where `hub-config/tasks.json` gives it.
    upper : float or None
        Largest possible value, where it gives it.
    """

    y: pd.DataFrame
    values: np.ndarray
    levels: np.ndarray
    columns: pd.DataFrame
    notes: tuple[str, ...] = ()
    block: str | None = None
    lower: float | None = None
    upper: float | None = None


def read_hub_quantiles(
    hub: Path,
    observations: Path | None = None,
    *,
    model: Sequence[str] = (),
    target: str | None = None,
    joint: Sequence[str] = (),
    observation: str | None = None,
    keep: Sequence[str] = (),
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
    keep : sequence of str, default ()
        Columns that must be among those kept, such as one for blocks.
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
    rows, names, _, target, notes = rows_of(Path(hub), model, target, "quantile")
    parts = taken_apart(rows, Path(hub), names, target, joint)
    found = placed(parts)
    seen = observed_by_task(Path(hub), parts, found, observations, observation, need_observations, "quantile")
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
    columns, rules = kept_columns(parts, found, keep), task_of(Path(hub), target, "quantile")
    said = (*notes, *parts.notes, *seen.notes, about_blocks(parts, columns))
    return Quantiles(y, values, levels, columns, said, parts.origin, rules.least, rules.most)
