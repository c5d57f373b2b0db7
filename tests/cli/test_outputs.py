"""No result is written over a file that is read, and no two into one file; it is refused before any work."""

import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from prerank.cli.main import app


def invoke(*arguments: object):
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Forecasts, the same under two other names, and observations."""
    rng = np.random.default_rng(0)
    members, y = rng.normal(size=(30, 5, 2)), rng.normal(size=(30, 2))
    np.savez(tmp_path / "ok.npz", members=members, observations=y)
    np.savez(tmp_path / "seen.npz", observations=y)
    (tmp_path / "link.html").symlink_to(tmp_path / "ok.npz")
    (tmp_path / "hard.html").hardlink_to(tmp_path / "ok.npz")
    (tmp_path / "hard.npz").hardlink_to(tmp_path / "ok.npz")
    (tmp_path / "there.svg").write_text("mine")
    (tmp_path / "again.html").symlink_to(tmp_path / "there.svg")
    (tmp_path / "store.zarr").mkdir()
    monkeypatch.chdir(tmp_path)
    for reader in ("io.read.read_npz", "io.read.read_variables"):
        monkeypatch.setattr(f"prerank.{reader}", lambda *_, **__: pytest.fail("work was done"))
    return tmp_path


def state(folder: Path) -> dict[str, object]:
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("check ok.npz --html ok.npz", "--html ok.npz would replace a file that is read; give another name"),
        ("check ok.npz --html ./x/../ok.npz", "--html x/../ok.npz would replace a file that is read"),
        ("check ok.npz --html link.html", "--html link.html would replace"),
        ("check ok.npz --html hard.html", "--html hard.html would replace"),
        ("check link.html seen.npz --html ok.npz", "--html ok.npz would replace"),
        ("check ok.npz seen.npz --html seen.npz", "--html seen.npz would replace"),
        ("check there.svg --plot there", "--plot there would replace"),
        ("check store.zarr --html store.zarr/report.html", "would replace a file that is read"),
        ("check ok.npz --plot x.png --html x.png", "--plot and --html are both x.png; give two names"),
        ("check ok.npz --plot x --html x.svg", "--plot and --html are both x.svg; give two names"),
        ("check ok.npz --plot there.svg --html again.html", "--plot and --html are both again.html"),
        ("check ok.npz --plot x.doc", "x.doc: figures are not written as '.doc'; give .png, .svg or .pdf"),
        ("check ok.npz --plot store.zarr", "store.zarr is a folder; give the name of a file"),
        ("check ok.npz --html store.zarr", "store.zarr is a folder; give the name of a file"),
        ("recalibrate ok.npz --out hard.npz", "--out hard.npz would replace a file that is read"),
        ("recalibrate ok.npz --out new.npz --save link.html", "--save link.html would replace"),
        ("recalibrate ok.npz --out new.npz --save ./new.npz", "--out and --save are both new.npz; give two names"),
        ("recalibrate ok.npz --apply seen.npz --out seen.npz", "--out seen.npz would replace"),
        ("recalibrate ok.npz --load again.html --out there.svg", "--out there.svg would replace"),
    ],
)
def test_an_output_over_an_input_or_another_output_is_refused_before_any_work(line, words, folder):
    before = state(folder)
    result = invoke(*line.split())
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert words in result.stderr
    assert not result.stdout
    assert state(folder) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are a matter of Unix")
@pytest.mark.parametrize(
    "line",
    [
        *(f"check pipe.{suffix}" for suffix in ("npz", "csv", "tsv", "parquet", "feather", "nc", "arff")),
        "check ok.npz pipe.npz",
        "check store.zarr",
        "recalibrate pipe.csv --out x.csv",
        "recalibrate ok.npz --load pipe.npz --out x.npz",
        "recalibrate ok.npz --apply pipe.npz --out x.npz",
        "recalibrate ok.npz --apply ok.npz --apply-observations pipe.npz --out x.npz",
        "check zero.csv",
    ],
)
def test_a_pipe_or_a_device_is_refused_and_not_waited_for(line, folder, monkeypatch):
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    for suffix in ("npz", "csv", "tsv", "parquet", "feather", "nc", "arff"):
        os.mkfifo(folder / f"pipe.{suffix}")
    (folder / "store.zarr" / ".zgroup").write_text('{"zarr_format": 2}')
    (folder / "store.zarr" / "t2m").mkdir()
    os.mkfifo(folder / "store.zarr" / "t2m" / "0.0.0")
    (folder / "zero.csv").symlink_to("/dev/zero")
    result = invoke(*line.split())
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert "is a device or a pipe, not a file; write its content to a file, and give that" in result.stderr
