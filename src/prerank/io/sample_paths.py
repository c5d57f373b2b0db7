"""Tables of sample paths as forecasting tools write them, brought into the long form of `from_long`.

`simulate()` of neuralforecast gives a row per series (`unique_id`), time (`ds`) and path (`sample_id`), with the values in
a column named after the model (https://github.com/Nixtla/neuralforecast/pull/1483); observations are the column `y`.
GluonTS and AutoGluon call them `item_id`, `timestamp`, `sample` and `target`. A path over the horizon is one joint
forecast: its targets are the steps ahead.
"""

import re
from typing import Any

import pandas as pd

from prerank.io.errors import DataError, by_option

SERIES = ("unique_id", "item_id")
TIMES = ("ds", "timestamp")
PATHS = ("sample_id", "sample")
SEEN = ("y", "target")
ORIGINS = ("cutoff", "start_date")
# Model-lo-90, Model-hi-90, Model-median, Model_ql0.05 of neuralforecast; 0.1, p90, q0.9 of GluonTS and AutoGluon
_QUANTILE = re.compile(r".*-(lo|hi)-\d+(\.\d+)?|.*-median|.*_ql\d(\.\d+)?|[pq]?0\.\d+|p\d\d?")

Tables = tuple[pd.DataFrame, pd.DataFrame | None]


def as_long_form(
    forecasts: pd.DataFrame, observations: pd.DataFrame | None, value: str | None = None
) -> tuple[Tables, dict[str, Any]]:
    """The tables, and the names of columns that `from_long` is to be told; others than those of a tool stay as they are.

    >>> rows = {"unique_id": "a", "ds": [5, 6, 5, 6], "sample_id": [0, 0, 1, 1], "NHITS": [1.0, 2.0, 3.0, 4.0], "y": 1.5}
    >>> (table, _), names = as_long_form(pd.DataFrame(rows), None)
    >>> names["case"], names["value"], table["step"].tolist()
    (('unique_id',), 'NHITS', [1, 2, 1, 2])
    """
    series, time, path = (_one_of(forecasts, names) for names in (SERIES, TIMES, PATHS))
    if series is None or time is None:
        return (forecasts, observations), {}
    if path is None:
        _refuse_quantiles(forecasts)
        return (forecasts, observations), {}
    origin = _one_of(forecasts, ORIGINS)
    seen = _one_of(forecasts if observations is None else observations, SEEN)
    if seen is None:
        there = "forecasts" if observations is None else "observations"
        raise DataError(f"the {there} have no column {' or '.join(map(repr, SEEN))} of observations; add it")
    value = value or _only_value(forecasts, {series, time, path, origin, seen})
    if observations is not None:
        forecasts = _joined(forecasts.drop(columns=seen, errors="ignore"), observations, [series, time], seen)
    case = (series,) if origin is None else (series, origin)
    step = forecasts.groupby([*case], sort=False)[time].rank(method="dense").astype("Int64")
    names = {"case": case, "member": path, "target": "step", "value": value, "observation": seen}
    return (forecasts.assign(step=step), None), names


def _one_of(frame: pd.DataFrame, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in frame.columns), None)


def _refuse_quantiles(forecasts: pd.DataFrame) -> None:
    found = [str(name) for name in forecasts.columns if _QUANTILE.fullmatch(str(name))]
    if found:
        raise DataError(
            f"the forecasts have quantiles (column {found[0]!r}) and no sample paths; joint ranks among quantiles mean "
            "nothing: write paths, such as those of simulate() in neuralforecast or the samples of GluonTS"
        )


def _only_value(forecasts: pd.DataFrame, known: set[str | None]) -> str:
    found = [str(name) for name in forecasts.columns if name not in known and "Unnamed" not in str(name)]
    numbers = [name for name in found if pd.api.types.is_any_real_numeric_dtype(forecasts[name].dtype)]
    if len(numbers) == 1:
        return numbers[0]
    said = ", ".join(map(repr, numbers[:12])) or "none"
    raise DataError(f"{len(numbers)} columns could hold the sample paths ({said}); name one {by_option('value')}")


def _joined(forecasts: pd.DataFrame, observations: pd.DataFrame, labels: list[str], seen: str) -> pd.DataFrame:
    """The forecasts with the observation of their series and time."""
    for name in labels:
        if name not in observations.columns:
            raise DataError(
                f"the observations have no column {name!r}; they need {labels[0]!r}, {labels[1]!r} and {seen!r}"
            )
    twice = observations.duplicated(labels).to_numpy()
    if twice.any():
        row = observations.iloc[int(twice.argmax())]
        raise DataError(f"{row[labels[0]]!r} has two observations at {row[labels[1]]}; keep one of each")
    try:
        return forecasts.merge(observations[[*labels, seen]], on=labels, how="left")
    except ValueError as error:
        raise DataError(f"the labels of forecasts and observations are of different kinds: {error}") from error
