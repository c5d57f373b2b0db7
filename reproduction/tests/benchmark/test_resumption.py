"""Killed and resumed, or trained on a cluster whose workers die, a benchmark ends with the same numbers, bit by bit."""

import os
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from shlex import split
from threading import Thread

import numpy as np
import pytest
from pandas.testing import assert_frame_equal
from typer.testing import CliRunner

from prerank_paper.benchmark import precompile
from prerank_paper.benchmark import run as runner
from prerank_paper.benchmark.executors import InProcesses, OnDask
from prerank_paper.benchmark.plan import Grid
from prerank_paper.benchmark.precompile import Kind, compile_kernels, kinds_of
from prerank_paper.benchmark.records import read_results
from prerank_paper.benchmark.run import run_benchmark
from prerank_paper.benchmark.work import Settings, work
from prerank_paper.cli.main import app

GRID = Grid(("diabetes",), preranks=("location",), strengths=(10.0,), seeds=(0,))
SETTINGS = Settings(n_replicates=19, max_epochs=40, checkpoint_seconds=0.05)
ARGUMENTS = split(
    "benchmark --datasets diabetes --preranks location --strengths 10 --seeds 0 --max-epochs 40 --replicates 19 "
    "--checkpoint-seconds 0.05 --no-timing"
)
TIMES = ["seconds", "ms_per_step", "loading_seconds", "evaluation_seconds", "sessions", "beside"]
LIMIT = 120  # seconds after which a test gives up waiting


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The results of a run that nothing disturbed, and how long it took."""
    folder, started = tmp_path_factory.mktemp("uninterrupted"), time.monotonic()
    assert run_benchmark(GRID, folder, SETTINGS, timing=False).failed == []
    return read_results(folder), time.monotonic() - started


def assert_same(folder, results):
    found = read_results(folder)
    for name in ("models", "records", "curves"):
        assert_frame_equal(getattr(found, name), getattr(results, name), check_exact=True)
    assert_frame_equal(found.fleets.drop(columns=TIMES), results.fleets.drop(columns=TIMES), check_exact=True)
    assert not list((folder / "checkpoints").iterdir())
    assert not list(folder.rglob("*.part"))


def wait_for(condition):
    deadline = time.monotonic() + LIMIT
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)
    return found


@pytest.mark.slow
def test_killed_three_times_it_ends_the_same(uninterrupted, tmp_path):
    """Moments count from when the command has loaded; together they are shorter than the work, so that all of them hit."""
    results, duration = uninterrupted
    command = [sys.executable, "-c", "from prerank_paper.cli import main; main()", *ARGUMENTS, "--out", str(tmp_path)]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}  # as in the tests: another number of threads may round differently
    in_training = []
    for moment in np.random.default_rng(5).uniform(0.1, 1 / 3, 3) * duration:
        (tmp_path / ".lock").unlink(missing_ok=True)
        with subprocess.Popen(command, env=alone, stdout=subprocess.DEVNULL) as process:
            wait_for(lambda running=process: (tmp_path / ".lock").exists() or running.poll() is not None)
            time.sleep(moment)
            in_training.append(bool(list(tmp_path.glob("checkpoints/*.safetensors"))))
            assert process.poll() is None, "it ended before it could be killed"
            process.send_signal(signal.SIGKILL)
    assert any(in_training)
    last = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert last.returncode == 0, last.stdout + last.stderr
    assert_same(tmp_path, results)
    assert read_results(tmp_path).fleets["sessions"].max() == 1 + sum(in_training)


def test_a_resumed_fleet_notes_the_most_that_it_was_trained_beside(tmp_path):
    grid = replace(GRID, protocols=())
    (fleet,) = grid.fleets({"diabetes": 2})
    settings = replace(SETTINGS, max_epochs=1)
    checkpoint = tmp_path / "it.safetensors"
    for beside in (8, 1):
        result = work(fleet, replace(settings, beside=beside), checkpoint)
    assert (result.about["sessions"], result.about["beside"]) == (2, 8)


@pytest.mark.slow
def test_fleets_in_processes_end_the_same_and_a_process_that_dies_costs_nothing(uninterrupted, tmp_path):
    """One of two is killed when there is a checkpoint: the run ends and says so, and the next one goes on from it."""
    killed = []

    def kill():
        wait_for(lambda: list(tmp_path.glob("checkpoints/*.safetensors")))
        children = active_children()
        os.kill(children[0].pid, signal.SIGKILL)
        killed.append(children)

    assassin = Thread(target=kill)
    assassin.start()
    with pytest.raises(
        ChildProcessError, match=r"was killed, perhaps for want of memory; [12] fleets? left, and the same"
    ):
        run_benchmark(GRID, tmp_path, SETTINGS, InProcesses(2), timing=False)
    assassin.join()
    assert len(killed[0]) == 2
    trained = len(list(tmp_path.glob("checkpoints/*.safetensors")))
    assert trained > 0
    assert not list((tmp_path / "failures").glob("*"))
    summary = run_benchmark(GRID, tmp_path, SETTINGS, InProcesses(2), timing=False)
    assert summary.failed == []
    assert summary.finished + summary.before == 2
    assert_same(tmp_path, uninterrupted[0])
    found = read_results(tmp_path).fleets
    assert found["beside"].tolist() == [2, 2]
    assert found["sessions"].max() == 2


def test_a_killed_process_is_told_in_a_line(tmp_path, monkeypatch):
    def died(*_):
        raise ChildProcessError("a process that trained fleets was killed; 2 fleets left")

    monkeypatch.setattr(InProcesses, "outcomes", died)
    outcome = CliRunner().invoke(app, [*ARGUMENTS, "--processes", "2", "--out", str(tmp_path)])
    assert outcome.exit_code == 1
    assert outcome.output.splitlines() == ["a process that trained fleets was killed; 2 fleets left"]


def test_fewer_than_one_process_is_refused():
    with pytest.raises(ValueError, match="0 processes: at least one is needed"):
        InProcesses(0)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads which processes there are from /proc")
def test_workers_end_with_a_process_that_is_killed():
    """Or they would go on training, and write where the resumed run does."""
    program = (
        "import os, time; from prerank_paper.benchmark.processes import worker_pool\n"
        "pool = worker_pool(1); print(pool.submit(os.getpid).result(), flush=True); pool.submit(time.sleep, 600).result()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        worker = int(process.stdout.readline())
        assert _alive(worker)
        process.send_signal(signal.SIGKILL)
    wait_for(lambda: not _alive(worker))


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_kernels_are_compiled_once_for_each_number_of_targets_and_penalty():
    datasets = ("diabetes", "bimodal")
    grid = Grid(datasets, preranks=("location", "copula"), strengths=(1.0, 10.0), seeds=(0,))
    fleets = list(grid.fleets({"diabetes": 6, "bimodal": 2}))
    kinds = kinds_of([*fleets, *fleets])
    assert [kind[0] for kind in kinds] == [6] * 5 + [2] * 5  # as the fleets come
    assert len({kind[:3] for kind in kinds}) == len(kinds)
    assert [kind[1:3] for kind in kinds[:3]] == [("none", "none"), ("exact", "location"), ("exact", "copula")]
    every = kinds_of(list(Grid(datasets, seeds=(0,)).fleets({"diabetes": 6, "bimodal": 2})))
    assert not any("ALL" in kind.penalty for kind in every)


@pytest.mark.parametrize("kind", [Kind(2), Kind(2, "as published", "copula", 10.0)])
def test_what_is_compiled_ahead_trains_and_evaluates(kind):
    assert compile_kernels(kind, Settings(n_draws=20)) == 2


def test_on_a_cpu_nothing_is_compiled_ahead(monkeypatch):
    monkeypatch.setattr(precompile, "worker_pool", None)
    with precompile.compiling([], Settings(), 2):
        pass


def test_on_a_gpu_kernels_are_compiled_while_fleets_train(monkeypatch):
    """With a pool that notes what it is given: all kinds at once, and nobody waits for them."""
    given, ended = [], []

    class Noting(AbstractContextManager):
        def __init__(self, n_processes, niceness):
            given.append(n_processes)

        def submit(self, function, kind, settings):
            given.append(kind)

        def shutdown(self, cancel_futures):
            ended.append(cancel_futures)

        def __exit__(self, *failure):
            return None

    monkeypatch.setattr(precompile, "worker_pool", Noting)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    fleets = list(GRID.fleets({"diabetes": 6}))
    with precompile.compiling(fleets, Settings("cuda"), 4):
        assert given == [8, *kinds_of(fleets)]
        assert not ended
    assert ended == [True]


def test_what_is_timed_on_a_gpu_is_compiled_first(monkeypatch):
    """With a pool that notes what it is given; one kind fails to compile, and the others are waited for."""
    given, waited = [], []

    class Task:
        def exception(self):
            waited.append(self)
            return RuntimeError("no compiler")

    class Noting(AbstractContextManager):
        def __init__(self, n_processes):
            given.append(n_processes)

        def submit(self, function, kind, settings):
            given.append((kind, settings.n_draws))
            return Task()

        def __exit__(self, *failure):
            return None

    monkeypatch.setattr(precompile, "worker_pool", Noting)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    kind = Kind(2, "exact", "copula", 10.0)
    wanted = [(kind, Settings("cuda", n_draws=100)), (kind, Settings("cuda", n_draws=1000))]
    precompile.compile_first([*wanted, (kind, Settings("cpu"))])
    assert given == [2, (kind, 100), (kind, 1000)]
    assert len(waited) == 2
    precompile.compile_first([(kind, Settings("cpu"))])
    assert len(given) == 3


@pytest.fixture(scope="module")
def cluster():
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as local:
        yield local


@pytest.mark.slow
def test_a_cluster_gives_the_same_and_writes_through_one_process(uninterrupted, cluster, tmp_path, monkeypatch):
    writers = []
    keep = runner.Store.keep_fleet
    monkeypatch.setattr(runner.Store, "keep_fleet", lambda *given: (writers.append(os.getpid()), keep(*given)))
    options = ["--executor", "dask", "--scheduler", cluster.scheduler_address, "--out", str(tmp_path)]
    outcome = CliRunner().invoke(app, [*ARGUMENTS, *options])
    assert outcome.exit_code == 0, outcome.output
    assert "2 fleets finished" in outcome.output
    assert writers == [os.getpid()] * 2  # workers would not have known of the patch, and nothing is missing
    assert_same(tmp_path, uninterrupted[0])


@pytest.mark.slow
def test_a_worker_that_dies_in_training_changes_nothing(uninterrupted, cluster, tmp_path):
    """One of two is killed in the middle of its fleet; the other, or its successor, picks the checkpoint up."""
    from distributed import Client

    with Client(cluster) as client:
        doomed, other = client.run(os.getpid).values()
    assert doomed != other
    checkpoints = tmp_path / "checkpoints"
    killed = []

    def kill():
        wait_for(lambda: len(list(checkpoints.glob("*.safetensors"))) == 2)  # both are in training
        os.kill(doomed, signal.SIGKILL)
        killed.append(doomed)

    assassin = Thread(target=kill)
    assassin.start()
    summary = run_benchmark(GRID, tmp_path, SETTINGS, OnDask(cluster.scheduler_address), timing=False)
    assassin.join()
    assert killed == [doomed]
    assert summary == (2, 0, [])
    assert_same(tmp_path, uninterrupted[0])
    with Client(cluster) as client:
        assert doomed not in client.run(os.getpid).values()


@pytest.mark.slow
def test_a_cluster_of_its_own_reports_what_fails_in_a_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("PRERANK_DATA", str(tmp_path))  # workers inherit it: no dataset of the paper is there
    monkeypatch.setenv("PRERANK_CACHE", str(tmp_path / "cache"))
    grid = Grid(("meps19",), preranks=("location",), seeds=(0,), protocols=("exact",))
    summary = run_benchmark(grid, tmp_path / "results", SETTINGS, OnDask(n_workers=1))
    ((name, error),) = summary.failed
    assert (summary.finished, name) == (0, "meps19.exact")
    assert error.startswith("LicenceError: 'meps19' may be used only by those who accept")
    assert not (tmp_path / "results" / "fleets").exists()


@pytest.mark.slow
def test_a_scheduler_without_workers_is_refused_after_the_stated_time(tmp_path):
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as empty:
        waiting = OnDask(empty.scheduler_address, wait_seconds=0.5)
        with pytest.raises(ValueError, match=r"has had no worker for 0\.5 s; start one"):
            run_benchmark(GRID, tmp_path, SETTINGS, waiting)


def test_a_scheduler_that_does_not_answer_is_refused(tmp_path):
    import dask
    import distributed  # noqa: F401 - first: imported inside the block, all its settings would leave with this one

    options = ["--executor", "dask", "--scheduler", "tcp://127.0.0.1:9", "--out", str(tmp_path)]
    with dask.config.set({"distributed.comm.timeouts.connect": "200ms"}):
        outcome = CliRunner().invoke(app, [*ARGUMENTS, *options])
    assert outcome.exit_code == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in outcome.output
