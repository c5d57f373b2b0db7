"""The files of a forecast hub in the hubverse layout: who submitted what, and what the hub asks for.

A hub is a folder with `model-output/MODEL/ROUND-MODEL.csv` (or Parquet, Feather, or gzipped CSV), observations in
`target-data` and, mostly, its rules in `hub-config` (https://docs.hubverse.io).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from prerank._reading import require_regular
from prerank.io.errors import DataError, by_option, listed
from prerank.io.formats import Csv, format_of

MODEL = "model"
OUTPUT_COLUMNS = ("output_type", "output_type_id", "value")
_ROUND = re.compile(r"\d{4}-\d\d-\d\d")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)\.0+")


class Submission(NamedTuple):
    """A file of a model."""

    path: Path
    model: str

    @property
    def round(self) -> str:
        """The date at the beginning of the file's name, or what stands before the model's name."""
        found = _ROUND.match(self.path.name)
        return found[0] if found else self.path.name.partition(f"-{self.model}")[0]


def is_hub(path: Path) -> bool:
    """Whether a path is the folder of a forecast hub."""
    return path.is_dir() and (path / _settings(path).get("model_output_dir", "model-output")).is_dir()


def models_of(hub: Path) -> list[str]:
    """The models that have submitted something, in the order of their names."""
    folder = _outputs(hub)
    found = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not found:
        raise DataError(f"{folder} has no folder of a model; a hub has model-output/MODEL/ROUND-MODEL.csv")
    return found


def chosen_models(hub: Path, names: Sequence[str]) -> list[str]:
    """The models of these names, which may have the wildcards * and ?; without a name the only one that there is."""
    there = models_of(hub)
    if not names:
        if len(there) > 1:
            raise DataError(f"{hub} has {len(there)} models, {listed(there)}; name one or several {by_option('model')}")
        return there
    chosen = []
    for name in names:
        fitting = [model for model in there if fnmatchcase(model, name)]
        if not fitting:
            raise DataError(f"{hub} has no model {name!r}, only {listed(there)}; name one of them {by_option('model')}")
        chosen += fitting
    return list(dict.fromkeys(chosen))


def submissions(hub: Path, model: str) -> list[Submission]:
    """The files of a model, in the order of their names; files of other kinds, such as notes, are passed over."""
    folder = _outputs(hub) / model
    found = [Submission(path, model) for path in sorted(folder.rglob("*")) if path.is_file() and is_table(path)]
    if not found:
        raise DataError(f"{folder} has no CSV, Parquet or Feather file; give a model that has submitted forecasts")
    stems = [one.path.with_name(one.path.name.split(".")[0]) for one in found]
    for one, stem in zip(found, stems, strict=True):
        if stems.count(stem) > 1:
            raise DataError(f"{one.path} is there in two formats; keep one of them")
    return found


def submitted_rows(file: Submission) -> pa.Table:
    """The rows of a file: a number in `value`, text in every other column, in the spelling of `spelt`."""
    table = read_as_text(file.path)
    for name in OUTPUT_COLUMNS:
        if name not in table.column_names:
            raise DataError(
                f"{file.path} has no column {name!r}, only {listed(table.column_names)}; "
                "a hub's file has a task in each row, and output_type, output_type_id and value"
            )
    columns = {name: spelt(table[name]) for name in table.column_names if name != "value"}
    return pa.table({**columns, "value": _numbers(table["value"], file.path, "value")})


def read_as_text(path: Path) -> pa.Table:
    """A table whose columns are text if it is CSV, so that the place "01" stays one, and typed as it is otherwise."""
    form = format_of(path)
    return form.read_as_text(path) if isinstance(form, Csv) else form.read(path)


def spelt(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Labels as text, the same for all formats: days as 2026-01-31, whole numbers without a point."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = kind.value_type
    if pa.types.is_timestamp(kind):
        days = pc.all(pc.equal(column, pc.floor_temporal(column, unit="day"))).as_py() is not False
        column = pc.strftime(column, format="%Y-%m-%d" if days else "%Y-%m-%dT%H:%M:%S")
    column = column.cast(pa.string())
    coded = column.combine_chunks().dictionary_encode() if isinstance(column, pa.ChunkedArray) else column
    coded = coded if isinstance(coded, pa.DictionaryArray) else coded.chunk(0)
    words = [_plain(word) for word in coded.dictionary.to_pylist()]
    return pa.chunked_array([pa.array(words, pa.string()).take(coded.indices)])


def _plain(word: str | None) -> str | None:
    """A label without blanks around it, a day without its midnight, a whole number without a point."""
    if word is None:
        return None
    word = word.strip()
    if not word:
        return None
    if _NUMBER.fullmatch(word):
        return word.partition(".")[0]
    return re.sub(r"^(\d{4}-\d\d-\d\d)[T ]00:00(:00(\.0+)?)?Z?$", r"\1", word)


def is_day(column: pd.Series) -> bool:
    """Whether the labels of a column are days, such as 2026-01-31."""
    there = column.dropna().unique()
    return len(there) > 0 and all(_ROUND.fullmatch(str(one)) for one in there[:1000])


def are_one(labels: pd.DataFrame, within: list[str], name: str, other: str) -> bool:
    """Whether two columns say the same of every round, as a horizon and the day that is forecast do."""
    pairs = labels[[*within, name, other]].drop_duplicates()
    return not pairs.duplicated([*within, name]).any() and not pairs.duplicated([*within, other]).any()


def _numbers(column: pa.ChunkedArray, path: Path, name: str) -> pa.ChunkedArray:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        absent = pc.is_in(pc.utf8_trim_whitespace(column), value_set=pa.array(["", "NA", "NaN", "nan", "null"]))
        column = pc.if_else(absent, pa.scalar(None, column.type), pc.utf8_trim_whitespace(column))
    try:
        return column.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"{path}: column {name!r} holds not only numbers: {str(error).partition(chr(10))[0]}") from None


def _outputs(hub: Path) -> Path:
    return hub / _settings(hub).get("model_output_dir", "model-output")


def is_table(path: Path) -> bool:
    """Whether a file is of a format of tables, and is not hidden."""
    try:
        format_of(path)
    except DataError:
        return False
    return not path.name.startswith(".")


def _settings(hub: Path) -> Mapping[str, Any]:
    found = _json(hub / "hub-config" / "admin.json")
    return found if isinstance(found, dict) else {}


def target_settings(hub: Path) -> Mapping[str, Any]:
    """What hub-config/target-data.json says about the files of observations, if it is there."""
    found = _json(hub / "hub-config" / "target-data.json")
    return found if isinstance(found, dict) else {}


def _json(path: Path) -> Any:
    if not path.is_file():
        return {}
    require_regular(path, DataError)
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read as JSON: {str(error)[:120]}; mend it, or leave it out") from error


class Task(NamedTuple):
    """What the hub asks of the samples of a target, as far as hub-config/tasks.json says so."""

    keys: Mapping[str, str]
    """Columns that say which target a row is for, and its value there."""
    origin: str | None = None
    """The column of rounds."""
    derived: tuple[str, ...] = ()
    separately: tuple[str, ...] = ()
    """The compound task set: samples need not be linked across these columns."""
    whole: bool = False
    """Whether values are whole numbers."""
    least: float | None = None
    most: float | None = None
    unit: str | None = None


def task_of(hub: Path, target: str | None, output_type: str = "sample") -> Task:
    """The rules for a target, by its name in the column `target`, its identifier, or a value of its key columns."""
    rules = _json(hub / "hub-config" / "tasks.json")
    for round_, task, about in _described(rules):
        keys = {str(key): str(value) for key, value in (about.get("target_keys") or {}).items()}
        if target is None or target not in (about.get("target_id"), *keys.values()):
            continue
        asked = (task.get("output_type") or {}).get(output_type) or {}
        value, ids = asked.get("value") or {}, asked.get("output_type_id_params") or {}
        origin = round_.get("round_id") if round_.get("round_id_from_variable") else None
        derived = round_.get("derived_task_ids") or rules.get("derived_task_ids") or ()
        return Task(
            keys or {"target": target},
            origin,
            tuple(derived),
            tuple(ids.get("compound_taskid_set") or ()),
            value.get("type") == "integer",
            value.get("minimum"),
            value.get("maximum"),
            about.get("time_unit"),
        )
    return Task({} if target is None else {"target": target})


def _described(rules: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Rounds, tasks and descriptions of targets; what has another shape is passed over."""
    for round_ in _dicts(rules.get("rounds") if isinstance(rules, dict) else None):
        for task in _dicts(round_.get("model_tasks")):
            for about in _dicts(task.get("target_metadata")):
                yield round_, task, about


def _dicts(found: Any) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
