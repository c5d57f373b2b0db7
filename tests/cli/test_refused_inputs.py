"""Bad lines at the command line: each gets one line on the error stream and status 2, and leaves nothing behind.

Files that are malformed in themselves are in `test_malformed_files.py`; these are further ones, and options.
"""

import errno
import gzip
import io
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from prerank.cli.main import app

N_CASES, N_MEMBERS = 24, 4
RNG = np.random.default_rng(0)
MEMBERS, Y = RNG.normal(size=(N_CASES, N_MEMBERS, 2)), RNG.normal(size=(N_CASES, 2))
ANSI = "\x1b[31mred\n"

REFUSALS: list[tuple[str, list[str], Callable[[Path], object] | None, str]] = []


def refused(line: str | list[str], words: str, write: Callable[[Path], object] | None = None, name: str = "") -> None:
    """A line that is refused with these words, after something was written into the folder."""
    arguments = line.split() if isinstance(line, str) else line
    REFUSALS.append((name or " ".join(arguments), arguments, write, words))


def long(**columns: object) -> pd.DataFrame:
    grid = pd.MultiIndex.from_product(
        [range(N_CASES), range(N_MEMBERS), ["a", "b"]], names=["case", "member", "target"]
    )
    table = pd.DataFrame({"value": MEMBERS.ravel()}, index=grid).reset_index()
    return table.assign(**{"observation": np.repeat(Y[:, None], N_MEMBERS, 1).ravel(), **columns})


TEXT = long().to_csv(index=False)


def text(content: str | bytes, name: str = "f.csv") -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def parquet(table: Callable[[], pd.DataFrame]) -> Callable[[Path], object]:
    return lambda folder: table().to_parquet(folder / "f.parquet")


# -- options that no command has, or with values that they cannot have

