"""`fit`: one loop that trains a whole fleet."""

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import FrameType
from typing import Self

import torch
from torch import Tensor

from prerank._parallel import granted_threads, threads_inside
from prerank._reproducible_math import total
from prerank.training.batches import Batches, TrainingSet
from prerank.training.checkpoint import Checkpoint, fingerprint, load_checkpoint, save_checkpoint
from prerank.training.cuda_graph import Captured, Plain, is_capturable
from prerank.training.fitted import FittedFleet, fitted_fleet
from prerank.training.fleet import (
    Architecture,
    Fleet,
    Run,
    adam,
    all_finite,
    bounded_forecast_of,
    forecast_of,
    new_fleet,
    note_scores,
    start_again,
)
from prerank.training.grouping import grouped, in_order_of_penalties
from prerank.training.loss import Loss, StepNoise
from prerank.training.options import FitOptions
from prerank.training.progress import Progress, Silent
from prerank.training.protocols import values_of_score


class Interruption:
    """While it is entered, the first Ctrl-C only makes it true; the next one is a KeyboardInterrupt, as ever.

    Signals belong to the main thread. Elsewhere, and where it is not `wanted`, it does nothing and stays false.
    """

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted and threading.current_thread() is threading.main_thread()
        self.came = False

    def __bool__(self) -> bool:
        return self.came

    def __enter__(self) -> Self:
        if self.wanted:
            self.before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *failure: object) -> None:
        if self.wanted:
            signal.signal(signal.SIGINT, self.before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.came:
            raise KeyboardInterrupt
        self.came = True


class Idling:
    """Seconds that went into finished models, from now on; asked at every look at a fleet.

    >>> clock = iter([0.0, 10.0, 14.0])
    >>> idling = Idling(lambda: next(clock))
    >>> idling.seconds(0.0), idling.seconds(0.5)  # nobody had finished for ten seconds, then half of them for four
    (0.0, 2.0)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.seen, self.lost = clock, clock(), 0.0

    def seconds(self, share: float) -> float:
        """In all, if this share of the fleet was finished since the last look."""
        now = self.clock()
        self.lost, self.seen = self.lost + share * (now - self.seen), now
        return self.lost


_VALIDATION_ROWS = 4096
# Multiplications of a product of matrices, some milliseconds on one thread. Below it the threads of an operation gain little
# on a quiet machine, and beside other programs they lose a lot.
_LARGE = 1 << 28


def fit(
    runs: Sequence[Run],
    data: TrainingSet | Mapping[int, TrainingSet],
    options: FitOptions | None = None,
    progress: Progress | None = None,
) -> FittedFleet:
    """Train every run at once and return the best weights of each.

    The result of a run depends on the run and its data alone: a fleet of E equals E fleets of one. With a `checkpoint`
    path in the options, an interrupted fit picks up where it was and ends where the uninterrupted one would. Device
    and dtype follow the data. A model whose loss is not finite is stopped and marked `diverged`; the others do not
    notice.

    Parameters
    ----------
    runs : sequence of Run
        Models, which may differ in seed, penalty and strength.
    data : TrainingSet or dict of int to TrainingSet
        One set for all runs, or one per seed (of equal sizes).
    options : FitOptions, optional
        How models are trained; the paper's options by default.
    progress : Progress, optional
        What is told of every epoch; nothing by default.

    Returns
    -------
    FittedFleet
        The best weights of every model, and what became of it.

    See Also
    --------
    tune : fits all strengths of a penalty and chooses one
    """
    options = FitOptions() if options is None else options
    batches = Batches.of(runs, data, options.batch_size)
    architecture = Architecture(
        batches.x.shape[-1],
        batches.y.shape[-1],
        options.n_components,
        options.hidden,
        options.floor,
        options.anchored,
        options.common_correlations,
    )
    with threads_inside(_threads_for(architecture, batches, len(runs))):
        return _Loop(list(runs), batches, architecture, options, progress or Silent()).run()


def _threads_for(architecture: Architecture, batches: Batches, n_models: int) -> int:
    """Threads inside the operations of a step: one, unless a product of matrices is large enough to keep several busy."""
    outputs = architecture.n_components * (1 + architecture.n_targets * (architecture.n_targets + 3) // 2)
    widths = [architecture.n_features, *architecture.hidden, outputs]
    largest = n_models * batches.size * max(before * after for before, after in pairwise(widths))
    return granted_threads() if largest > _LARGE else 1


class _Loop:
    """The loop itself: what stays the same during a fit, and the fleet that changes."""

    def __init__(
        self, runs: list[Run], batches: Batches, architecture: Architecture, options: FitOptions, progress: Progress
    ) -> None:
        self.runs, self.batches, self.architecture, self.options = runs, batches, architecture, options
        self.progress = progress
        self.device, self.dtype = batches.x.device, batches.x.dtype
        # models with the same penalty stand together, so that each penalty is evaluated once on a slice of the fleet
        order = torch.tensor(in_order_of_penalties(runs), device=self.device)
        references = batches.references() if architecture.anchored else None
        new = new_fleet(runs, architecture, self.dtype, self.device, options.learning_rate, references)
        self.fleet = new.select(order)
        self.interruption = Interruption(options.keep_on_interrupt)
        self.done: list[Fleet] = []
        self.epoch, self.step_in_epoch, self.steps = 0, 0, 0
        self.started = time.monotonic()
        self.fingerprint = "" if options.checkpoint is None else fingerprint(runs, batches, architecture, options)
        if options.checkpoint is not None and options.checkpoint.exists():
            self._resume(load_checkpoint(options.checkpoint, self.fingerprint, self.device))
        self._regroup()

    def run(self) -> FittedFleet:
        self.progress.start(len(self.runs), self.options.max_epochs)
        try:
            with self.interruption:
                self._train()
        finally:  # an interruption must leave the terminal as it was
            self.progress.stop()
        self._save()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        seconds = time.monotonic() - self.started
        parts = [*self.done, *([self.fleet] if self.fleet.size else [])]
        return fitted_fleet(
            self.runs, self.architecture, parts, self.epoch, self.steps, seconds, bool(self.interruption)
        )

    def _train(self) -> None:
        options, batches = self.options, self.batches
        saved_at = time.monotonic()
        # On a GPU the host looks up only now and then, so that it never holds the queue; finished models are masked.
        epochs_between_looks = 1 if self.device.type == "cpu" else max(1, 64 // batches.per_epoch)
        while self.fleet.size and self.epoch < options.max_epochs:
            order = batches.order(self.epoch)
            for number in range(self.step_in_epoch, batches.per_epoch):
                if self.interruption or (options.max_steps is not None and self.steps >= options.max_steps):
                    return
                self.step(order[:, number * batches.size : (number + 1) * batches.size])
                self.steps, self.step_in_epoch = self.steps + 1, number + 1
                if options.checkpoint is not None and time.monotonic() - saved_at > options.checkpoint_seconds:
                    self._save()
                    saved_at = time.monotonic()
            self.validate()
            self.epoch, self.step_in_epoch = self.epoch + 1, 0
            if self.epoch % epochs_between_looks == 0:
                self._let_finished_go()
                self.progress.advance(self.epoch, int(self.fleet.active.sum()), self.fleet.best_score)

    def _step(self, rows: Tensor) -> None:
        x, y, weights = self.batches.take(rows, self.seed_of)
        leaves = [tensor.detach().requires_grad_() for tensor in self.fleet.weights]
        if self.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            loss = self.loss(y, forecast_of(leaves, x, self.architecture), weights, self.clock)
        else:
            forecast, sane = bounded_forecast_of(leaves, x, self.architecture)
            loss = torch.where(sane, self.loss(y, forecast, weights, self.clock), torch.nan)
        gradients = torch.autograd.grad(loss.sum(), leaves)
        finite = all_finite([loss.detach(), *gradients])
        fleet = self.fleet
        fleet.diverged.logical_or_(fleet.active & ~finite)
        fleet.active.logical_and_(finite)
        adam(fleet, gradients, fleet.active)
        self.clock.add_(1)

    def _validate(self) -> None:
        batches, fleet, monitor = self.batches, self.fleet, self.options.monitor
        summed = torch.zeros_like(fleet.best_score)
        n_rows = batches.x_validation.shape[1]
        with torch.no_grad():
            for start in range(0, n_rows, _VALIDATION_ROWS):
                rows = slice(start, min(start + _VALIDATION_ROWS, n_rows))
                forecast = forecast_of(fleet.weights, batches.x_validation[:, rows][self.seed_of], self.architecture)
                y = batches.y_validation[:, rows][self.seed_of]
                # the same numbers in every epoch: what differs between epochs is then the model and not its draws
                step = torch.full_like(self.clock, start)
                noise = self.noise.of_score(monitor, "validation", y, step, self.seed_of)
                scores = values_of_score(monitor, y, forecast, noise)
                summed += self._sum(scores * batches.validation_shares[:, rows][self.seed_of])
        note_scores(fleet, summed, self.epoch_clock, self.options.min_improvement, self.options.patience)
        if self.options.n_restarts:
            start_again(fleet, self.options.n_restarts, self.options.cooling)
        self.epoch_clock.add_(1)

    def _sum(self, values: Tensor) -> Tensor:
        """Over the cases of each model. A library's sum on a GPU rounds by how many models there are, and some leave."""
        return values.sum(-1) if self.device.type == "cpu" else total(values, -1, overwrite=True)

    def _regroup(self) -> None:
        """What follows the models in the fleet: their seeds and their loss, and how a step and a validation are run."""
        runs = [self.runs[i] for i in self.fleet.index.tolist()]
        seeds, score, monitor = self.batches.seeds, self.options.score, self.options.monitor
        self.seed_of = torch.tensor([seeds.index(run.seed) for run in runs], device=self.device)
        strength = torch.tensor([run.strength for run in runs], dtype=self.dtype, device=self.device)
        on_gpu = self.device.type == "cuda"
        grouping = grouped(runs, self.seed_of, self.architecture, self.batches.size, by_parts=on_gpu)
        names = dict.fromkeys(["score", "validation", *(name for group in grouping.groups for name in group.streams)])
        self.noise = StepNoise(seeds, names, self.dtype, self.device)
        self.loss = Loss(score, grouping, strength, self.seed_of, self.noise)
        self.clock = torch.tensor(self.steps, device=self.device)
        self.epoch_clock = torch.tensor(self.epoch, device=self.device)
        self.captured = is_capturable(self.device, score, *(group.penalty for group in grouping.groups))
        self.step = self._runner(self._step, self.captured)
        self.validate = self._runner(self._validate, is_capturable(self.device, monitor))
        self.idling = Idling()

    def _runner(self, function: Callable[..., None], captured: bool) -> Plain | Captured:
        if not captured:
            return Plain(function)
        state = [*self.fleet.named_tensors().values(), self.clock, self.epoch_clock]
        # after the first capture libraries are warm; one run more loads what the new shapes need
        return Captured(function, state, warm_ups=1 if self.done else 3)

    def _let_finished_go(self) -> None:
        active = self.fleet.active
        still = int(active.sum())
        lost = self.idling.seconds(1 - still / self.fleet.size)
        # a captured graph has fixed shapes: finished models stay in it until they have cost what capturing anew will cost
        if still == self.fleet.size or (still and lost < self.step.seconds + self.validate.seconds):
            return
        self.done.append(self.fleet.select((~active).nonzero()[:, 0]))
        self.fleet = self.fleet.select(active.nonzero()[:, 0])
        self._regroup()

    def _resume(self, saved: Checkpoint) -> None:
        self.fleet, self.done = saved.fleet, saved.done
        self.epoch, self.step_in_epoch, self.steps = saved.epoch, saved.step_in_epoch, saved.steps
        self.started = time.monotonic() - saved.seconds

    def _save(self) -> None:
        if self.options.checkpoint is not None:
            seconds = time.monotonic() - self.started
            saved = Checkpoint(self.fleet, self.done, self.epoch, self.step_in_epoch, self.steps, seconds)
            save_checkpoint(self.options.checkpoint, saved, self.fingerprint)
