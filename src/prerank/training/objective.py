"""The score that a model is trained by, before the penalty is added (Algorithm 1)."""

from dataclasses import dataclass

from torch import Tensor

from prerank.forecast import GaussianMixture
from prerank.scores import energy_score


@dataclass(frozen=True)
class NegativeLogLikelihood:
    """-log f(y): the score of the paper. Exact, no draws."""

    n_draws: int = 0

    def __call__(self, forecast: GaussianMixture, y: Tensor, noise: Tensor | None = None) -> Tensor:
        """Score of each case, (..., N)."""
        return -forecast.log_prob(y.expand(*forecast.batch_shape, -1))


@dataclass(frozen=True)
class EnergyScore:
    """The energy score of `n_draws` weighted, differentiable draws with its unbiased spread term."""

    n_draws: int = 100

    def __call__(self, forecast: GaussianMixture, y: Tensor, noise: Tensor | None = None) -> Tensor:
        """Score of each case, (..., N)."""
        if noise is not None:
            noise = noise.expand(*forecast.batch_shape, self.n_draws, forecast.n_targets)
        return energy_score(y.expand(*forecast.batch_shape, -1), forecast.draw(self.n_draws, noise=noise))


Score = NegativeLogLikelihood | EnergyScore
