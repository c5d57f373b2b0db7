"""Hundreds of broken hubs, tables and NetCDF files: one sentence each, or the same numbers as before; never others.

A change that breaks a file is drawn by a seed. Rows in another order change nothing. A changed byte, or a row more or less,
touches no other case than those that the row stood and stands for.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hub_files import ROUNDS, build_hub
from prerank.io import DataError, Matched, Naming, read_forecasts

N_CHANGES = 110
HUB = Naming(model=("a-csv", "c-gz"), joint=("horizon",))
WIDE = Naming(members=("m *",), observation="seen", joint=("hour",))


def truncated(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def with_a_byte_changed(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]


def with_a_piece_missing(data: bytes, rng: random.Random) -> bytes:
    first = rng.randrange(len(data))
    return data[:first] + data[first + rng.randrange(1, 400) :]


def recoded(data: bytes, rng: random.Random) -> bytes:
    try:
        return data.decode().encode(rng.choice(["utf-16", "utf-32", "utf-8-sig", "utf-7", "cp500"]))
    except UnicodeError:
        return truncated(data, rng)


def with_other_lines(data: bytes, rng: random.Random) -> bytes:
    """Rows repeated, lost, or in another order; the header stays where it is, mostly."""
    header, *lines = data.splitlines(keepends=True)
    if not lines:
        return data
    chosen = rng.randrange(len(lines))
    kind = rng.randrange(5)
    if kind == 0:
        lines.insert(rng.randrange(len(lines)), lines[chosen])
    elif kind == 1:
        del lines[chosen]
    elif kind == 2:
        rng.shuffle(lines)
    elif kind == 3:
        lines.insert(chosen, header)
    else:
        return b"".join(lines)
    return header + b"".join(lines)


def with_another_sign(data: bytes, rng: random.Random) -> bytes:
    signs = [(b",", b";"), (b",", b"\t"), (b"\n", b"\r\n"), (b".", b","), (b"-", b"/"), (b"\n", b"\n\n"), (b"0", b"O")]
    old, new = rng.choice(signs)
    return data.replace(old, new, rng.choice([1, -1]))


def with_another_column(data: bytes, rng: random.Random) -> bytes:
    """A column of the header called otherwise, or like another one."""
    header, _, rest = data.partition(b"\n")
    names = header.split(b",")
    names[rng.randrange(len(names))] = rng.choice([b"", b"x", names[0], names[-1].upper(), b"\xff", b"a b"])
    return b",".join(names) + b"\n" + rest


CHANGES = [
    truncated,
    with_a_byte_changed,
    with_a_piece_missing,
    recoded,
    with_other_lines,
    with_another_sign,
    with_another_column,
]
Change = Callable[[bytes, random.Random], bytes]


def outcome(read: Callable[[], Matched]) -> Matched | str:
    """What was read, or the sentence that refuses it; any other error is a bug."""
    try:
        return read()
    except DataError as error:
        said = str(error)
        assert said
        assert "Traceback" not in said
        return said


def differing(found: Matched, whole: Matched) -> np.ndarray:
    """Where numbers stand that are not those of the whole file, in the cases and targets that both have."""
    rows, columns = found.y.index.intersection(whole.y.index), found.y.columns.intersection(whole.y.columns)
    parts = []
    for one in (found, whole):
        places = np.ix_(
            one.y.index.get_indexer(rows), np.arange(one.members.shape[1]), one.y.columns.get_indexer(columns)
        )
        parts.append(np.sort(np.asarray(one.members)[places], axis=1))
    n_members = min(part.shape[1] for part in parts)
    mine, theirs = (part[:, :n_members] for part in parts)
    return np.flatnonzero((np.isfinite(mine) & np.isfinite(theirs) & (mine != theirs)).any(axis=(1, 2)))


def assert_no_silent_change(found: Matched, whole: Matched, data: bytes, changed: bytes) -> None:
    """Labels and numbers are those of the file: at most the cases that a changed line names differ from before."""
    if sorted(data.splitlines()) == sorted(changed.splitlines()):
        assert found.members.shape == whole.members.shape
        assert not len(differing(found, whole))
    # a line or a byte that was changed touches one case of each of the two that it stood and stands for
    elif len(data.splitlines()) - len(changed.splitlines()) in (-1, 0, 1) and len(data) - len(changed) in (-1, 0, 1):
        assert len(differing(found, whole)) <= 2


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_hub(tmp_path_factory.mktemp("broken") / "hub")


@pytest.mark.slow
def test_a_broken_hub_is_refused_in_a_sentence_or_read_as_it_is(hub: Path) -> None:
    paths = [
        hub / "model-output" / "a-csv" / f"{ROUNDS[1]}-a-csv.csv",
        hub / "model-output" / "c-gz" / f"{ROUNDS[0]}-c-gz.csv.gz",
        hub / "target-data" / "time-series.csv",
        hub / "hub-config" / "tasks.json",
    ]
    whole, kinds = read_forecasts(hub, naming=HUB), {"read": 0, "refused": 0}
    for seed in range(N_CHANGES):
        rng = random.Random(seed)
        path, change = paths[seed % len(paths)], CHANGES[seed % len(CHANGES)]
        data = path.read_bytes()
        changed = change(data, rng)
        try:
            path.write_bytes(changed)
            found = outcome(lambda: read_forecasts(hub, naming=HUB))
        finally:
            path.write_bytes(data)
        kinds["refused" if isinstance(found, str) else "read"] += 1
        if isinstance(found, Matched) and path.suffix == ".csv" and "model-output" in path.parts:
            assert_no_silent_change(found, whole, data, changed)
    assert min(kinds.values()) > 10


def long_table() -> pd.DataFrame:
    rows = pd.MultiIndex.from_product([range(8), range(3), ["a", "b"]], names=["case", "member", "target"])
    return pd.DataFrame({"value": np.arange(48.0), "observation": 0.5}, rows).reset_index()


def wide_table() -> pd.DataFrame:
    times = pd.date_range("2024-01-01", periods=48, freq="h", name="time")
    return pd.DataFrame(np.arange(48 * 4.0).reshape(48, 4), times, ["seen", "m 1", "m 2", "m 3"]).reset_index()


@pytest.mark.parametrize(("table", "naming"), [(long_table, Naming()), (wide_table, WIDE)], ids=["long", "wide"])
def test_a_broken_table_is_refused_in_a_sentence_or_read_as_it_is(table, naming: Naming, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path, kinds = tmp_path / "f.csv", {"read": 0, "refused": 0}
    table().to_csv(path, index=False)
    data, whole = path.read_bytes(), read_forecasts(path, naming=naming)
    for seed in range(N_CHANGES):
        rng = random.Random(1000 + seed)
        changed = CHANGES[seed % len(CHANGES)](data, rng)
        path.write_bytes(changed)
        found = outcome(lambda: read_forecasts(path, naming=naming))
        kinds["refused" if isinstance(found, str) else "read"] += 1
        if isinstance(found, Matched):
            assert_no_silent_change(found, whole, data, changed)
    assert min(kinds.values()) > 10


@pytest.mark.parametrize("suffix", ["nc", "parquet"])
def test_a_broken_binary_file_is_refused_in_a_sentence_or_read_as_it_is(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"f.{suffix}"
    files = [path]
    if suffix == "nc":
        pytest.importorskip("xarray")
        pytest.importorskip("netCDF4")
        from hindcast_files import iri

        dataset, truth, _ = iri()
        dataset.to_netcdf(path, engine="scipy")
        truth.to_netcdf(tmp_path / "o.nc", engine="scipy")
        files.append(tmp_path / "o.nc")
    else:
        long_table().to_parquet(path)
    data = path.read_bytes()
    refused = 0
    for seed in range(60):
        rng = random.Random(2000 + seed)
        change = (truncated, with_a_piece_missing, with_a_byte_changed)[seed % 3]
        path.write_bytes(change(data, rng))
        refused += isinstance(outcome(lambda: read_forecasts(*files)), str)
    assert refused > 20


def test_columns_and_folders_that_are_missing_are_named(hub: Path, tmp_path: Path) -> None:
    copy = tmp_path / "hub"
    for gone in ("target-data", "hub-config", "model-output/a-csv", "model-output"):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(hub, copy)
        shutil.rmtree(copy / gone)
        found = outcome(lambda: read_forecasts(copy, naming=HUB))
        if gone == "hub-config":
            assert isinstance(found, Matched)
        else:
            assert isinstance(found, str)
            assert gone.partition("/")[2] or gone in found
    for table, naming in ((long_table(), Naming()), (wide_table(), WIDE)):
        for column in table.columns:
            table.drop(columns=column).to_csv(tmp_path / "f.csv", index=False)
            found = outcome(lambda: read_forecasts(tmp_path / "f.csv", naming=naming))  # noqa: B023 - called at once
            assert isinstance(found, Matched) == column.startswith("m ")
