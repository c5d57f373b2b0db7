"""Results on disk: a folder per finished fleet, moved into place whole, so that a kill leaves all of it or nothing.

DIR/grid.json            what is being run; another grid in the same folder is refused
DIR/fleets/NAME/         fleet.json, models.parquet, records.parquet, curves.parquet
DIR/timings/NAME.json    a timing run
DIR/failures/NAME.json   a fleet or timing run that failed, with its error; it is tried again next time
DIR/checkpoints/         of fleets in training; removed with the fleet's result
DIR/records/             the same tables joined, as `compact` writes them to be kept
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from prerank.data.errors import StorageError
from prerank.data.lock import locked
from prerank.studies.benchmark.work import FleetResult


class Results(NamedTuple):
    """All finished fleets: facts about each, models, numbers, reliability curves, and timing runs."""

    fleets: pd.DataFrame
    models: pd.DataFrame
    records: pd.DataFrame
    curves: pd.DataFrame
    timings: pd.DataFrame


_TABLES = ("models", "records", "curves")
_MODEL = ["dataset", "training", "penalty", "strength", "seed"]
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
            yield

    def _remove_halves(self) -> None:
        """What a kill left half-written."""
        for place in ("fleets", "timings", "failures", "."):
            for path in (self.folder / place).glob(".*.part"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in (self.folder / "checkpoints").glob("*.part"):
            path.unlink()

    def claim(self, grid: dict[str, Any]) -> None:
        """Note what is run here; refuse a folder that holds something else. Datasets and protocols may be added."""
        path = self.folder / "grid.json"
        asked = json.loads(json.dumps(grid))
        if path.exists():
            before = _read_json(path)
            for name in ("datasets", "protocols"):
                earlier = before.get(name, [])
                asked[name] = earlier + [item for item in asked[name] if item not in earlier]
            different = [name for name in asked if name not in ("datasets", "protocols") and name in before]
            different = [name for name in different if asked[name] != before[name]]
            if different:
                said = "; ".join(f"{name}: {before[name]} there, {asked[name]} asked" for name in different)
                raise ValueError(f"{self.folder} holds the results of another grid ({said}); give another --out")
        _write_whole(path, lambda partial: partial.write_text(json.dumps(asked, indent=1) + "\n", encoding="utf-8"))

    def checkpoint(self, name: str) -> Path:
        return self.folder / "checkpoints" / f"{name}.safetensors"

    def has_fleet(self, name: str) -> bool:
        return (self.folder / "fleets" / name / "fleet.json").exists()

    def has_timing(self, name: str) -> bool:
        return (self.folder / "timings" / f"{name}.json").exists()

    def keep_fleet(self, result: FleetResult) -> None:
        """Write a fleet's tables and move them into place in one step; its checkpoint is no longer needed."""

        def fill(partial: Path) -> None:
            partial.mkdir(parents=True)
            for name in _TABLES:
                getattr(result, name).to_parquet(partial / f"{name}.parquet", index=False)
            (partial / "fleet.json").write_text(json.dumps(result.about, indent=1) + "\n", encoding="utf-8")

        name = result.about["name"]
        _write_whole(self.folder / "fleets" / name, fill)
        self.checkpoint(name).unlink(missing_ok=True)
        self._failure(name).unlink(missing_ok=True)

    def keep_timing(self, name: str, timing: dict[str, Any]) -> None:
        text = json.dumps(timing) + "\n"
        _write_whole(
            self.folder / "timings" / f"{name}.json", lambda partial: partial.write_text(text, encoding="utf-8")
        )
        self._failure(name).unlink(missing_ok=True)

    def keep_failure(self, name: str, dataset: str, training: str, error: str) -> None:
        text = json.dumps({"fleet": name, "dataset": dataset, "training": training, "error": error}) + "\n"
        _write_whole(self._failure(name), lambda partial: partial.write_text(text, encoding="utf-8"))

    def _failure(self, name: str) -> Path:
        return self.folder / "failures" / f"{name}.json"


def _write_whole(target: Path, write: Callable[[Path], object]) -> None:
    """Write beside the target, flush, and move into place: a kill or a full disk leaves no half of anything."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        write(partial)
        for path in [partial, *partial.rglob("*")] if partial.is_dir() else [partial]:
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        if target.is_dir():
            shutil.rmtree(target)  # left by a kill between two runs of the same fleet
        os.replace(partial, target)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


def read_results(folder: Path) -> Results:
    """All results of a folder, from its fleets or from the joined tables; a model that stands twice counts once."""
    fleets = sorted(path.parent for path in folder.glob("fleets/[!.]*/fleet.json"))  # a dot: half-written
    if fleets:
        tables = {name: [pd.read_parquet(path / f"{name}.parquet") for path in fleets] for name in _TABLES}
        tables["fleets"] = [pd.DataFrame([_read_json(path / "fleet.json") for path in fleets])]
        timings = [_read_json(path) for path in sorted(folder.glob("timings/*.json"))]
        tables["timings"] = [pd.DataFrame(timings, columns=_TIMING_COLUMNS)]
        joined = {name: _joined(parts) for name, parts in tables.items()}
    elif (folder / "records" / "fleets.parquet").exists():
        joined = {name: pd.read_parquet(folder / "records" / f"{name}.parquet") for name in Results._fields}
    else:
        raise FileNotFoundError(
            f"{folder} holds no finished fleet; run `prerank benchmark --out {folder}` first, or give its folder"
        )
    return Results(**{name: joined[name].drop_duplicates(_KEYS[name], ignore_index=True) for name in Results._fields})


def _joined(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """One table. Empty ones, of fleets without a sound model, have no types and would spoil those of the others."""
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


_TIMING_COLUMNS = ["dataset", "training", "prerank", "n_draws", "n_models", "n_steps", "ms_per_step", "device"]


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def read_failures(folder: Path) -> dict[str, str]:
    """The fleets of a results folder that failed, with their errors."""
    return {
        path.stem: str(_read_json(path).get("error", "no reason recorded"))
        for path in sorted(folder.glob("failures/*.json"))
    }


def compact(folder: Path, target: Path) -> list[Path]:
    """Join all results into five Parquet files under `target`/records, small enough to keep."""
    written = []
    for name, table in read_results(folder)._asdict().items():
        path = target / "records" / f"{name}.parquet"
        _write_whole(path, lambda partial, table=table: table.to_parquet(partial, index=False, compression="zstd"))  # type: ignore[misc]
        written.append(path)
    return written
