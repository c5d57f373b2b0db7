"""Dequantising: targets with atoms are spread evenly over their cells, and forecasts come back to the atoms."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution

from prerank.calibration import view_of
from prerank.estimator.atoms import Support, recognised
from prerank.forecast import GaussianMixture
from prerank.randomness import case_keys, uniform

Array = NDArray[np.floating]

N_DRAWS = 32
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

    def dequantised(self, y: Array, seed: int, draw: int = 0) -> Array:
        """y (n, D) with every atom replaced by a number spread evenly over its cell, keyed by seed, draw and position."""
        low, high = self.cells(y)
        keys = case_keys(seed, torch.arange(len(y)), "dequantising", draw)
        return low + (high - low) * uniform(keys, (y.shape[1],)).numpy()

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

    def log_likelihood(self, y: Array, forecast: Distribution) -> Tensor:
        """Log-likelihood (N,) under a forecast of the spread targets: of cells for those with atoms, a density for others.

        The probability of a cell is the mean density over `N_DRAWS` points of it, times its volume. It is unbiased, so
        that its logarithm is too small on average, never too large (Jensen).
        """
        log_density = view_of(forecast).log_density().function
        place = forecast.mean
        if not self.has_atoms:
            return log_density(torch.from_numpy(y[:, None]).to(place))[:, 0]
        points = np.stack([self.dequantised(y, 0, draw) for draw in range(N_DRAWS)], 1)
        low, high = self.cells(y)
        volume = np.log(np.where(high > low, high - low, 1.0)).sum(-1)
        density = log_density(torch.from_numpy(points).to(place))
        return torch.logsumexp(density, -1) - np.log(N_DRAWS) + torch.from_numpy(volume).to(density)

    def likelihood(self, names: Sequence[str]) -> str:
        """What a likelihood is of, in words."""
        of_cells = [name for name, support in zip(names, self.supports, strict=True) if support is not None]
        if not of_cells:
            return "density"
        if len(of_cells) == len(names):
            return "cells"
        return f"cells of {', '.join(of_cells)}; density of the others"
