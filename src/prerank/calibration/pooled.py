"""Densities and joint CDFs of a set of points, for forecasts that are samples and nothing else."""

import torch
from torch import Tensor

from prerank.forecast.chunks import chunks


def _by_case(points: Tensor, centres: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """All with one axis of cases, (n, P, D), (n, R, D) and (n, R), whatever leading axes they had."""
    lead = torch.broadcast_shapes(points.shape[:-2], centres.shape[:-2])
    points = points.expand(*lead, *points.shape[-2:]).reshape(-1, *points.shape[-2:])
    centres = centres.expand(*lead, *centres.shape[-2:]).reshape(-1, *centres.shape[-2:])
    if weights is not None:
        weights = (weights / weights.sum(-1, keepdim=True)).expand(*lead, weights.shape[-1]).flatten(0, -2)
    return points, centres, weights


def bandwidths(centres: Tensor, weights: Tensor | None = None) -> Tensor:
    """Scott's rule per target, s_d R^(-1/(D+4)), (..., N, 1, D); a target on which all centres agree is given 1.

    A symmetric function of the centres: pooled with the observation, it treats the observation like a member. With
    weights (..., N, R) the spread is weighted and R is the effective number of centres.
    """
    n_centres, n_targets = centres.shape[-2:]
    if weights is None:
        # Whether the centres agree is asked of the centres: their spread may round to a little more than zero.
        agree = centres.amax(-2, keepdim=True) == centres.amin(-2, keepdim=True)
        spread = centres.std(-2, correction=0, keepdim=True)
        return torch.where(agree, 1.0, spread) * n_centres ** (-1.0 / (n_targets + 4))
    share = (weights / weights.sum(-1, keepdim=True))[..., None]
    spread = (share * (centres - (share * centres).sum(-2, keepdim=True)).square()).sum(-2, keepdim=True).sqrt()
    effective = 1.0 / share.square().sum(-2, keepdim=True)
    return torch.where(spread > 0, spread, 1.0) * effective ** (-1.0 / (n_targets + 4))


def log_kernel_density(points: Tensor, centres: Tensor, weights: Tensor | None = None) -> Tensor:
    """Gaussian kernel log density of centres (..., N, R, D) at points (..., N, P, D), (..., N, P), up to a constant.

    The bandwidths are `bandwidths(centres)`. A point that is one of the centres counts itself, which adds the same
    amount for every centre and changes no rank.
    """
    shape = points.shape[:-1]
    bandwidth = bandwidths(centres, weights)
    points, centres, weights = _by_case(points / bandwidth, centres / bandwidth, weights)
    parts = []
    for cases in chunks(len(points), points.shape[1] * centres.shape[1], points.device):
        # the exact mode: a matrix product would round equal points differently and break their ties
        distance = torch.cdist(points[cases], centres[cases], compute_mode="donot_use_mm_for_euclid_dist")
        exponent = -0.5 * distance.square() if distance.requires_grad else distance.square_().mul_(-0.5)
        if weights is not None:
            exponent = exponent + weights[cases].log()[:, None, :]
        parts.append(torch.logsumexp(exponent, -1))
    return torch.cat(parts).reshape(shape)


def joint_cdf(points: Tensor, centres: Tensor, weights: Tensor | None = None) -> Tensor:
    """Share of centres (..., N, R, D) that are <= the point in every target, at points (..., N, P, D): (..., N, P)."""
    shape = points.shape[:-1]
    points, centres, weights = _by_case(points, centres, weights)
    result = torch.empty(points.shape[:-1], dtype=points.dtype, device=points.device)
    for cases in chunks(len(points), points.shape[1] * centres.shape[1], points.device):
        p, c = points[cases].movedim(-1, 0).contiguous(), centres[cases].movedim(-1, 0).contiguous()
        below = c[0][:, None, :] <= p[0][:, :, None]
        for d in range(1, len(p)):
            below &= c[d][:, None, :] <= p[d][:, :, None]
        if weights is None:
            result[cases] = below.sum(-1).to(result.dtype) / centres.shape[1]
        else:
            result[cases] = (below * weights[cases][:, None, :]).sum(-1).to(result.dtype)
    return result.reshape(shape)
