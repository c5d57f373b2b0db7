"""The state of a fleet: networks, their optimiser, and who has stopped. All of it tensors with a leading models axis.

One model is a fleet of one. Nothing here depends on who else is in the fleet: every operation is elementwise in, or
batched over, the models axis.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from prerank._kernels import ADAM, FINITE, kernel_for
from prerank.forecasts import GaussianMixture
from prerank.models import LinearGaussian, MixtureNetwork
from prerank.models.anchored import anchored_mixture, anchored_output, anchored_weights
from prerank.models.network import mixture_from, perceptron
from prerank.randomness import key
from prerank.training.protocols import Penalty, require_penalty


@dataclass(frozen=True)
class Run:
    """One model of a fleet: its seed, its penalty and the penalty's strength.

    Models of one seed start from the same weights unless they differ in `initialisation`, which changes nothing else.

    Parameters
    ----------
    seed : int, default 0
        Seed of split, initialisation, batches and draws.
    penalty : Penalty, optional
        What is added to the score.
    strength : float, default 0
        The paper's lambda.
    initialisation : int, default 0
        Number of the initialisation, from zero.

    Raises
    ------
    ValueError
        If the strength is negative, or there is a strength without a penalty.
    """

    seed: int = 0
    penalty: Penalty | None = None
    strength: float = 0.0
    initialisation: int = 0

    def __post_init__(self) -> None:
        if self.initialisation < 0:
            raise ValueError(f"initialisation={self.initialisation}: initialisations are numbered from 0")
        if not 0 <= self.strength < math.inf:
            raise ValueError(f"strength={self.strength}: a penalty's strength is zero or more, and finite")
        if self.penalty is not None:
            require_penalty(self.penalty)
        if self.penalty is None and self.strength > 0:
            raise ValueError(f"strength={self.strength} without a penalty; pass PreRankPenalty(...) or leave it out")

    @property
    def weight_seed(self) -> int:
        """What the initial weights are drawn by: the seed, or for another initialisation a key of both."""
        return key(self.seed, "another initialisation", self.initialisation) if self.initialisation else self.seed

    @property
    def effective_penalty(self) -> Penalty | None:
        """The penalty if it has any effect."""
        return self.penalty if self.strength > 0 else None


@dataclass(frozen=True)
class Architecture:
    """What the networks of a fleet have in common.

    Parameters
    ----------
    n_features : int
        Number of features L.
    n_targets : int
        Number of targets D.
    n_components : int, default 5
        Components of the mixture.
    hidden : tuple of int, default (100, 100)
        Width of each hidden layer.
    floor : float, default 1e-3
        The smallest diagonal entry of a Cholesky factor.
    anchored : bool, default False
        Whether the network departs from a linear-Gaussian reference (`prerank.models.anchored`).
    common_correlations : bool, default False
        Whether components have scales that vary with the features, and correlations that do not.
    """

    n_features: int
    n_targets: int
    n_components: int = 5
    hidden: tuple[int, ...] = (100, 100)
    floor: float = 1e-3
    anchored: bool = False
    common_correlations: bool = False


@dataclass(eq=False)
class Fleet:
    """Everything that changes during a fit, for E models. `index` (E,) is each model's place among all runs."""

    index: Tensor
    weights: list[Tensor]
    first_moments: list[Tensor]
    second_moments: list[Tensor]
    updates: Tensor
    best_weights: list[Tensor]
    best_score: Tensor
    best_epoch: Tensor
    epochs_without_gain: Tensor
    active: Tensor
    diverged: Tensor
    last_score: Tensor
    rate: Tensor
    restarts: Tensor

    @property
    def size(self) -> int:
        return len(self.index)

    def select(self, keep: Tensor) -> "Fleet":
        """The models at positions `keep`; their numbers are copied bit by bit."""
        return self._map(lambda tensor: tensor[keep].clone())

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Fleet":
        changed = {
            field.name: [change(t) for t in value] if isinstance(value, list) else change(value)
            for field in fields(self)
            for value in [getattr(self, field.name)]
        }
        return replace(self, **changed)  # type: ignore[arg-type]

    def named_tensors(self) -> dict[str, Tensor]:
        """All tensors under names, for a checkpoint."""
        named = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, list):
                named.update({f"{field.name}.{i}": tensor for i, tensor in enumerate(value)})
            else:
                named[field.name] = value
        return named

    @staticmethod
    def from_named(named: dict[str, Tensor]) -> "Fleet":
        """The fleet that `named_tensors` describes."""
        values: dict[str, Tensor | list[Tensor]] = {}
        for field in fields(Fleet):
            if field.name in named:
                values[field.name] = named[field.name]
            else:
                count = sum(name.startswith(f"{field.name}.") for name in named)
                values[field.name] = [named[f"{field.name}.{i}"] for i in range(count)]
        return Fleet(**values)  # type: ignore[arg-type]


