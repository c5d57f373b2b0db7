"""The Triton kernels behind `prerank.calibration.jointcdf`.

One warp holds a point in each of its threads and goes through the draws, or a draw in each and goes through the points: the
pairs live in registers, target after target, no sum ever leaves a thread, and nothing of size (P, R) reaches memory. The
backward pass makes the pairs twice, once for the points and once for the draws.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank.kernels.parts_kernel import columns

ROWS = 32  # points, or draws, of a program: one in each thread of a warp


@triton.jit
def _shortfall(points, draws, case, p, r, P, R, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr):
    """How far points (BP,) are from dominating draws (BR,), squared: (BR, BP)."""
    total = tl.zeros((BR, BP), dtype=tl.float32)
    for d in tl.static_range(D):
        y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
        x = tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
        excess = tl.maximum(x[:, None] - y[None, :], 0.0)
        total += excess * excess
    return total


@triton.jit
def _forward(points, draws, log_weights, result, P, R, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr):
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    largest = tl.full((BP,), -3e38, dtype=tl.float32)  # finite: all draws of a block may weigh nothing
    total = tl.zeros((BP,), dtype=tl.float32)
    for start in range(0, R, BR):
        r = start + tl.arange(0, BR)
        shortfall = _shortfall(points, draws, case, p, r, P, R, D, BP, BR)
        w = tl.load(log_weights + case * R + r, mask=r < R, other=float("-inf"))
        exponent = w[:, None] - 0.5 * shortfall
        higher = tl.maximum(largest, tl.max(exponent, 0))
        total = total * tl.exp(largest - higher) + tl.sum(tl.exp(exponent - higher[None, :]), 0)
        largest = higher
    tl.store(result + case * P + p, largest + tl.log(total), mask=p < P)


@triton.jit
def _backward_points(
    points, draws, log_weights, result, gradient, for_points,
    P, R, D: tl.constexpr, BD: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    k = tl.arange(0, BD)[:, None]
    log_f = tl.load(result + case * P + p, mask=p < P, other=0.0)
    g = tl.load(gradient + case * P + p, mask=p < P, other=0.0)
    moved = tl.zeros((BD, BP), dtype=tl.float32)
    for start in range(0, R, BR):
        r = start + tl.arange(0, BR)
        shortfall = _shortfall(points, draws, case, p, r, P, R, D, BP, BR)
        log_w = tl.load(log_weights + case * R + r, mask=r < R, other=float("-inf"))
        # each draw's share of F, at most one: F itself may be so small that dlogF/dw overflows
        pull = tl.exp(tl.minimum(log_w[:, None] - 0.5 * shortfall - log_f[None, :], 0.0)) * g[None, :]
        for d in tl.static_range(D):
            y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
            x = tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
            by = tl.sum(tl.maximum(x[:, None] - y[None, :], 0.0) * pull, 0)
            moved = tl.where(k == d, moved + by[None, :], moved)
    tl.store(for_points + (case * P + p)[None, :] * D + k, moved, mask=(p < P)[None, :] & (k < D))


@triton.jit
def _backward_draws(
    points, draws, log_weights, result, gradient, for_draws, for_weights,
    P, R, SMALLEST, D: tl.constexpr, BD: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    r = tl.program_id(1) * BR + tl.arange(0, BR)
    k = tl.arange(0, BD)[:, None]
    log_w = tl.load(log_weights + case * R + r, mask=r < R, other=float("-inf"))
    share = tl.zeros((BR,), dtype=tl.float32)
    moved = tl.zeros((BD, BR), dtype=tl.float32)
    for start in range(0, P, BP):
        p = start + tl.arange(0, BP)
        shortfall = tl.zeros((BP, BR), dtype=tl.float32)
        for d in tl.static_range(D):
            y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
            x = tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
            excess = tl.maximum(x[None, :] - y[:, None], 0.0)
            shortfall += excess * excess
        log_f = tl.load(result + case * P + p, mask=p < P, other=0.0)
        g = tl.load(gradient + case * P + p, mask=p < P, other=0.0)
        pull = tl.exp(tl.minimum(log_w[None, :] - 0.5 * shortfall - log_f[:, None], 0.0)) * g[:, None]
        share += tl.sum(pull, 0)
        for d in tl.static_range(D):
            y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
            x = tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
            by = tl.sum(tl.maximum(x[None, :] - y[:, None], 0.0) * pull, 0)
            moved = tl.where(k == d, moved - by[None, :], moved)
    tl.store(for_weights + case * R + r, share / tl.maximum(tl.exp(log_w), SMALLEST), mask=r < R)
    tl.store(for_draws + (case * R + r)[None, :] * D + k, moved, mask=(r < R)[None, :] & (k < D))


class _LogJointCDF(torch.autograd.Function):
    """log F (n, P) of points (n, P, D) under draws (n, R, D) with weights (n, R)."""

    @staticmethod
    def forward(ctx, points: Tensor, draws: Tensor, weights: Tensor, smallest_weight: float) -> Tensor:
        points, draws, weights = points.contiguous(), draws.contiguous(), weights.contiguous()
        (count, n_points, n_targets), n_draws = points.shape, draws.shape[1]
        result = torch.empty(count, n_points, device=points.device)
        _forward[(count, triton.cdiv(n_points, ROWS))](
            points, draws, weights.log(), result, n_points, n_draws, n_targets, ROWS, at_once(n_targets), num_warps=1
        )  # fmt: skip
        ctx.save_for_backward(points, draws, weights, result)
        ctx.smallest_weight = smallest_weight
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        points, draws, weights, result = ctx.saved_tensors
        (count, n_points, n_targets), n_draws = points.shape, draws.shape[1]
        for_points, for_draws, for_weights = (torch.empty_like(part) for part in (points, draws, weights))
        given = points, draws, weights.log(), result, gradient.contiguous()
        width, some = columns(n_targets), at_once(n_targets)
        _backward_points[(count, triton.cdiv(n_points, ROWS))](
            *given, for_points, n_points, n_draws, n_targets, width, ROWS, some, num_warps=1
        )
        _backward_draws[(count, triton.cdiv(n_draws, ROWS))](
            *given, for_draws, for_weights,
            n_points, n_draws, ctx.smallest_weight, n_targets, width, some, ROWS, num_warps=1,
        )  # fmt: skip
        return for_points, for_draws, for_weights, None


def log_joint_cdf(points: Tensor, draws: Tensor, weights: Tensor, smallest_weight: float) -> Tensor:
    """log F (n, P) of points (n, P, D) under draws (n, R, D) with weights (n, R); a lesser weight has no gradient."""
    return _LogJointCDF.apply(points, draws, weights, smallest_weight)


def at_once(n_targets: int) -> int:
    """How many of the others a thread meets at once: their excesses over all targets stay in its registers."""
    return 32 if n_targets <= 2 else 4
