"""Densities and joint CDFs of a set of points, for forecasts that are samples and nothing else."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from prerank.calibration.projection import chunks


def _by_case(points: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Both sets with one axis of cases, (n, P, D) and (n, R, D), whatever leading axes they had."""
    lead = torch.broadcast_shapes(points.shape[:-2], centres.shape[:-2])
    points = points.expand(*lead, *points.shape[-2:])
    centres = centres.expand(*lead, *centres.shape[-2:])
    return points.reshape(-1, *points.shape[-2:]), centres.reshape(-1, *centres.shape[-2:])


def bandwidths(centres: Tensor) -> Tensor:
    """Scott's rule per target, s_d R^(-1/(D+4)), (..., N, 1, D); a target on which all centres agree is given 1.

    A symmetric function of the centres: pooled with the observation, it treats the observation like a member.
    """
    n_centres, n_targets = centres.shape[-2:]
    spread = centres.std(-2, correction=0, keepdim=True)
    return torch.where(spread > 0, spread, 1.0) * n_centres ** (-1.0 / (n_targets + 4))


def log_kernel_density(points: Tensor, centres: Tensor) -> Tensor:
    """Gaussian kernel log density of centres (..., N, R, D) at points (..., N, P, D), (..., N, P), up to a constant.

    The bandwidths are `bandwidths(centres)`. A point that is one of the centres counts itself, which adds the same
    amount for every centre and changes no rank.
    """
    shape = points.shape[:-1]
    bandwidth = bandwidths(centres)
    points, centres = _by_case(points / bandwidth, centres / bandwidth)
    result = torch.empty(points.shape[:-1], dtype=points.dtype, device=points.device)
    for cases in chunks(len(points), points.shape[1] * centres.shape[1]):
        # the exact mode: a matrix product would round equal points differently and break their ties
        distance = torch.cdist(points[cases], centres[cases], compute_mode="donot_use_mm_for_euclid_dist")
        result[cases] = torch.logsumexp(distance.square_().mul_(-0.5), -1)
    return result.reshape(shape)


def joint_cdf(points: Tensor, centres: Tensor) -> Tensor:
    """Share of centres (..., N, R, D) that are <= the point in every target, at points (..., N, P, D): (..., N, P)."""
    shape = points.shape[:-1]
    points, centres = _by_case(points, centres)
    result = torch.empty(points.shape[:-1], dtype=points.dtype, device=points.device)
    for cases in chunks(len(points), points.shape[1] * centres.shape[1]):
        p, c = points[cases].movedim(-1, 0).contiguous(), centres[cases].movedim(-1, 0).contiguous()
        below = c[0][:, None, :] <= p[0][:, :, None]
        for d in range(1, len(p)):
            below &= c[d][:, None, :] <= p[d][:, :, None]
        result[cases] = below.sum(-1).to(result.dtype) / centres.shape[1]
    return result.reshape(shape)


def smooth_joint_cdf(points: Tensor, draws: Tensor, weights: Tensor, temperature: float) -> Tensor:
    r"""Differentiable joint CDF, $\sum_r w_r \prod_d \sigma(\tau (y_d - \hat Y_{r,d}) / s_d)$, (..., N, P).

    The product is a sum of log-sigmoids: its backward pass is then one product instead of D. s_d is the detached
    spread of the draws, so that the temperature means the same in any unit.
    """
    spread = draws.detach().std(-2, correction=0, keepdim=True)
    spread = torch.where(spread > 0, spread, 1.0)
    difference = (points / spread)[..., :, None, :] - (draws / spread)[..., None, :, :]
    return (logsigmoid(temperature * difference).sum(-1).exp() * weights[..., None, :]).sum(-1)
