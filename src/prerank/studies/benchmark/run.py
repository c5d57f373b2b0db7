"""Running a grid: pending fleets one after the other here, or beside each other on a Dask cluster, with one writer."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import uuid4

from prerank.data import BUILTIN, PAPER_DATASETS, DataError, dataset, extra_datasets
from prerank.studies.benchmark.plan import Ablation, Fleet, Grid
from prerank.studies.benchmark.records import FleetResult, Store
from prerank.studies.benchmark.timing import Timing, time_steps, timings_of
from prerank.studies.benchmark.work import Settings, work
from prerank.studies.protocols import EXACT
from prerank.training import Progress


class Failure(NamedTuple):
    """The error that a fleet ended with, as text: an exception may not survive the way back from another machine."""

    error: str


Outcome = FleetResult | Failure


class Executor(Protocol):
    """How fleets are carried out: yields each with its result or the error that it ended with, as they finish."""

    def outcomes(
        self, fleets: Sequence[Fleet], settings: Settings, store: Store, progress: Progress | None
    ) -> Iterator[tuple[Fleet, Outcome]]: ...


class InTurn:
    """One fleet after the other, in this process."""

    def outcomes(
        self, fleets: Sequence[Fleet], settings: Settings, store: Store, progress: Progress | None
    ) -> Iterator[tuple[Fleet, Outcome]]:
        for fleet in fleets:
            yield fleet, _attempt(fleet, settings, store.checkpoint(fleet.name), progress)


def _attempt(fleet: Fleet, settings: Settings, checkpoint: Path, progress: Progress | None = None) -> Outcome:
    """The result of a fleet, or its error as a value: one fleet's failure is not the end of the others."""
    try:
        return work(fleet, settings, checkpoint, progress)
    except Exception as error:
        return Failure(_said(error))


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class OnDask:
    """Fleets as tasks of a Dask cluster: the scheduler's address, or a local cluster of so many processes.

    Results come back to this process, the only writer. A fleet whose worker dies is sent to another one and picks its
    checkpoint up, if the workers share this file system; if not, it starts afresh. Either way it ends the same.
    """

    def __init__(self, scheduler: str | None = None, n_workers: int = 2) -> None:
        try:
            import distributed  # noqa: F401
        except ImportError as error:
            raise ModuleNotFoundError(
                "--executor dask needs dask and distributed: pip install 'prerank[dask]'"
            ) from error
        self.scheduler, self.n_workers = scheduler, n_workers

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
            run = uuid4().hex  # another run on the same scheduler may have fleets of the same names
            tasks = {
                client.submit(
                    _attempt, fleet, settings, store.checkpoint(fleet.name).absolute(), key=f"{fleet.name}-{run}"
                ): fleet
                for fleet in fleets
            }
            for future in as_completed(list(tasks)):
                fleet = tasks.pop(future)
                error = future.exception()  # that of the cluster: a worker that died too often
                outcome = future.result() if error is None else Failure(_said(error))
                future.release()  # or the death of the worker that holds it would train the fleet again
                yield fleet, outcome


class Summary(NamedTuple):
    """What a run came to: fleets finished now and before, and what failed, as (name, error)."""

    finished: int
    before: int
    failed: list[tuple[str, str]]


def run_benchmark(
    grid: Grid | Ablation,
    out: Path,
    settings: Settings | None = None,
    executor: Executor | None = None,
    *,
    timing: bool = True,
    progress: Progress | None = None,
    on_fleet: Callable[["State"], None] = lambda state: None,
) -> Summary:
    """Run all fleets of the grid that `out` does not hold yet, and keep each as it finishes.

    `on_fleet` is told before the first fleet, after each one, and before each timing run. Killed and called again, it
    repeats no finished fleet and resumes the one in training.
    """
    settings, store = settings or Settings(), Store(out)
    shapes = {name: shape_of(name) for name in grid.datasets}
    n_targets = {name: shape.n_targets for name, shape in shapes.items()}
    fleets = list(grid.fleets(n_targets))
    failed: list[tuple[str, str]] = []
    with store.alone():
        store.claim(
            asdict(grid)
            | {"n_draws": settings.n_draws, "max_epochs": settings.max_epochs, "n_replicates": settings.n_replicates}
        )
        pending = [fleet for fleet in fleets if not store.has_fleet(fleet.name)]
        state = State(pending, shapes)
        on_fleet(state)
        for fleet, outcome in (executor or InTurn()).outcomes(pending, settings, store, progress) if pending else ():
            kept = _keep(fleet, outcome, store)
            failed += kept.failed
            state.note(fleet, kept.lost)
            on_fleet(state)
        wanted = timings_of(grid, n_targets) if timing and isinstance(grid, Grid) else []
        state.timings = [run for run in wanted if not store.has_timing(run.name)]
        while state.timings:
            on_fleet(state)
            failed += _time(state.timings.pop(0), settings, store)
    return Summary(len(pending) - len(state.failed), len(fleets) - len(pending), failed)


