"""Where fleets are carried out: in this process, in several on this machine, or on a Dask cluster. All end the same."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import uuid4

import torch

from prerank._wording import counted
from prerank.training import Progress
from prerank_paper.benchmark.plan import Fleet
from prerank_paper.benchmark.precompile import compiling
from prerank_paper.benchmark.processes import worker_pool
from prerank_paper.benchmark.records import FleetResult, Store
from prerank_paper.benchmark.work import Settings, work


class Failure(NamedTuple):
    """The error that a fleet ended with, as text: an exception may not survive the way back from another machine."""

    error: str


Outcome = FleetResult | Failure


class Executor(Protocol):
    """How fleets are carried out: yields each with its result or the error that it ended with, as they finish."""

    def outcomes(
        self, fleets: Sequence[Fleet], settings: Settings, store: Store, progress: Progress | None
    ) -> Iterator[tuple[Fleet, Outcome]]: ...


def attempt(fleet: Fleet, settings: Settings, checkpoint: Path, progress: Progress | None = None) -> Outcome:
    """The result of a fleet, or its error as a value: one fleet's failure is not the end of the others."""
    try:
        return work(fleet, settings, checkpoint, progress)
    except Exception as error:
        return Failure(said(error))


def attempt_beside(fleet: Fleet, settings: Settings, checkpoint: Path, before_others: bool) -> Outcome:
    """The same in one of several processes that may share a GPU, which gives back the memory it used there.

    Where processes compute at the same time (CUDA's Multi-Process Service), each has one priority from its start: that of
    its first fleet, which goes `before_others` or after.
    """
    os.environ.setdefault("CUDA_MPS_CLIENT_PRIORITY", "0" if before_others else "1")
    try:
        return attempt(fleet, settings, checkpoint)
    finally:
        torch.cuda.empty_cache()


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class InTurn:
    """One fleet after the other, in this process."""

    def outcomes(
        self, fleets: Sequence[Fleet], settings: Settings, store: Store, progress: Progress | None
    ) -> Iterator[tuple[Fleet, Outcome]]:
        for fleet in fleets:
            yield fleet, attempt(fleet, settings, store.checkpoint(fleet.name), progress)


class InProcesses:
    """Fleets in `n_processes` processes of this machine, which may share one GPU; the largest start first.

    While one process loads, compiles, captures a graph or evaluates, the others train. On a GPU the kernels of all numbers
    of targets are compiled meanwhile, on cores that have nothing else to do, into Triton's cache, which processes and later
    runs share. A process that dies ends the run; the next one goes on from the checkpoints.
    """

    largest_first = True

    def __init__(self, n_processes: int) -> None:
        if n_processes < 1:
            raise ValueError(f"{n_processes} processes: at least one is needed")
        self.n_processes = n_processes

    def outcomes(
        self, fleets: Sequence[Fleet], settings: Settings, store: Store, progress: Progress | None
    ) -> Iterator[tuple[Fleet, Outcome]]:
        n_processes = min(self.n_processes, len(fleets))
        settings = replace(settings, beside=n_processes)
        with compiling(fleets, settings, self.n_processes), worker_pool(n_processes) as pool:
            # the rest waits for the first, which is the largest
            tasks: dict[Future[Outcome], Fleet] = {
                pool.submit(attempt_beside, fleet, settings, store.checkpoint(fleet.name), fleet is fleets[0]): fleet
                for fleet in fleets
            }
            for done, task in enumerate(as_completed(tasks)):
                try:
                    outcome = task.result()
                except BrokenProcessPool as error:
                    raise ChildProcessError(
                        "a process that trained fleets was killed, perhaps for want of memory; "
                        f"{counted(len(fleets) - done, 'fleet')} left, and the same command goes on from their checkpoints"
                    ) from error
                except Exception as error:  # what comes back could not be sent
                    outcome = Failure(said(error))
                yield tasks[task], outcome


class OnDask:
    """Fleets as tasks of a Dask cluster: the scheduler's address, or a local cluster of so many processes.

    Results come back to this process, the only writer. A fleet whose worker dies is sent to another one and picks its
    checkpoint up, if the workers share this file system; if not, it starts afresh. Either way it ends the same. A scheduler
    that has no worker within `wait_seconds` is an error.
    """

    def __init__(self, scheduler: str | None = None, n_workers: int = 2, wait_seconds: float = 60.0) -> None:
        try:
            import distributed  # noqa: F401
        except ImportError as error:
            raise ModuleNotFoundError(
                "--executor dask needs dask and distributed: pip install 'prerank[dask]'"
            ) from error
        self.scheduler, self.n_workers, self.wait_seconds = scheduler, n_workers, wait_seconds

    def outcomes(
        self, fleets: Sequence[Fleet], settings: Settings, store: Store, progress: Progress | None
    ) -> Iterator[tuple[Fleet, Outcome]]:
        from distributed import Client, LocalCluster, as_completed

        with ExitStack() as stack:
            address: object = self.scheduler
            if address is None:
                local = LocalCluster(n_workers=self.n_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0")
                address = stack.enter_context(local)
            try:
                client = stack.enter_context(Client(address))
            except OSError as silence:
                raise ValueError(f"no Dask scheduler answers at {self.scheduler}: {silence}") from silence
            try:
                client.wait_for_workers(1, timeout=self.wait_seconds)
            except TimeoutError:
                raise ValueError(
                    f"the Dask scheduler at {self.scheduler or 'this machine'} has had no worker for "
                    f"{self.wait_seconds:g} s; start one (dask worker ADDRESS --nthreads 1) and run the same command again"
                ) from None
            run = uuid4().hex  # another run on the same scheduler may have fleets of the same names
            tasks = {
                client.submit(
                    attempt, fleet, settings, store.checkpoint(fleet.name).absolute(), key=f"{fleet.name}-{run}"
                ): fleet
                for fleet in fleets
            }
            for future in as_completed(list(tasks)):
                fleet = tasks.pop(future)
                error = future.exception()  # that of the cluster: a worker that died too often
                outcome = future.result() if error is None else Failure(said(error))
                future.release()  # or the death of the worker that holds it would train the fleet again
                yield fleet, outcome
