r"""A smooth joint CDF: the copula pre-rank that gradients can flow through.

A hard joint CDF has no gradient, and in higher dimensions almost every point lies above no reference draw at all, so
that it is zero nearly everywhere. The smooth one asks how far a point would have to move up to dominate a draw:

$$\log \hat F(y) = \log \sum_r w_r \exp\Big(-\tfrac12 \sum_d \big[(\hat Y_{r,d} - y_d)_+ / h_d\big]^2\Big)$$

with Scott's bandwidths h (detached). It needs no transcendental function per pair and target, only one per pair, and
its logarithm keeps points apart where the CDF itself rounds to zero.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from prerank._chunks import chunks
from prerank._kernels import JOINT_CDF, kernel_for

SMALLEST_WEIGHT = 1e-30  # a draw that weighs less has no say, and its weight no gradient that a float could hold


def smooth_log_joint_cdf(points: Tensor, draws: Tensor, weights: Tensor | None, bandwidth: Tensor) -> Tensor:
    """Logarithm of a smooth joint CDF of weighted draws, at points.

    Differentiable in points, draws and weights; the bandwidth is a constant.

    Parameters
    ----------
    points : Tensor, shape (..., n_cases, n_points, n_targets)
        Where the CDF is taken.
    draws : Tensor, shape (..., n_cases, n_draws, n_targets)
        Draws of the forecast.
    weights : Tensor, shape (..., n_cases, n_draws), or None
        Weights of any sum; None means equal.
    bandwidth : Tensor, shape (..., n_cases, 1, n_targets)
        Scale of the smoothing.

    Returns
    -------
    Tensor, shape (..., n_cases, n_points)
        Logarithms of the CDF.
    """
    lead = np.broadcast_shapes(points.shape[:-2], draws.shape[:-2])
    if weights is None:
        weights = draws.new_ones(draws.shape[-2])

    def flat(part: Tensor, axes: int = 2) -> Tensor:
        own = part.shape[part.ndim - axes :]
        return part.expand(*lead, *own).reshape(-1, *own)

    if fused := kernel_for(JOINT_CDF, points, draws, weights, bandwidth, fixed=(bandwidth,)):
        found = fused(flat(points), flat(draws), flat(weights, 1), flat(bandwidth)[:, 0], SMALLEST_WEIGHT)
    else:
        share = weights / weights.sum(-1, keepdim=True)
        found = _LogJointCDF.apply(flat(points / bandwidth), flat(draws / bandwidth), flat(share, 1))
    return found.reshape(*lead, points.shape[-2])


def _exceeding(points: Tensor, draws: Tensor, out: Tensor) -> Tensor:
    """By how much draws (n, R) exceed points (n, P), into `out` (n, P, R): a new tensor each time would cost as much."""
    return torch.sub(draws[:, None, :], points[:, :, None], out=out).clamp_min_(0.0)


def _shortfall(points: Tensor, draws: Tensor, excess: Tensor) -> Tensor:
    """Sum over targets of the squared amounts by which draws (D, n, R) exceed points (D, n, P): (n, P, R)."""
    total = torch.zeros_like(excess)
    for p, r in zip(points, draws, strict=True):
        _exceeding(p, r, excess)
        total.addcmul_(excess, excess)
    return total


class _LogJointCDF(torch.autograd.Function):
    """Cases in chunks that fit the cache, and nothing of size (P, R, D) is ever kept for the backward pass."""

    @staticmethod
    def forward(ctx: FunctionCtx, points: Tensor, draws: Tensor, weights: Tensor) -> Tensor:
        result = torch.empty(points.shape[:2], dtype=points.dtype, device=points.device)
        columns = points.movedim(-1, 0).contiguous(), draws.movedim(-1, 0).contiguous()
        for cases in cases_at_once(points, draws):
            p, r = columns[0][:, cases], columns[1][:, cases]
            exponent = _shortfall(p, r, p.new_empty(*p.shape[1:], r.shape[-1])).mul_(-0.5)
            exponent += weights[cases].log()[:, None, :]
            result[cases] = torch.logsumexp(exponent, -1)
        ctx.save_for_backward(points, draws, weights, result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        points, draws, weights, result = ctx.saved_tensors
        columns = points.movedim(-1, 0).contiguous(), draws.movedim(-1, 0).contiguous()
        for_points, for_draws = torch.empty_like(columns[0]), torch.empty_like(columns[1])
        for_weights = torch.empty_like(weights)
        for cases in cases_at_once(points, draws):
            p, r = columns[0][:, cases], columns[1][:, cases]
            # each draw's share of F, at most one: F itself may be so small that dlogF/dw = share / w overflows
            excess = p.new_empty(*p.shape[1:], r.shape[-1])
            exponent = _shortfall(p, r, excess).mul_(-0.5).add_(weights[cases].log()[:, None, :])
            exponent.sub_(result[cases][:, :, None]).clamp_max_(0.0)
            pull = exponent.exp_().mul_(gradient[cases][:, :, None])
            for_weights[cases] = pull.sum(1) / weights[cases].clamp_min(SMALLEST_WEIGHT)
            for d in range(len(p)):
                moved = _exceeding(p[d], r[d], excess).mul_(pull)
                for_points[d, cases] = moved.sum(-1)
                for_draws[d, cases] = -moved.sum(-2)
        return for_points.movedim(0, -1), for_draws.movedim(0, -1), for_weights


def cases_at_once(points: Tensor, draws: Tensor) -> list[slice]:
    """Slices of cases whose pairs of points and draws stay small, together with a temporary of the same size."""
    return chunks(len(points), 2 * points.shape[1] * draws.shape[1], points.device)