def new_fleet(
    runs: Sequence[Run],
    architecture: Architecture,
    dtype: torch.dtype,
    device: torch.device,
    learning_rate: float = 1e-4,
    references: Mapping[int, LinearGaussian] | None = None,
) -> Fleet:
    """A fleet before its first step; anchored networks start at the references of their seeds."""
    weights = _first_weights(runs, architecture, dtype, device, references)
    size = len(runs)

    def flags() -> Tensor:
        return torch.zeros(size, dtype=torch.bool, device=device)

    return Fleet(
        index=torch.arange(size, device=device),
        weights=[tensor.clone() for tensor in weights],
        first_moments=[torch.zeros_like(tensor) for tensor in weights],
        second_moments=[torch.zeros_like(tensor) for tensor in weights],
        updates=torch.zeros(size, dtype=dtype, device=device),
        best_weights=[tensor.clone() for tensor in weights],
        best_score=torch.full((size,), torch.inf, dtype=dtype, device=device),
        best_epoch=torch.zeros(size, dtype=torch.int64, device=device),
        epochs_without_gain=torch.zeros(size, dtype=torch.int64, device=device),
        active=~flags(),
        diverged=flags(),
        last_score=torch.full((size,), torch.nan, dtype=dtype, device=device),
        rate=torch.full((size,), learning_rate, dtype=dtype, device=device),
        restarts=torch.zeros(size, dtype=torch.int64, device=device),
    )


def _first_weights(
    runs: Sequence[Run],
    architecture: Architecture,
    dtype: torch.dtype,
    device: torch.device,
    references: Mapping[int, LinearGaussian] | None,
) -> list[Tensor]:
    n_components, hidden, seeds = architecture.n_components, architecture.hidden, [run.weight_seed for run in runs]
    if architecture.anchored:
        if references is None:
            raise ValueError("an anchored network starts at a reference; give one for every seed")
        own = [references[run.seed] for run in runs]
        kind = architecture.common_correlations, architecture.floor
        return anchored_weights(own, n_components, hidden, seeds, *kind, dtype, device)
    network = MixtureNetwork(
        architecture.n_features, architecture.n_targets, n_components, hidden, seeds, architecture.floor, dtype, device
    )
    return [tensor.detach() for pair in zip(network.weight, network.bias, strict=True) for tensor in pair]


def _output_of(weights: Sequence[Tensor], x: Tensor, architecture: Architecture) -> Tensor:
    if architecture.anchored:
        return anchored_output(weights, x)
    return perceptron(x, weights[0::2], weights[1::2])


def _mixture_of(output: Tensor, weights: Sequence[Tensor], x: Tensor, architecture: Architecture) -> GaussianMixture:
    sizes = architecture.n_targets, architecture.n_components, architecture.floor
    return anchored_mixture(output, weights, x, *sizes) if architecture.anchored else mixture_from(output, *sizes)


def forecast_of(weights: Sequence[Tensor], x: Tensor, architecture: Architecture) -> GaussianMixture:
    """Forecasts of all models for x (E, N, L) or (N, L)."""
    return _mixture_of(_output_of(weights, x, architecture), weights, x, architecture)


def bounded_forecast_of(
    weights: Sequence[Tensor], x: Tensor, architecture: Architecture
) -> tuple[GaussianMixture, Tensor]:
    """Forecasts of all models, and which of them (E,) are within bounds; the others' outputs are set to zero.

    Beyond the fourth root of the largest number a covariance and its use overflow. A routine that refuses a batch
    because of one matrix, as the eigenvectors' does, would then end the whole fleet.
    """
    output = _output_of(weights, x, architecture)
    largest = torch.finfo(output.dtype).max ** 0.25
    sane = (output.detach().abs() < largest).flatten(1).all(-1)
    output = torch.where(sane[:, None, None], output, 0.0)
    return _mixture_of(output, weights, x, architecture), sane


