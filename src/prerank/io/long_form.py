"""Forecasts and observations in long form, a row per value: brought into arrays, matched by their labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from prerank._wording import counted
from prerank.io.errors import DataError, by_option
from prerank.io.label_order import coded_labels, factorised, own_values

_LARGEST_SPARSE = 10_000_000  # values; beyond it a table must fill a twentieth of its cases x members x targets


@dataclass(frozen=True)
class LongLayout:
    """Where the rows of a table in long form stand in the members (cases, members, targets)."""

    value: str
    observation: str
    apart: bool
    """Whether the observations came from another table."""
    cases: pd.Index
    targets: pd.Index
    place: np.ndarray
    shape: tuple[int, int, int]
    path: Path | None = None


class Matched(NamedTuple):
    """Observations and members in one order, matched by their labels.

    Attributes
    ----------
    y : pandas.DataFrame, shape (n_cases, n_targets)
        Observations with labelled cases and targets.
    members : array, shape (n_cases, n_members, n_targets)
        A member that a case lacks is NaN, which `check` takes for missing. Those of a large file are an xarray array
        that stays on the disk, and `check` reads it in chunks.
    columns : pandas.DataFrame
        Kept columns, a row per case.
    notes : tuple of str
        What was noticed on the way, a sentence each.
    block : str or None
        Kept column that says which cases depend on each other, where the kind of file tells.
    by : str or None
        Kept column of groups to look at one by one, where the kind of file tells.
    layout : object
        How the file was laid out, for `write_forecasts(..., like=...)`.
    member_names : tuple of str or None
        What members are called that are models of their own, for `Recalibrator.fit`; None where they are numbered.
    """

    y: pd.DataFrame
    members: Any
    columns: pd.DataFrame
    notes: tuple[str, ...] = ()
    block: str | None = None
    by: str | None = None
    layout: Any = None
    member_names: tuple[str, ...] | None = None

    def to_xarray(self) -> Any:
        """An `xarray.Dataset` of forecast (case, member, target) and observation (case, target), with labels.

        Returns
        -------
        xarray.Dataset
            Variables "forecast" and "observation"; kept columns are coordinates along the cases.
        """
        from prerank.forecasts.labelled import as_data_array

        forecast = as_data_array(np.asarray(self.members), self.y)
        if self.member_names is not None:
            forecast = forecast.assign_coords(member=list(self.member_names))
        columns = {str(name): ("case", values.to_numpy()) for name, values in self.columns.items()}
        kept = {name: column for name, column in columns.items() if name not in forecast.coords}
        observation = forecast.isel(member=0, drop=True).copy(data=self.y.to_numpy())
        return forecast.to_dataset().assign(observation=observation).assign_coords(kept)

    def to_frame(self) -> pd.DataFrame:
        """A table with a row per case, member and target, and its observation; `from_long` reads it.

        Returns
        -------
        pandas.DataFrame
            Columns of the cases, "member", "target", "value", kept columns and "observation".
        """
        from prerank.forecasts.labelled import as_long_frame

        frame = as_long_frame(np.asarray(self.members), self.y)
        n_members, n_targets = self.members.shape[1:]
        for name, values in self.columns.items():
            if name not in frame.columns:
                frame[str(name)] = values.to_numpy().repeat(n_members * n_targets)
        return frame.assign(observation=np.repeat(self.y.to_numpy(), n_members, axis=0).reshape(-1))


def from_long(
    forecasts: Any,
    observations: Any = None,
    *,
    case: str | Sequence[str] = "case",
    member: str = "member",
    target: str = "target",
    value: str = "value",
    observation: str = "observation",
    keep: Sequence[str] = (),
) -> Matched:
    """Observations and members from tables with a row per case, member and target.

    The order of rows does not matter: cases, members and targets stand in the order of their labels, numbers by size,
    also inside text ("h2" before "h10"), and an ordered categorical by its categories. A row that is absent is a
    missing value. Cases and targets must be the same on both sides, and no row may occur twice.

    Parameters
    ----------
    forecasts : DataFrame, or a table of pyarrow, polars, DuckDB or another library that hands over Arrow
        A row per case, member and target.
    observations : DataFrame or such a table, optional
        A row per case and target. By default they are a column of the forecasts, the same for all members.
    case : str or sequence of str, default 'case'
        Column of cases; several together, such as a date and a place, label a case.
    member : str, default 'member'
        Column of members.
    target : str, default 'target'
        Column of targets.
    value : str, default 'value'
        Column of the members' values.
    observation : str, default 'observation'
        Column of the observations; in a table of their own `value` serves too.
    keep : sequence of str, default ()
        Columns that are constant within a case, such as a date for `blocks`.

    Returns
    -------
    Matched
        Observations, members and kept columns.

    Raises
    ------
    DataError
        If a column is missing, a row occurs twice, a case is on one side only, or values are no numbers.

    Examples
    --------
    >>> table = pd.DataFrame({"case": [1, 1, 2, 2], "member": [0, 1, 0, 1], "target": "rain", "value": [3.0, 4.0, 5.0, 6.0]})
    >>> seen = pd.DataFrame({"case": [2, 1], "target": "rain", "value": [5.5, 2.0]})
    >>> found = from_long(table, seen)
    >>> found.y["rain"].tolist(), found.members.shape
    ([2.0, 5.5], (2, 2, 1))
    """
    forecasts = as_frame(forecasts, "forecasts")
    observations = None if observations is None else as_frame(observations, "observations")
    cases = [case] if isinstance(case, str) else list(case)
    roles = {**dict.fromkeys(cases, "case"), member: "member", target: "target"}
    _require_columns(forecasts, "forecasts", roles, value, "value")
    own = forecasts if observations is None else observations
    what = "forecasts" if observations is None else "observations"
    seen = observation if observations is None or observation in own.columns else value
    _require_columns(own, what, {name: role for name, role in roles.items() if name != member}, seen, "observation")
    _refuse_other_units(forecasts, observations, target)
    n = len(forecasts)
    case_codes, case_labels = coded([_both(forecasts, observations, name) for name in cases])
    target_codes, target_labels = coded([_both(forecasts, observations, target)])
    member_codes, member_labels = coded([forecasts[member]])
    if observations is not None:
        _refuse_unmatched(case_codes, case_labels, n, "case")
        _refuse_unmatched(target_codes, target_labels, n, "target")
    shape = (len(case_labels), len(member_labels), len(target_labels))
    _refuse_sparse(shape, n)
    place = np.ravel_multi_index((case_codes[:n], member_codes, target_codes[:n]), shape)
    refuse_twice(place, forecasts[[*cases, member, target]], "forecasts")
    members = filled(place, forecasts[value], shape, "forecasts")
    rows = slice(0, n) if observations is None else slice(n, None)
    spot = np.ravel_multi_index((case_codes[rows], target_codes[rows]), (shape[0], shape[2]))
    if observations is not None:
        refuse_twice(spot, own[[*cases, target]], what)
    y = filled(spot, own[seen], (shape[0], shape[2]), what)
    if observations is None:
        _refuse_two_observations(y.ravel()[spot], own, seen, [*cases, target])
    columns = {name: _per_case(name, forecasts, observations, case_codes, case_labels) for name in keep}
    layout = LongLayout(value, observation, observations is not None, case_labels, target_labels, place, shape)
    return Matched(
        pd.DataFrame(y, index=case_labels, columns=target_labels),
        members,
        pd.DataFrame(columns, index=case_labels),
        layout=layout,
        member_names=names_of_members(member_labels),
    )


def names_of_members(labels: Any) -> tuple[str, ...] | None:
    """Names of members that are models of their own, None where they are numbered."""
    from prerank.arrays.labels import member_names  # its package loads torch

    return member_names(labels)


def as_frame(table: Any, what: str) -> pd.DataFrame:
    """A table as a data frame, whichever library it is from."""
    from prerank.arrays.conversion import from_arrow  # its package loads torch

    found = from_arrow(table)
    if not isinstance(found, pd.DataFrame):
        raise DataError(f"the {what} are a {type(table).__name__}; give a table of pandas, polars, pyarrow or DuckDB")
    return found


def _require_columns(frame: pd.DataFrame, what: str, labels: dict[str, str], values: str, role: str) -> None:
    """Refuse a table without rows, without a column of `labels` or the one of `values`, or with a row that lacks a label."""
    if not len(frame):
        raise DataError(f"the {what} have no rows; give at least one case")
    for name, meaning in {**labels, values: role}.items():
        if name not in frame.columns:
            there = ", ".join(repr(column) for column in list(frame.columns)[:12])
            raise DataError(
                f"the {what} have no column {name!r}, only {there}; name the one of {meaning}s {by_option(meaning)}"
            )
    refuse_unlabelled(frame, list(labels), f"the {what}")


def refuse_unlabelled(frame: pd.DataFrame, names: Sequence[str], whose: str, numbers: pd.Series | None = None) -> None:
    """Refuse a row that lacks a label; `numbers` of the rows in their file, from zero, where they are not those here."""
    for name in names:
        absent = frame[name].isna().to_numpy()
        if absent.any():
            first = int(absent.argmax())
            row = first if numbers is None else int(numbers.iloc[first])
            raise DataError(
                f"{int(absent.sum()):,} of {counted(len(frame), 'row')} of {whose} have no {name!r}, the first is row "
                f"{row + 1:,}{'' if numbers is None else ' of its file'}; every row needs one"
            )


def _refuse_other_units(forecasts: pd.DataFrame, observations: pd.DataFrame | None, target: str) -> None:
    """A table may say in a column `unit` or `units` what its values are in: a target has one unit."""
    found: dict[Any, Any] = {}
    for frame in (forecasts, observations):
        name = next((name for name in ("unit", "units") if frame is not None and name in frame.columns), None)
        if frame is None or name is None:
            continue
        for label, unit in frame[[target, name]].dropna().drop_duplicates().itertuples(index=False):
            other = found.setdefault(label, unit)
            if other != unit:
                raise DataError(f"target {_text(label)} is in {other!r} and in {unit!r}; convert one of them")


def _both(forecasts: pd.DataFrame, observations: pd.DataFrame | None, name: str) -> pd.Series:
    """A column of the forecasts and, below it, of the observations, so that one label gets one code."""
    if observations is None:
        return forecasts[name]
    first, second = forecasts[name], observations[name]
    if not isinstance(first.dtype, pd.CategoricalDtype) or first.dtype != second.dtype:
        first, second = (own_values(column) for column in (first, second))
    return pd.concat([first, second], ignore_index=True)


def coded(columns: Sequence[pd.Series]) -> tuple[np.ndarray, pd.Index]:
    """Whole numbers 0, 1, ... in the place of labels, in their order, and the labels; of several columns together."""
    codes, labels = zip(*(coded_labels(column) for column in columns), strict=True)
    if len(columns) == 1:
        return codes[0], labels[0]
    places = np.ravel_multi_index(codes, tuple(len(index) for index in labels))
    there, found = np.unique(places, return_inverse=True)
    parts = np.unravel_index(there, tuple(len(index) for index in labels))
    names = [str(column.name) for column in columns]
    arrays = [index[part] for index, part in zip(labels, parts, strict=True)]
    return found, pd.MultiIndex.from_arrays(arrays, names=names)


def _refuse_unmatched(codes: np.ndarray, labels: pd.Index, n_forecasts: int, axis: str) -> None:
    forecast, observed = (np.bincount(part, minlength=len(labels)) > 0 for part in np.split(codes, [n_forecasts]))
    for there, other, names in (
        (forecast, observed, "forecasts observations"),
        (observed, forecast, "observations forecasts"),
    ):
        alone = there & ~other
        if alone.any():
            here, away = names.split()
            raise DataError(
                f"{counted(int(alone.sum()), axis)} of the {here} {'is' if alone.sum() == 1 else 'are'} not in the {away}, "
                f"the first {_text(labels[int(alone.argmax())])}; give both the same {axis}s"
            )


def _refuse_sparse(shape: tuple[int, ...], n_rows: int) -> None:
    size = int(np.prod([float(length) for length in shape]))
    if size > max(_LARGEST_SPARSE, 20 * n_rows):
        cases, members, targets = shape
        raise DataError(
            f"{counted(n_rows, 'row')} are too few for {counted(cases, 'case')} x {counted(members, 'member')} x "
            f"{counted(targets, 'target')}; call the members of every case by the same names, such as 0, 1, 2"
        )


def refuse_twice(place: np.ndarray, labels: pd.DataFrame, what: str) -> None:
    again = pd.Series(place).duplicated().to_numpy()
    if again.any():
        row = labels.iloc[int(again.argmax())]
        said = ", ".join(f"{name} {_text(label)}" for name, label in row.items())
        raise DataError(
            f"{counted(int(again.sum()), 'row')} of the {what} repeat an earlier one, the first {said}; keep one of each"
        )


def filled(place: np.ndarray, values: pd.Series, shape: tuple[int, ...], what: str) -> np.ndarray:
    """An array with the values at their places and NaN elsewhere; single precision stays what it is."""
    if values.isna().all():
        return np.full(shape, np.nan)
    if not pd.api.types.is_any_real_numeric_dtype(values.dtype):
        texts = [value for value in values if isinstance(value, str) and not _is_number(value)]
        raise DataError(
            f"the column {values.name!r} of the {what} holds not only numbers but, for instance, "
            f"{(texts or values.dropna().tolist())[0]!r}; name another column, or mend it"
        )
    kind = np.float32 if str(values.dtype).lower() == "float32" else np.float64
    array = np.full(shape, np.nan, dtype=kind)
    array.reshape(-1)[place] = values.to_numpy(dtype=kind, na_value=np.nan)
    return array


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def require_real(array: Any, what: str) -> Any:
    """The array, NumPy's or xarray's, if it holds real numbers; text, dates and complex numbers are refused."""
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} has dtype {array.dtype}; give real numbers")
    return array


def _refuse_two_observations(kept: np.ndarray, frame: pd.DataFrame, seen: str, labels: list[str]) -> None:
    given = frame[seen].to_numpy(dtype=kept.dtype, na_value=np.nan)
    other = ~((kept == given) | (np.isnan(kept) & np.isnan(given)))
    if other.any():
        row = int(other.argmax())
        said = ", ".join(f"{name} {_text(frame[name].iloc[row])}" for name in labels)
        raise DataError(
            f"{said} has two observations in column {seen!r}, {given[row]:g} and {kept[row]:g}; "
            "give the same one with all members, or a table of observations"
        )


def _text(label: Any) -> str:
    from prerank.arrays.labels import label_text  # torch loads slowly

    return label_text(label)


def _per_case(
    name: str, forecasts: pd.DataFrame, observations: pd.DataFrame | None, codes: np.ndarray, cases: pd.Index
) -> np.ndarray:
    """The label that a column has in each case, the same in all of its rows."""
    there = forecasts if observations is None or name in forecasts.columns else observations
    if name not in there.columns:
        raise DataError(f"there is no column {name!r}; name one that the forecasts or the observations have")
    places = codes[: len(forecasts)] if there is forecasts else codes[len(forecasts) :]
    numbers, labels = factorised(there[name])
    first = np.empty(len(cases), dtype=np.int64)
    first[places] = numbers
    if (numbers < 0).any() or (first[places] != numbers).any():
        row = int(((numbers < 0) | (first[places] != numbers)).argmax())
        why = "is missing" if numbers[row] < 0 else "has more than one value"
        raise DataError(f"column {name!r} {why} in case {_text(cases[places[row]])}; it needs one value per case")
    return np.asarray(labels)[first]
