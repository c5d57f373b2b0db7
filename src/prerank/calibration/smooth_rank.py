"""Smooth ranks: PITs that gradients can flow through, for training."""

from dataclasses import dataclass

import torch
from torch import Tensor

from prerank._kernels import SMOOTH_RANK, kernel_for
from prerank.arrays import as_observations
from prerank.forecasts import Ensemble
from prerank.preranks.projection import Projection


@dataclass(frozen=True)
class SmoothRank:
    r"""$\sum_m w_m\, \sigma(\tau (T - \hat T_m) / s)$ with s the forecast's spread of T: differentiable, for training.

    `relative=False` leaves s out, as the published experiments did: the temperature then depends on the units.

    Parameters
    ----------
    temperature : float, default 100
        How steep the sigmoid is: as it grows, smooth ranks tend to the share of members below the observation.
    relative : bool, default True
        Whether differences are divided by the spread of the forecast's projection.
    """

    temperature: float = 100.0
    relative: bool = True


def smooth_pit(
    y: Tensor, draws: Ensemble, projection: Projection, how: SmoothRank, scale: Tensor | None = None
) -> Tensor:
    """Smooth PIT (..., N, K) of y among weighted draws under a projection; `scale` (..., N, 1, K) may be held fixed.

    Parameters
    ----------
    y : array_like, shape (..., n_cases, n_targets)
        Observations.
    draws : Ensemble
        Draws of the forecast, with weights or without.
    projection : Projection
        What a pre-rank has become for these cases: its `given` returns it.
    how : SmoothRank
        Temperature, and whether differences are divided by the spread.
    scale : Tensor, shape (..., n_cases, 1, n_projections), optional
        What differences are divided by; by default the standard deviation of the projected draws of each case, without
        gradient, if `how.relative`, else nothing.

    Returns
    -------
    Tensor, shape (..., n_cases, n_projections)
        PITs in [0, 1], with gradients with respect to the draws and their weights.
    """
    y = as_observations(y)
    # projected together: one pass over what the projection learnt, instead of one for a single point and one for the rest
    points = torch.cat([y[..., None, :].expand(*draws.members.shape[:-2], 1, -1), draws.members], -2)
    projected = projection(points)
    if scale is None and (fused := kernel_for(SMOOTH_RANK, projected, draws.weights, members=draws.n_members)):
        return fused(projected, draws.weights, how.temperature, how.relative)
    t, members = projected.split([1, draws.n_members], -2)
    if how.relative and scale is None:
        scale = spread(members, draws.probabilities[..., None])
    below = torch.sigmoid(how.temperature * (t - members if scale is None else (t - members) / scale))
    return below.mean(-2) if draws.weights is None else (draws.probabilities[..., None] * below).sum(-2)


def spread(members: Tensor, weights: Tensor) -> Tensor:
    """Detached standard deviation of projected members (..., N, M, K) over the members, 1 where they all agree."""
    members, weights = members.detach(), weights.detach()
    centred = members - (weights * members).sum(-2, keepdim=True)
    scale = (weights * centred.square()).sum(-2, keepdim=True).sqrt()
    return torch.where(scale > 0, scale, 1.0)
