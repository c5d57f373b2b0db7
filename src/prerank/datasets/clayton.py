"""Exponential margins tied by a Clayton copula: density, joint CDF and draws, all exact."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv

from prerank.io.errors import DataError

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClaytonExponential:
    r"""A joint law of D positive numbers for each of N cases.

    Margins $F_d(y) = 1 - e^{-y / s_d}$ with `scale` (N, D), copula
    $C(u) = (\sum_d u_d^{-\theta} - D + 1)^{-1/\theta}$ with `theta` (N,), positive.

    >>> law = ClaytonExponential(np.array([2.0]), np.array([[1.0, 3.0]]))
    >>> law.members(500, seed=0).shape
    (1, 500, 2)
    >>> law.cdf([[np.inf, 3 * np.log(2)]])
    array([0.5])
    """

    theta: Array
    scale: Array

    def __post_init__(self) -> None:
        if self.theta.ndim != 1 or self.scale.ndim != 2 or len(self.theta) != len(self.scale):
            raise DataError(f"theta is (N,) and scale (N, D); got {self.theta.shape} and {self.scale.shape}.")
        if not (self.theta > 0).all() or not (self.scale > 0).all():
            raise DataError("theta and scale must be positive.")

    def marginal_cdf(self, y: ArrayLike) -> Array:
        """The margins' levels of y (..., N, D), in the same shape."""
        return -np.expm1(-np.maximum(np.asarray(y, dtype=np.float64), 0.0) / self.scale)

    def cdf(self, y: ArrayLike) -> Array:
        """P(Y <= y) for y (..., N, D), shape (..., N): the copula pre-rank's exact value."""
        with np.errstate(divide="ignore"):
            return np.exp(-self._log_total(self.marginal_cdf(y)) / self.theta)

    def log_prob(self, y: ArrayLike) -> Array:
        """The log density at y (..., N, D), shape (..., N); minus infinity where a coordinate is negative."""
        y = np.asarray(y, dtype=np.float64)
        n_targets = self.scale.shape[1]
        u = self.marginal_cdf(y)
        steps = np.arange(n_targets)
        with np.errstate(divide="ignore", invalid="ignore"):
            copula = (
                np.log1p(np.multiply.outer(self.theta, steps)).sum(axis=-1)
                - (1 + self.theta) * np.log(u).sum(axis=-1)
                - (n_targets + 1 / self.theta) * self._log_total(u)
            )
        margins = (-y / self.scale - np.log(self.scale)).sum(axis=-1)
        return np.where((y > 0).all(axis=-1), copula + margins, -np.inf)

    def members(self, n_draws: int, seed: int) -> Array:
        """Exact draws (N, M, D), by the gamma frailty that generates the copula (Marshall and Olkin 1988)."""
        from prerank.randomness import key, uniform

        n_cases, n_targets = self.scale.shape
        level = uniform(key(seed, "clayton frailty"), (n_cases, n_draws, 1)).numpy()
        frailty = gammaincinv(1 / self.theta[:, None, None], level)
        exponential = -np.log(uniform(key(seed, "clayton noise"), (n_cases, n_draws, n_targets)).numpy())
        log_u = -np.log1p(exponential / frailty) / self.theta[:, None, None]
        return -self.scale[:, None] * np.log(-np.expm1(log_u))

    def _log_total(self, u: Array) -> Array:
        """log(sum_d u_d^-theta - D + 1), without overflow for small u."""
        powers = -self.theta[:, None] * np.log(u)  # (..., N, D), at least 0
        largest = powers.max(axis=-1)
        finite = np.where(np.isinf(largest), 0.0, largest)  # the place of an infinite one is filled below
        shifted = np.exp(powers - finite[..., None]).sum(axis=-1) - (u.shape[-1] - 1) * np.exp(-finite)
        return np.where(np.isinf(largest), np.inf, finite + np.log(shifted))