for line, words in {
    "": "",
    "frobnicate": "No such command 'frobnicate'",
    "--frobnicate": "No such option",
    "check": "Missing argument 'FORECASTS'; see",
    "check ok.npz --frobnicate": "No such option",
    "check ok.npz ok.npz ok.npz": "unexpected extra argument",
    "check ok.npz --plot": "requires an argument",
    "check ok.npz --replicates 3": "--replicates",
    "check ok.npz --replicates -999": "--replicates",
    "check ok.npz --replicates many": "--replicates",
    "check ok.npz --replicates 9.5": "--replicates",
    "check ok.npz --replicates 1e3": "--replicates",
    "check ok.npz --replicates 99999999999999": "replicates",
    "check ok.npz --seed 1.5": "--seed",
    "check ok.npz --seed x": "--seed",
    "check ok.npz --prerank Location2": "there is no pre-rank 'Location2'",
    "check ok.npz --prerank dependency": "for this many targets (2)",
    "check ok.npz --prerank location --prerank none": "there is no pre-rank 'none'",
    "check ok.npz --axes case,member": "name each of case, member, target once",
    "check ok.npz --axes case,case,target": "name each of case, member, target once",
    "check ok.npz --axes case,target,member": "both must be the same",
    "check ok.npz --axes a;b;c": "name each of case, member, target once",
    "check ok.npz --case day": "no named case",
    "check ok.npz --member run": "no named case",
    "check ok.npz --target lead": "no named case",
    "check ok.npz --value observations": "observations",
    "check ok.npz --value x": "no array 'x'",
    "check ok.npz --observation x": "no array 'x'",
    "check ok.npz --block x": "no array 'x'",
    "check ok.npz --by x": "no array 'x'",
    "check ok.npz --block members": "one value per case",
    "check ok.csv --axes case,member,target": "axes are for arrays of NPZ files",
    "check ok.csv --case x": "no column 'x'",
    "check ok.csv --case case --case x": "no column 'x'",
    "check ok.csv --target a --target b": "has one column of targets",
    "check ok.csv --value target": "holds not only numbers",
    "check ok.csv --value absent": "no column 'absent'",
    "check ok.csv --member target": "repeat an earlier one",
    "check ok.csv --by value": "more than one value",
    "check ok.csv --block absent": "no column 'absent'",
    "check ok.csv --by member": "more than one value",
    "check ok.csv ok.npz": "different kinds",
    "check ok.csv absent.csv": "absent.csv cannot be read",
    "check absent.npz": "absent.npz cannot be read",
    "check absent.nc": "absent.nc cannot be read",
    "check absent.parquet": "absent.parquet cannot be read",
    "check absent": "absent cannot be read: no such file",
    "check .": ". is a folder, but no Zarr store and no forecast hub",
    "check /": "/ is a folder, but no Zarr store and no forecast hub",
    "check folder": "folder is a folder, but no Zarr store and no forecast hub",
    "check folder.npz": "folder.npz cannot be read",
    "check folder.parquet": "folder.parquet cannot be read",
    "check folder.nc": "folder.nc cannot be read",
    "check ok.npz --html folder": "folder is a folder",
    "check ok.npz --html folder/": "folder is a folder",
    "check ok.npz --plot folder": "folder is a folder",
    "check ok.npz --html ok.csv/report.html": "because",
    "check ok.npz --html absent/../ok.npz": "would replace a file that is read",
    "check ok.npz --plot x.txt": "figures are not written as '.txt'",
    "check ok.npz --plot x.html": "figures are not written as '.html'",
    "check ok.npz --html /dev/null": "is a device or a pipe",
    "check ok.npz --html /proc/new/report.html": "/proc/new/report.html",
    "check loop.npz": "loop.npz cannot be read",
    "check dangling.csv": "dangling.csv cannot be read",
    "recalibrate ok.npz": "Missing option '--out'",
    "recalibrate ok.npz --out": "requires an argument",
    "recalibrate ok.npz --out o.npz --draws 1": "--draws",
    "recalibrate ok.npz --out o.npz --draws 100000000000": "less than or equal to 1000000",
    "recalibrate ok.npz --out o.npz --share 0": "a share of the cases between 0 and 1",
    "recalibrate ok.npz --out o.npz --share 1": "a share of the cases between 0 and 1",
    "recalibrate ok.npz --out o.npz --share nan": "a share of the cases between 0 and 1",
    "recalibrate ok.npz --out o.npz --share inf": "a share of the cases between 0 and 1",
    "recalibrate ok.npz --out o.npz --share half": "--share",
    "recalibrate ok.npz --out o.npz --share 0.99": "leaves none to judge by",
    "recalibrate ok.npz --out o.npz --before 6": "too few for 5-fold cross-validation",
    "recalibrate ok.npz --out o.npz --apply ok.npz --before 6": "leave out --before",
    "recalibrate ok.npz --out o.npz --apply ok.npz --share 0.5": "leave out --share",
    "recalibrate ok.npz --out o.npz --load ok.npz": "cannot be read as a saved Recalibrator",
    "recalibrate ok.npz --out o.npz --load folder": "is a folder",
    "recalibrate ok.npz --out o.npz --load absent": "absent",
    "recalibrate ok.npz --out o.npz --load other.safetensors": "other.safetensors",
    "recalibrate ok.npz --out o.zarr": "not written as Zarr",
    "recalibrate ok.npz --out o.xlsx": "cannot tell the format",
    "recalibrate ok.npz --out folder.npz": "is a folder",
    "recalibrate one.npz --out o.npz": "a single member has no spread",
    "recalibrate ok.npz --out o.npz --apply wide.npz": "give the same targets",
    "recalibrate ok.npz --out o.npz --save /dev/null": "is a device or a pipe",
    "demo --rows 3": "--rows",
    "demo --fresh 0": "--fresh",
    "demo --seed -1": "--seed",
    "demo --out ok.npz": "is a file; give a folder",
}.items():
    if line:
        refused(line, words)

for command in (["check", ANSI + ".npz"], ["check", "ok.npz", "--block", ANSI], ["check", "ok.npz", "--prerank", ANSI]):
    refused(command, "\\x1b[31mred", name=f"control characters: {' '.join(command[:3])!a}")
refused(["check", "a\0b.npz"], "a", name="a null character in a path")
refused(["check", "x" * 300 + ".npz"], "File name too long", name="a name that is too long")
refused(["check", "ok.npz", "--html", "x" * 300], "name", name="an output whose name is too long")
refused(["check", "[red]ok[/].npz"], "[red]ok[/].npz cannot be read", name="markup in a path")
refused(["check", "ünïcode ☃.csv"], "ünïcode ☃.csv cannot be read", name="a name in Unicode")

