"""What `fit` gives back: the best weights of every model, and what became of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prerank.forecasts import GaussianMixture
from prerank.training.fleet import Architecture, Fleet, Run, forecast_of


@dataclass(frozen=True, eq=False)
class FittedFleet:
    """Trained models: the weights of their best epochs, and what became of each run.

    Attributes
    ----------
    runs : tuple of Run
        The runs, in the order they were given.
    architecture : Architecture
        What the networks have in common.
    weights : tuple of Tensor, shape (n_models, ...)
        Weights of the best epochs.
    best_score : Tensor, shape (n_models,)
        Validation scores of these epochs.
    best_epoch : Tensor of int, shape (n_models,)
        Their numbers.
    diverged : Tensor of bool, shape (n_models,)
        Whether the loss of a model ceased to be finite.
    epochs : int
        Epochs of the fleet.
    steps : int
        Steps of the fleet.
    seconds : float
        Time of the training loop, that of earlier, interrupted calls included.
    interrupted : bool, default False
        Whether Ctrl-C ended it (`FitOptions.keep_on_interrupt`).
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
    interrupted: bool = False

    def forecast(self, x: Tensor, models: Sequence[int] | None = None) -> GaussianMixture:
        """Forecasts of all models or some.

        Parameters
        ----------
        x : Tensor, shape (n_cases, n_features) or (n_models, n_cases, n_features)
            Standardised features.
        models : sequence of int, optional
            Places of the models in the fleet; all by default.

        Returns
        -------
        GaussianMixture
            Batch shape (n_models, n_cases), without gradient.
        """
        weights = self.weights if models is None else [tensor[list(models)] for tensor in self.weights]
        with torch.no_grad():
            return forecast_of(weights, x.to(self.weights[0]), self.architecture)


def fitted_fleet(
    runs: Sequence[Run],
    architecture: Architecture,
    parts: Sequence[Fleet],
    epochs: int,
    steps: int,
    seconds: float,
    interrupted: bool = False,
) -> FittedFleet:
    """The models of all parts of a fleet, those that left early among them, in the order of their runs."""
    place = torch.cat([part.index for part in parts]).argsort()

    def joined(pick: Callable[[Fleet], Tensor]) -> Tensor:
        return torch.cat([pick(part) for part in parts])[place]

    return FittedFleet(
        runs=tuple(runs),
        architecture=architecture,
        weights=tuple(
            joined(lambda part, i=i: part.best_weights[i])  # type: ignore[misc]
            for i in range(len(parts[0].weights))
        ),
        best_score=joined(lambda part: part.best_score),
        best_epoch=joined(lambda part: part.best_epoch),
        diverged=joined(lambda part: part.diverged),
        epochs=epochs,
        steps=steps,
        seconds=seconds,
        interrupted=interrupted,
    )
