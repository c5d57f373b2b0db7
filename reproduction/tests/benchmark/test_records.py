"""Results on disk are whole or absent, and count once."""

import json
import shutil
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from prerank_paper.benchmark import executors
from prerank_paper.benchmark import run as runner
from prerank_paper.benchmark.plan import Grid
from prerank_paper.benchmark.record_file import NAME, write_record_file
from prerank_paper.benchmark.records import FleetResult, Store, read_results
from prerank_paper.benchmark.run import State, dataset_size, run_benchmark
from prerank_paper.benchmark.timing import timings_of
from prerank_paper.benchmark.work import Settings

GRID = Grid(("diabetes", "bimodal"), preranks=("location", "PCA"), strengths=(1.0, 10.0), seeds=(0, 42))


def invented(fleet, *_) -> FleetResult:
    """A result as `work` gives it, from the fleet's name alone."""
    generator = np.random.default_rng(len(fleet.name))
    models = pd.DataFrame([vars(model) for model in fleet.models]).assign(dataset=fleet.dataset)
    records = pd.concat(
        [
            models.assign(part=part, evaluation="exact", metric="pce", prerank=prerank)
            for part in ("validation", "test")
            for prerank in ("location", "PCA")
        ],
        ignore_index=True,
    )
    records = records.assign(value=generator.random(len(records)), p_value=np.nan)
    level = np.linspace(0, 1, 5, dtype="float32")
    curves = models[models["strength"] != 1.0].merge(pd.DataFrame({"level": level, "frequency": level**2}), how="cross")
    curves = curves.assign(evaluation="exact", prerank="PCA", projection=1)
    about = {"name": fleet.name, "dataset": fleet.dataset, "training": fleet.training, "n_models": len(models)}
    return FleetResult(about, models.assign(best_score=generator.random(len(models)), error=""), records, curves)


@pytest.fixture(autouse=True)
def no_training(monkeypatch):
    monkeypatch.setattr(executors, "work", invented)


@pytest.fixture
def folder(tmp_path):
    assert run_benchmark(GRID, tmp_path / "results", timing=False).failed == []
    return tmp_path / "results"


def assert_same_results(one, other):
    for name in one._fields:
        assert_frame_equal(getattr(one, name), getattr(other, name), check_exact=True)


def test_every_cell_of_the_grid_is_there_once(folder):
    results = read_results(folder)
    wanted = {
        (fleet.dataset, *vars(model).values())
        for fleet in GRID.fleets({"diabetes": 6, "bimodal": 2})
        for model in fleet.models
    }
    cells = list(
        results.models[["dataset", "training", "penalty", "strength", "seed", "initialisation"]].itertuples(
            index=False, name=None
        )
    )
    assert len(cells) == len(wanted) == 36
    assert set(cells) == wanted


def test_a_timing_run_is_read_with_the_fleets(folder):
    timing = {"dataset": "bio", "training": "exact", "prerank": "HDR", "n_draws": 100, "n_models": 5, "n_steps": 2}
    Store(folder).keep_timing("bio.HDR.100", timing | {"ms_per_step": 1.5, "device": "cpu"})
    assert read_results(folder).timings.to_dict("records") == [timing | {"ms_per_step": 1.5, "device": "cpu"}]


def test_all_records_in_one_file_take_the_place_of_the_fleets(folder, tmp_path):
    """The same numbers and types; and any reader of Parquet finds the rows of a table by its name."""
    timing = {"dataset": "bio", "training": "exact", "prerank": "HDR", "n_draws": 100, "n_models": 5, "n_steps": 2}
    Store(folder).keep_timing("bio.HDR.100", timing | {"ms_per_step": 1.5, "device": "cpu"})
    whole = read_results(folder)
    assert whole.records["p_value"].isna().all()  # a column may be empty
    write_record_file(whole._asdict(), tmp_path / "kept" / NAME)
    assert_same_results(read_results(tmp_path / "kept"), whole)
    plain = pd.read_parquet(tmp_path / "kept" / NAME)
    assert plain["table"].value_counts().to_dict() == {name: len(table) for name, table in whole._asdict().items()}
    found = plain.query("table == 'records'")["value"].to_numpy()
    assert (found == whole.records["value"].to_numpy()).all()


