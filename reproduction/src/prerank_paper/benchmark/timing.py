"""Timing runs: what a training step costs by pre-rank, with 100 draws and with 1,000."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from prerank.training import FitOptions, Run, TrainingSet, fit
from prerank_paper.benchmark.plan import PRERANKS, PUBLISHED_STRENGTH, Grid, Model, penalty_of, preranks_of
from prerank_paper.benchmark.precompile import Kind, compile_first
from prerank_paper.benchmark.work import Settings, device_name, prepare
from prerank_paper.protocols import EXACT

DRAWS = (100, 1000)
_BATCH = 256


class Stopwatch:
    """Only notes the times of reports; the loop reads the fleet before it reports, so the device has caught up."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def start(self, n_models: int, max_epochs: int) -> None:
        pass

    def advance(self, epoch: int, n_active: int, best_score: Tensor) -> None:
        self.times.append(time.perf_counter())

    def stop(self) -> None:
        pass


@dataclass(frozen=True)
class Timing:
    """One pre-rank on one dataset with so many draws: the models of all seeds at the published strength, a few steps."""

    dataset: str
    prerank: str
    n_draws: int
    seeds: tuple[int, ...]
    training: str = EXACT

    @property
    def name(self) -> str:
        return f"{self.dataset}.{self.training.replace(' ', '-')}.{self.prerank}.{self.n_draws}"


def timings_of(grid: Grid, n_targets: Mapping[str, int]) -> list[Timing]:
    """The timing runs of a grid on the datasets of `n_targets`: its pre-ranks in its protocols with 100 and 1,000 draws.

    A step takes batches of one size, so that datasets differ by their number of targets: the first of each is timed.
    """
    first: dict[int, str] = {}
    for dataset in grid.datasets:
        if dataset in n_targets:
            first.setdefault(n_targets[dataset], dataset)
    return [
        Timing(dataset, prerank, n_draws, grid.seeds, training)
        for dataset in first.values()
        for training in grid.protocols
        for prerank in PRERANKS
        if prerank in grid.preranks and prerank in preranks_of(n_targets[dataset], training)
        for n_draws in DRAWS
    ]


def compile_steps(runs: Sequence[Timing], n_targets: Mapping[str, int], settings: Settings) -> None:
    """Compile the kernels of all runs before the first is timed; on a CPU there are none."""
    kinds = [Kind(n_targets[run.dataset], run.training, run.prerank, PUBLISHED_STRENGTH) for run in runs]
    compile_first([(kind, replace(settings, n_draws=run.n_draws)) for kind, run in zip(kinds, runs, strict=True)])


@lru_cache(maxsize=1)
def _few_rows(dataset: str, seeds: tuple[int, ...], settings: Settings, n_rows: int) -> dict[int, TrainingSet]:
    """So many training rows of every seed; kept for the next timing run, which is often of the same dataset."""
    train = prepare(dataset, seeds, settings).train
    rows = torch.arange(n_rows) % len(train[seeds[0]].x)
    return {seed: part._replace(x=part.x[rows], y=part.y[rows]) for seed, part in train.items()}


def time_steps(timing: Timing, settings: Settings) -> dict[str, Any]:
    """Milliseconds of a step of the whole fleet: the quickest of two epochs after the first, which warms up."""
    # a GPU reports about every 64 steps, so that an epoch is at least as long
    n_batches = 64 if torch.device(settings.device).type == "cuda" else 2
    few = _few_rows(timing.dataset, timing.seeds, settings, n_batches * _BATCH)
    model = Model(timing.training, timing.prerank, PUBLISHED_STRENGTH, 0)
    penalty = penalty_of(model, few[timing.seeds[0]].y.shape[-1], timing.n_draws)
    watch = Stopwatch()
    runs = [Run(seed, penalty, PUBLISHED_STRENGTH) for seed in timing.seeds]
    fit(runs, few, FitOptions(batch_size=_BATCH, max_epochs=3, patience=10**6), watch)
    taken = min(later - earlier for earlier, later in pairwise(watch.times))
    return {
        "dataset": timing.dataset,
        "training": timing.training,
        "prerank": timing.prerank,
        "n_draws": timing.n_draws,
        "n_models": len(runs),
        "n_steps": n_batches,
        "ms_per_step": 1000 * taken / n_batches,
        "device": device_name(settings.device),
    }
