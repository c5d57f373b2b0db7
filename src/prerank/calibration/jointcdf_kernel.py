"""The Triton kernels behind `prerank.calibration.jointcdf`; imported only where there is a GPU.

One program holds a block of points of a case against all its draws: the pairs live in registers, target after target,
and nothing of size (P, R) ever reaches memory.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_POINTS = 32  # points of a block


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
    P, R, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    # one program goes through all blocks of a case: it alone adds to the gradients of the case's draws
    case = tl.program_id(0).to(tl.int64)
    r = tl.arange(0, BR)
    row = tl.arange(0, BD)[:, None]
    w = tl.load(weights + case * R + r, mask=r < R, other=0.0)
    of_weights = tl.zeros((BR,), dtype=tl.float32)
    of_draws = tl.zeros((BD, BR), dtype=tl.float32)
    for start in range(0, P, BP):
        p = start + tl.arange(0, BP)
        shortfall = _shortfall(points, draws, case, p, r, P, R, D, BP, BR)
        log_f = tl.load(result + case * P + p, mask=p < P, other=0.0)
        g = tl.load(gradient + case * P + p, mask=p < P, other=0.0)
        pull = tl.exp(-0.5 * shortfall - log_f[:, None]) * g[:, None]
        pull = tl.where((p < P)[:, None] & (r < R)[None, :], pull, 0.0)
        of_weights += tl.sum(pull, 0)
        pull = pull * w[None, :]
        for d in tl.static_range(D):
            y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
            x = tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
            moved = tl.maximum(x[None, :] - y[:, None], 0.0) * pull
            tl.store(for_points + (case * P + p) * D + d, tl.sum(moved, 1), mask=p < P)
            of_draws -= tl.where(row == d, tl.sum(moved, 0)[None, :], 0.0)
    tl.store(for_weights + case * R + r, of_weights, mask=r < R)
    tl.store(for_draws + (case * R + r[None, :]) * D + row, of_draws, mask=(r < R)[None, :] & (row < D))


def forward(points: Tensor, draws: Tensor, weights: Tensor) -> Tensor:
    """log F (n, P) of points (n, P, D) under draws (n, R, D) with weights (n, R)."""
    (count, n_points, n_targets), n_draws = points.shape, draws.shape[1]
    result = torch.empty(count, n_points, device=points.device)
    block = max(16, triton.next_power_of_2(n_draws))
    grid = (count, triton.cdiv(n_points, _POINTS))
    _forward[grid](points, draws, weights.log(), result, n_points, n_draws, n_targets, _POINTS, block, num_warps=4)
    return result


def backward(
    points: Tensor, draws: Tensor, weights: Tensor, result: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for points, draws and weights."""
    (count, n_points, n_targets), n_draws = points.shape, draws.shape[1]
    for_points, for_draws, for_weights = (torch.empty_like(part) for part in (points, draws, weights))
    _backward[(count,)](
        points, draws, weights, result, gradient, for_points, for_draws, for_weights, n_points, n_draws, n_targets,
        _POINTS, max(16, triton.next_power_of_2(n_draws)), triton.next_power_of_2(n_targets), num_warps=4,
    )  # fmt: skip
    return for_points, for_draws, for_weights