def test_fleets_count_before_a_file_of_records(folder):
    write_record_file(read_results(folder)._asdict(), folder / NAME)
    shutil.rmtree(folder / "fleets" / "diabetes.exact")
    assert len(read_results(folder).fleets) == 3


@pytest.mark.parametrize("content", [b"", b"PAR1 and nothing else", None], ids=["empty", "damaged", "another table"])
def test_a_file_that_holds_no_records_is_refused(tmp_path, content):
    if content is None:
        pd.DataFrame({"table": ["fleets"]}).to_parquet(tmp_path / NAME)
    else:
        (tmp_path / NAME).write_bytes(content)
    with pytest.raises(ValueError, match=r"records\.parquet is not a file of records \(.*\); restore it"):
        read_results(tmp_path)


def test_a_half_written_fleet_is_ignored_and_swept_away(folder):
    whole = read_results(folder)
    half = folder / "fleets" / ".diabetes.exact.123.part"
    half.mkdir()
    (half / "fleet.json").write_text('{"name": "diab')
    assert_same_results(read_results(folder), whole)
    (folder / "fleets" / "bimodal.exact" / "fleet.json").unlink()  # a folder without its last file is no result
    assert run_benchmark(GRID, folder, timing=False).finished == 1
    assert not half.exists()
    assert_same_results(read_results(folder), whole)


def test_what_a_process_that_died_in_a_run_left_half_written_is_swept_away_at_its_end(tmp_path):
    store = Store(tmp_path)
    half = store.checkpoint("diabetes.exact").with_name(".diabetes.exact.safetensors.0e14b86f.part")

    def die() -> None:
        with store.alone():
            half.parent.mkdir()
            half.touch()
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        die()
    assert not half.exists()


def test_a_model_that_stands_twice_counts_once(folder):
    whole = read_results(folder)
    shutil.copytree(folder / "fleets" / "diabetes.exact", folder / "fleets" / "diabetes.exact-copied")
    assert_same_results(read_results(folder), whole)


def test_a_fleet_without_a_sound_model_does_not_spoil_the_types(folder):
    types = read_results(folder).records.dtypes
    path = folder / "fleets" / "bimodal.exact" / "records.parquet"
    pd.DataFrame(columns=list(types.index)).to_parquet(path)
    assert (read_results(folder).records.dtypes == types).all()


