"""Chunks in threads: the same bits, the order of the items, the caller's settings, and no more threads than granted."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import prerank._chunks
from prerank import Custom, Ensemble, GaussianMixture, Location, Recalibrator, crps, energy_score, projected_pit
from prerank._parallel import granted_threads, in_threads, single_threaded, single_threaded_blas, spreading
from prerank._parallel.spreading import VARIABLE, _processors, cgroup_quota
from prerank.recalibration import Affine, Dressing, HighestDensityRegions, Tilt


@pytest.fixture(autouse=True)
def four_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Four threads are granted, however many processors there are."""
    monkeypatch.setattr("prerank._parallel.spreading._processors", lambda: 4)
    monkeypatch.setattr("prerank._parallel.spreading.cgroup_quota", lambda: None)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of so few cases that small inputs have many of them."""
    monkeypatch.setattr(prerank._chunks, "ELEMENTS", 1 << 10)
    monkeypatch.setattr("prerank._reproducible_math.BYTES", 1 << 12)
    monkeypatch.setattr("prerank.regression.regressor._ROWS", 16)


def mixture(n_cases: int, n_targets: int = 2) -> GaussianMixture:
    generator = torch.Generator().manual_seed(n_cases)
    logits, loc = (torch.randn(n_cases, 2, *more, generator=generator) for more in ((), (n_targets,)))
    return GaussianMixture(logits, loc, torch.eye(n_targets).expand(n_cases, 2, -1, -1))


def together(n_threads: int, work: Callable[[], object]) -> None:
    """Call from several threads at a time, and hand on what they raise."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class Seen:
    """Which threads ran, and how many of them at most at a time."""

    def __init__(self) -> None:
        self.lock, self.now, self.most = threading.Lock(), 0, 0
        self.threads: set[int] = set()

    def __call__(self, item: int) -> int:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.threads.add(threading.get_ident())
        time.sleep(0.005)
        with self.lock:
            self.now -= 1
        return item


# Numbers that do not depend on the threads


def pits() -> list[Tensor]:
    law = mixture(80)
    y, members = law.ensemble(1, seed=1).members[:, 0], law.ensemble(30).members
    found = [projected_pit(y, forecast, exchangeable=True) for forecast in (Ensemble(members), law)]
    points = [part.points.lower for pit in found for part in pit.parts if part.points is not None]
    return [part for pit in found for part in (pit.lower, pit.upper, pit.tied)] + points


def scores() -> list[Tensor]:
    law = mixture(60)
    y = law.ensemble(1, seed=1).members[:, 0]
    members = law.ensemble(20).members
    return [energy_score(y, law), crps(y, members), law.log_density(members), members]


def recalibrated() -> list[Tensor]:
    law, new = mixture(120), mixture(30)
    y = 1.5 * law.ensemble(1, seed=1).members[:, 0] + 0.3
    steps = [
        Affine(),
        Tilt(degree=2, n_draws=20, n_reference=30, pool=60, ridges=(1.0, 0.1), least_effective_share=0.0),
    ]
    fitted = Recalibrator(Location(), steps, n_folds=2).fit(law, y)
    forecast = fitted.transform(new)
    return [*(step.theta for step in fitted.steps_[1:]), forecast.mean, forecast.ensemble(20).members]


def dressed() -> list[Tensor]:
    law = mixture(60)
    y, members = law.ensemble(1, seed=1).members[:, 0], law.ensemble(10).members
    fitted = Recalibrator(steps=[Dressing()], n_folds=2).fit(Ensemble(members), y)
    return [fitted.transform(Ensemble(members)).loc]


def regions() -> list[Tensor]:
    law = mixture(60)
    fitted = HighestDensityRegions(n_draws=50).fit(law, law.ensemble(1, seed=1).members[:, 0])
    return [fitted.scores_, *fitted.region(law, 0.9).volume(100)]


