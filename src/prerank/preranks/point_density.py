"""Densities and joint CDFs of a set of points, for forecasts that are samples and nothing else."""

import numpy as np
import torch
from torch import Tensor

from prerank._kernels import BANDWIDTHS, kernel_for
from prerank._reproducible_math import blocks, log_sum_exp, total
from prerank.preranks.rounding import power_of_two_above


def _by_case(points: Tensor, centres: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """All with one axis of cases, (n, P, D), (n, R, D) and (n, R), whatever leading axes they had."""
    lead = np.broadcast_shapes(points.shape[:-2], centres.shape[:-2])
    points = points.expand(*lead, *points.shape[-2:]).reshape(-1, *points.shape[-2:])
    centres = centres.expand(*lead, *centres.shape[-2:]).reshape(-1, *centres.shape[-2:])
    if weights is not None:
        weights = (weights / weights.sum(-1, keepdim=True)).expand(*lead, weights.shape[-1]).flatten(0, -2)
    return points, centres, weights


def bandwidths(centres: Tensor, weights: Tensor | None = None) -> Tensor:
    """Scott's rule per target, s_d R^(-1/(D+4)), (..., N, 1, D); a target on which all centres agree is given 1.

    A symmetric function of the centres up to rounding, and to the last digit if they come in canonical order: pooled with
    the observation, it treats the observation like a member. With weights (..., N, R) the spread is weighted and R is the
    effective number of centres.
    """
    n_centres, n_targets = centres.shape[-2:]
    if weights is not None and (
        fused := kernel_for(BANDWIDTHS, centres, weights, fixed=(centres, weights), targets=n_targets)
    ):
        return fused(centres, weights)
    # from the first centre, so that centres that agree have no spread, and in a unit whose squares do not overflow
    deviation = centres - centres[..., :1, :]
    unit = power_of_two_above(deviation.abs().amax(-2, keepdim=True))
    deviation = deviation / unit
    if weights is None:
        share = torch.full_like(deviation[..., :1], 1.0 / n_centres)
        shrink: Tensor | float = n_centres ** (-1.0 / (n_targets + 4))
    else:
        share = (weights / weights.sum(-1, keepdim=True))[..., None]
        shrink = (1.0 / total(share.square(), -2)[..., None, :]) ** (-1.0 / (n_targets + 4))
    mean = total(share * deviation, -2)[..., None, :]
    spread = total(share * (deviation - mean).square(), -2)[..., None, :].sqrt() * unit
    return torch.where(spread > 0, spread, 1.0) * shrink


def log_kernel_density(points: Tensor, centres: Tensor, weights: Tensor | None = None) -> Tensor:
    """Gaussian kernel log density of centres (..., N, R, D) at points (..., N, P, D), (..., N, P), up to a constant.

    The bandwidths are `bandwidths(centres)`. A point that is one of the centres counts itself, which adds the same
    amount for every centre and changes no rank. Computed in double precision, a few points at a time.
    """
    shape, dtype = points.shape[:-1], points.dtype
    points, centres = points.double(), centres.double()
    weights = None if weights is None else weights.double()
    bandwidth, origin = bandwidths(centres, weights), centres[..., :1, :]
    points, centres, weights = _by_case((points - origin) / bandwidth, (centres - origin) / bandwidth, weights)
    log_weights = None if weights is None else weights.log()[:, :, None]
    if torch.is_grad_enabled() and (points.requires_grad or centres.requires_grad):
        return torch.logsumexp(_exponents(points, centres, log_weights), 1).reshape(shape).to(dtype)
    result = torch.empty(points.shape[:-1], dtype=dtype, device=points.device)
    for cases, some in blocks(points.shape[0], points.shape[1], centres.shape[1], 8, points.device):
        given = points[cases, some], centres[cases], None if log_weights is None else log_weights[cases]
        found = total(_exponents(*given).exp_(), 1, overwrite=True).log()
        far = found < -500.0  # where exponentials vanish, the highest has to be taken out first
        if far.any():
            found = torch.where(far, log_sum_exp(_exponents(*given), 1), found)
        result[cases, some] = found
    return result.reshape(shape)


def _exponents(points: Tensor, centres: Tensor, log_weights: Tensor | None) -> Tensor:
    """-|point - centre|^2 / 2 plus the logarithm of the centre's weight, (n, R, P)."""
    # the exact mode: a matrix product would round equal points differently and break their ties
    distance = torch.cdist(centres, points, compute_mode="donot_use_mm_for_euclid_dist")
    exponent = -0.5 * distance.square() if distance.requires_grad else distance.square_().mul_(-0.5)
    return exponent if log_weights is None else exponent + log_weights


def joint_cdf(points: Tensor, centres: Tensor, weights: Tensor | None = None) -> Tensor:
    """Share of centres (..., N, R, D) that are <= the point in every target, at points (..., N, P, D): (..., N, P)."""
    shape = points.shape[:-1]
    points, centres, weights = _by_case(points, centres, weights)
    result = torch.empty(points.shape[:-1], dtype=points.dtype, device=points.device)
    if torch.equal(points.float().to(points), points) and torch.equal(centres.float().to(centres), centres):
        points, centres = (
            points.float(),
            centres.float(),
        )  # nothing is lost, and half the memory passes through the cache
    for cases, some in blocks(
        points.shape[0], points.shape[1], 2 * centres.shape[1], points.element_size(), points.device
    ):
        p, c = points[cases, some].movedim(-1, 0).contiguous(), centres[cases].movedim(-1, 0).contiguous()
        # the largest excess of a centre over a point: its sign is exact, and faster to find than D comparisons
        excess = c[0][:, :, None] - p[0][:, None, :]
        step = torch.empty_like(excess)
        for d in range(1, len(p)):
            torch.maximum(excess, torch.sub(c[d][:, :, None], p[d][:, None, :], out=step), out=excess)
        below = excess <= 0
        if weights is None:
            result[cases, some] = below.sum(1, dtype=torch.int32).to(result.dtype) / centres.shape[1]
        else:
            result[cases, some] = total(below * weights[cases][:, :, None], 1, overwrite=True).to(result.dtype)
    return result.reshape(shape)
