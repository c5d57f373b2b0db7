"""Results that are damaged are named in one line, with what to delete; those of no paper dataset are reported."""

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from prerank_paper.benchmark.records import Results
from prerank_paper.cli.main import app
from prerank_paper.report.agreement import compare, shares
from prerank_paper.report.pages import must_know
from prerank_paper.report.write import write_report

TIMING = {"dataset": "house", "training": "exact", "prerank": "HDR", "n_draws": 100, "n_models": 5, "n_steps": 2}


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def folder(make, kept, tmp_path):
    """Two fleets of one dataset on disk, and a timing run."""
    store = kept(make(["house"], seeds=(0, 1), timings=False), tmp_path / "results")
    store.keep_timing("house.HDR.100", TIMING | {"ms_per_step": 1.5, "device": "toy"})
    return store.folder


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def other_columns(path):
    pd.DataFrame({"a": [1]}).to_parquet(path)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "cut short": cut,
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00garbage"),
    "missing": lambda path: path.unlink(),
    "a list": lambda path: path.write_text("[1, 2]"),
    "other names": lambda path: path.write_text('{"a": 1}'),
    "other columns": other_columns,
}
TABLE, NOTE = "fleets/house-exact/records.parquet", "fleets/house-exact/fleet.json"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *((TABLE, damage) for damage in ("empty", "cut short", "no text", "missing", "other columns")),
        *((NOTE, damage) for damage in ("empty", "cut short", "no text", "a list", "other names")),
        *(("timings/house.HDR.100.json", damage) for damage in ("empty", "cut short", "other names")),
    ],
)
def test_a_damaged_file_is_named_with_what_to_delete(folder, name, damage):
    DAMAGES[damage](folder / name)
    result = invoke("report", folder)
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1
    whole = folder / name if name.startswith("timings") else (folder / name).parent
    assert f"{folder / name} cannot be used" in result.stderr
    assert f"delete {whole} and run the same `prerank-paper benchmark` again" in result.stderr
    assert not (folder / "report").exists()


@pytest.mark.parametrize("damage", ["empty", "cut short", "no text", "a list", "other names"])
def test_a_damaged_grid_is_named_before_anything_is_trained(tmp_path, monkeypatch, damage):
    monkeypatch.setattr("prerank_paper.benchmark.executors.work", lambda *_: pytest.fail("nothing is to be trained"))
    (tmp_path / "grid.json").write_text(json.dumps({"datasets": ["diabetes"], "protocols": ["exact"]}))
    DAMAGES[damage](tmp_path / "grid.json")
    before = (tmp_path / "grid.json").read_bytes()
    result = invoke("benchmark", "--quick", "--out", tmp_path)
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1
    assert f"{tmp_path / 'grid.json'} cannot be used" in result.stderr
    assert (tmp_path / "grid.json").read_bytes() == before


def test_results_that_lack_what_a_report_needs_are_refused(folder):
    about = json.loads((folder / NOTE).read_text())
    for name in ("fleets/house-exact", "fleets/house-as-published"):
        (folder / name / "fleet.json").write_text(json.dumps({"name": name} | {"dataset": about["dataset"]}))
    result = invoke("report", folder)
    assert result.exit_code == 2, result.output
    assert f"the fleets in {folder} have no training, n_models" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.fixture
def elsewhere(make):
    """Results of a dataset that the paper does not have."""
    made = make(["house"], seeds=(0, 1), strengths=(10.0,), timings=False)
    return Results(*(table.replace({"dataset": {"house": "mine"}}) for table in made))


def test_results_of_other_datasets_are_reported_and_said_to_be_beyond_comparison(elsewhere, tmp_path, monkeypatch):
    module = "prerank_paper.report.files"
    monkeypatch.setattr(f"{module}.save_figure", lambda figure, path: [path.with_suffix(".png")])
    monkeypatch.setattr("matplotlib.figure.Figure.draw_without_rendering", lambda figure: None)
    text = write_report(elsewhere, tmp_path)[0].read_text(encoding="utf-8")
    assert "**Agreement with the paper: unknown**" in text
    assert "* Not made: the comparison: none of the paper's datasets was run and evaluated as published." in text
    assert "nan" not in text.lower()
    assert not (tmp_path / "agreement.md").exists()


def test_shares_of_nothing_have_their_columns(elsewhere):
    compared = compare(elsewhere, {"pce_baseline": elsewhere.records[["dataset", "prerank", "value"]]})
    assert compared.empty
    assert list(shares(compared).columns)[:4] == ["table", "data", "criterion", "cells"]
    assert must_know(elsewhere, compared)[3].startswith("**Agreement with the paper: unknown**")