@pytest.mark.slow
@pytest.mark.parametrize("work", [pits, scores, recalibrated, dressed, regions])
def test_one_two_and_three_threads_give_the_same_bits(
    work: Callable[[], list[Tensor]], small_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    monkeypatch.setattr(spreading._Crew, "_help", counted(spreading._Crew._help, started))
    found = []
    for n_threads in ("1", "2", "3"):
        monkeypatch.setenv(VARIABLE, n_threads)
        found.append(work())
        assert bool(started) == (n_threads != "1")
    assert all(torch.equal(one, other) for others in found[1:] for one, other in zip(found[0], others, strict=True))


def counted(function: Callable[..., None], calls: list[int]) -> Callable[..., None]:
    def count(*arguments: object) -> None:
        calls.append(1)
        function(*arguments)

    return count


def test_the_number_of_threads_that_torch_has_does_not_matter_either() -> None:
    generator = torch.Generator().manual_seed(0)
    y, members = torch.randn(300, 3, generator=generator), torch.randn(300, 200, 3, generator=generator)
    found = []
    for n_threads in (1, 3):
        torch.set_num_threads(n_threads)
        found.append(energy_score(y, members))
    assert torch.equal(*found)


# Order, and who does what


def test_results_are_in_the_order_of_the_items_whoever_is_faster() -> None:
    def slow_at_first(item: int) -> int:
        time.sleep(0.02 if item % 4 == 0 else 0.0)
        return item

    taken: list[tuple[int, int]] = []
    assert in_threads(slow_at_first, range(20)) == list(range(20))
    in_threads(slow_at_first, range(20), lambda item, result: taken.append((item, result)))
    assert taken == [(item, item) for item in range(20)]


def test_results_are_taken_by_the_calling_thread() -> None:
    takers = set()
    in_threads(Seen(), range(12), lambda item, result: takers.add(threading.get_ident()))
    assert takers == {threading.get_ident()}


def test_several_threads_work_and_not_more_than_are_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    seen = Seen()
    in_threads(seen, range(30))
    assert len(seen.threads) >= 2
    assert 2 <= seen.most <= 3


def test_results_do_not_pile_up_while_they_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "2")
    begun: list[int] = []
    behind = []

    def take(item: int, result: int) -> None:
        time.sleep(0.01)
        behind.append(len(begun) - item)

    in_threads(lambda item: begun.append(item) or item, range(30), take)
    assert max(behind) <= 2 * 2 + 1


def test_one_item_or_one_thread_starts_no_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    in_threads(seen, [1])
    in_threads(seen, range(5), spread=False)
    monkeypatch.setenv(VARIABLE, "1")
    in_threads(seen, range(5))
    assert seen.threads == {threading.get_ident()}


def test_a_call_from_within_another_runs_where_it_is() -> None:
    def outer(_: int) -> bool:
        seen = Seen()
        in_threads(seen, range(4))
        return seen.threads == {threading.get_ident()} and granted_threads() == 1

    assert all(in_threads(outer, range(8)))
    assert granted_threads() == 4


def test_two_calls_at_a_time_share_what_is_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "4")
    seen, begin = Seen(), threading.Barrier(3)

    def work() -> None:
        begin.wait()
        assert in_threads(seen, range(40)) == list(range(40))

    together(3, work)
    # a call that came while helpers of another were at work is one thread more until they have noticed
    assert len(spreading._crews.working) == 0
    begin.reset()
    latecomer = Seen()
    release = threading.Event()

    def held(item: int) -> int:
        release.wait()
        return item

    first = threading.Thread(target=in_threads, args=(held, range(8)))
    first.start()
    while spreading._crews._size() < 4:
        time.sleep(0.001)
    together(1, lambda: in_threads(latecomer, range(6)))
    assert len(latecomer.threads) == 1  # the first call has all helpers
    release.set()
    first.join()


def test_code_of_the_user_is_called_by_the_user_s_thread_only(small_chunks: None) -> None:
    seen = Seen()

    def largest(y: Tensor) -> Tensor:
        seen(0)
        return y.amax(-1)

    law = mixture(80)
    projected_pit(law.loc[:, 0], Ensemble(law.ensemble(30).members), Custom(largest))
    assert seen.threads == {threading.get_ident()}


def test_progress_is_told_in_order_by_the_calling_thread(small_chunks: None) -> None:
    law, told = mixture(80), []
    projected_pit(
        law.loc[:, 0],
        Ensemble(law.ensemble(30).members),
        on_progress=lambda done, total: told.append((done, total, threading.get_ident())),
    )
    done = [number for number, _, _ in told]
    assert done == sorted(done)
    assert len(done) > 2
    assert told[-1] == (80, 80, threading.get_ident())


# Settings of the caller


def test_operations_have_one_thread_inside_and_the_caller_s_number_afterwards() -> None:
    found = in_threads(lambda _: torch.get_num_threads(), range(8))
    assert found == [1] * 8
    assert torch.get_num_threads() == 4
    with single_threaded(), single_threaded():
        assert torch.get_num_threads() == 1
        assert granted_threads() == 4  # chunks may still be spread
    assert torch.get_num_threads() == 4


