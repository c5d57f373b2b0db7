"""The Triton kernels behind `prerank.calibration.jointcdf`; imported only where there is a GPU.

One program holds a block of points of a case against all its draws, or a block of draws against all points: the pairs live
in registers, target after target, and nothing of size (P, R) ever reaches memory. The backward pass makes the pairs twice,
once for the points and once for the draws, because a sum along the other axis would have to leave a warp.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank.calibration.jointcdf import SMALLEST_WEIGHT

ROWS = 8  # points, or draws, of a block: what one warp can hold against all of the others


@triton.jit
def _shortfall(points, draws, case, p, r, P, R, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr):
    total = tl.zeros((BP, BR), dtype=tl.float32)
    for d in tl.static_range(D):
        y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
        x = tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
        excess = tl.maximum(x[None, :] - y[:, None], 0.0)
        total += excess * excess
    return total


@triton.jit
def _forward(points, draws, log_weights, result, P, R, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr):
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    r = tl.arange(0, BR)
    shortfall = _shortfall(points, draws, case, p, r, P, R, D, BP, BR)
    w = tl.load(log_weights + case * R + r, mask=r < R, other=float("-inf"))
    exponent = w[None, :] - 0.5 * shortfall
    largest = tl.max(exponent, 1)
    total = tl.sum(tl.exp(exponent - largest[:, None]), 1)
    tl.store(result + case * P + p, largest + tl.log(total), mask=p < P)


@triton.jit
def _backward_points(
    points, draws, log_weights, result, gradient, for_points,
    P, R, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    r = tl.arange(0, BR)
    shortfall = _shortfall(points, draws, case, p, r, P, R, D, BP, BR)
    log_w = tl.load(log_weights + case * R + r, mask=r < R, other=float("-inf"))
    log_f = tl.load(result + case * P + p, mask=p < P, other=0.0)
    g = tl.load(gradient + case * P + p, mask=p < P, other=0.0)
    # each draw's share of F, at most one: F itself may be so small that dlogF/dw overflows
    pull = tl.exp(tl.minimum(log_w[None, :] - 0.5 * shortfall - log_f[:, None], 0.0)) * g[:, None]
    for d in tl.static_range(D):
        y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
        x = tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
        moved = tl.maximum(x[None, :] - y[:, None], 0.0) * pull
        tl.store(for_points + (case * P + p) * D + d, tl.sum(moved, 1), mask=p < P)


@triton.jit
def _backward_draws(
    points, draws, log_weights, result, gradient, for_draws, for_weights,
    P, R, SMALLEST, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    p = tl.arange(0, BP)
    r = tl.program_id(1) * BR + tl.arange(0, BR)
    shortfall = tl.zeros((BR, BP), dtype=tl.float32)
    for d in tl.static_range(D):
        y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
        x = tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
        excess = tl.maximum(x[:, None] - y[None, :], 0.0)
        shortfall += excess * excess
    log_w = tl.load(log_weights + case * R + r, mask=r < R, other=float("-inf"))
    log_f = tl.load(result + case * P + p, mask=p < P, other=0.0)
    g = tl.load(gradient + case * P + p, mask=p < P, other=0.0)
    pull = tl.exp(tl.minimum(log_w[:, None] - 0.5 * shortfall - log_f[None, :], 0.0)) * g[None, :]
    weight = tl.maximum(tl.exp(log_w), SMALLEST)
    tl.store(for_weights + case * R + r, tl.sum(pull, 1) / weight, mask=r < R)
    for d in tl.static_range(D):
        y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
        x = tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
        moved = tl.maximum(x[:, None] - y[None, :], 0.0) * pull
        tl.store(for_draws + (case * R + r) * D + d, -tl.sum(moved, 1), mask=r < R)


def forward(points: Tensor, draws: Tensor, weights: Tensor) -> Tensor:
    """log F (n, P) of points (n, P, D) under draws (n, R, D) with weights (n, R)."""
    (count, n_points, n_targets), n_draws = points.shape, draws.shape[1]
    result = torch.empty(count, n_points, device=points.device)
    grid = (count, triton.cdiv(n_points, ROWS))
    _forward[grid](
        points, draws, weights.log(), result, n_points, n_draws, n_targets, ROWS, width(n_draws), num_warps=1
    )  # fmt: skip
    return result


def backward(
    points: Tensor, draws: Tensor, weights: Tensor, result: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for points, draws and weights."""
    (count, n_points, n_targets), n_draws = points.shape, draws.shape[1]
    for_points, for_draws, for_weights = (torch.empty_like(part) for part in (points, draws, weights))
    given = points, draws, weights.log(), result, gradient
    _backward_points[(count, triton.cdiv(n_points, ROWS))](
        *given, for_points, n_points, n_draws, n_targets, ROWS, width(n_draws), num_warps=1
    )
    _backward_draws[(count, triton.cdiv(n_draws, ROWS))](
        *given, for_draws, for_weights,
        n_points, n_draws, SMALLEST_WEIGHT, n_targets, width(n_points), ROWS, num_warps=1,
    )  # fmt: skip
    return for_points, for_draws, for_weights


def width(count: int) -> int:
    """Columns of a block that holds all of them: a power of two."""
    return max(16, triton.next_power_of_2(count))
