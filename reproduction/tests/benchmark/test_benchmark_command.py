"""`prerank-paper benchmark` runs the grid, says what it did, repeats nothing, and survives what fails."""

import json
import sys
from dataclasses import replace
from shlex import split

import pytest
import torch
from typer.testing import CliRunner

from prerank.datasets import Bimodal
from prerank.io import DataError
from prerank_paper.benchmark import executors
from prerank_paper.benchmark import work as working
from prerank_paper.benchmark.plan import PRERANKS, TOGETHER
from prerank_paper.benchmark.records import read_results
from prerank_paper.cli.main import app
from prerank_paper.datasets import load
from prerank_paper.datasets.sources import available_locally

SMALL = split("--preranks location --strengths 10 --seeds 0 --protocol exact --max-epochs 2 --replicates 19")
MODEL = ["training", "penalty", "strength", "seed"]


def run(*arguments):
    return CliRunner().invoke(app, ["benchmark", *map(str, arguments)])


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quick") / "results"
    outcome = run("--quick", "--out", folder)
    assert outcome.exit_code == 0, outcome.output
    return folder, outcome.output


@pytest.mark.slow
def test_the_quick_run_has_every_cell(quick):
    folder, said = quick
    assert "diabetes.exact done" in said
    assert "2 of 2 fleets" in said
    assert f"2 fleets finished. Results in {folder}." in said
    assert f"prerank-paper report {folder}" in said
    results = read_results(folder)
    assert (results.models["error"] == "").all()
    wanted = {("none", "none", 0.0, seed) for seed in (0, 42)} | {
        (training, penalty, 10.0, seed)
        for training in ("exact", "as published")
        for penalty in (*PRERANKS, *TOGETHER)
        for seed in (0, 42)
    }
    assert set(results.models[MODEL].itertuples(index=False, name=None)) == wanted
    assert len(results.models) == len(wanted)
    assert set(results.fleets["n_models"]) == {20, 18}
    assert results.timings.empty


@pytest.mark.slow
def test_the_quick_run_judges_every_model_in_both_ways(quick):
    records = read_results(quick[0]).records
    assert records["value"].notna().all()
    wanted = {("exact", "pce", prerank) for prerank in PRERANKS}
    wanted |= {(how, "pce per 256", prerank) for how in ("exact", "as published") for prerank in PRERANKS}
    wanted |= {(how, metric, "") for how in ("exact", "as published") for metric in ("nll", "energy score")}
    counted = records.groupby([*MODEL, "part"]).size()
    assert len(counted) == 2 * 38
    assert (counted == len(wanted)).all()
    found = set(records[["evaluation", "metric", "prerank"]].itertuples(index=False, name=None))
    assert found == wanted
    baselines = records[(records["penalty"] == "none") & (records["metric"] == "pce")]
    assert baselines.loc[baselines["part"] == "test", "p_value"].between(0, 1).all()
    assert baselines.loc[baselines["part"] == "validation", "p_value"].isna().all()


@pytest.mark.slow
def test_the_quick_run_repeats_nothing(quick, monkeypatch):
    folder, _ = quick
    before = {path: path.stat().st_mtime_ns for path in (folder / "fleets").rglob("*")}
    monkeypatch.setattr(working, "fit", lambda *_: pytest.fail("nothing is to be trained"))
    again = run("--quick", "--out", folder)
    assert again.exit_code == 0
    assert "Nothing left to do, 2 fleets of earlier runs kept" in again.output
    assert {path: path.stat().st_mtime_ns for path in (folder / "fleets").rglob("*")} == before
    other = run("--quick", "--seeds", "0,1", "--out", folder)
    assert other.exit_code == 2
    assert "holds the results of another grid (seeds: [0, 42] there, [0, 1] asked)" in other.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--datasets", "atlantis"], "There is no dataset 'atlantis'. Known are"),
        (["--preranks", "rank"], "there is no pre-rank 'rank'; known are marginal"),
        (["--protocol", "loose"], "'loose' is not one of"),
        (["--strengths", "1,much"], "--strengths 1,much cannot be read"),
        (["--strengths", "0"], "strengths are positive"),
        (["--seeds", "1,1"], "a seed is named twice"),
        (["--device", "toaster"], "there is no device called 'toaster'"),
        (["--workers", "3"], "--workers goes with --executor dask"),
        (["--scheduler", "tcp://127.0.0.1:1"], "--scheduler goes with --executor dask"),
        (["--executor", "dask", "--processes", "2"], "--processes is for training here; a cluster has --workers"),
    ],
    ids=str,
)
def test_what_cannot_be_run_is_refused_in_a_line(arguments, message, tmp_path):
    outcome = run("--quick", *arguments, "--out", tmp_path / "results")
    assert outcome.exit_code == 2
    assert message in outcome.output
    assert "Traceback" not in outcome.output
    assert not (tmp_path / "results" / "fleets").exists()


def test_a_file_is_no_results_folder(tmp_path):
    (tmp_path / "results").write_text("")
    outcome = run("--quick", "--out", tmp_path / "results")
    assert outcome.exit_code == 2
    assert "is a file" in outcome.output


