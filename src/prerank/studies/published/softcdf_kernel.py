"""The Triton kernels behind `prerank.studies.published.softcdf`.

As in `prerank.kernels.jointcdf_kernel`: a point in each thread and the draws one after the other, or the other way
round. One kernel serves both, since a point and a draw exchange their roles with a sign.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank.kernels.jointcdf_kernel import ROWS
from prerank.kernels.parts_kernel import columns

AT_ONCE = 4  # how many of the others a thread meets at once: their sigmoids over all targets stay in its registers


@triton.jit
def _products(points, draws, case, p, r, P, R, SIGN, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr):
    """Products (BR, BP) of sigmoids of SIGN (points - draws): factors may overflow, the product is then 0."""
    denominator = tl.full((BR, BP), 1.0, dtype=tl.float32)
    for d in tl.static_range(D):
        y = SIGN * tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
        x = SIGN * tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
        denominator *= 1.0 + tl.exp(x[:, None] - y[None, :])
    return tl.where((r < R)[:, None] & (p < P)[None, :], 1.0 / denominator, 0.0)


@triton.jit
def _forward(points, draws, result, P, R, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr):
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    total = tl.zeros((BP,), dtype=tl.float32)
    for start in range(0, R, BR):
        r = start + tl.arange(0, BR)
        total += tl.sum(_products(points, draws, case, p, r, P, R, 1.0, D, BP, BR), 0)
    tl.store(result + case * P + p, total / R, mask=p < P)


@triton.jit
def _backward(
    rows, others, gradient, for_rows,
    P, R, SIGN, SHARE, BY_ROW: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """Gradient of the rows: points against draws with SIGN 1 and `gradient` by row, draws against points with -1."""
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    k = tl.arange(0, BD)[:, None]
    moved = tl.zeros((BD, BP), dtype=tl.float32)
    for start in range(0, R, BR):
        r = start + tl.arange(0, BR)
        pull = _products(rows, others, case, p, r, P, R, SIGN, D, BP, BR) * (SIGN * SHARE)
        if BY_ROW:
            pull = pull * tl.load(gradient + case * P + p, mask=p < P, other=0.0)[None, :]
        else:
            pull = pull * tl.load(gradient + case * R + r, mask=r < R, other=0.0)[:, None]
        for d in tl.static_range(D):
            y = SIGN * tl.load(rows + (case * P + p) * D + d, mask=p < P, other=0.0)
            x = SIGN * tl.load(others + (case * R + r) * D + d, mask=r < R, other=0.0)
            by = tl.sum(pull / (1.0 + tl.exp(y[None, :] - x[:, None])), 0)
            moved = tl.where(k == d, moved + by[None, :], moved)
    tl.store(for_rows + (case * P + p)[None, :] * D + k, moved, mask=(p < P)[None, :] & (k < D))


class _SoftJointCDF(torch.autograd.Function):
    """G (n, P) of scaled points (n, P, D) under scaled draws (n, R, D)."""

    @staticmethod
    def forward(ctx, points: Tensor, draws: Tensor) -> Tensor:
        points, draws = points.contiguous(), draws.contiguous()
        ctx.save_for_backward(points, draws)
        (count, n_points, n_targets), n_draws = points.shape, draws.shape[1]
        result = torch.empty(count, n_points, device=points.device)
        grid = (count, triton.cdiv(n_points, ROWS))
        _forward[grid](points, draws, result, n_points, n_draws, n_targets, ROWS, AT_ONCE, num_warps=1)
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        points, draws = ctx.saved_tensors
        gradient = gradient.contiguous()
        (count, n_points, n_targets), n_draws = points.shape, draws.shape[1]
        for_points, for_draws = torch.empty_like(points), torch.empty_like(draws)
        sizes = n_targets, columns(n_targets), ROWS, AT_ONCE
        _backward[(count, triton.cdiv(n_points, ROWS))](
            points, draws, gradient, for_points, n_points, n_draws, 1.0, 1.0 / n_draws, True, *sizes, num_warps=1
        )
        _backward[(count, triton.cdiv(n_draws, ROWS))](
            draws, points, gradient, for_draws, n_draws, n_points, -1.0, 1.0 / n_draws, False, *sizes, num_warps=1
        )
        return for_points, for_draws


def soft_joint_cdf(points: Tensor, draws: Tensor) -> Tensor:
    """G (n, P) of scaled points (n, P, D) under scaled draws (n, R, D)."""
    return _SoftJointCDF.apply(points, draws)
