"""`fit`: one loop that trains a whole fleet."""

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prerank.forecast import GaussianMixture
from prerank.forecast.chunks import at_once
from prerank.randomness import key, normals_of_step
from prerank.training.batches import Batches, TrainingSet
from prerank.training.capture import Branches, Captured, Plain
from prerank.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from prerank.training.fleet import (
    Architecture,
    Fleet,
    Penalty,
    Run,
    adam,
    all_finite,
    bounded_forecast_of,
    forecast_of,
    new_fleet,
    note_scores,
)
from prerank.training.objective import NegativeLogLikelihood, Score
from prerank.training.penalty import PreRankPenalty, Shapes, SharedNumbers, listed
from prerank.training.progress import Progress, Silent
from prerank.training.published import PublishedPenalty, with_gumbel

_VALIDATION_ROWS = 4096
_STREAMS = ("ranked", "learnt")


@dataclass(frozen=True)
class FitOptions:
    """How a fleet is trained; the defaults are the paper's.

    `patience` epochs without an improvement of `min_improvement` in the validation score end a model. `score` is what is
    minimised (the penalty is added), `monitor` what stops. A checkpoint is written every `checkpoint_seconds`. `max_steps`
    interrupts the fit there: what comes back are the best weights of the epochs that were completed.
    """

    n_components: int = 5
    hidden: tuple[int, ...] = (100, 100)
    floor: float = 1e-3
    learning_rate: float = 1e-4
    batch_size: int = 256
    max_epochs: int = 5000
    patience: int = 15
    min_improvement: float = 1e-4
    score: Score = field(default_factory=NegativeLogLikelihood)
    monitor: Score = field(default_factory=NegativeLogLikelihood)
    checkpoint: Path | None = None
    checkpoint_seconds: float = 60.0
    max_steps: int | None = None


@dataclass(frozen=True, eq=False)
class FittedFleet:
    """Trained models: weights (E, ...) of their best epochs, and what became of each run.

    `seconds` is the time of the training loop, that of earlier, interrupted calls included.
    """

    runs: tuple[Run, ...]
    architecture: Architecture
    weights: tuple[Tensor, ...]
    best_score: Tensor
    best_epoch: Tensor
    diverged: Tensor
    epochs: int
    steps: int
    seconds: float

    def forecast(self, x: Tensor, models: Sequence[int] | None = None) -> GaussianMixture:
        """Forecasts (E, N) for x (N, L) or (E, N, L), of all models or some."""
        weights = self.weights if models is None else [tensor[list(models)] for tensor in self.weights]
        with torch.no_grad():
            return forecast_of(weights, x.to(self.weights[0]), self.architecture)


def fit(
    runs: Sequence[Run],
    data: TrainingSet | Mapping[int, TrainingSet],
    options: FitOptions | None = None,
    progress: Progress | None = None,
) -> FittedFleet:
    """Train every run at once and return the best weights of each.

    Runs may differ in seed, penalty and strength. `data` is one set for all, or one per seed (of equal sizes). The
    result of a run depends on the run and its data alone: a fleet of E equals E fleets of one. With a `checkpoint` path
    in the options, an interrupted fit picks up where it was and ends where the uninterrupted one would. Device and dtype
    follow the data. A model whose loss is not finite is stopped and marked `diverged`; the others do not notice.
    """
    options = FitOptions() if options is None else options
    batches = Batches.of(runs, data, options.batch_size)
    architecture = Architecture(
        batches.x.shape[-1], batches.y.shape[-1], options.n_components, options.hidden, options.floor
    )
    return _Loop(list(runs), batches, architecture, options, progress or Silent()).run()


