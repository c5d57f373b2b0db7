"""Too little memory on a GPU: fewer models at a time first, and a failure that can be resumed in the end."""

import os

import pytest
import torch
from pandas.testing import assert_frame_equal

from prerank_paper.benchmark import executors, work
from prerank_paper.benchmark.executors import attempt_beside
from prerank_paper.benchmark.plan import Grid
from prerank_paper.benchmark.records import read_results
from prerank_paper.benchmark.run import run_benchmark
from prerank_paper.benchmark.work import Settings

GRID = Grid(("diabetes",), preranks=("location",), strengths=(10.0,), seeds=(0,), protocols=("exact",))
SETTINGS = Settings(n_replicates=19, max_epochs=2)
PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"


def room_for(n_models, monkeypatch):
    """Let an evaluation of more models fail; the numbers of models that were tried."""
    tried, evaluate = [], work.evaluate_both

    def limited(y, *rest, **options):
        tried.append(len(y))
        if len(y) > n_models:
            raise torch.OutOfMemoryError("too many models")
        return evaluate(y, *rest, **options)

    monkeypatch.setattr(work, "evaluate_both", limited)
    return tried


def test_models_that_do_not_fit_together_are_evaluated_one_at_a_time(tmp_path, monkeypatch):
    assert run_benchmark(GRID, tmp_path / "together", SETTINGS, timing=False).failed == []
    tried = room_for(1, monkeypatch)
    assert run_benchmark(GRID, tmp_path / "alone", SETTINGS, timing=False).failed == []
    assert max(tried) > 1
    together, alone = (read_results(tmp_path / name) for name in ("together", "alone"))
    assert_frame_equal(alone.records, together.records)
    assert (alone.models["error"] == "").all()


def test_a_machine_without_room_for_one_model_fails_the_fleet_and_no_model(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        room_for(0, patch)
        [(name, error)] = run_benchmark(GRID, tmp_path, SETTINGS, timing=False).failed
    assert (name, error) == ("diabetes.exact", "OutOfMemoryError: too many models")
    assert run_benchmark(GRID, tmp_path, SETTINGS, timing=False) == (1, 0, [])


@pytest.mark.parametrize(("before_others", "priority"), [(True, "0"), (False, "1")])
def test_a_process_has_the_priority_of_its_first_fleet(before_others, priority, tmp_path, monkeypatch):
    monkeypatch.setenv(PRIORITY, "")
    monkeypatch.delenv(PRIORITY)
    monkeypatch.setattr(executors, "attempt", lambda *arguments: os.environ[PRIORITY])
    assert attempt_beside(None, SETTINGS, tmp_path, before_others) == priority
    assert attempt_beside(None, SETTINGS, tmp_path, not before_others) == priority
