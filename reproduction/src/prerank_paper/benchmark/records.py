"""Results on disk: a folder per finished fleet, moved into place whole, so that a kill leaves all of it or nothing.

DIR/grid.json            what is being run; another grid in the same folder is refused
DIR/fleets/NAME/         fleet.json, models.parquet, records.parquet, curves.parquet
DIR/timings/NAME.json    a timing run
DIR/failures/NAME.json   a fleet or timing run that failed, with its error; it is tried again next time
DIR/checkpoints/         of fleets in training; removed with the fleet's result

A report puts all records into one file, `records.parquet`, which takes the place of the fleets where results are kept.
"""

import json
import shutil
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from prerank._reading import require_regular
from prerank._writing import whole_file, whole_folder
from prerank.datasets.download import locked
from prerank.io import StorageError
from prerank_paper.benchmark.record_file import NAME, read_record_file


class FleetResult(NamedTuple):
    """Everything that is kept of a fleet: facts about it, and tidy tables of models, numbers and curves."""

    about: dict[str, Any]
    models: pd.DataFrame
    records: pd.DataFrame
    curves: pd.DataFrame


class Results(NamedTuple):
    """All finished fleets: facts about each, models, numbers, reliability curves, and timing runs."""

    fleets: pd.DataFrame
    models: pd.DataFrame
    records: pd.DataFrame
    curves: pd.DataFrame
    timings: pd.DataFrame


_TABLES = ("models", "records", "curves")
_MODEL = ["dataset", "training", "penalty", "strength", "seed", "initialisation"]
_KEYS = {
    "fleets": ["name"],
    "models": _MODEL,
    "records": [*_MODEL, "part", "evaluation", "metric", "prerank"],
    "curves": [*_MODEL, "evaluation", "prerank", "projection", "level"],
    "timings": ["dataset", "training", "prerank", "n_draws"],
}


class Store:
    """The one writer of a results folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Refuse a folder that another run is writing to. The system lets go of the lock however a run ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.folder / ".lock", 0.0))
            except StorageError as error:
                raise ValueError(
                    f"another run is writing to {self.folder}; wait for it, end it, or give another --out"
                ) from error
            self._remove_halves()
            try:
                yield
            finally:
                self._remove_halves()

    def _remove_halves(self) -> None:
        """What a killed run left half-written, or a process of this one that died."""
        for place in ("fleets", "timings", "failures", "checkpoints", "."):
            for path in (self.folder / place).glob(".*.part"):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def claim(self, grid: dict[str, Any]) -> None:
        """Note what is run here; refuse a folder that holds something else. Datasets and protocols may be added."""
        path = self.folder / "grid.json"
        asked = json.loads(json.dumps(grid))
        if path.exists():
            before = _read_json(path)
            for name in ("datasets", "protocols"):
                earlier = before.get(name)
                if not isinstance(earlier, list):
                    raise _damaged(path, f"{name} is {earlier!r}, not a list")
                asked[name] = earlier + [item for item in asked[name] if item not in earlier]
            different = [name for name in asked if name not in ("datasets", "protocols") and name in before]
            different = [name for name in different if asked[name] != before[name]]
            if different:
                said = "; ".join(f"{name}: {before[name]} there, {asked[name]} asked" for name in different)
                raise ValueError(f"{self.folder} holds the results of another grid ({said}); give another --out")
        _write_json(path, asked, indent=1)

    def checkpoint(self, name: str) -> Path:
        return self.folder / "checkpoints" / f"{name}.safetensors"

    def has_fleet(self, name: str) -> bool:
        return (self.folder / "fleets" / name / "fleet.json").exists()

    def has_timing(self, name: str) -> bool:
        return (self.folder / "timings" / f"{name}.json").exists()

    def keep_fleet(self, result: FleetResult) -> None:
        """Write a fleet's tables and move them into place in one step; its checkpoint is no longer needed."""
        name = result.about["name"]
        with whole_folder(self.folder / "fleets" / name) as partial:
            for table in _TABLES:
                getattr(result, table).to_parquet(partial / f"{table}.parquet", index=False)
            (partial / "fleet.json").write_text(json.dumps(result.about, indent=1) + "\n", encoding="utf-8")
        self.checkpoint(name).unlink(missing_ok=True)
        sessions_of(self.checkpoint(name)).unlink(missing_ok=True)
        self._failure(name).unlink(missing_ok=True)

    def keep_timing(self, name: str, timing: dict[str, Any]) -> None:
        _write_json(self.folder / "timings" / f"{name}.json", timing)
        self._failure(name).unlink(missing_ok=True)

    def keep_failure(self, name: str, dataset: str, training: str, error: str) -> None:
        failure = {"fleet": name, "dataset": dataset, "training": training, "error": error}
        _write_json(self._failure(name), failure)

    def _failure(self, name: str) -> Path:
        return self.folder / "failures" / f"{name}.json"