class _Kept(NamedTuple):
    """What failed of a fleet, as (name, error), and whether all of it is lost."""

    failed: list[tuple[str, str]]
    lost: bool


def _keep(fleet: Fleet, outcome: Outcome, store: Store) -> _Kept:
    """Write a fleet's result. A disk that is full is this fleet's failure; the next may be smaller, or find room."""
    if not isinstance(outcome, Failure):
        try:
            store.keep_fleet(outcome)
        except OSError as error:
            outcome = Failure(f"its results could not be written: {_said(error)}")
    if isinstance(outcome, Failure):
        _keep_failure(store, fleet.name, fleet.dataset, fleet.training, outcome.error)
        return _Kept([(fleet.name, outcome.error)], lost=True)
    bad = outcome.models[outcome.models["error"] != ""]
    names = [f"{fleet.name}: {row.penalty}, strength {row.strength:g}, seed {row.seed}" for row in bad.itertuples()]
    return _Kept(list(zip(names, bad["error"].astype(str), strict=True)), lost=False)


def _time(run: Timing, settings: Settings, store: Store) -> list[tuple[str, str]]:
    try:
        store.keep_timing(run.name, time_steps(run, settings))
    except Exception as error:
        _keep_failure(store, run.name, run.dataset, EXACT, _said(error))
        return [(run.name, _said(error))]
    return []


def _keep_failure(store: Store, name: str, dataset: str, training: str, error: str) -> None:
    with suppress(OSError):  # no room for that either: the summary still tells
        store.keep_failure(name, dataset, training, error)


class Shape(NamedTuple):
    """Rows and targets of a dataset."""

    n_rows: int
    n_targets: int


def shape_of(name: str) -> Shape:
    """How large a dataset is, without loading it if the catalogue knows."""
    if name in BUILTIN:
        table = BUILTIN[name].table()
        return Shape(table.n_cases, table.n_targets)
    for entry in extra_datasets():
        if entry.name == name:
            return Shape(entry.n_rows, entry.n_targets)
    try:
        known = dataset(name)
    except DataError:
        names = ", ".join([entry.name for entry in PAPER_DATASETS] + list(BUILTIN))
        raise DataError(f"There is no dataset {name!r}. Known are {names}.") from None
    return Shape(known.n_rows, known.n_targets)


class State:
    """How far a run is, and how long its fleets may still take; at the end, the timing runs that are left."""

    def __init__(self, pending: Sequence[Fleet], shapes: Mapping[str, Shape]) -> None:
        self.pending, self.shapes = list(pending), shapes
        self.done: list[Fleet] = []
        self.failed: list[Fleet] = []
        self.marks = [time.monotonic()]
        self.rates: list[float] = []
        self.last: Fleet | None = None
        self.timings: list[Timing] = []

    def note(self, fleet: Fleet, failed: bool) -> None:
        """A fleet has ended."""
        now = time.monotonic()
        self.pending.remove(fleet)
        self.last = fleet
        (self.failed if failed else self.done).append(fleet)
        if not failed:
            self.rates.append((now - self.marks[-1]) / self._size(fleet))
        self.marks.append(now)

    def seconds_left(self) -> tuple[float, float] | None:
        """Between which times the rest should take, or None while nothing is known.

        Early stopping cannot be foreseen, so the limits are the fastest and the slowest finished fleet's seconds per
        row, model and target. What has passed since the last fleet ended is taken off.
        """
        if not self.rates:
            return None
        size = sum(self._size(fleet) for fleet in self.pending)
        passed = time.monotonic() - self.marks[-1]
        return max(0.0, size * min(self.rates) - passed), max(0.0, size * max(self.rates) - passed)

    def _size(self, fleet: Fleet) -> float:
        shape = self.shapes[fleet.dataset]
        return shape.n_rows * len(fleet.models) * shape.n_targets