# -- tables

CSV = {
    "UTF-16 with a mark": (TEXT.encode("utf-16"), "not UTF-8"),
    "Latin-1": (TEXT.replace("a", "å").encode("latin-1"), "not UTF-8"),
    "gzip called csv": (gzip.compress(TEXT.encode()), "not UTF-8"),
    "null characters": (TEXT.replace("0", "\0").encode(), "holds not only numbers"),
    "a decimal comma": (TEXT.replace(".", ",").encode(), "f.csv"),
    "a decimal comma in quotes": ('case,member,target,value,observation\n1,0,a,"1,5","2,5"\n', "'1,5'"),
    "thousands": ('case,member,target,value,observation\n1,0,a,"1,500",2\n', "'1,500'"),
    "values with units": (TEXT.replace("\n", " mm\n").replace(" mm", "", 1), "holds not only numbers"),
    "infinite values in words": (TEXT.replace(str(MEMBERS[0, 0, 0]), "inf"), "infinite"),
    "values beyond a double": (TEXT.replace(str(MEMBERS[0, 0, 0]), "1e999"), "infinite"),
    "no header": (TEXT.partition("\n")[2], "more than one column named"),
    "spaces in the header": (TEXT.replace(",", ", ", 4), "no column 'member'"),
    "another case": (TEXT.upper(), "no column 'case'"),
    "a comment on top": ("# forecasts\n" + TEXT, "f.csv"),
    "a column twice": (TEXT.replace("observation", "value"), "more than one column named 'value'"),
    "a column without a name": (TEXT.replace("target,", ",", 1), "no name"),
    "a header alone": ("case,member,target,value,observation\n", "no rows"),
    "blank lines alone": ("\n\n\r\n", "empty"),
    "a quotation across all": (TEXT.replace("case", '"case', 1), "f.csv"),
    "JSON": ('{"case": [1, 2]}', "malformed"),
    "a cut last row": (TEXT[:-25], "f.csv"),
    "two observations of a case": (TEXT[:-3] + "9\n", "has two observations"),
    "a key twice": (TEXT + TEXT.splitlines()[5] + "\n", "repeat an earlier one"),
    "NaN everywhere": (long(value=np.nan).to_csv(index=False), "no case is left"),
    "observations NaN everywhere": (long(observation=np.nan).to_csv(index=False), "no case is left"),
    "an escape in a column": (TEXT.replace("target", ANSI.strip() + "x", 1), "\\x1b"),
    "true and false as values": (long(value=True).to_csv(index=False), "holds not only numbers"),
    "dates as values": (long(value="2024-01-01").to_csv(index=False), "holds not only numbers"),
    "case labels of which one is missing": (TEXT.replace("\n3,", "\n,"), "have no 'case'"),
}
for name, (content, words) in CSV.items():
    refused("check f.csv", words, text(content), f"csv: {name}")
    if name in ("Latin-1", "a key twice", "NaN everywhere"):
        refused(
            "recalibrate f.csv --out o.csv", "f.csv" if name == "Latin-1" else "", text(content), f"recalibrate: {name}"
        )

PARQUET = {
    "complex labels": (lambda: long(case=[{"a": 1}] * len(MEMBERS.ravel())), "no labels"),
    "lists as targets": (lambda: long(target=[[1]] * len(MEMBERS.ravel())), "no labels"),
    "text as observations": (lambda: long(observation="x"), "holds not only numbers"),
    "lengths of time as values": (lambda: long(value=pd.Timedelta("1D")), "holds not only numbers"),
    "booleans as values": (lambda: long(value=True), "holds not only numbers"),
    "no columns": (lambda: pd.DataFrame(index=range(3)), "f.parquet"),
    "a column of nothing": (lambda: long(case=None), "have no 'case'"),
}
for name, (table, words) in PARQUET.items():
    refused("check f.parquet", words, parquet(table), f"parquet: {name}")


# -- archives


