r"""Tables whose true conditional law is known, so that an oracle forecast exists.

Features are two uniform numbers on (-1, 1); targets are drawn from `law(x)`. A correct check must pass the oracle and
catch anything else. Each recipe is a frozen value with any number of targets:

    Heteroscedastic    one Gaussian; mean, scales and correlation move with x
    Bimodal            two Gaussians whose weights, distance and correlation move with x
    ClaytonDependent   skewed margins tied by a Clayton copula whose strength moves with x
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prerank.datasets.clayton import ClaytonExponential
from prerank.datasets.table import Card, Table
from prerank.io.errors import DataError

if TYPE_CHECKING:
    from prerank.forecasts import GaussianMixture

Array = NDArray[np.float64]


class Recipe(Protocol):
    """Something that makes a table."""

    def table(self, n_cases: int = 2000, seed: int = 0) -> Table:
        """A table of synthetic cases.

        Parameters
        ----------
        n_cases : int, default 2000
            Number of rows.
        seed : int, default 0
            The same numbers for the same seed.

        Returns
        -------
        Table
            Features and targets.
        """


class _Parameters(NamedTuple):
    logits: Array  # (N, C)
    loc: Array  # (N, C, D)
    scale_tril: Array  # (N, C, D, D)


@dataclass(frozen=True)
class Heteroscedastic:
    r"""One Gaussian per case, $y \mid x \sim N(\mu(x), S(x) R(x) S(x))$.

    $\mu_d = \sin(\pi(x_1 + d/D))$, $s_d = 0.2 + 0.4(1 + \sin(\pi x_2 + d))$ and $R_{ij} = (0.8 x_1)^{|i-j|}$.

    Parameters
    ----------
    n_targets : int, default 2
        Number of targets D.

    Examples
    --------
    >>> import torch
    >>> recipe = Heteroscedastic(n_targets=3)
    >>> table = recipe.table(n_cases=100)
    >>> recipe.law(table.x).log_prob(torch.as_tensor(table.y)).shape
    torch.Size([100])
    """

    n_targets: int = 2

    def parameters(self, x: ArrayLike) -> _Parameters:
        """Parameters of the true distribution.

        Parameters
        ----------
        x : array_like, shape (n_cases, 2)
            Features, unscaled.

        Returns
        -------
        logits : ndarray, shape (n_cases, n_components)
            Logarithms of the weights, up to a constant.
        loc : ndarray, shape (n_cases, n_components, n_targets)
            Means.
        scale_tril : ndarray, shape (n_cases, n_components, n_targets, n_targets)
            Cholesky factors.
        """
        first, second = _features(x)
        d = _positions(self.n_targets)
        loc = np.sin(np.pi * (first[:, None] + d / self.n_targets))
        scale = 0.2 + 0.4 * (1 + np.sin(np.pi * second[:, None] + d))
        factor = scale[:, :, None] * _chain_factor(0.8 * first, self.n_targets)
        return _Parameters(np.zeros((len(first), 1)), loc[:, None], factor[:, None])

    def law(self, x: ArrayLike) -> "GaussianMixture":
        """The true distribution of the targets, in float64.

        Parameters
        ----------
        x : array_like, shape (n_cases, 2)
            Features, unscaled.

        Returns
        -------
        GaussianMixture
            The forecast of an oracle.
        """
        return _mixture(self.parameters(x))

    def table(self, n_cases: int = 2000, seed: int = 0) -> Table:
        """Draw a table of cases.

        Parameters
        ----------
        n_cases : int, default 2000
            Number of rows.
        seed : int, default 0
            The same numbers for the same seed.

        Returns
        -------
        Table
            Two features, uniform on (-1, 1), and the targets.
        """
        return _mixture_table(self, "heteroscedastic", "one Gaussian whose moments move with x", n_cases, seed)


@dataclass(frozen=True)
class Bimodal:
    r"""Two Gaussians per case, at $\pm m(x)$ with weights that move with x.

    $\pi_1 = \mathrm{sigmoid}(2 x_1)$, $m_d = (-1)^d (1 + x_2 / 2)$, every scale is $0.3 + 0.1 x_2$, and within a
    component $R_{ij} = (\pm 0.5)^{|i-j|}$. No Gaussian comes near it.

    Parameters
    ----------
    n_targets : int, default 2
        Number of targets D.

    Examples
    --------
    >>> import torch
    >>> recipe = Bimodal(n_targets=3)
    >>> table = recipe.table(n_cases=100)
    >>> recipe.law(table.x).log_prob(torch.as_tensor(table.y)).shape
    torch.Size([100])
    """

    n_targets: int = 2

    def parameters(self, x: ArrayLike) -> _Parameters:
        """Parameters of the true distribution.

        Parameters
        ----------
        x : array_like, shape (n_cases, 2)
            Features, unscaled.

        Returns
        -------
        logits : ndarray, shape (n_cases, n_components)
            Logarithms of the weights, up to a constant.
        loc : ndarray, shape (n_cases, n_components, n_targets)
            Means.
        scale_tril : ndarray, shape (n_cases, n_components, n_targets, n_targets)
            Cholesky factors.
        """
        first, second = _features(x)
        logits = np.stack([first, -first], axis=1)
        mode = (1 + second / 2)[:, None] * (-1) ** _positions(self.n_targets)
        scale = (0.3 + 0.1 * second)[:, None, None]
        factors = [scale * _chain_factor(np.full(len(first), r), self.n_targets) for r in (0.5, -0.5)]
        return _Parameters(logits, np.stack([mode, -mode], axis=1), np.stack(factors, axis=1))

    def law(self, x: ArrayLike) -> "GaussianMixture":
        """The true distribution of the targets, in float64.

        Parameters
        ----------
        x : array_like, shape (n_cases, 2)
            Features, unscaled.

        Returns
        -------
        GaussianMixture
            The forecast of an oracle.
        """
        return _mixture(self.parameters(x))

    def table(self, n_cases: int = 2000, seed: int = 0) -> Table:
        """Draw a table of cases.

        Parameters
        ----------
        n_cases : int, default 2000
            Number of rows.
        seed : int, default 0
            The same numbers for the same seed.

        Returns
        -------
        Table
            Two features, uniform on (-1, 1), and the targets.
        """
        return _mixture_table(self, "bimodal", "two Gaussians whose weights move with x", n_cases, seed)


@dataclass(frozen=True)
class ClaytonDependent:
    r"""Exponential margins tied by a Clayton copula: dependence in the lower corner that no correlation tells.

    The mean of target d is $(1 + d/D) e^{x_2/2}$, the copula's strength $\theta = 2 e^{x_1}$ (Kendall's tau
    $\theta / (\theta + 2)$, from 0.27 to 0.73).

    Parameters
    ----------
    n_targets : int, default 2
        Number of targets D.

    Examples
    --------
    >>> ClaytonDependent(n_targets=3).table(n_cases=100).y.shape
    (100, 3)
    """

    n_targets: int = 2

    def law(self, x: ArrayLike) -> ClaytonExponential:
        """The true distribution of the targets: density, joint CDF and exact draws.

        Parameters
        ----------
        x : array_like, shape (n_cases, 2)
            Features, unscaled.

        Returns
        -------
        ClaytonExponential
            The forecast of an oracle.
        """
        first, second = _features(x)
        scale = np.exp(second / 2)[:, None] * (1 + _positions(self.n_targets) / self.n_targets)
        return ClaytonExponential(2 * np.exp(first), scale)

    def table(self, n_cases: int = 2000, seed: int = 0) -> Table:
        """Draw a table of cases.

        Parameters
        ----------
        n_cases : int, default 2000
            Number of rows.
        seed : int, default 0
            The same numbers for the same seed.

        Returns
        -------
        Table
            Two features, uniform on (-1, 1), and the targets.
        """
        x = _draw_features(n_cases, seed)
        y = self.law(x).members(1, seed)[:, 0]
        return _table(x, y, "clayton", "exponential margins tied by a Clayton copula", self, seed)


def _features(x: ArrayLike) -> tuple[Array, Array]:
    array = np.asarray(x, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise DataError(f"A synthetic law takes its two features, x of shape (N, 2), unscaled; got {array.shape}.")
    return array[:, 0], array[:, 1]


def _positions(n_targets: int) -> NDArray[np.int64]:
    if n_targets < 1:
        raise DataError(f"A table needs at least 1 target, got n_targets={n_targets}.")
    return np.arange(n_targets)


def _chain_factor(correlation: Array, n_targets: int) -> Array:
    """Cholesky factors (N, D, D) of the matrices with entries correlation^|i - j|, in closed form."""
    i, j = np.indices((n_targets, n_targets))
    powers = correlation[:, None, None] ** np.maximum(i - j, 0)
    fresh = np.where(j == 0, 1.0, np.sqrt(1 - correlation**2)[:, None, None])
    return np.where(i >= j, powers * fresh, 0.0)


def _mixture(parameters: _Parameters) -> "GaussianMixture":
    import torch

    from prerank.forecasts import GaussianMixture

    logits, loc, scale_tril = (torch.from_numpy(np.ascontiguousarray(values)) for values in parameters)
    return GaussianMixture(logits, loc, scale_tril)


def _draw_features(n_cases: int, seed: int) -> Array:
    from prerank.randomness import key, uniform

    if n_cases < 1:
        raise DataError(f"A table needs at least 1 case, got n_cases={n_cases}.")
    x: Array = 2 * uniform(key(seed, "synthetic features"), (n_cases, 2)).numpy() - 1
    # rounded before the targets are drawn, so that the law at a float32 table's features is the law they came from
    return x.astype(np.float32).astype(np.float64)


def _mixture_table(recipe: Heteroscedastic | Bimodal, name: str, summary: str, n_cases: int, seed: int) -> Table:
    from prerank.randomness import key, normal, uniform

    x = _draw_features(n_cases, seed)
    logits, loc, factor = recipe.parameters(x)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    cumulative = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
    level = uniform(key(seed, "synthetic component"), (n_cases, 1)).numpy()
    component = np.minimum((level > cumulative).sum(axis=1), logits.shape[1] - 1)
    case = np.arange(n_cases)
    noise = normal(key(seed, "synthetic noise"), (n_cases, recipe.n_targets)).numpy()
    y = loc[case, component] + np.einsum("nij,nj->ni", factor[case, component], noise)
    return _table(x, y, name, summary, recipe, seed)


def _table(x: Array, y: Array, name: str, summary: str, recipe: object, seed: int) -> Table:
    card = Card(
        name,
        summary=summary,
        origin=f"built in, seed {seed}",
        status="synthetic, the true law is known",
        licence="MIT (part of prerank)",
        notes=(f"the oracle is {recipe}.law(x)",),
    )
    return Table.of(x, y, card=card)
