"""The Triton kernels behind `prerank.preranks.joint_cdf`.

A program holds the points of a case, a few in each thread of a warp, and goes through the draws, or holds draws and goes
through the points: coordinates and sums stay in registers, no sum ever leaves a thread, and nothing of size (P, R) reaches
memory. The backward pass makes the pairs twice, once for the points and once for the draws.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank._kernels.parts_kernel import columns, coordinates, some, zeros

WARP = 32
_BLOCK = 128  # numbers of a sum that are loaded at once


@triton.jit
def _sum(values, N, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(values + i, mask=i < N, other=0.0)
    return tl.sum(total, 0)


@triton.jit
def _prepare(
    points, draws, weights, bandwidth, scaled, centres, log_weights, totals,
    P, R, D: tl.constexpr, BW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Points and draws in units of the bandwidth, and logarithms of the weights, which then sum to one."""
    case = tl.program_id(0).to(tl.int64)
    for start in range(0, P * D, BLOCK):
        i = start + tl.arange(0, BLOCK)
        h = tl.load(bandwidth + case * D + i % D)
        value = tl.load(points + case * P * D + i, mask=i < P * D, other=0.0)
        tl.store(scaled + case * P * D + i, value / h, mask=i < P * D)
    for start in range(0, R * D, BLOCK):
        i = start + tl.arange(0, BLOCK)
        h = tl.load(bandwidth + case * D + i % D)
        value = tl.load(draws + case * R * D + i, mask=i < R * D, other=0.0)
        tl.store(centres + case * R * D + i, value / h, mask=i < R * D)
    total = _sum(weights + case * R, R, BW)
    for start in range(0, R, BW):
        r = start + tl.arange(0, BW)
        w = tl.load(weights + case * R + r, mask=r < R, other=0.0)
        tl.store(log_weights + case * R + r, tl.log(w / total), mask=r < R)
    tl.store(totals + case, total)


