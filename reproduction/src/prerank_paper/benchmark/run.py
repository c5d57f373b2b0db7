"""Running a grid: what is pending is carried out by an executor, and written by this process alone."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from prerank.training import Progress
from prerank_paper.benchmark.executors import Executor, Failure, InTurn, Outcome, said
from prerank_paper.benchmark.plan import Ablation, Fleet, Grid
from prerank_paper.benchmark.records import Store
from prerank_paper.benchmark.timing import Timing, compile_steps, time_steps, timings_of
from prerank_paper.benchmark.work import Settings
from prerank_paper.datasets.sizes import DatasetSize, dataset_size


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
    shapes = {name: dataset_size(name) for name in grid.datasets}
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
        if getattr(executor, "largest_first", False):
            pending.sort(key=state.size, reverse=True)
        on_fleet(state)
        for fleet, outcome in (executor or InTurn()).outcomes(pending, settings, store, progress) if pending else ():
            kept = _keep(fleet, outcome, store)
            failed += kept.failed
            state.note(fleet, kept.lost)
            on_fleet(state)
        trained = {fleet.dataset: n_targets[fleet.dataset] for fleet in fleets if store.has_fleet(fleet.name)}
        wanted = timings_of(grid, trained) if timing and isinstance(grid, Grid) else []
        state.timings = [run for run in wanted if not store.has_timing(run.name)]
        compile_steps(state.timings, trained, settings)
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
            outcome = Failure(f"its results could not be written: {said(error)}")
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
        _keep_failure(store, run.name, run.dataset, run.training, said(error))
        return [(run.name, said(error))]
    return []


def _keep_failure(store: Store, name: str, dataset: str, training: str, error: str) -> None:
    with suppress(OSError):  # no room for that either: the summary still tells
        store.keep_failure(name, dataset, training, error)


class State:
    """How far a run is, and how long its fleets may still take; at the end, the timing runs that are left."""

    def __init__(self, pending: Sequence[Fleet], shapes: Mapping[str, DatasetSize]) -> None:
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
            self.rates.append((now - self.marks[-1]) / self.size(fleet))
        self.marks.append(now)

    def seconds_left(self) -> tuple[float, float] | None:
        """Between which times the rest should take, or None while nothing is known.

        Early stopping cannot be foreseen, so the limits are the fastest and the slowest finished fleet's seconds per
        row, model and target. What has passed since the last fleet ended is taken off.
        """
        if not self.rates:
            return None
        size = sum(self.size(fleet) for fleet in self.pending)
        passed = time.monotonic() - self.marks[-1]
        return max(0.0, size * min(self.rates) - passed), max(0.0, size * max(self.rates) - passed)

    def size(self, fleet: Fleet) -> float:
        """Rows by models by targets, to which the time of a fleet is about proportional."""
        shape = self.shapes[fleet.dataset]
        return shape.n_rows * len(fleet.models) * shape.n_targets
