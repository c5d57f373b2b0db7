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

from prerank_paper.cli.main import app

RUN = "from prerank_paper.cli import main; main()"


def invoke(*arguments: object):
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, [str(argument) for argument in arguments])


def assert_one_line(result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1, result.output
    for word in words:
        assert word in result.stderr


LINES = {
    "report absent": "absent holds no finished fleet",
    "report ok.npz": "ok.npz",
    "report .": "holds no finished fleet",
    "report . --out fleets": "--out fleets lies among the records that are read",
    "report . --out ./timings/new": "--out timings/new lies among the records that are read",
    "simulate": "Missing argument",
    "simulate 3": "'3' is not one of",
    "simulate 1 --cases 0": "--cases",
    "simulate 1 --members 1": "--members",
    "simulate 1 --device tpu": "there is no device called 'tpu'",
    "simulate 1 --out ok.npz/x": "cannot write to",
    "simulate power --cases 1": "fewer than one repetition",
    "benchmark --quick --datasets absent": "absent",
    "benchmark --quick --preranks absent": "absent",
    "benchmark --quick --strengths x": "--strengths x cannot be read",
    "benchmark --quick --strengths -1": "strengths are positive",
    "benchmark --quick --strengths nan": "strengths are positive",
    "benchmark --quick --strengths 1,1": "a strength is named twice",
    "benchmark --quick --seeds 1.5": "--seeds 1.5 cannot be read",
    "benchmark --quick --seeds 1,1": "a seed is named twice",
    "benchmark --quick --max-epochs 0": "--max-epochs",
    "benchmark --quick --eval-rows 1": "--eval-rows",
    "benchmark --quick --checkpoint-seconds nan": "checkpoint",
    "benchmark --quick --checkpoint-seconds -1": "--checkpoint-seconds",
    "benchmark --quick --initialisations 0": "--initialisations",
    "benchmark --quick --executor slurm": "'slurm' is not one of",
    "benchmark --quick --scheduler tcp://x:1": "--scheduler goes with --executor dask",
    "benchmark --quick --workers 2": "--workers goes with --executor dask",
    "benchmark --quick --executor dask --processes 2": "--processes is for training here",
    "benchmark --quick --judged-rows 5": "--judged-rows is called --eval-rows",
    "benchmark --quick --device cuda:77": "CUDA",
    "benchmark --quick --out ok.npz": "is a file; give a folder",
    "datasets show": "Missing argument",
    "datasets show absent --no-plot": "absent",
    "datasets show ../../etc/passwd --no-plot": "There is no dataset",
    "datasets show [bold]x[/]": "[bold]x[/]",
    "datasets show diabetes --plot x.csv": "figures are not written as '.csv'",
    "datasets fetch absent": "There is no dataset",
    "datasets fetch diabetes": "built in",
    "datasets frobnicate": "No such command",
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_cannot_be_done_is_refused_and_leaves_nothing(line, tmp_path, monkeypatch):
    np.savez(tmp_path / "ok.npz", members=np.zeros((3, 2, 1)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRERANK_CACHE", str(tmp_path.parent / "cache"))
    monkeypatch.delenv("PRERANK_DATA", raising=False)
    result = invoke(*line.split())
    assert_one_line(result, LINES[line])
    assert not result.stdout
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["ok.npz"]


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
    for known in ("benchmark --datasets", "simulate --device", "report --out", "report", "datasets show --plot"):
        assert tuple(known.split()) in found
    assert not any("--quick" in words for words in found)


@pytest.mark.parametrize("words", values_of_commands(), ids=" ".join)
@pytest.mark.parametrize("empty", ["", "  "], ids=["nothing", "blanks"])
def test_an_empty_value_is_refused_wherever_it_stands(words, empty, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_one_line(invoke(*words, empty), f"the value after {words[-1]} is empty")
    if words[-1].startswith("--"):
        assert_one_line(invoke(*words[:-1], f"{words[-1]}={empty}"), f"the value of {words[-1]} is empty")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--datasets", "--preranks", "--strengths", "--seeds"])
@pytest.mark.parametrize("names", [",", "1,,2", "1,"])
def test_a_list_without_a_name_is_refused(option, names, tmp_path):
    result = invoke("benchmark", "--quick", option, names, "--out", tmp_path / "out")
    assert_one_line(result, f"{option} {names} has an empty name or number")
    assert not (tmp_path / "out").exists()


def refuses_to_write(number: int):
    def fails(*_, **__):
        raise OSError(number, os.strerror(number))

    return fails


def test_simulate_on_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", refuses_to_write(errno.ENOSPC))
    result = invoke("simulate", "marginal", "--cases", 50, "--out", tmp_path / "out")
    assert_one_line(result, "marginal.png cannot be used: No space left on device; free some space")
    assert not list(tmp_path.iterdir())


def test_a_pair_plot_on_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", refuses_to_write(errno.ENOSPC))
    assert_one_line(invoke("datasets", "show", "diabetes", "--plot", "r.png"), "No space left on device")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command", [["simulate", "1"], ["simulate", "marginal"], ["benchmark", "--quick"]], ids=" ".join
)
@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_is_refused_before_any_work(command, number, tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "touch", refuses_to_write(number))
    for work in ("benchmark.run.run_benchmark", "cli.simulations.run_simulation", "cli.simulations.run_marginal"):
        monkeypatch.setattr(f"prerank_paper.{work}", lambda *_, **__: pytest.fail("work was done"))
    result = invoke(*command, "--out", tmp_path)
    assert_one_line(result, f"cannot write to {tmp_path}: {os.strerror(number)}; give another folder")


@pytest.mark.parametrize("command", [["simulate", "marginal"], ["benchmark", "--quick"]], ids=" ".join)
def test_a_file_is_no_folder_for_results(command, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert_one_line(invoke(*command, "--out", tmp_path / "file"), "file is a file; give a folder")
    assert_one_line(invoke(*command, "--out", tmp_path / "file" / "deeper"), "cannot write to", "Not a directory")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_picture_is_not_written_over_a_folder_or_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert_one_line(invoke("datasets", "show", "diabetes", "--plot", tmp_path), "is a folder; give the name of a file")
    assert_one_line(invoke("datasets", "show", "diabetes", "--plot", tmp_path / "pipe"), "is a device or a pipe")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full")
def test_output_that_cannot_be_printed_is_refused():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", RUN, "datasets"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "the output cannot be used: No space left on device; free some space, or give a place on another disk"
    ]


def test_a_pipe_among_the_results_is_refused_and_not_waited_for(tmp_path):
    fleet = tmp_path / "results" / "fleets" / "one"
    fleet.mkdir(parents=True)
    os.mkfifo(fleet / "fleet.json")
    os.mkfifo(fleet / "models.parquet")
    words = "is a device or a pipe, not a file; write its content to a file, and give that"
    assert_one_line(invoke("report", tmp_path / "results"), words)