@triton.jit
def _forward(
    points, draws, log_weights, result,
    P: tl.constexpr, R: tl.constexpr, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    y = coordinates(points, case * P + p, p < P, D)
    largest = tl.full((BP,), -3e38, dtype=tl.float32)  # finite: all draws of a block may weigh nothing
    total = tl.zeros((BP,), dtype=tl.float32)
    for start in range(0, R, BR):
        r = start + tl.arange(0, BR)
        shortfall = tl.zeros((BR, BP), dtype=tl.float32)
        for d in tl.static_range(D):
            x = some(draws, (case * R + r) * D + d, r, R, BR, 0.0)
            excess = tl.maximum(x[:, None] - y[d][None, :], 0.0)
            shortfall += excess * excess
        w = some(log_weights, case * R + r, r, R, BR, float("-inf"))
        exponent = w[:, None] - 0.5 * shortfall
        higher = tl.maximum(largest, tl.max(exponent, 0))
        total = total * tl.exp(largest - higher) + tl.sum(tl.exp(exponent - higher[None, :]), 0)
        largest = higher
    tl.store(result + case * P + p, largest + tl.log(total), mask=p < P)


@triton.jit
def _backward_points(
    points, draws, log_weights, result, gradient, bandwidth, for_points,
    P: tl.constexpr, R: tl.constexpr, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    y = coordinates(points, case * P + p, p < P, D)
    log_f = tl.load(result + case * P + p, mask=p < P, other=0.0)
    moved = zeros(p, D)
    for start in range(0, R, BR):
        r = start + tl.arange(0, BR)
        shortfall = tl.zeros((BR, BP), dtype=tl.float32)
        excess = ()
        for d in tl.static_range(D):
            x = some(draws, (case * R + r) * D + d, r, R, BR, 0.0)
            excess = excess + (tl.maximum(x[:, None] - y[d][None, :], 0.0),)  # noqa: RUF005 - Triton has no unpacking
            shortfall += excess[d] * excess[d]
        w = some(log_weights, case * R + r, r, R, BR, float("-inf"))
        # each draw's share of F, at most one: F itself may be so small that dlogF/dw overflows
        share = tl.exp(tl.minimum(w[:, None] - 0.5 * shortfall - log_f[None, :], 0.0))
        more = ()
        for d in tl.static_range(D):
            more = more + (moved[d] + tl.sum(excess[d] * share, 0),)  # noqa: RUF005
        moved = more
    g = tl.load(gradient + case * P + p, mask=p < P, other=0.0)
    for d in tl.static_range(D):
        h = tl.load(bandwidth + case * D + d)
        tl.store(for_points + (case * P + p) * D + d, moved[d] * g / h, mask=p < P)


@triton.jit
def _backward_draws(
    points, draws, log_weights, result, gradient, bandwidth, totals, for_draws, for_weights, SMALLEST,
    P: tl.constexpr, R: tl.constexpr, D: tl.constexpr, BW: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    r = tl.program_id(1) * BR + tl.arange(0, BR)
    x = coordinates(draws, case * R + r, r < R, D)
    log_w = tl.load(log_weights + case * R + r, mask=r < R, other=float("-inf"))
    share = tl.zeros((BR,), dtype=tl.float32)
    moved = zeros(r, D)
    for start in range(0, P, BP):
        p = start + tl.arange(0, BP)
        shortfall = tl.zeros((BP, BR), dtype=tl.float32)
        excess = ()
        for d in tl.static_range(D):
            y = some(points, (case * P + p) * D + d, p, P, BP, 0.0)
            excess = excess + (tl.maximum(x[d][None, :] - y[:, None], 0.0),)  # noqa: RUF005
            shortfall += excess[d] * excess[d]
        log_f = some(result, case * P + p, p, P, BP, 0.0)
        g = some(gradient, case * P + p, p, P, BP, 0.0)
        pull = tl.exp(tl.minimum(log_w[None, :] - 0.5 * shortfall - log_f[:, None], 0.0)) * g[:, None]
        share += tl.sum(pull, 0)
        more = ()
        for d in tl.static_range(D):
            more = more + (moved[d] - tl.sum(excess[d] * pull, 0),)  # noqa: RUF005
        moved = more
    pulled = _sum(gradient + case * P, P, BW)
    # weights are divided by their sum: what all of them gain together is nobody's gain
    of_weight = (share / tl.maximum(tl.exp(log_w), SMALLEST) - pulled) / tl.load(totals + case)
    tl.store(for_weights + case * R + r, of_weight, mask=r < R)
    for d in tl.static_range(D):
        h = tl.load(bandwidth + case * D + d)
        tl.store(for_draws + (case * R + r) * D + d, moved[d] / h, mask=r < R)


class Tile(NamedTuple):
    """Rows of a program, each with sums of its own, and how many of the others they meet at once."""

    rows: int
    others: int


def tiles(n_targets: int) -> tuple[Tile, Tile, Tile]:
    """For the forward pass and the gradients of points and draws: the fastest of some on an H200."""
    if n_targets <= 2:
        return Tile(4 * WARP, 8), Tile(2 * WARP, 4), Tile(4 * WARP, 8)
    if n_targets <= 8:
        return Tile(2 * WARP, 4), Tile(2 * WARP, 4), Tile(2 * WARP, 1)
    if n_targets <= 16:
        return Tile(4 * WARP, 4), Tile(WARP, 4), Tile(WARP, 4)
    return Tile(WARP, 1), Tile(WARP, 1), Tile(WARP, 1)


class _LogJointCDF(torch.autograd.Function):
    """log F (n, P) of points (n, P, D) under draws (n, R, D) with weights (n, R) and bandwidths (n, D)."""

    @staticmethod
    def forward(ctx, points: Tensor, draws: Tensor, weights: Tensor, bandwidth: Tensor, smallest: float) -> Tensor:
        (count, n_points, n_targets), n_draws = points.shape, draws.shape[1]
        scaled, centres, log_weights = (torch.empty_like(part) for part in (points, draws, weights))
        totals, result = points.new_empty(count), points.new_empty(count, n_points)
        block = min(1024, columns(max(n_points, n_draws) * n_targets))
        _prepare[(count,)](
            points, draws, weights, bandwidth, scaled, centres, log_weights, totals,
            n_points, n_draws, n_targets, _BLOCK, block, num_warps=max(1, block // 256),
        )  # fmt: skip
        tile, *_ = tiles(n_targets)
        _forward[(count, triton.cdiv(n_points, tile.rows))](
            scaled, centres, log_weights, result, n_points, n_draws, n_targets, *tile, num_warps=1
        )
        ctx.save_for_backward(scaled, centres, log_weights, result, bandwidth, totals)
        ctx.smallest = smallest
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        scaled, centres, log_weights, result, bandwidth, totals = ctx.saved_tensors
        (count, n_points, n_targets), n_draws = scaled.shape, centres.shape[1]
        for_points, for_draws, for_weights = (torch.empty_like(part) for part in (scaled, centres, log_weights))
        given = scaled, centres, log_weights, result, gradient.contiguous(), bandwidth
        _, tile, other = tiles(n_targets)
        _backward_points[(count, triton.cdiv(n_points, tile.rows))](
            *given, for_points, n_points, n_draws, n_targets, *tile, num_warps=1
        )
        _backward_draws[(count, triton.cdiv(n_draws, other.rows))](
            *given, totals, for_draws, for_weights, ctx.smallest,
            n_points, n_draws, n_targets, _BLOCK, other.others, other.rows, num_warps=1,
        )  # fmt: skip
        return for_points, for_draws, for_weights, None, None


def log_joint_cdf(points: Tensor, draws: Tensor, weights: Tensor, bandwidth: Tensor, smallest_weight: float) -> Tensor:
    """log F (n, P) of points (n, P, D) under draws (n, R, D) with weights (n, R), in units of bandwidths (n, D).

    The weights may have any sum; one that is less than `smallest_weight` of it has no gradient.
    """
    given = (part.contiguous() for part in (points, draws, weights, bandwidth))
    return _LogJointCDF.apply(*given, smallest_weight)
