r"""The joint CDF of the published copula pre-rank: a mean over draws of products of sigmoids.

$$G(t) = \frac1R \sum_r \prod_d \sigma\big(s\,(t_d - \hat Y_{r,d})\big)$$

Left to autograd, every target would keep a tensor of all pairs for the backward pass; here the pairs are made again.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from prerank._chunks import chunks
from prerank._kernels import Kernel, kernel_for, register

SOFT_JOINT_CDF = register(
    Kernel(
        "published joint CDF",
        "the joint CDF of the published copula pre-rank",
        fused="prerank_paper.published.softcdf_kernel.soft_joint_cdf",
        plain="prerank_paper.published.soft_joint_cdf",
    )
)


def soft_joint_cdf(points: Tensor, draws: Tensor, sharpness: float) -> Tensor:
    """G of points (..., N, P, D) under draws (..., N, R, D): (..., N, P), differentiable in both."""
    lead = torch.broadcast_shapes(points.shape[:-2], draws.shape[:-2])
    flat_points, flat_draws = (
        (sharpness * part).expand(*lead, *part.shape[-2:]).reshape(-1, *part.shape[-2:]) for part in (points, draws)
    )
    found = kernel_for(SOFT_JOINT_CDF, flat_points, flat_draws) or _SoftJointCDF.apply
    return found(flat_points, flat_draws).reshape(*lead, points.shape[-2])


class _SoftJointCDF(torch.autograd.Function):
    """Of scaled points (n, P, D) and draws (n, R, D); cases in chunks whose pairs stay small."""

    @staticmethod
    def forward(ctx: FunctionCtx, points: Tensor, draws: Tensor) -> Tensor:
        points, draws = points.contiguous(), draws.contiguous()
        ctx.save_for_backward(points, draws)
        return torch.cat([_products(points[c], draws[c]).mean(-1) for c in _cases_at_once(points, draws)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        points, draws = ctx.saved_tensors
        for_points, for_draws = torch.empty_like(points), torch.empty_like(draws)
        for cases in _cases_at_once(points, draws):
            pull = _products(points[cases], draws[cases]) * (gradient[cases][:, :, None] / draws.shape[1])
            for d in range(points.shape[-1]):
                moved = _difference(points[cases], draws[cases], d).neg_().sigmoid_().mul_(pull)
                for_points[cases, :, d] = moved.sum(-1)
                for_draws[cases, :, d] = -moved.sum(-2)
        return for_points, for_draws


def _cases_at_once(points: Tensor, draws: Tensor) -> list[slice]:
    """Slices of cases whose pairs of points and draws stay small, together with a temporary of the same size."""
    return chunks(len(points), 2 * points.shape[1] * draws.shape[1], points.device)


def _difference(a: Tensor, b: Tensor, d: int) -> Tensor:
    return a[:, :, None, d] - b[:, None, :, d]


def _products(points: Tensor, draws: Tensor) -> Tensor:
    """Products of sigmoids (n, P, R), target by target."""
    product = _difference(points, draws, 0).sigmoid_()
    for d in range(1, points.shape[-1]):
        product *= _difference(points, draws, d).sigmoid_()
    return product