def archive(members: bytes | np.ndarray, **options: object) -> Callable[[Path], object]:
    """An NPZ file whose array `members` is made of these bytes."""

    def write(folder: Path) -> None:
        with zipfile.ZipFile(folder / "f.npz", "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in (("members", members), ("observations", Y)):
                stream = io.BytesIO()
                if isinstance(content, bytes):
                    stream.write(content)
                else:
                    np.save(stream, content)
                file.writestr(f"{name}.npy", stream.getvalue())

    return write


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + b"\0" * 64


HEADERS = {
    "nested brackets": "{'descr': '<f8', 'fortran_order': False, 'shape': " + "(" * 400 + ")" * 400 + "}",
    "nested signs": "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "-" * 3000 + "1,)}",
    "fields": "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3,)}",
    "no keys": "{}",
    "an unknown type": "{'descr': 'zz', 'fortran_order': False, 'shape': (3,)}",
    "a shape of text": "{'descr': '<f8', 'fortran_order': False, 'shape': 'abc'}",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (3,)}",
    "a product": "{'descr': '<f8', 'fortran_order': False, 'shape': (1,) * 9}",
}
for name, said in HEADERS.items():
    refused("check f.npz", "f.npz" if name != "fields" else "give real numbers", archive(header(said)), f"npz: {name}")
for name, content in {"text": b"hello", "nothing": b"", "a pickle": b"\x80\x04N.", "a zip": b"PK\x03\x04"}.items():
    refused("check f.npz", "holds 'members', which is no array", archive(content), f"npz: a member that is {name}")
refused("check f.npz", "f.npz", archive(b"\x93NUMPY\x09\x00"), "npz: a version to come")
refused("check f.npz", "NaN|finite|no case is left", archive(MEMBERS * np.nan), "npz: NaN everywhere")
refused("check f.npz", "target 1 of 2 has an empty name", lambda folder: _unnamed(folder), "npz: an empty name")
refused("check f.npz", "f.npz", text(b"PK\x05\x06" + b"\0" * 18, "f.npz"), "npz: an empty archive")
refused("check f.npz", "one array without a name", lambda folder: _npy(folder), "npz: an NPY file")


def _npy(folder: Path) -> None:
    with (folder / "f.npz").open("wb") as file:
        np.save(file, MEMBERS)


def _unnamed(folder: Path) -> None:
    np.savez(folder / "f.npz", members=MEMBERS, observations=Y, targets=["", "rain"])


def _bomb(folder: Path) -> None:
    """A megabyte of an archive that would be a thousand times as large."""
    with zipfile.ZipFile(folder / "f.npz", "w", zipfile.ZIP_DEFLATED) as file, file.open("members.npy", "w") as stream:
        shape = "{'descr': '<f8', 'fortran_order': False, 'shape': (20000000, 1, 1)}"
        stream.write(header(shape)[:-64])
        for _ in range(160):
            stream.write(bytes(1_000_000))


refused("check f.npz", "more than the", _bomb, "npz: a bomb")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """What the lines above name: good files, and things that are none."""
    folder = tmp_path_factory.mktemp("files")
    np.savez(folder / "ok.npz", members=MEMBERS, observations=Y)
    np.savez(folder / "one.npz", members=MEMBERS[:, :1], observations=Y)
    np.savez(folder / "wide.npz", members=MEMBERS[..., [0, 1, 1]], observations=Y[:, [0, 1, 1]])
    (folder / "ok.csv").write_text(TEXT)
    for name in ("folder", "folder.npz", "folder.parquet", "folder.nc"):
        (folder / name).mkdir()
    (folder / "loop.npz").symlink_to(folder / "loop.npz")
    (folder / "dangling.csv").symlink_to("nowhere.csv")
    from safetensors.numpy import save_file

    save_file({"a": Y}, folder / "other.safetensors")
    return folder


def contents(folder: Path) -> list[tuple[str, bytes | None]]:
    return sorted(
        (str(path.relative_to(folder)), path.read_bytes() if path.is_file() else None) for path in folder.rglob("*")
    )


def invoke(arguments: list[str]):
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, arguments)


def test_there_are_more_than_a_hundred_different_ones():
    assert len({name for name, *_ in REFUSALS}) == len(REFUSALS) > 100


