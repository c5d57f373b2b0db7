"""Running a grid: pending fleets one after the other here, or beside each other on a Dask cluster, with one writer."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple, Protocol

from prerank.data import BUILTIN, PAPER_DATASETS, dataset
from prerank.data.errors import DataError
from prerank.data.loading import extra_datasets
from prerank.studies.benchmark.plan import Fleet, Grid
from prerank.studies.benchmark.records import Store
from prerank.studies.benchmark.timing import Timing, time_steps, timings_of
from prerank.studies.benchmark.work import FleetResult, Settings, work
from prerank.training.progress import Progress

Outcome = FleetResult | Exception


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
        return error


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
                local = LocalCluster(n_workers=self.n_workers, threads_per_worker=1, dashboard_address=None)
                address = stack.enter_context(local)
            client = stack.enter_context(Client(address))
            tasks = {
                client.submit(_attempt, fleet, settings, store.checkpoint(fleet.name).absolute(), key=fleet.name): fleet
                for fleet in fleets
            }
            for future in as_completed(tasks):
                error = future.exception()  # that of the cluster: a worker that died too often
                yield tasks[future], future.result() if error is None else error


class Summary(NamedTuple):
    """What a run came to: fleets finished now and before, and what failed, as (name, error)."""

    finished: int
    before: int
    failed: list[tuple[str, str]]


def run_benchmark(
    grid: Grid,
    out: Path,
    settings: Settings | None = None,
    executor: Executor | None = None,
    *,
    timing: bool = True,
    progress: Progress | None = None,
    on_fleet: Callable[["State"], None] = lambda state: None,
) -> Summary:
    """Run all fleets of the grid that `out` does not hold yet, and keep each as it finishes.

    `on_fleet` is told before the first fleet and after each one. Killed and called again, it repeats no finished fleet
    and resumes the one in training.
    """
    settings, store = settings or Settings(), Store(out)
    shapes = {name: shape_of(name) for name in grid.datasets}
    n_targets = {name: shape.n_targets for name, shape in shapes.items()}
    store.claim(asdict(grid) | {"n_draws": settings.n_draws, "max_epochs": settings.max_epochs})
    fleets = list(grid.fleets(n_targets))
    pending = [fleet for fleet in fleets if not store.has_fleet(fleet.name)]
    failed: list[tuple[str, str]] = []
    state = State(pending, shapes)
    on_fleet(state)
    for fleet, outcome in (executor or InTurn()).outcomes(pending, settings, store, progress):
        if isinstance(outcome, Exception):
            error = f"{type(outcome).__name__}: {outcome}"
            store.keep_failure(fleet.name, error)
            failed.append((fleet.name, error))
        else:
            store.keep_fleet(outcome)
            bad = outcome.models[outcome.models["error"] != ""]
            failed += [
                (f"{fleet.name}: {row.penalty}, strength {row.strength:g}, seed {row.seed}", str(row.error))
                for row in bad.itertuples()
            ]
        state.note(fleet, isinstance(outcome, Exception))
        on_fleet(state)
    for run in timings_of(grid, n_targets) if timing else []:
        failed += _time(run, settings, store)
    return Summary(len(pending) - len(state.failed), len(fleets) - len(pending), failed)


def _time(run: Timing, settings: Settings, store: Store) -> list[tuple[str, str]]:
    if store.has_timing(run.name):
        return []
    try:
        store.keep_timing(run.name, time_steps(run, settings))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        store.keep_failure(run.name, text)
        return [(run.name, text)]
    return []


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
    """How far a run is, and how long the rest may take."""

    def __init__(self, pending: Sequence[Fleet], shapes: Mapping[str, Shape]) -> None:
        self.pending, self.shapes = list(pending), shapes
        self.done: list[Fleet] = []
        self.failed: list[Fleet] = []
        self.marks = [time.monotonic()]
        self.rates: list[float] = []
        self.last: Fleet | None = None

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
        row, model and target.
        """
        if not self.rates:
            return None
        size = sum(self._size(fleet) for fleet in self.pending)
        return size * min(self.rates), size * max(self.rates)

    def _size(self, fleet: Fleet) -> float:
        shape = self.shapes[fleet.dataset]
        return shape.n_rows * len(fleet.models) * shape.n_targets
