"""The Triton kernels behind pre-ranks that are simple functions of a point.

Written with library calls, a variance over targets is five passes over all points, and its gradient twice as many.
"""

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

_NUMBERS = 512  # of a block: points times targets


@triton.jit
def _spread(points, row, N, LAG: tl.constexpr, D: tl.constexpr, BD: tl.constexpr):
    """Deviations (BN, BD) from the mean over targets, the variance; and the same of the variogram, if LAG is not 0.

    Centred on the first target first: a constant vector then has variance zero and not rounding noise.
    """
    d = tl.arange(0, BD)[None, :]
    inside = (row < N)[:, None] & (d < D)
    start = row[:, None] * D
    x = tl.load(points + start + d, mask=inside, other=0.0)
    x -= tl.load(points + start + 0 * d, mask=inside, other=0.0)
    deviation = tl.where(inside, x - (tl.sum(x, 1) / D)[:, None], 0.0)
    variance = tl.sum(deviation * deviation, 1) / D
    if LAG > 0:
        ahead = inside & (d + LAG < D)
        behind = inside & (d >= LAG)
        own = tl.load(points + start + d, mask=inside, other=0.0)
        rise = tl.where(ahead, tl.load(points + start + d + LAG, mask=ahead, other=0.0) - own, 0.0)
        fall = tl.where(behind, own - tl.load(points + start + d - LAG, mask=behind, other=0.0), 0.0)
        variogram = tl.sum(rise * rise, 1) / (2 * (D - LAG))
        slope = (fall - rise) / (D - LAG)
    else:
        variogram = 0.0 * variance
        slope = 0.0 * deviation
    return deviation, variance, variogram, slope


@triton.jit
def _forward(points, result, N, LAG: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    _, variance, variogram, _ = _spread(points, row, N, LAG, D, BD)
    value = variance
    if LAG > 0:
        value = tl.where(variance == 0.0, 0.0, -variogram / tl.where(variance == 0.0, 1.0, variance))
    tl.store(result + row, value, mask=row < N)


@triton.jit
def _backward(points, gradient, for_points, N, LAG: tl.constexpr, D: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    d = tl.arange(0, BD)[None, :]
    deviation, variance, variogram, slope = _spread(points, row, N, LAG, D, BD)
    value = 2.0 / D * deviation
    if LAG > 0:
        safe = tl.where(variance == 0.0, 1.0, variance)
        value = ((variogram / safe)[:, None] * value - slope) / safe[:, None]
        value = tl.where((variance == 0.0)[:, None], 0.0, value)
    value *= tl.load(gradient + row, mask=row < N, other=0.0)[:, None]
    tl.store(for_points + row[:, None] * D + d, value, mask=(row < N)[:, None] & (d < D))


class _Spread(torch.autograd.Function):
    """Of points (n, D): the variance over targets, (n,), or for a lag above 0 minus the variogram over the variance."""

    @staticmethod
    def forward(ctx, points: Tensor, lag: int) -> Tensor:
        result = points.new_empty(len(points))
        sizes = len(points), lag, *_block(points.shape[-1])
        _forward[(triton.cdiv(len(points), sizes[-2]),)](points, result, *sizes, num_warps=1)
        ctx.save_for_backward(points)
        ctx.sizes = sizes
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        (points,) = ctx.saved_tensors
        for_points = torch.empty_like(points)
        grid = (triton.cdiv(len(points), ctx.sizes[-2]),)
        _backward[grid](points, gradient.contiguous(), for_points, *ctx.sizes, num_warps=1)
        return for_points, None


@triton.jit
def _project(
    points, directions, result, N, EACH, K, D: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    d = tl.arange(0, BD)[None, :]
    inside = (row < N)[:, None] & (d < D)
    x = tl.load(points + row[:, None] * D + d, mask=inside, other=0.0)
    for k in range(K):
        u = tl.load(directions + ((row // EACH)[:, None] * D + d) * K + k, mask=inside, other=0.0)
        tl.store(result + row * K + k, tl.sum(x * u, 1), mask=row < N)


@triton.jit
def _project_backward(
    gradient, directions, for_points, N, EACH, K, D: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    d = tl.arange(0, BD)[None, :]
    inside = (row < N)[:, None] & (d < D)
    total = tl.zeros((BN, BD), dtype=tl.float32)
    for k in range(K):
        u = tl.load(directions + ((row // EACH)[:, None] * D + d) * K + k, mask=inside, other=0.0)
        total += tl.load(gradient + row * K + k, mask=row < N, other=0.0)[:, None] * u
    tl.store(for_points + row[:, None] * D + d, total, mask=inside)


class _Project(torch.autograd.Function):
    """Points (n, D) along directions (m, D, K) held fixed: (n, K); n / m points in a row share theirs."""

    @staticmethod
    def forward(ctx, points: Tensor, directions: Tensor) -> Tensor:
        result = points.new_empty(len(points), directions.shape[-1])
        sizes = len(points), len(points) // len(directions), directions.shape[-1], *_block(points.shape[-1])
        _project[(triton.cdiv(len(points), sizes[-2]),)](points, directions, result, *sizes, num_warps=1)
        ctx.save_for_backward(directions)
        ctx.sizes = sizes
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        (directions,) = ctx.saved_tensors
        count, _, _, n_targets, block, _ = ctx.sizes
        for_points = gradient.new_empty(count, n_targets)
        grid = (triton.cdiv(count, block),)
        _project_backward[grid](gradient.contiguous(), directions, for_points, *ctx.sizes, num_warps=1)
        return for_points, None


def _block(n_targets: int) -> tuple[int, int, int]:
    """Targets, points of a block, and its columns: a power of two."""
    columns = triton.next_power_of_2(n_targets)
    return n_targets, max(1, _NUMBERS // columns), columns


def spread(points: Tensor, lag: int) -> Tensor:
    """Variance over targets (..., 1) of points (..., D), or for a lag above 0 minus the variogram over the variance."""
    return _Spread.apply(points.reshape(-1, points.shape[-1]).contiguous(), lag).reshape(*points.shape[:-1], 1)


def project(points: Tensor, directions: Tensor) -> Tensor:
    """Points (..., P, D) along directions (..., D, K) that are held fixed: (..., P, K)."""
    own, (n_targets, n_projections) = directions.shape[:-2], directions.shape[-2:]
    lead = np.broadcast_shapes(points.shape[:-2], own)
    points = points.expand(*lead, *points.shape[-2:])
    if own.numel() > 1 and own not in (lead, (*lead[:-1], 1)):  # points in a row share their directions
        directions = directions.expand(*lead, n_targets, n_projections)
    flat = points.reshape(-1, n_targets).contiguous()
    projected = _Project.apply(flat, directions.reshape(-1, n_targets, n_projections).contiguous())
    return projected.reshape(*points.shape[:-1], n_projections)
