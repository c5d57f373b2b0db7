"""What cannot be done ends with status 2 and one line: no traceback, nothing half-written."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from prerank.cli.main import app

RUN = "from prerank.cli import main; main()"


def invoke(*arguments: object):
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, [str(argument) for argument in arguments])


def assert_one_line(result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1, result.output
    for word in words:
        assert word in result.stderr


def values_of_commands() -> list[tuple[str, ...]]:
    """Every option that takes a value, and every argument, of every command, as words up to where the value stands."""

    def walk(command, path: tuple[str, ...]) -> list[tuple[str, ...]]:
        found = []
        for part in command.params:
            if part.param_type_name == "argument":
                found.append(path)
            elif not part.is_flag:
                found += [(*path, name) for name in part.opts]
        for name, child in getattr(command, "commands", {}).items():
            found += walk(child, (*path, name))
        return found

    return walk(typer.main.get_command(app), ())


def test_the_walk_finds_options_and_arguments_of_every_command():
    found = values_of_commands()
    for known in (
        "check --html",
        "demo --out",
        "recalibrate --save",
        "check",
    ):
        assert tuple(known.split()) in found
    assert not any("--fail" in words for words in found)


@pytest.mark.parametrize("words", values_of_commands(), ids=" ".join)
@pytest.mark.parametrize("empty", ["", "  "], ids=["nothing", "blanks"])
def test_an_empty_value_is_refused_wherever_it_stands(words, empty, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_one_line(invoke(*words, empty), f"the value after {words[-1]} is empty")
    if words[-1].startswith("--"):
        assert_one_line(invoke(*words[:-1], f"{words[-1]}={empty}"), f"the value of {words[-1]} is empty")
    assert not list(tmp_path.iterdir())


def refuses_to_write(number: int):
    def fails(*_, **__):
        raise OSError(number, os.strerror(number))

    return fails


SMALL = ["demo", "--rows", "60", "--fresh", "50"]


@pytest.mark.slow
def test_a_demonstration_on_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", refuses_to_write(errno.ENOSPC))
    result = invoke(*SMALL, "--out", tmp_path / "out")
    assert_one_line(result, "demonstration.png cannot be used: No space left on device; free some space")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_disk_that_takes_no_more_is_told_by_the_command_itself(tmp_path):
    """A limit on the size of files is the full disk that every user can have; the figure has more than 10,000 bytes."""
    pytest.importorskip("resource", reason="limits of a process are a matter of Unix")
    code = f"import resource, prerank._demonstration; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); {RUN}"
    arguments = [*SMALL, "--out", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "File too large; free some space, or give a place on another disk" in done.stderr
    assert f"{tmp_path / 'demonstration.png'} cannot be used" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_is_refused_before_any_work(number, tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "touch", refuses_to_write(number))
    monkeypatch.setattr("prerank._demonstration.demonstrate", lambda *_, **__: pytest.fail("work was done"))
    result = invoke("demo", "--out", tmp_path)
    assert_one_line(result, f"cannot write to {tmp_path}: {os.strerror(number)}; give another folder")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(tmp_path):
    (tmp_path / "out").mkdir(mode=0o500)
    assert_one_line(invoke("demo", "--out", tmp_path / "out"), "cannot write to", "Permission denied")


def test_a_file_is_no_folder_for_results(tmp_path):
    (tmp_path / "file").write_text("mine")
    assert_one_line(invoke("demo", "--out", tmp_path / "file"), "file is a file; give a folder")
    assert_one_line(invoke("demo", "--out", tmp_path / "file" / "deeper"), "cannot write to", "Not a directory")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.fixture
def arrays(tmp_path) -> Path:
    """A file of forecasts and observations that is checked in a moment."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "ok.npz", members=rng.normal(size=(30, 5, 2)), observations=rng.normal(size=(30, 2)))
    return tmp_path / "ok.npz"


CHECK = ["--prerank", "location", "--replicates", "19"]


def test_a_picture_is_not_written_over_a_folder_or_a_pipe(arrays):
    folder = arrays.parent
    os.mkfifo(folder / "pipe")
    assert_one_line(invoke("check", arrays, *CHECK, "--plot", folder), "is a folder; give the name of a file")
    assert_one_line(invoke("check", arrays, *CHECK, "--plot", folder / "pipe"), "is a device or a pipe")
    assert sorted(path.name for path in folder.iterdir()) == ["ok.npz", "pipe"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full")
def test_output_that_cannot_be_printed_is_refused(arrays):
    line = [sys.executable, "-c", RUN, "check", str(arrays), *CHECK]
    with open("/dev/full", "w") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "the output cannot be used: No space left on device; free some space, or give a place on another disk"
    ]


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error(arrays):
    """As in `prerank check FORECASTS | head -1`."""
    line = [sys.executable, "-c", RUN, "check", str(arrays), *CHECK]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert said == ""


def test_a_bug_keeps_its_traceback(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise KeyError("table")

    monkeypatch.setattr("prerank._demonstration.demonstrate", broken)
    result = invoke("demo", "--out", tmp_path)
    assert isinstance(result.exception, KeyError)


def test_a_folder_of_many_names_and_a_table_of_a_thousand_columns_get_one_line(tmp_path):
    many = tmp_path / "many"
    many.mkdir()
    for k in range(500):
        (many / f"[red]file {k}\x1b[31m.csv").touch()
    wide = tmp_path / "wide.csv"
    wide.write_text(",".join(f"[bold]column {k}\x07" for k in range(1000)) + "\n" + ",".join("1" * 1000) + "\n")
    hub = tmp_path / "hub"
    for k in range(300):
        (hub / "model-output" / f"[b]team {k}\x1b[0m").mkdir(parents=True)
    for command in ("check", "recalibrate", "joint"):
        for path in (many, wide, hub):
            more = [] if command == "check" else ["--out", str(tmp_path / "o.csv")]
            result = CliRunner(env={"COLUMNS": "100"}).invoke(app, [command, str(path), *more])
            assert result.exit_code == 2, result.output
            assert not result.stdout
            assert len(result.stderr.splitlines()) == 1
            assert len(result.stderr) < 1500
            assert not {"\x1b", "\x07"} & {*result.stderr}
            assert not (tmp_path / "o.csv").exists()
