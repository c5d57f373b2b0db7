"""Results folders of the whole study: what two of them have in common, and how they travel in small pieces."""

import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

TABLES = ("models", "records", "curves")
PART_BYTES, ALL_BYTES = 15 << 20, 58 << 20
_RESULTS = ("best_epoch", "steps", "diverged")  # of a model, that are not floating point numbers


def seconds_of(folder: Path) -> dict[str, float]:
    """Seconds of the training loop of every fleet."""
    found = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("fleets/*/fleet.json")}
    return {name: about["seconds"] for name, about in sorted(found.items())}


def compared(first: Path, second: Path) -> dict[str, Any]:
    """The tables of the fleets that both folders have, row by row: how many rows, and how many numbers differ at all."""
    names = [path.parent.name for path in sorted(first.glob("fleets/*/fleet.json"))]
    names = [name for name in names if (second / "fleets" / name / "fleet.json").exists()]
    found: dict[str, Any] = {"fleets": names, "rows": 0, "only_one_has": 0, "different": 0, "worst": 0.0}
    for name in names:
        for table in TABLES:
            pair = [_table(folder / "fleets" / name / f"{table}.parquet") for folder in (first, second)]
            for what, value in _differences(*pair).items():
                found[what] = max(found[what], value) if what == "worst" else found[what] + value
    return found


def _table(path: Path) -> pd.DataFrame:
    table = pd.read_parquet(path)
    return table if "initialisation" in table else table.assign(initialisation=0)


def _differences(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, Any]:
    """Of rows with the same names; an older table may have fewer columns, or other models beside the common ones."""
    columns = [name for name in first.columns if name in second.columns]
    names = [
        name
        for name in columns
        if name not in _RESULTS and (first[name].dtype.kind != "f" or name in ("strength", "level"))
    ]
    merged = first[columns].merge(second[columns], on=names, how="outer", indicator=True, suffixes=("", " there"))
    both = merged[merged["_merge"] == "both"]
    found = {"rows": len(both), "only_one_has": len(merged) - len(both), "different": 0, "worst": 0.0}
    for name in (name for name in columns if name not in names):
        here, there = both[name], both[f"{name} there"]
        unequal = ~((here == there) | (here.isna() & there.isna()))
        found["different"] += int(unequal.sum())
        if unequal.any():
            gap = (here[unequal].astype(float) - there[unequal].astype(float)).abs()
            found["worst"] = max(found["worst"], float(gap.max()))
    return found


def pack(work: Path, out: Path) -> list[Path]:
    """The record, and everything else in pieces: finished fleets and logs, then checkpoints as far as there is room."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("study.tar.gz.*"):
        old.unlink()
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        for path in _to_pack(work):
            size = path.stat().st_size
            if path.suffix != ".safetensors" or stream.tell() + size < ALL_BYTES:
                archive.add(path, str(path.relative_to(work)))
    content = stream.getvalue()
    pieces = []
    for number, start in enumerate(range(0, len(content), PART_BYTES)):
        pieces.append(out / f"study.tar.gz.{number:02d}")
        pieces[-1].write_bytes(content[start : start + PART_BYTES])
    if (work / "whole_study.json").exists():
        shutil.copy(work / "whole_study.json", out / "whole_study.json")
    return pieces


def _to_pack(work: Path) -> Iterator[Path]:
    files = [path for path in sorted(work.rglob("*")) if path.is_file()]
    kept = [path for path in files if path.relative_to(work).parts[0] != "cache" and not path.name.startswith(".")]
    yield from (path for path in kept if "checkpoints" not in path.parts)
    yield from sorted((path for path in kept if "checkpoints" in path.parts), key=lambda path: path.stat().st_size)


def unpack(out: Path, work: Path) -> None:
    pieces = sorted(out.glob("study.tar.gz.*"))
    with tarfile.open(fileobj=io.BytesIO(b"".join(piece.read_bytes() for piece in pieces)), mode="r:gz") as archive:
        archive.extractall(work, filter="data")
