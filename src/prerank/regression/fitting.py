"""The fit behind the estimator: the network, or the networks of all strengths, beside the linear-Gaussian reference."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd
import torch

from prerank._parallel import single_threaded
from prerank.forecasts import GaussianMixture
from prerank.models import LinearGaussian
from prerank.regression.preparation import PreparedRows
from prerank.training import FitOptions, FittedFleet, Penalty, Progress, Run, TrainingSet, fit, tune


class Task(NamedTuple):
    """What there is to train: rows, penalty, options and seed, the strengths to choose from, and the form of y."""

    prepared: PreparedRows
    penalty: Penalty | None
    options: FitOptions
    seed: int
    strengths: list[float]
    tolerance: float | None
    one_axis: bool
    names: list[str] | None

    @property
    def runs(self) -> list[Run]:
        """The one run of a model whose strength is given, or those of all strengths."""
        if self.penalty is None:
            return [Run(self.seed)]
        return [Run(self.seed, self.penalty, strength) for strength in self.strengths]


@dataclass(frozen=True, eq=False)
class Chosen:
    """The trained fleet, the place in it of the model to keep, the table that it was chosen from, and the reference.

    `loses` says that no network it was chosen from has a smaller validation NLL (`best_nll`) than the reference.
    """

    fleet: FittedFleet
    place: int
    table: pd.DataFrame | None
    reference: LinearGaussian
    reference_nll: float
    best_nll: float

    @classmethod
    def only(cls, fleet: FittedFleet, place: int, data: TrainingSet) -> "Chosen":
        """The model at a place, whose strength was given; the other models of the fleet have nothing to do with it."""
        return cls(fleet, place, None, *_reference(data), float(fleet.best_score[place]))

    @property
    def validation_nll(self) -> float:
        return float(self.fleet.best_score[self.place])

    @property
    def loses(self) -> bool:
        return not self.best_nll < self.reference_nll


def train(task: Task, progress: Progress) -> Chosen:
    """Train a network with each of the strengths, keep one by the paper's rule, and fit the reference beside it.

    Without a `tolerance` there is one strength and nothing to choose.
    """
    data, options = task.prepared.data, task.options
    if task.penalty is None or task.tolerance is None:
        return Chosen.only(fit(task.runs, data, options, progress), 0, data)
    tuned = tune(task.penalty, data, task.strengths, (task.seed,), options, tolerance=task.tolerance, progress=progress)
    fleet = tuned.fleet
    return Chosen(fleet, tuned.models()[0], tuned.table, *_reference(data), float(fleet.best_score.min()))


@single_threaded()
def _reference(data: TrainingSet) -> tuple[LinearGaussian, float]:
    reference = LinearGaussian.fit(data.x, data.y, data.weights)
    return reference, _validation_nll(reference, data)


def _validation_nll(reference: LinearGaussian, data: TrainingSet) -> float:
    x, y = data.x_validation.double(), data.y_validation.double()
    weights = torch.ones_like(y[:, 0]) if data.validation_weights is None else data.validation_weights.double()
    with torch.no_grad():
        likelihood = reference.forecast(x).log_prob(y)
    return float(-(weights / weights.sum() * likelihood).sum())


def what_to_know(chosen: Chosen, options: FitOptions, uses_reference: bool) -> list[str]:
    """What a user should know of a fit, a sentence each; one that has nothing to forecast with is refused."""
    fleet, best = chosen.fleet, int(chosen.fleet.best_epoch[chosen.place])
    if not math.isfinite(chosen.validation_nll) and not uses_reference:
        if fleet.interrupted:
            raise KeyboardInterrupt("interrupted before the first epoch ended")
        raise ValueError(
            f"training diverged in its first epoch (learning_rate={options.learning_rate:g}); "
            "lower the learning rate, and look for extreme values in X and y"
        )
    told = []
    if fleet.interrupted:
        kept = (
            f"the weights of epoch {best + 1} are kept"
            if math.isfinite(chosen.validation_nll)
            else "nothing was learnt"
        )
        told.append(f"interrupted in epoch {fleet.epochs + 1}; {kept}")
    elif bool(fleet.diverged[chosen.place]):
        told.append(
            f"the loss was not finite after epoch {best}; the weights of that epoch are kept "
            "(a lower learning_rate may help)"
        )
    elif fleet.epochs == options.max_epochs and fleet.epochs - 1 - best < options.patience:
        told.append(
            f"max_epochs={options.max_epochs} ended the training before patience={options.patience} did (best epoch: "
            f"{best + 1}); the validation score was perhaps still falling"
        )
    if uses_reference:
        told.append(
            f"the network's validation NLL of {chosen.validation_nll:.3f} is not below the {chosen.reference_nll:.3f} of "
            "a linear-Gaussian reference, which makes the forecasts instead; more rows or fewer features may help "
            "(fall_back=False keeps the network)"
        )
    return told


WIDTH = 3.0
"""How many times as wide as the reference the wide component is."""


def with_tail(forecast: GaussianMixture, reference: GaussianMixture, weight: float) -> GaussianMixture:
    """The forecast with one component more, of that weight: independent targets, `WIDTH` times as wide as the reference.

    The log-likelihood of a case falls by at most -log(1 - weight), and a case far from the forecast costs what it costs
    the wide component and -log(weight).

    >>> narrow = GaussianMixture(torch.zeros(1, 1), torch.zeros(1, 1, 1), torch.full((1, 1, 1, 1), 0.01))
    >>> wide = GaussianMixture(torch.zeros(1, 1), torch.zeros(1, 1, 1), torch.ones(1, 1, 1, 1))
    >>> far = torch.ones(1, 1)
    >>> narrow.log_prob(far).round(), with_tail(narrow, wide, 1e-3).log_prob(far).round()
    (tensor([-4996.]), tensor([-9.]))
    """
    spread = reference.scale_tril.square().sum(-1).sqrt()  # of each target: along a correlation it would be narrow
    own = forecast.log_weights + math.log1p(-weight)
    return GaussianMixture(
        torch.cat([own, torch.full_like(own[..., :1], math.log(weight))], -1),
        torch.cat([forecast.loc, reference.loc], -2),
        torch.cat([forecast.scale_tril, WIDTH * torch.diag_embed(spread)], -3),
    )
