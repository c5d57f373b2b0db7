"""The Triton kernels behind `prerank.calibration.jointcdf`; imported only where there is a GPU.

One program holds a block of points of a case against its draws, or a block of draws against its points, up to `COLUMNS`
of them at once: the pairs live in registers, target after target, and nothing of size (P, R) ever reaches memory. The
backward pass makes the pairs twice, once for the points and once for the draws, because a sum along the other axis would
have to leave a warp.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank.calibration.jointcdf import SMALLEST_WEIGHT

ROWS = 8  # points, or draws, of a block: what one warp can hold against COLUMNS of the others
COLUMNS = 256


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
def _forward(
    points, draws, log_weights, result,
    P, R, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    largest = tl.full((BP,), -3e38, dtype=tl.float32)  # finite: all draws of a block may weigh nothing
    total = tl.zeros((BP,), dtype=tl.float32)
    for block in range(BLOCKS):
        r = block * BR + tl.arange(0, BR)
        shortfall = _shortfall(points, draws, case, p, r, P, R, D, BP, BR)
        w = tl.load(log_weights + case * R + r, mask=r < R, other=float("-inf"))
        exponent = w[None, :] - 0.5 * shortfall
        higher = tl.maximum(largest, tl.max(exponent, 1))
        total = total * tl.exp(largest - higher) + tl.sum(tl.exp(exponent - higher[:, None]), 1)
        largest = higher
    tl.store(result + case * P + p, largest + tl.log(total), mask=p < P)


@triton.jit
def _backward_points(
    points, draws, log_weights, result, gradient, for_points,
    P, R, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    log_f = tl.load(result + case * P + p, mask=p < P, other=0.0)
    g = tl.load(gradient + case * P + p, mask=p < P, other=0.0)
    for block in range(BLOCKS):
        r = block * BR + tl.arange(0, BR)
        shortfall = _shortfall(points, draws, case, p, r, P, R, D, BP, BR)
        log_w = tl.load(log_weights + case * R + r, mask=r < R, other=float("-inf"))
        # each draw's share of F, at most one: F itself may be so small that dlogF/dw overflows
        pull = tl.exp(tl.minimum(log_w[None, :] - 0.5 * shortfall - log_f[:, None], 0.0)) * g[:, None]
        for d in tl.static_range(D):
            y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
            x = tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
            moved = tl.sum(tl.maximum(x[None, :] - y[:, None], 0.0) * pull, 1)
            add(for_points + (case * P + p) * D + d, moved, p < P, block)


@triton.jit
def _backward_draws(
    points, draws, log_weights, result, gradient, for_draws, for_weights,
    P, R, SMALLEST, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    r = tl.program_id(1) * BR + tl.arange(0, BR)
    log_w = tl.load(log_weights + case * R + r, mask=r < R, other=float("-inf"))
    weight = tl.maximum(tl.exp(log_w), SMALLEST)
    for block in range(BLOCKS):
        p = block * BP + tl.arange(0, BP)
        shortfall = tl.zeros((BR, BP), dtype=tl.float32)
        for d in tl.static_range(D):
            y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
            x = tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
            excess = tl.maximum(x[:, None] - y[None, :], 0.0)
            shortfall += excess * excess
        log_f = tl.load(result + case * P + p, mask=p < P, other=0.0)
        g = tl.load(gradient + case * P + p, mask=p < P, other=0.0)
        pull = tl.exp(tl.minimum(log_w[:, None] - 0.5 * shortfall - log_f[None, :], 0.0)) * g[None, :]
        add(for_weights + case * R + r, tl.sum(pull, 1) / weight, r < R, block)
        for d in tl.static_range(D):
            y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
            x = tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
            moved = tl.sum(tl.maximum(x[:, None] - y[None, :], 0.0) * pull, 1)
            add(for_draws + (case * R + r) * D + d, -moved, r < R, block)


@triton.jit
def add(place, value, inside, block):
    """The first block writes its sum, a later one adds to what is there: no other program writes to the same place."""
    if block > 0:
        tl.debug_barrier()  # what another thread of the program wrote must have arrived
        value += tl.load(place, mask=inside, other=0.0)
    tl.store(place, value, mask=inside)


def forward(points: Tensor, draws: Tensor, weights: Tensor) -> Tensor:
    """log F (n, P) of points (n, P, D) under draws (n, R, D) with weights (n, R)."""
    (count, n_points, n_targets), n_draws = points.shape, draws.shape[1]
    result = torch.empty(count, n_points, device=points.device)
    grid = (count, triton.cdiv(n_points, ROWS))
    _forward[grid](
        points, draws, weights.log(), result, n_points, n_draws, n_targets, ROWS, *blocks(n_draws), num_warps=1
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
        *given, for_points, n_points, n_draws, n_targets, ROWS, *blocks(n_draws), num_warps=1
    )
    width, n_blocks = blocks(n_points)
    _backward_draws[(count, triton.cdiv(n_draws, ROWS))](
        *given, for_draws, for_weights,
        n_points, n_draws, SMALLEST_WEIGHT, n_targets, width, ROWS, n_blocks, num_warps=1,
    )  # fmt: skip
    return for_points, for_draws, for_weights


def blocks(count: int) -> tuple[int, int]:
    """Columns of a block, a power of two, and how many blocks hold all of them; one that is alone is no loop."""
    width = min(COLUMNS, max(16, triton.next_power_of_2(count)))
    return width, triton.cdiv(count, width)