class _Loop:
    """The loop itself: what stays the same during a fit, and the fleet that changes."""

    def __init__(
        self, runs: list[Run], batches: Batches, architecture: Architecture, options: FitOptions, progress: Progress
    ) -> None:
        self.runs, self.batches, self.architecture, self.options = runs, batches, architecture, options
        self.progress = progress
        self.device, self.dtype = batches.x.device, batches.x.dtype
        # models with the same penalty stand together, so that each penalty is evaluated once on a slice of the fleet
        penalties = list(dict.fromkeys([None, *(run.effective_penalty for run in runs)]))  # those without one first
        order = sorted(range(len(runs)), key=lambda i: penalties.index(runs[i].effective_penalty))
        fleet = new_fleet(runs, architecture, self.dtype, self.device)
        self.fleet = fleet.select(torch.tensor(order, device=self.device))
        self.done: list[Fleet] = []
        self.epoch, self.step_in_epoch, self.steps = 0, 0, 0
        self.started = time.monotonic()
        self.noise_keys = {
            stream: torch.tensor([key(seed, stream) for seed in batches.seeds], device=self.device)
            for stream in ("score", *_STREAMS, "validation")
        }
        self.fingerprint = self._fingerprint() if options.checkpoint is not None else ""
        if options.checkpoint is not None and options.checkpoint.exists():
            self._resume(load_checkpoint(options.checkpoint, self.fingerprint, self.device))
        self._regroup()

    def _fingerprint(self) -> str:
        """What a checkpoint must agree with: the runs, the data and all options that change the result."""
        kept = {
            name: value
            for name, value in vars(self.options).items()
            if name not in ("checkpoint", "checkpoint_seconds", "max_steps")
        }
        data = (self.batches.digest(), self.batches.size, self.batches.seeds)
        text = repr((self.runs, self.architecture, data, kept, self.dtype))
        # a function prints its address, which no other process shares: Custom(f) is told by its name alone
        return str(key(0, re.sub(r" at 0x[0-9a-fA-F]+", "", text)))

    def _resume(self, saved: Checkpoint) -> None:
        self.fleet, self.done = saved.fleet, saved.done
        self.epoch, self.step_in_epoch, self.steps = saved.epoch, saved.step_in_epoch, saved.steps
        self.started = time.monotonic() - saved.seconds

    def _regroup(self) -> None:
        """Tables that follow the models in the fleet: their data, their strengths, the slices of equal penalty."""
        current = [self.runs[i] for i in self.fleet.index.tolist()]
        seeds = self.batches.seeds
        self.seed_of = torch.tensor([seeds.index(run.seed) for run in current], device=self.device)
        self.strength = torch.tensor([run.strength for run in current], dtype=self.dtype, device=self.device)
        self.segments: list[slice] = []
        groups: dict[object, _Group] = {}
        for penalty, members in groupby(range(len(current)), key=lambda i: current[i].effective_penalty):
            places = list(members)
            size = len(places) if penalty is None else self._models_at_once(penalty)
            parts = [] if penalty is None else self._parts(penalty)
            for start in range(places[0], places[-1] + 1, size):
                for part in parts:
                    # a GPU takes all models with the same part at once, a CPU those that fit its cache
                    group = groups.setdefault(part if self.device.type == "cuda" else start, _Group(part))
                    group.segments.append(len(self.segments))
                    group.shares.append(1 / len(parts))
                self.segments.append(slice(start, min(start + size, places[-1] + 1)))
        self.groups = list(groups.values())
        for group in self.groups:
            places = [place for k in group.segments for place in range(len(current))[self.segments[k]]]
            group.models = torch.tensor(places, device=self.device)
            group.seeds = self.seed_of[group.models]
        self.clock = torch.tensor(self.steps, device=self.device)
        self.epoch_clock = torch.tensor(self.epoch, device=self.device)
        capturable = self.device.type == "cuda" and isinstance(self.options.score, NegativeLogLikelihood)
        # after the first capture libraries are warm; one run more loads what the new shapes need
        wrap = partial(Captured, warm_ups=1 if self.done else 3) if capturable else Plain
        self.step = wrap(self._step)
        self.validate = (
            wrap(self._validate) if isinstance(self.options.monitor, NegativeLogLikelihood) else self._validate
        )

    def _models_at_once(self, penalty: Penalty) -> int:
        """All models of a penalty on a GPU; on a CPU as many as keep their draws, or their factors, in its cache."""
        if self.device.type != "cpu":
            return len(self.runs)
        ranked, _ = penalty.noise_shapes(self.architecture, self.batches.size)
        factors = (self.batches.size, self.architecture.n_components, self.architecture.n_targets**2)
        return at_once(math.prod(ranked or factors), self.device)

    def _parts(self, penalty: Penalty) -> Sequence[Penalty]:
        """What a penalty is the mean of, where a GPU can work on all of it at the same time."""
        if self.device.type == "cuda" and isinstance(penalty, PreRankPenalty | PublishedPenalty):
            return [replace(penalty, preranks=item) for item in listed(penalty.preranks)]
        return [penalty]

    def run(self) -> FittedFleet:
        self.progress.start(len(self.runs), self.options.max_epochs)
        try:
            self._train()
        finally:  # an interruption must leave the terminal as it was
            self.progress.stop()
        self._save()
        return self._result()

    def _train(self) -> None:
        options, batches = self.options, self.batches
        saved_at = time.monotonic()
        # On a GPU the host looks up only now and then, so that it never holds the queue; finished models are masked.
        epochs_between_looks = 1 if self.device.type == "cpu" else max(1, 64 // batches.per_epoch)
        while self.fleet.size and self.epoch < options.max_epochs:
            order = batches.order(self.epoch)
            for number in range(self.step_in_epoch, batches.per_epoch):
                if options.max_steps is not None and self.steps >= options.max_steps:
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

    def state(self) -> list[Tensor]:
        """Every tensor that a step or a validation changes."""
        return [*self.fleet.named_tensors().values(), self.clock, self.epoch_clock]

    def _step(self, rows: Tensor) -> None:
        x, y, weights = (part[self.seed_of] for part in self.batches.take(rows))
        leaves = [tensor.detach().requires_grad_() for tensor in self.fleet.weights]
        if self.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            loss = self._loss(forecast_of(leaves, x, self.architecture), y, weights)
        else:
            forecast, sane = bounded_forecast_of(leaves, x, self.architecture)
            loss = torch.where(sane, self._loss(forecast, y, weights), torch.nan)
        gradients = torch.autograd.grad(loss.sum(), leaves)
        finite = all_finite([loss.detach(), *gradients])
        fleet = self.fleet
        fleet.diverged.logical_or_(fleet.active & ~finite)
        fleet.active.logical_and_(finite)
        adam(fleet, gradients, fleet.active, self.options.learning_rate)
        self.clock.add_(1)

    def _loss(self, forecast: GaussianMixture, y: Tensor, weights: Tensor) -> Tensor:
        """Mean score of each model's batch plus strength times its penalty, (E,); zero if all its rows weigh nothing."""
        total = weights.sum(-1, keepdim=True)
        weights = torch.where(total > 0, weights, 1.0)
        noise = self._noise("score", self.options.score.n_draws, y, self.clock)
        scores = self.options.score(y, forecast, noise if noise is None else noise[self.seed_of])
        loss = (scores * weights).sum(-1) / weights.sum(-1)
        shapes = [group.penalty.noise_shapes(forecast, y.shape[-2]) for group in self.groups]
        drawn = self._drawn(shapes)
        values = [torch.zeros_like(loss[models]) for models in self.segments]
        forecasts = _split(forecast, [models.stop - models.start for models in self.segments])
        found: list[tuple[int, Tensor]] = []
        with Branches(self.device, len(self.groups)) as branches:
            for number, group in enumerate(self.groups):
                with branches[number]:
                    noise = group.taken(drawn[number])
                    own = _join([forecasts[k] for k in group.segments])
                    observed, case_weights = y[group.models], weights[group.models]
                    value = group.penalty(observed, own, case_weights=case_weights, noise=noise)
                    cut = value.split([forecasts[k].batch_shape[0] for k in group.segments])
                    found += [
                        (k, share * part) for k, share, part in zip(group.segments, group.shares, cut, strict=True)
                    ]
        for segment, value in found:
            values[segment] = values[segment] + value
        return (loss + self.strength * torch.cat(values)) * (total[:, 0] > 0)

    def _drawn(self, shapes: Sequence[Shapes]) -> list[list[Tensor | None]]:
        """Random numbers (seeds, *shape) of this step for every group, a tensor per stream; groups of a kind share them."""
        drawn: dict[object, Tensor] = {}
        numbers: list[list[Tensor | None]] = []
        for group, pair in zip(self.groups, shapes, strict=True):
            numbers.append([])
            for stream, shape in zip(_STREAMS, pair, strict=True):
                kind = stream, shape, group.soft
                if shape is not None and kind not in drawn:
                    normals = normals_of_step(self.noise_keys[stream], self.clock, shape, self.dtype)
                    drawn[kind] = with_gumbel(normals) if group.soft else normals
                numbers[-1].append(drawn.get(kind))
        return numbers

    def _noise(self, stream: str, n_draws: int, y: Tensor, step: Tensor) -> Tensor | None:
        shape = (y.shape[-2], n_draws, y.shape[-1])
        return normals_of_step(self.noise_keys[stream], step, shape, self.dtype) if n_draws else None

    def _validate(self) -> None:
        batches, fleet = self.batches, self.fleet
        total = torch.zeros_like(fleet.best_score)
        n_rows = batches.x_validation.shape[1]
        with torch.no_grad():
            for start in range(0, n_rows, _VALIDATION_ROWS):
                rows = slice(start, min(start + _VALIDATION_ROWS, n_rows))
                forecast = forecast_of(fleet.weights, batches.x_validation[:, rows][self.seed_of], self.architecture)
                y = batches.y_validation[:, rows][self.seed_of]
                # the same numbers in every epoch: what differs between epochs is then the model and not its draws
                noise = self._noise("validation", self.options.monitor.n_draws, y, torch.full_like(self.clock, start))
                scores = self.options.monitor(y, forecast, noise if noise is None else noise[self.seed_of])
                total += (scores * batches.validation_shares[:, rows][self.seed_of]).sum(-1)
        note_scores(fleet, total, self.epoch_clock, self.options.min_improvement, self.options.patience)
        self.epoch_clock.add_(1)

    def _let_finished_go(self) -> None:
        active = self.fleet.active
        still = int(active.sum())
        # a captured graph has fixed shapes, and capturing anew costs about a second: worth it when many have left
        if still == self.fleet.size or (self.device.type == "cuda" and still > 0.75 * self.fleet.size):
            return
        self.done.append(self.fleet.select((~active).nonzero()[:, 0]))
        self.fleet = self.fleet.select(active.nonzero()[:, 0])
        self._regroup()

    def _save(self) -> None:
        if self.options.checkpoint is not None:
            seconds = time.monotonic() - self.started
            saved = Checkpoint(self.fleet, self.done, self.epoch, self.step_in_epoch, self.steps, seconds)
            save_checkpoint(self.options.checkpoint, saved, self.fingerprint)

    def _result(self) -> FittedFleet:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        seconds = time.monotonic() - self.started
        parts = [*self.done, *([self.fleet] if self.fleet.size else [])]
        place = torch.cat([part.index for part in parts]).argsort()

        def joined(pick: Callable[[Fleet], Tensor]) -> Tensor:
            return torch.cat([pick(part) for part in parts])[place]

        return FittedFleet(
            runs=tuple(self.runs),
            architecture=self.architecture,
            weights=tuple(
                joined(lambda part, i=i: part.best_weights[i])  # type: ignore[misc]
                for i in range(len(parts[0].weights))
            ),
            best_score=joined(lambda part: part.best_score),
            best_epoch=joined(lambda part: part.best_epoch),
            diverged=joined(lambda part: part.diverged),
            epochs=self.epoch,
            steps=self.steps,
            seconds=seconds,
        )


@dataclass(eq=False)
class _Group:
    """Models that share a penalty, or a part of one: segments of the fleet, the part's share in each, places, seeds."""

    penalty: Penalty
    segments: list[int] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    models: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    seeds: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    @property
    def soft(self) -> bool:
        """Whether the penalty draws softly, as published: from numbers of its own kind, which it takes shared."""
        return isinstance(self.penalty, PublishedPenalty)

    def taken(self, numbers: list[Tensor | None]) -> Any:
        """Random numbers (seeds, ...) the way the penalty takes them: shared, or a copy for every model."""
        return tuple(
            None if values is None else SharedNumbers(values, self.seeds) if self.soft else values[self.seeds]
            for values in numbers
        )


def _join(forecasts: list[GaussianMixture]) -> GaussianMixture:
    """The forecasts of several segments behind each other."""
    if len(forecasts) == 1:
        return forecasts[0]
    logits, loc, scale_tril = (
        torch.cat([getattr(item, name) for item in forecasts]) for name in ("logits", "loc", "scale_tril")
    )
    return GaussianMixture(logits, loc, scale_tril, validate_args=False)


def _split(forecast: GaussianMixture, sizes: list[int]) -> list[GaussianMixture]:
    """The forecasts of consecutive models, cut at once: the backward pass of a cut is then one concatenation.

    A slice for each would give every one of them a gradient as large as the whole fleet's.
    """
    parts = (tensor.split(sizes) for tensor in (forecast.logits, forecast.loc, forecast.scale_tril))
    return [
        GaussianMixture(logits, loc, scale_tril, validate_args=False)
        for logits, loc, scale_tril in zip(*parts, strict=True)
    ]
