"""What a pre-rank becomes once it has seen a forecast: one function for observations and members alike."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from prerank._kernels import PROJECTIONS, kernel_for
from prerank._reproducible_math import blocks


class Projection(Protocol):
    """A function that gives K scalars for each of P points per case."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the K scalars."""

    @property
    def note(self) -> str:
        """What was taken from the forecast and how; empty when nothing was."""

    def __call__(self, points: Tensor) -> Tensor:
        """Project points.

        Parameters
        ----------
        points : Tensor, shape (..., n_cases, n_points, n_targets)
            Observations or members.

        Returns
        -------
        Tensor, shape (..., n_cases, n_points, n_projections)
            The scalars.
        """


@dataclass(frozen=True, eq=False)
class LinearProjection:
    r"""$T_k = u_k(x)^\top y$: directions (..., N or 1, D, K), one column per projection.

    Linear projections of a Gaussian mixture have a closed-form law, so their PITs need no draws.

    Parameters
    ----------
    directions : Tensor, shape (..., n_cases or 1, n_targets, n_projections)
        One column per projection.
    names : tuple of str
        Names of the projections.
    note : str, default ''
        What was taken from the forecast and how.
    identity : bool, default False
        Whether the directions are the axes, in order, so that there is nothing to compute.
    """

    directions: Tensor
    names: tuple[str, ...]
    note: str = ""
    identity: bool = False  # the directions are the axes, in order: nothing to compute

    def __call__(self, points: Tensor) -> Tensor:
        """Project points.

        Parameters
        ----------
        points : Tensor, shape (..., n_cases, n_points, n_targets)
            Observations or members.

        Returns
        -------
        Tensor, shape (..., n_cases, n_points, n_projections)
            The scalars.
        """
        if self.identity:
            return points
        directions = self.directions.to(points)
        # in training no rank hangs on a tie, and one product has one backward pass
        if torch.is_grad_enabled() and (points.requires_grad or directions.requires_grad):
            return _product(points, directions)
        return _target_by_target(points, directions)


def _target_by_target(points: Tensor, directions: Tensor) -> Tensor:
    """Points (..., N, P, D) times directions (..., N or 1, D, K), elementwise: (..., N, P, K).

    A matrix product may round equal rows differently by their position, and a tie between an observation and a member
    would be broken by rounding noise.
    """
    n_targets, n_projections = directions.shape[-2:]
    lead = np.broadcast_shapes(points.shape[:-2], directions.shape[:-2])
    points = points.expand(*lead, *points.shape[-2:]).reshape(-1, *points.shape[-2:])
    result = points.new_empty(len(points), n_projections, points.shape[1])  # in which they are sorted
    common = directions.shape[:-2].numel() == 1
    if not common:
        directions = directions.expand(*lead, n_targets, n_projections)
    directions = directions.reshape(-1, n_targets, n_projections)
    width = n_targets + 2 * n_projections
    for cases, some in blocks(points.shape[0], points.shape[1], width, points.element_size(), points.device):
        # (cases, K, points): a long innermost axis
        y = points[cases, some].mT.contiguous()
        u = (directions if common else directions[cases]).mT[..., None]
        projected = u[:, :, 0] * y[:, :1]
        step = torch.empty_like(projected)
        for d in range(1, n_targets):
            projected += torch.mul(u[:, :, d], y[:, d : d + 1], out=step)
        result[cases, :, some] = projected
    return result.reshape(*lead, *result.shape[1:]).mT


def _product(points: Tensor, directions: Tensor) -> Tensor:
    """Points (..., N, P, D) times directions (..., N or 1, D, K)."""
    if fused := kernel_for(PROJECTIONS, points, directions, fixed=(directions,)):
        return fused(points, directions)
    return points @ directions


@dataclass(frozen=True, eq=False)
class PointwiseProjection:
    """A projection given by any function of points.

    Parameters
    ----------
    function : callable
        Maps points (..., n_cases, n_points, n_targets) to (..., n_cases, n_points, n_projections).
    names : tuple of str
        Names of the projections.
    note : str, default ''
        What was taken from the forecast and how.
    """

    function: Callable[[Tensor], Tensor]
    names: tuple[str, ...]
    note: str = ""

    def __call__(self, points: Tensor) -> Tensor:
        """Project points.

        Parameters
        ----------
        points : Tensor, shape (..., n_cases, n_points, n_targets)
            Observations or members.

        Returns
        -------
        Tensor, shape (..., n_cases, n_points, n_projections)
            The scalars.
        """
        return self.function(points)