@pytest.mark.parametrize(
    ("arguments", "write", "words"), [one[1:] for one in REFUSALS], ids=[one[0] for one in REFUSALS]
)
def test_a_bad_line_gets_one_line_and_leaves_nothing(arguments, write, words, files, tmp_path, monkeypatch):
    shutil.copytree(files, tmp_path, symlinks=True, dirs_exist_ok=True)
    if write is not None:
        write(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("prerank.io.memory.available", lambda: 100_000_000)
    before = contents(tmp_path)
    result = invoke(arguments)
    assert result.exit_code == 2, result.output[-600:] + repr(result.exception)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.rstrip("\n").isprintable()
    assert 15 < len(result.stderr) < 1000
    assert any(word in result.stderr for word in words.split("|")), result.stderr
    assert contents(tmp_path) == before


def test_a_parquet_file_of_one_value_a_billion_times_is_refused_before_it_is_unpacked(files, tmp_path, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet

    path = tmp_path / "f.parquet"
    columns = pa.table({name: pa.repeat(1, 1_000_000) for name in ("case", "member", "target", "value", "observation")})
    pyarrow.parquet.write_table(columns, path)
    assert path.stat().st_size < 40_000 < 40_000_000
    monkeypatch.setattr("prerank.io.memory.available", lambda: 10_000_000)
    result = invoke(["check", str(path)])
    assert result.exit_code == 2
    assert "its content takes 0.04 GB, more than the 0.01 GB of memory here" in result.stderr


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 7.28 TiB"),
        RuntimeError("not enough memory: you tried to allocate 8000000000000 bytes. Error code 12"),
    ],
)
def test_numbers_that_do_not_fit_into_memory_get_one_line(error, files, tmp_path, monkeypatch):
    def fails(*_: object, **__: object) -> None:
        raise error

    shutil.copytree(files, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("prerank.recalibration.Recalibrator.fit", fails)
    result = invoke(["recalibrate", "ok.npz", "--out", "o.npz"])
    assert result.exit_code == 2
    assert "there is not enough memory (" in result.stderr
    assert "allocate" in result.stderr
    assert not (tmp_path / "o.npz").exists()


CHECK = "check ok.npz --prerank marginal --replicates 19"
RECALIBRATE = "recalibrate ok.npz --prerank marginal --replicates 19"


@pytest.mark.parametrize(
    ("line", "number"),
    [
        *((f"{CHECK} --html r.html", number) for number in (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)),
        (f"{CHECK} --plot r.svg", errno.ENOSPC),
        (f"{CHECK} --plot r", errno.ENOSPC),
        (f"{RECALIBRATE} --out r.nc", errno.ENOSPC),
        (f"{RECALIBRATE} --out new/folder/r.csv", errno.ENOSPC),
    ],
)
def test_a_disk_that_takes_no_more_leaves_nothing(line, number, files, tmp_path, monkeypatch):
    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    shutil.copy(files / "ok.npz", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", fails)
    result = invoke(line.split())
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert f"cannot be used: {os.strerror(number)}; " in result.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "ok.npz"]


@pytest.mark.parametrize("name", ["ok.npz", "ok.csv"])
def test_a_file_that_vanishes_or_may_not_be_read_is_one_line(name, files, monkeypatch):
    for number in (errno.ENOENT, errno.EACCES, errno.EIO, errno.ESTALE):

        def fails(*_: object, number: int = number, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patched:
            patched.setattr(Path, "open", fails)
            patched.setattr(Path, "read_bytes", fails)
            result = invoke(["check", str(files / name)])
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
        assert f"{name} cannot be read: {os.strerror(number)}" in result.stderr


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace(",a,", ',"a",').encode(),
        TEXT.rstrip("\n").encode(),
        (TEXT + "\n\n").encode(),
    ],
    ids=["a byte order mark", "CRLF", "quotes", "no last line end", "blank lines at the end"],
)
def test_other_ways_to_write_the_same_table_are_the_same(content, files, tmp_path):
    (tmp_path / "f.csv").write_bytes(content)
    line = ["--prerank", "marginal", "--replicates", "39"]
    said = [invoke(["check", str(path), *line]).stdout for path in (files / "ok.csv", tmp_path / "f.csv")]
    assert said[0] == said[1] != ""


@pytest.mark.slow
def test_names_of_files_are_printed_without_markup_or_control_characters(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = f"[bold]x {ANSI.strip()}"
    result = invoke(["demo", "--rows", "60", "--fresh", "50", "--out", out])
    assert result.exit_code == 0, result.output
    assert "[bold]x \\x1b[31mred" in result.stdout
    assert "\x1b[31mred" not in result.stdout
