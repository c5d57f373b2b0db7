"""Quantiles of every target by itself from a forecast hub, or from a table with a row per case, target and level."""

from pathlib import Path

import numpy as np
import pandas as pd

from prerank.io.errors import DataError, by_option
from prerank.io.hub import Quantiles, read_hub_quantiles
from prerank.io.long_form import from_long
from prerank.io.read import Naming, hub_target, kind_of, read_table


def read_quantiles(
    forecasts: Path,
    observations: Path | None = None,
    naming: Naming | None = None,
    *,
    level: str = "quantile",
    need_observations: bool = True,
) -> Quantiles:
    """Quantiles with their observations, from the folder of a hub or from a table in long form.

    Parameters
    ----------
    forecasts : pathlib.Path
        The folder of a hub, or a table (CSV, TSV, Parquet, Feather) with a row per case, target and level.
    observations : pathlib.Path, optional
        A second table, a row per case and target; by default a column of the first.
    naming : Naming, optional
        What columns are called.
    level : str, default 'quantile'
        The table's column of levels.
    need_observations : bool, default True
        False for forecasts of what is still to come.

    Returns
    -------
    Quantiles
        Observations, quantiles (cases, targets, levels), levels and kept columns.

    Raises
    ------
    DataError
        If a column is missing, levels are no probabilities, or a case lacks a quantile.

    See Also
    --------
    prerank.recalibration.JointFromMargins : a joint forecast from quantiles and past observations
    """
    naming = naming or Naming()
    kind = kind_of(forecasts)
    if kind == "hub":
        return read_hub_quantiles(
            forecasts,
            observations,
            model=naming.model,
            target=hub_target(forecasts, naming),
            joint=naming.joint,
            observation=naming.observation,
            keep=naming.keep,
            need_observations=need_observations,
        )
    if kind != "table":
        raise DataError(f"{forecasts}: quantiles are read from tables in long form and from hubs; give one of them")
    own, seen = read_table(forecasts), None if observations is None else read_table(observations)
    if level not in own.columns:
        there = ", ".join(map(str, list(own.columns)[:12]))
        raise DataError(
            f"{forecasts} has no column {level!r}, only {there}; name the one of levels {by_option('level')}"
        )
    numbers = pd.to_numeric(own[level], errors="coerce")
    wrong = ~((numbers > 0) & (numbers < 1)).to_numpy()
    if wrong.any():
        raise DataError(
            f"{int(wrong.sum()):,} of {len(own):,} rows have no level between 0 and 1 in {level!r}, the first is row "
            f"{int(wrong.argmax()) + 1:,} with {own[level].iloc[int(wrong.argmax())]!r}"
        )
    case = naming.case or ("case",)
    target = (naming.joint or naming.target or ("target",))[0]
    value, observation = naming.value or "value", naming.observation or "observation"
    if seen is None and not need_observations and observation not in own.columns:
        labels = [name for name in (*case, target) if name in own.columns]
        seen = own[labels].drop_duplicates().assign(**{observation: np.nan})
    found = from_long(
        own.assign(**{level: numbers}),
        seen,
        case=case,
        member=level,
        target=target,
        value=value,
        observation=observation,
        keep=naming.keep,
    )
    levels = np.unique(numbers.to_numpy(dtype=float))
    return Quantiles(found.y, found.members.transpose(0, 2, 1), levels, found.columns, found.notes)
