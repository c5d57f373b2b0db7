"""Dequantisation: discrete targets are spread over the middle of their cells, and draws go back to their own support."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution

from prerank.forecasts import GaussianMixture
from prerank.preranks import view_of
from prerank.randomness import case_keys, uniform
from prerank.regression.discrete_targets import Support, recognised

Array = NDArray[np.floating]

MIDDLE = 0.75
"""Share of a cell that its atom is spread over. A mixture has no sharp edges: what is spread to the ends of its cell leaks
into the next one, and a rare value beside a frequent one is forecast far too often."""
N_DRAWS = 64
"""Points of a cell at which its probability is taken."""


@dataclass(frozen=True)
class Dequantiser:
    """The support of every target; None where it is continuous."""

    supports: tuple[Support | None, ...]

    @staticmethod
    def of(y: Array) -> "Dequantiser":
        """What the columns of y (n, D) say of themselves."""
        return Dequantiser(tuple(recognised(column) for column in y.T))

    @property
    def has_atoms(self) -> bool:
        return any(support is not None for support in self.supports)

    def cells(self, y: Array) -> tuple[Array, Array]:
        """Lower and upper ends (n, D) of the cells of y; both are y itself where there is no cell."""
        low, high = y.astype(np.float64), y.astype(np.float64)
        for d, support in enumerate(self.supports):
            if support is not None:
                low[:, d], high[:, d] = support.cell(y[:, d])
        return low, high

    def dequantised(self, y: Array, seed: int) -> Array:
        """y (n, D) with every atom spread evenly over the middle of its cell, keyed by seed and position."""
        low, high = self.cells(y)
        u = uniform(case_keys(seed, torch.arange(len(y)), "dequantising"), (y.shape[1],)).numpy()
        return low + (high - low) * _to_the_middle(u)

    def points(self, y: Array, first: int = 0) -> tuple[Array, Array]:
        """Points (n, N_DRAWS, D) of the cells of y, and the log density (n, N_DRAWS) that they are drawn with.

        They are at the steps of a lattice that starts at random (Cranley and Patterson 1976; Roberts 2018), and denser in
        the middle, so that a law that fills the cell and one that sits in its middle are both met.
        """
        low, high = (ends[:, None] for ends in self.cells(y))
        n_targets = y.shape[1]
        start = uniform(case_keys(0, torch.arange(first, first + len(y)), "cells"), (n_targets,)).numpy()
        u = (start[:, None] + np.arange(N_DRAWS)[:, None] * _steps(n_targets)) % 1.0
        edge = 0.5 * (1 - MIDDLE)
        place = np.interp(u, [0.0, 0.5 * edge, 1 - 0.5 * edge, 1.0], [0.0, edge, 1 - edge, 1.0])
        inside = np.abs(place - 0.5) < 0.5 * MIDDLE
        in_cell = np.where(inside, 0.5 + 0.5 / MIDDLE, 0.5) / np.where(high > low, high - low, 1.0)
        return low + (high - low) * place, np.log(np.where(high > low, in_cell, 1.0)).sum(-1)

    def snapped(self, values: Array) -> Array:
        """Numbers (..., D) as values of the targets."""
        result = values.copy()
        for d, support in enumerate(self.supports):
            if support is not None:
                result[..., d] = support.snapped(values[..., d])
        return result

    def mean(self, forecast: GaussianMixture) -> Array:
        """Mean (N, D) of the snapped forecast, in closed form."""
        mean = forecast.mean.cpu().numpy()
        weights, loc = forecast.weights.cpu().numpy(), forecast.loc.cpu().numpy()
        scale = forecast.scale_tril.square().sum(-1).sqrt().cpu().numpy()
        for d, support in enumerate(self.supports):
            if support is not None:
                mean[:, d] = support.mean(weights, loc[..., d], scale[..., d])
        return mean

    def log_likelihood(self, y: Array, forecast: Distribution, first: int = 0) -> Tensor:
        """Log-likelihood (N,) under a forecast of the spread targets: of cells for those with atoms, a density for others.

        The probability of a cell is a mean over `N_DRAWS` points of it, weighted by how densely they lie. It is
        unbiased, so that its logarithm is too small on average, never too large (Jensen). `first` is the number of the
        first case, where some of several are given.
        """
        log_density = view_of(forecast).log_density().function
        place = forecast.mean
        if not self.has_atoms:
            return log_density(torch.from_numpy(y[:, None]).to(place))[:, 0]
        points, proposal = (torch.from_numpy(array).to(place) for array in self.points(y, first))
        return torch.logsumexp(log_density(points) - proposal, -1) - np.log(N_DRAWS)

    def likelihood(self, names: Sequence[str]) -> str:
        """What a likelihood is of, in words."""
        of_cells = [name for name, support in zip(names, self.supports, strict=True) if support is not None]
        if not of_cells:
            return "density"
        if len(of_cells) == len(names):
            return "cells"
        return f"cells of {', '.join(of_cells)}; density of the others"


def _to_the_middle(u: Array) -> Array:
    """Numbers of the unit interval moved into its middle."""
    return 0.5 + MIDDLE * (u - 0.5)


def _steps(n_targets: int) -> Array:
    """Steps (D,) of an additive sequence that fills the unit cube evenly: powers of the root of x^(D + 1) = x + 1.

    Roberts (2018): The unreasonable effectiveness of quasirandom sequences.
    """
    root = 2.0
    for _ in range(40):
        root = (1.0 + root) ** (1.0 / (n_targets + 1))
    return root ** -np.arange(1.0, n_targets + 1)
