"""The Triton kernels behind `prerank.calibration.jointcdf`; imported only where there is a GPU.

One program holds a block of points of a case against all its draws: the pairs live in registers, target after target,
and nothing of size (P, R) ever reaches memory.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_POINTS = 32  # points of a block where a case needs several


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
def _backward(
    points, draws, weights, result, gradient, for_points, for_draws, for_weights,
    P, R, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    r = tl.arange(0, BR)
    shortfall = _shortfall(points, draws, case, p, r, P, R, D, BP, BR)
    log_f = tl.load(result + case * P + p, mask=p < P, other=0.0)
    g = tl.load(gradient + case * P + p, mask=p < P, other=0.0)
    w = tl.load(weights + case * R + r, mask=r < R, other=0.0)
    pull = tl.exp(-0.5 * shortfall - log_f[:, None]) * g[:, None]
    pull = tl.where((p < P)[:, None] & (r < R)[None, :], pull, 0.0)
    _give(for_weights + case * R + r, tl.sum(pull, 0), r < R, ALONE)
    pull = pull * w[None, :]
    for d in tl.static_range(D):
        y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
        x = tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
        moved = tl.maximum(x[None, :] - y[:, None], 0.0) * pull
        tl.store(for_points + (case * P + p) * D + d, tl.sum(moved, 1), mask=p < P)
        _give(for_draws + (case * R + r) * D + d, -tl.sum(moved, 0), r < R, ALONE)


@triton.jit
def _give(place, value, mask, ALONE: tl.constexpr):
    if ALONE:  # one block holds the whole case: nobody else adds to its draws
        tl.store(place, value, mask=mask)
    else:
        tl.atomic_add(place, value, mask=mask)


def _layout(points: Tensor, draws: Tensor) -> tuple[tuple[int, int], int, int, int]:
    """Grid, block of points, block of draws and warps: a whole case in one block if its pairs fit the registers."""
    count, n_points, _ = points.shape
    of_draws = max(16, triton.next_power_of_2(draws.shape[1]))
    of_points = max(16, triton.next_power_of_2(n_points))
    if of_points * of_draws <= 1 << 14:
        return (count, 1), of_points, of_draws, 8
    return (count, triton.cdiv(n_points, _POINTS)), _POINTS, of_draws, 4


def forward(points: Tensor, draws: Tensor, weights: Tensor) -> Tensor:
    """log F (n, P) of points (n, P, D) under draws (n, R, D) with weights (n, R)."""
    (count, n_points, n_targets), n_draws = points.shape, draws.shape[1]
    result = torch.empty(count, n_points, device=points.device)
    grid, of_points, of_draws, warps = _layout(points, draws)
    _forward[grid](
        points, draws, weights.log(), result, n_points, n_draws, n_targets, of_points, of_draws, num_warps=warps
    )
    return result


def backward(
    points: Tensor, draws: Tensor, weights: Tensor, result: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for points, draws and weights."""
    (_, n_points, n_targets), n_draws = points.shape, draws.shape[1]
    for_points = torch.empty_like(points)
    for_draws, for_weights = torch.zeros_like(draws), torch.zeros_like(weights)
    grid, of_points, of_draws, warps = _layout(points, draws)
    _backward[grid](
        points, draws, weights, result, gradient, for_points, for_draws, for_weights,
        n_points, n_draws, n_targets, of_points, of_draws, grid[1] == 1, num_warps=warps,
    )  # fmt: skip
    return for_points, for_draws, for_weights