def test_threads_that_begin_meanwhile_have_the_user_s_setting() -> None:
    found = []
    with single_threaded():
        together(1, lambda: found.append(torch.get_num_threads()))
    together(1, lambda: found.append(torch.get_num_threads()))
    assert found == [4, 4]


@pytest.mark.slow
def test_one_thread_computes_what_is_single_threaded() -> None:
    values = torch.rand(1 << 20)

    def used() -> set[str]:
        """Threads of this process that were given processor time by a few large operations."""
        before = times()
        for _ in range(5):
            values.exp().sort()
            values.reshape(1024, -1) @ values.reshape(-1, 1024)
        return {thread for thread, spent in times().items() if spent > before.get(thread, 0) + 1_000_000}

    if not Path("/proc/self/task").exists():
        pytest.skip("threads' times are read from /proc")
    with single_threaded():
        used()  # threads of an earlier operation fall asleep
        assert used() == {str(threading.get_native_id())}


def times() -> dict[str, int]:
    """Nanoseconds of processor time that each thread of this process has had."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found[task.name] = int((task / "schedstat").read_text().split()[0])
    return found


@pytest.mark.parametrize("at", [0, 5, 19])
@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_the_first_failure_is_raised_and_settings_are_restored(at: int, failure: type[BaseException]) -> None:
    def fail(item: int) -> int:
        if item >= at:
            raise failure(f"item {item}")
        return item

    taken: list[int] = []
    with pytest.raises(failure, match="item"):
        in_threads(fail, range(20), lambda item, _: taken.append(item))
    assert taken == list(range(len(taken)))
    assert len(taken) <= at
    if failure is ValueError:
        assert len(taken) == at
    assert torch.get_num_threads() == 4
    assert granted_threads() == 4
    assert in_threads(lambda item: item, range(4)) == [0, 1, 2, 3]
    assert not [thread for thread in threading.enumerate() if thread.name == spreading.NAME]


def test_a_failure_of_what_takes_results_ends_the_helpers() -> None:
    def refuse(item: int, result: int) -> None:
        raise ValueError("taken")

    with pytest.raises(ValueError, match="taken"):
        in_threads(Seen(), range(20), refuse)
    assert torch.get_num_threads() == 4
    assert not [thread for thread in threading.enumerate() if thread.name == spreading.NAME]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals of POSIX")
def test_ctrl_c_ends_a_call_and_its_helpers() -> None:
    main = threading.main_thread().ident
    if threading.get_ident() != main:
        pytest.skip("only the main thread is interrupted")
    begun: list[int] = []

    def slow(item: int) -> int:
        begun.append(item)
        if item == 2:
            signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.02)
        return item

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # processes in the background ignore the signal
    try:
        with pytest.raises(KeyboardInterrupt):
            in_threads(slow, range(500))
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(begun) < 100
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize("grad", [True, False])
def test_grad_and_inference_mode_are_the_caller_s(grad: bool) -> None:
    def modes(_: int) -> tuple[bool, bool]:
        time.sleep(0.002)
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    with torch.set_grad_enabled(grad):
        assert set(in_threads(modes, range(12))) == {(grad, False)}
    with torch.inference_mode():
        assert set(in_threads(modes, range(12))) == {(False, True)}


def test_numpy_s_error_state_is_the_caller_s() -> None:
    def divide(_: int) -> str:
        time.sleep(0.002)
        return np.geterr()["divide"]

    with np.errstate(divide="raise"):
        assert set(in_threads(divide, range(12))) == {"raise"}


def test_under_a_default_device_of_the_thread_nothing_is_spread() -> None:
    seen = Seen()
    with torch.device("meta"):
        in_threads(seen, range(6))
    assert seen.threads == {threading.get_ident()}


def test_gradients_of_a_chunked_score_are_those_of_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    members = mixture(60).ensemble(20).members.requires_grad_()
    y = torch.zeros(60, 2)
    (whole,) = torch.autograd.grad(energy_score(y, members).sum(), members)
    monkeypatch.setattr(prerank._chunks, "ELEMENTS", 1 << 10)
    (chunked,) = torch.autograd.grad(energy_score(y, members).sum(), members)
    assert torch.allclose(whole, chunked, rtol=1e-5, atol=1e-8)


def test_linear_algebra_of_numpy_has_one_thread_until_the_last_has_left() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")

    def numbers() -> set[int]:
        found = threadpoolctl.threadpool_info()
        return {library["num_threads"] for library in found if library["user_api"] == "blas"}

    with single_threaded_blas():
        pass  # libraries are loaded now
    with threadpoolctl.threadpool_limits(2, "blas"):
        before = numbers()
        for _ in range(2):
            with single_threaded_blas():
                assert numbers() <= {1}
                with single_threaded_blas():
                    assert numbers() <= {1}
                assert numbers() <= {1}
            assert numbers() == before


# How many are granted


@pytest.mark.parametrize(
    ("variable", "value", "granted"),
    [
        ("OMP_NUM_THREADS", "2", 2),
        ("OMP_NUM_THREADS", "2,1", 2),
        ("OMP_NUM_THREADS", "64", 4),
        ("OMP_NUM_THREADS", "nonsense", 4),
        (VARIABLE, "3", 3),
        (VARIABLE, "64", 4),
        (VARIABLE, "", 4),
    ],
)
def test_variables_of_the_environment_are_limits(
    variable: str, value: str, granted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    assert granted_threads() == granted


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_number_that_is_none_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(ValueError, match=f"{VARIABLE}='{value}'; it is a whole number"):
        granted_threads()


def test_what_torch_was_told_is_a_limit() -> None:
    torch.set_num_threads(2)
    assert granted_threads() == 2
    with single_threaded():
        assert granted_threads() == 2


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
def test_the_processors_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not those of another one: process 1 may have more."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0: {1, 3}, 1: {0, 1, 2, 3}}[process])
    assert _processors() == 2


def test_a_share_of_a_processor_is_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for quota, granted in ((0.5, 1), (1.5, 2), (64.0, 4)):
        monkeypatch.setattr("prerank._parallel.spreading.cgroup_quota", lambda quota=quota: quota)
        assert granted_threads() == granted


def groups(folder: Path, membership: str, files: dict[str, str]) -> float | None:
    """The quota that files of control groups say."""
    mounted = folder / "mounted"
    for path, text in files.items():
        (mounted / path).parent.mkdir(parents=True, exist_ok=True)
        (mounted / path).write_text(text)
    (folder / "membership").write_text(membership)
    return cgroup_quota(mounted, folder / "membership")


V1 = "5:memory:/job\n4:cpu,cpuacct:/job/step\n0::/\n"


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/\n", {}, None),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000"}, 2.0),
        ("0::/a/b\n", {"a/b/cpu.max": "100000 100000", "a/cpu.max": "200000 100000"}, 1.0),
        ("0::/of/the/host\n", {"cpu.max": "50000 100000"}, 0.5),
        ("0::/\n", {"cpu.max": "nonsense"}, None),
        (V1, {"cpu/job/step/cpu.cfs_quota_us": "300000", "cpu/job/step/cpu.cfs_period_us": "100000"}, 3.0),
        (V1, {"cpu,cpuacct/job/cpu.cfs_quota_us": "50000", "cpu,cpuacct/job/cpu.cfs_period_us": "100000"}, 0.5),
        (V1, {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2.0),
        (V1, {"cpu/job/cpu.cfs_quota_us": "-1", "cpu/job/cpu.cfs_period_us": "100000"}, None),
    ],
)
def test_quotas_of_control_groups_are_read(
    membership: str, files: dict[str, str], quota: float | None, tmp_path: Path
) -> None:
    assert groups(tmp_path, membership, files) == quota


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path, tmp_path / "absent") is None


# Copies of the process


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_copy_of_the_process_that_was_made_meanwhile_computes() -> None:
    """Forked while a call has helpers, and a lock is held."""
    script = """
import os, threading, time
import torch
from prerank import _parallel as parallel
from prerank._parallel import spreading
spreading._processors = lambda: 3
torch.set_num_threads(3)
release = threading.Event()
call = threading.Thread(target=parallel.in_threads, args=(lambda item: release.wait(), range(9)))
call.start()
while spreading._crews._size() < 3:
    time.sleep(0.001)
spreading._crews.lock.acquire()
child = os.fork()
if child == 0:
    ok = parallel.in_threads(lambda item: (time.sleep(0.01), item)[1], range(9)) == list(range(9))
    os._exit(0 if ok and len(spreading._crews.working) == 0 else 1)
spreading._crews.lock.release()
status = os.waitpid(child, 0)[1]
release.set()
call.join()
raise SystemExit(os.waitstatus_to_exitcode(status))
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