def test_a_full_disk_costs_the_fleet_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    write = pd.DataFrame.to_parquet

    def full(table, path, **options):
        if "bimodal.exact" in str(path) and "curves" in str(path):
            raise OSError(28, "No space left on device")
        write(table, path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(pd.DataFrame, "to_parquet", full)
        summary = run_benchmark(GRID, tmp_path, timing=False)
    assert summary.finished == 3
    ((name, error),) = summary.failed
    assert name == "bimodal.exact"
    assert "could not be written" in error
    assert "No space left on device" in error
    assert sorted(path.name for path in (tmp_path / "fleets").iterdir()) == [
        "bimodal.as-published",
        "diabetes.as-published",
        "diabetes.exact",
    ]
    failure = json.loads((tmp_path / "failures" / "bimodal.exact.json").read_text())
    assert failure == {"fleet": "bimodal.exact", "dataset": "bimodal", "training": "exact", "error": error}
    assert run_benchmark(GRID, tmp_path, timing=False) == (1, 3, [])
    assert list((tmp_path / "failures").iterdir()) == []


def test_a_disk_without_room_even_for_the_failure_is_still_reported(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Store, "keep_fleet", full)
    monkeypatch.setattr(Store, "keep_failure", full)
    summary = run_benchmark(GRID, tmp_path, timing=False)
    assert len(summary.failed) == 4


def test_another_grid_in_the_same_folder_is_refused(folder):
    others = [
        (Grid(GRID.datasets, GRID.preranks, GRID.strengths, (0,)), Settings(), r"seeds: \[0, 42\] there, \[0\] asked"),
        (GRID, Settings(max_epochs=3), r"max_epochs: 5000 there, 3 asked"),
        (GRID, Settings(n_replicates=99), r"n_replicates: 999 there, 99 asked"),
        (GRID, Settings(n_draws=10), r"n_draws: 100 there, 10 asked"),
    ]
    for grid, settings, message in others:
        with pytest.raises(ValueError, match=rf"another grid \({message}\); give another --out"):
            run_benchmark(grid, folder, settings, timing=False)


def test_datasets_and_protocols_may_be_added(tmp_path):
    small = Grid(("diabetes",), GRID.preranks, GRID.strengths, GRID.seeds, protocols=("as published",))
    run_benchmark(small, tmp_path, timing=False)
    assert run_benchmark(GRID, tmp_path, timing=False) == (3, 1, [])
    assert len(read_results(tmp_path).models) == 36  # the baselines of diabetes, trained twice, count once
    assert json.loads((tmp_path / "grid.json").read_text())["datasets"] == ["diabetes", "bimodal"]
    run_benchmark(small, tmp_path, timing=False)
    assert json.loads((tmp_path / "grid.json").read_text())["datasets"] == ["diabetes", "bimodal"]


def test_a_folder_has_one_writer(folder):
    with Store(folder).alone(), pytest.raises(ValueError, match=r"another run is writing to .*give another --out"):
        run_benchmark(GRID, folder, timing=False)
    assert run_benchmark(GRID, folder, timing=False) == (0, 4, [])


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no finished fleet; run `prerank-paper benchmark --out"):
        read_results(tmp_path)


def test_timing_runs_are_kept_and_their_failures_told(tmp_path, monkeypatch):
    told = []

    def timed(timing, settings):
        if timing.name == "households.exact.HDR.1000":
            raise RuntimeError("out of memory")
        return vars(timing) | {"ms_per_step": 1.0}

    monkeypatch.setattr(runner, "time_steps", timed)
    grid = Grid(("households",), protocols=("exact",))
    summary = run_benchmark(grid, tmp_path, on_fleet=lambda state: told.append(len(state.timings)))
    assert summary.failed == [("households.exact.HDR.1000", "RuntimeError: out of memory")]
    assert told == [0, 0, *range(14, 0, -1)]  # seven pre-ranks, with 100 draws and with 1,000
    assert len(read_results(tmp_path).timings) == 13
    monkeypatch.setattr(runner, "time_steps", lambda timing, settings: vars(timing) | {"ms_per_step": 1.0})
    assert run_benchmark(grid, tmp_path).failed == []
    assert len(read_results(tmp_path).timings) == 14


def test_steps_are_timed_once_for_each_number_of_targets_in_every_protocol():
    targets = {"households": 4, "births2": 4, "bio": 2}
    runs = timings_of(Grid(tuple(targets)), targets)
    assert {run.dataset for run in runs} == {"households", "bio"}
    assert len(runs) == 2 * (7 + 7) + 2 * (6 + 7)  # two targets have a dependency only as published
    assert len({run.name for run in runs}) == len(runs)
    assert {run.n_draws for run in runs if run.prerank == "marginal"} == {100, 1000}


def test_time_left_is_unknown_first_and_then_a_range(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    fleets = list(GRID.fleets({"diabetes": 6, "bimodal": 2}))
    state = State(fleets, {name: dataset_size(name) for name in GRID.datasets})
    assert state.seconds_left() is None
    now[0] += 10
    state.note(fleets[0], failed=True)  # what failed says nothing about the others
    assert state.seconds_left() is None
    now[0] += 16
    state.note(fleets[1], failed=False)  # two seconds for each of 8 models
    sizes = [442 * 8 * 6, 2000 * 10 * 2, 2000 * 8 * 2]
    rate = 16 / sizes[0]
    assert state.seconds_left() == pytest.approx((rate * (sizes[1] + sizes[2]),) * 2)
    now[0] += 5
    assert state.seconds_left() == pytest.approx((rate * (sizes[1] + sizes[2]) - 5,) * 2)
    now[0] += 995
    state.note(fleets[2], failed=False)
    low, high = state.seconds_left()
    assert low == pytest.approx(rate * sizes[2])
    assert high == pytest.approx(1000 / sizes[1] * sizes[2])
    now[0] += 10_000
    assert state.seconds_left() == (0.0, 0.0)


def test_reading_results_does_not_load_training():
    """In a process of its own: the tables of a finished run are read where nothing is trained."""
    code = "import sys, prerank_paper.benchmark.records; print(*[m for m in sys.modules if 'prerank.training' in m])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
