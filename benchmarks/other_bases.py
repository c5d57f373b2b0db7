"""Other functions for a tilt to be made of than Legendre polynomials: to be compared with, not to be used."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import BSpline
from torch import Tensor

N_GRID = 1024
"""Functions are linear between so many points."""

Table = NDArray[np.float64]


def _orthonormal(values: Table) -> Table:
    """Functions (J, G) one after another: mean zero and variance one for a uniform PIT, orthogonal to those before."""
    found = [np.ones(values.shape[1])]
    for row in values:
        for before in found:
            row = row - (row * before).mean() * before
        found.append(row / np.sqrt((row**2).mean()))
    return np.stack(found[1:])


def _middles() -> Table:
    return (np.arange(N_GRID) + 0.5) / N_GRID


def splines(degree: int) -> Table:
    """The smoothest functions among cubic splines with `degree` - 2 even knots inside, the smoothest first."""
    knots = np.concatenate([np.zeros(3), np.linspace(0.0, 1.0, degree), np.ones(3)])
    count = len(knots) - 4
    design = BSpline.design_matrix(_middles(), knots, 3).toarray()
    bends = np.column_stack([BSpline(knots, row, 3).derivative(2)(_middles()) for row in np.eye(count)])
    size, rough = design.T @ design / N_GRID, bends.T @ bends / N_GRID
    root = np.linalg.inv(np.linalg.cholesky(size))
    _, vectors = np.linalg.eigh(root @ rough @ root.T)
    smooth = (design @ root.T @ vectors).T
    rest = smooth - smooth.mean(1, keepdims=True)  # the first two span constants and lines
    line = _middles() - 0.5
    return _orthonormal(np.concatenate([line[None], rest[2 : degree + 1]]))


def tails(degree: int) -> Table:
    """Polynomials, and after the first two of them logarithms of the distances to both ends."""
    u = _middles()
    polynomials = np.polynomial.legendre.legvander(2 * u - 1, degree).T[1:]
    ends = np.stack([np.log(u), np.log1p(-u)])
    return _orthonormal(np.concatenate([polynomials[:2], ends, polynomials[2 : degree - 2]]))


BASES: dict[str, Callable[[int], Table]] = {"splines": splines, "tails": tails}


@cache
def _table(name: str, degree: int) -> Table:
    return BASES[name](degree)


def _at(name: str, degree: int, pits: Tensor) -> Iterator[Tensor]:
    """One function of a basis after another at PITs, linear between the grid's middles and constant beyond."""
    place = (pits * N_GRID - 0.5).clamp(0.0, N_GRID - 1.001)
    low = place.long()
    share = place - low
    for row in torch.from_numpy(_table(name, degree)).to(pits):
        yield torch.lerp(row[low], row[low + 1], share)


@contextmanager
def basis(name: str | None) -> Iterator[None]:
    """Tilts are made of other functions inside; None: of those of the library."""
    if name is None:
        yield
        return

    def functions(pits: Tensor, degree: int) -> Tensor:
        return torch.stack(list(_at(name, degree, pits)), -2)

    def log_tilt(pits: Tensor, theta: Tensor) -> Tensor:
        total, theta = pits.new_zeros(pits.shape[:-1]), theta.to(pits)
        for j, values in enumerate(_at(name, theta.shape[-2], pits)):
            total += (theta[..., None, j, :] * values).sum(-1)
        return total

    package = "prerank.recalibration"
    with (
        patch(f"{package}.likelihood.legendre", functions),
        patch(f"{package}.guard.log_tilt", log_tilt),
        patch(f"{package}.tilt.log_tilt", log_tilt),
        patch(f"{package}.tilted.log_tilt", log_tilt),
    ):
        yield