def test_without_distributed_dask_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    outcome = run("--quick", "--executor", "dask", "--out", tmp_path)
    assert outcome.exit_code == 2
    assert "--executor dask needs dask and distributed: pip install 'prerank[dask]'" in outcome.output


def test_explicit_options_win_over_quick(tmp_path, monkeypatch):
    seen = []

    def noted(fleet, settings, *_):
        seen.append(settings)
        raise RuntimeError("seen enough")

    monkeypatch.setattr(executors, "work", noted)
    run("--quick", "--out", tmp_path / "a")
    run("--quick", "--max-epochs", 7, "--replicates", 19, "--out", tmp_path / "b")
    assert [(settings.max_epochs, settings.n_replicates) for settings in seen[::2]] == [(5, 99), (7, 19)]


def test_a_dataset_that_cannot_be_loaded_fails_alone_and_is_tried_again(tmp_path, monkeypatch):
    calls = []

    def loaded(name, **options):
        calls.append(name)
        if name != "bimodal":
            return load(name, **options)
        if calls.count("bimodal") == 1:
            raise DataError("the disk ate it")
        return Bimodal().table(120, seed=0)

    monkeypatch.setattr(working, "load", loaded)
    arguments = ("--datasets", "bimodal,diabetes", *SMALL, "--no-timing", "--out", tmp_path)
    first = run(*arguments)
    assert first.exit_code == 1
    assert "bimodal.exact failed" in first.output
    assert "1 fleet finished" in first.output
    assert "failed: bimodal.exact: DataError: the disk ate it" in first.output
    assert set(read_results(tmp_path).models["dataset"]) == {"diabetes"}
    failure = json.loads((tmp_path / "failures" / "bimodal.exact.json").read_text())
    assert failure["error"] == "DataError: the disk ate it"
    second = run(*arguments)
    assert second.exit_code == 0, second.output
    assert "1 fleet finished, 1 fleet of earlier runs kept" in second.output
    assert calls == ["bimodal", "diabetes", "bimodal"]
    assert set(read_results(tmp_path).models["dataset"]) == {"diabetes", "bimodal"}
    assert not list((tmp_path / "failures").iterdir())


def test_a_model_that_fails_is_marked_and_the_others_have_their_numbers(tmp_path, monkeypatch):
    train = working.fit

    def spoilt(runs, *others):
        """The second model never had a finite score; the third has one, but its forecasts are not numbers."""
        fitted = train(runs, *others)
        weights = tuple(tensor.clone() for tensor in fitted.weights)
        for tensor in weights:
            tensor[2] = torch.nan
        scores = fitted.best_score.clone()
        scores[1] = torch.inf
        return replace(fitted, weights=weights, best_score=scores)

    monkeypatch.setattr(working, "fit", spoilt)
    arguments = [*SMALL, "--preranks", "PCA", "--datasets", "diabetes", "--out", tmp_path]
    outcome = run(*arguments)
    assert outcome.exit_code == 1
    assert "1 fleet finished" in outcome.output
    assert "failed: diabetes.exact: location, strength 10, seed 0: the loss was not finite" in outcome.output
    assert "failed: diabetes.exact: PCA, strength 10, seed 0: " in outcome.output
    results = read_results(tmp_path)
    assert list(results.models["penalty"]) == ["none", "location", "PCA"]
    assert list(results.models["error"] == "") == [True, False, False]
    assert set(results.records["penalty"]) == {"none"} == set(results.curves["penalty"])
    assert results.records["value"].notna().all()


def test_an_interruption_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(executors, "work", interrupted)
    outcome = run("--quick", "--out", tmp_path)
    assert outcome.exit_code == 130
    assert "The same command goes on" in outcome.output


def test_no_dataset_available_locally_is_refused_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.delenv("PRERANK_DATA", raising=False)
    monkeypatch.setenv("PRERANK_CACHE", str(tmp_path))
    with pytest.raises(
        ValueError, match=r"none of the paper's datasets is available locally: set PRERANK_DATA, .*--quick"
    ):
        available_locally(accept_licence=True)


def test_the_old_name_of_an_option_is_refused_with_the_new_one(tmp_path):
    outcome = run("--quick", "--judged-rows", 500, "--out", tmp_path / "new")
    assert outcome.exit_code == 2
    assert "--judged-rows is called --eval-rows; give --eval-rows 500" in " ".join(outcome.output.split())
    assert not (tmp_path / "new").exists()
    assert "judged" not in run("--help").output


def test_help_says_what_is_done_without_an_option():
    text = " ".join(run("--help").output.replace("│", " ").split())
    assert all(
        words in text for words in ("all available locally", "the paper's seven", "0.01,0.1,1,5,10", "5000; quick: 5")
    )


def test_models_are_evaluated_on_no_more_rows_than_asked_and_validated_by_all():
    some = working.prepare("diabetes", (0, 1), working.Settings(eval_rows=20))
    every = working.prepare("diabetes", (0, 1), working.Settings())
    assert some.test.y.shape[1] == some.validation.x.shape[1] == 20
    assert torch.equal(some.test.y, every.test.y[:, :20])
    assert len(some.train[0].x_validation) == len(every.train[0].x_validation) == every.validation.x.shape[1]