def adam(
    fleet: Fleet,
    gradients: Sequence[Tensor],
    update: Tensor,
    decay: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
) -> None:
    """One step of Adam (Kingma and Ba 2015), in place, for the models whose `update` (E,) is true, each at its own rate.

    Written out because a fleet loses models on the way and their moments must leave with them.
    """
    b1, b2 = decay
    fleet.updates.add_(update)
    if fused := kernel_for(ADAM, fleet.updates):
        moments = fleet.first_moments, fleet.second_moments
        fused(fleet.weights, *moments, gradients, update, fleet.updates, fleet.rate, decay, epsilon)
        return
    # a model that has never been updated keeps its weights; the maximum only avoids a division by zero there
    count = fleet.updates.clamp_min(1.0)
    # where there is no update the moments move by nothing and the step has no size; in place, since every operation
    # counts: on a GPU the fleet's weights are small beside the cost of starting one
    on = update[:, None, None]
    share = update.to(count)[:, None, None]
    rate = share * ((1 - b1**count).reciprocal() * fleet.rate)[:, None, None]
    root = (1 - b2**count).sqrt()[:, None, None]
    first, second = (1 - b1) * share, (1 - b2) * share
    for weight, m, v, gradient in zip(fleet.weights, fleet.first_moments, fleet.second_moments, gradients, strict=True):
        g = torch.where(on, gradient, 0.0)
        m.lerp_(g, first)
        v.lerp_(g.square_(), second)
        weight.addcdiv_(m * rate, (v.sqrt() / root).add_(epsilon), value=-1.0)


def all_finite(tensors: Sequence[Tensor]) -> Tensor:
    """Which models (E,) have only finite numbers in all of the tensors (E, ...)."""
    if fused := kernel_for(FINITE, *tensors):
        return fused(tensors)
    # a number that is not finite makes the sum not finite: one question for all of them
    return torch.stack([tensor.reshape(len(tensor), -1).sum(-1) for tensor in tensors]).sum(0).isfinite()


def note_scores(fleet: Fleet, score: Tensor, epoch: int | Tensor, min_improvement: float, patience: int) -> None:
    """Early stopping after an epoch, on the device: best weights kept, patience counted, finished models marked."""
    score = torch.where(fleet.active, score, fleet.last_score)
    better = fleet.active & (score < fleet.best_score - min_improvement)
    fleet.best_score.copy_(torch.where(better, score, fleet.best_score))
    fleet.best_epoch.copy_(torch.where(better, epoch, fleet.best_epoch))
    for best, weight in zip(fleet.best_weights, fleet.weights, strict=True):
        best.copy_(torch.where(better[:, None, None], weight, best))
    # a score that is not finite is no score: without this a broken model would leave as if it had been trained
    broken = fleet.active & ~score.isfinite()
    fleet.diverged.logical_or_(broken)
    waited = torch.where(better, 0, fleet.epochs_without_gain + fleet.active)
    fleet.epochs_without_gain.copy_(waited)
    fleet.active.logical_and_((waited < patience) & ~broken)
    fleet.last_score.copy_(score)


def start_again(fleet: Fleet, most: int, cooling: float) -> None:
    """Take models that have stopped back to their best weights, `cooling` times as fast as before, `most` times each.

    It is the learning rate's schedule and the cure of a model that diverged in one.
    """
    again = ~fleet.active & (fleet.restarts < most)
    fleet.restarts.add_(again)
    fleet.rate.copy_(torch.where(again, cooling * fleet.rate, fleet.rate))
    fleet.updates.copy_(torch.where(again, 0.0, fleet.updates))
    fleet.epochs_without_gain.copy_(torch.where(again, 0, fleet.epochs_without_gain))
    fleet.diverged.logical_and_(~again)
    fleet.active.logical_or_(again)
    on = again[:, None, None]
    for weight, best in zip(fleet.weights, fleet.best_weights, strict=True):
        weight.copy_(torch.where(on, best, weight))
    for moment in (*fleet.first_moments, *fleet.second_moments):
        moment.copy_(torch.where(on, 0.0, moment))