def sessions_of(checkpoint: Path) -> Path:
    """The file that says where a fleet in training has been trained so far."""
    return checkpoint.with_suffix(".sessions.json")


def _write_json(path: Path, content: dict[str, Any], indent: int | None = None) -> None:
    with whole_file(path) as partial:
        partial.write_text(json.dumps(content, indent=indent) + "\n", encoding="utf-8")


def read_results(folder: Path) -> Results:
    """All results of a folder, from its fleets or else its `records.parquet`; a model that stands twice counts once."""
    fleets = sorted(path.parent for path in folder.glob("fleets/[!.]*/fleet.json"))  # a dot: half-written
    if not fleets and (folder / NAME).exists():
        return Results(**read_record_file(folder / NAME))
    if not fleets:
        raise FileNotFoundError(
            f"{folder} holds no finished fleet; run `prerank-paper benchmark --out {folder}` first, or give its folder"
        )
    tables = {name: [_read_table(path / f"{name}.parquet", name) for path in fleets] for name in _TABLES}
    tables["fleets"] = [pd.DataFrame([_read_json(path / "fleet.json", _KEYS["fleets"]) for path in fleets])]
    timings = [_read_json(path, _TIMED) for path in sorted(folder.glob("timings/[!.]*.json"))]
    tables["timings"] = [pd.DataFrame(timings, columns=_TIMING_COLUMNS)]
    joined = {name: _joined(parts) for name, parts in tables.items()}
    return Results(**{name: joined[name].drop_duplicates(_KEYS[name], ignore_index=True) for name in Results._fields})


def _joined(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """One table. Empty ones, of fleets without a sound model, have no types and would spoil those of the others."""
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


_TIMED = ["dataset", "prerank", "n_draws", "ms_per_step"]
_TIMING_COLUMNS = ["dataset", "training", "prerank", "n_draws", "n_models", "n_steps", "ms_per_step", "device"]


def _read_json(path: Path, keys: Sequence[str] = ()) -> dict[str, Any]:
    require_regular(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _damaged(path, error if path.stat().st_size else "it is empty") from error
    if not isinstance(content, dict):
        raise _damaged(path, f"it holds {type(content).__name__}, not names with values")
    _require(path, keys, content)
    return content


def _read_table(path: Path, name: str) -> pd.DataFrame:
    require_regular(path)
    try:
        table = pd.read_parquet(path)
    except FileNotFoundError as error:
        raise _damaged(path, "it is missing") from error
    except (OSError, ValueError) as error:  # Arrow's errors are both
        raise _damaged(path, error if path.stat().st_size else "it is empty") from error
    if "initialisation" not in table:  # written before there were several
        table["initialisation"] = 0
    _require(path, _KEYS[name], table.columns)
    return table


def _require(path: Path, wanted: Sequence[str], found: Container[object]) -> None:
    lacking = [name for name in wanted if name not in found]
    if lacking:
        raise _damaged(path, f"it has no {', '.join(lacking)}")


def _damaged(path: Path, why: object) -> ValueError:
    whole = path.parent if path.parent.parent.name == "fleets" else path
    text = " ".join(str(why).split())
    return ValueError(
        f"{path} cannot be used ({text}); delete {whole} and run the same `prerank-paper benchmark` again, or restore it"
    )


def read_failures(folder: Path) -> dict[str, str]:
    """The fleets of a results folder that failed, with their errors."""
    return {
        path.stem: str(_read_json(path).get("error", "no reason recorded"))
        for path in sorted(folder.glob("failures/[!.]*.json"))
    }
