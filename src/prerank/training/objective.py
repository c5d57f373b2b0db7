"""The score that a model is trained by, before the penalty is added (Algorithm 1)."""

from dataclasses import dataclass

from torch import Tensor

from prerank.arrays import as_observations
from prerank.forecasts import GaussianMixture
from prerank.scores import TwoSets, energy_score


@dataclass(frozen=True)
class NegativeLogLikelihood:
    r"""Negative log-likelihood, $-\log f(y)$: the score of the paper. Exact, no draws.

    Parameters
    ----------
    n_draws : int, default 0
        Unused: it says that no random numbers are needed.
    """

    n_draws: int = 0
    capturable = True

    def __call__(self, y: Tensor, forecast: GaussianMixture, noise: Tensor | None = None) -> Tensor:
        """Score of each case.

        Parameters
        ----------
        y : Tensor, shape (n_cases, n_targets) or (n_models, n_cases, n_targets)
            Observations.
        forecast : GaussianMixture
            Batch shape (..., n_cases).
        noise : Tensor, shape (..., n_cases, n_draws, n_targets), optional
            Standard normal numbers for the draws.

        Returns
        -------
        Tensor, shape (..., n_cases)
            Scores, differentiable.
        """
        y = as_observations(y)
        return -forecast.log_prob(y.expand(*forecast.batch_shape, -1))


@dataclass(frozen=True)
class EnergyScore:
    """The energy score of `n_draws` weighted, differentiable draws, unbiased.

    Half the draws are paired with the other half: they are stratified by component, so that pairs within one set meet
    their own component too rarely (at 100 draws of five distant components the score would be 1 % too small).

    Parameters
    ----------
    n_draws : int, default 100
        Draws of both halves together, an even number.
    """

    n_draws: int = 100

    def __post_init__(self) -> None:
        if self.n_draws < 2 or self.n_draws % 2:
            raise ValueError(f"EnergyScore(n_draws={self.n_draws}): two halves are drawn, so the number is even")

    def __call__(self, y: Tensor, forecast: GaussianMixture, noise: Tensor | None = None) -> Tensor:
        """Score of each case.

        Parameters
        ----------
        y : Tensor, shape (n_cases, n_targets) or (n_models, n_cases, n_targets)
            Observations.
        forecast : GaussianMixture
            Batch shape (..., n_cases).
        noise : Tensor, shape (..., n_cases, n_draws, n_targets), optional
            Standard normal numbers for the draws.

        Returns
        -------
        Tensor, shape (..., n_cases)
            Scores, differentiable.
        """
        y = as_observations(y)
        half = self.n_draws // 2
        if noise is None:
            first, second = forecast.draw(half), forecast.draw(half, stream="second half")
        else:
            numbers = noise.expand(*forecast.batch_shape, self.n_draws, forecast.n_targets)
            first, second = (forecast.draw(half, noise=part) for part in numbers.split(half, -2))
        y = y.expand(*forecast.batch_shape, -1)
        return (energy_score(y, first, TwoSets(second)) + energy_score(y, second, TwoSets(first))) / 2
