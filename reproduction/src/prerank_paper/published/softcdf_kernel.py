"""The Triton kernels behind `prerank_paper.published.softcdf`.

As in `prerank._kernels.jointcdf_kernel`: a few points in each thread and the draws one after the other, or the other way
round. One kernel serves both, since a point and a draw exchange their roles with a sign.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank._kernels.jointcdf_kernel import WARP, Tile
from prerank._kernels.parts_kernel import coordinates, some, zeros

_MOST = tl.constexpr(80.0)  # a larger exponent changes no sigmoid, and its exponential would overflow


@triton.jit
def _odds(y, x, AGAINST: tl.constexpr):
    """Odds (BR, BP) against a row y (BP,) above one of the others x (BR,); with AGAINST for it."""
    difference = y[None, :] - x[:, None] if AGAINST else x[:, None] - y[None, :]
    return tl.exp(tl.minimum(difference, _MOST))


@triton.jit
def _forward(
    points, draws, result,
    P: tl.constexpr, R: tl.constexpr, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    y = coordinates(points, case * P + p, p < P, D)
    total = tl.zeros((BP,), dtype=tl.float32)
    for start in range(0, R, BR):
        r = start + tl.arange(0, BR)
        # a product of sigmoids; the denominator may overflow, and the product is then 0
        denominator = tl.full((BR, BP), 1.0, dtype=tl.float32)
        for d in tl.static_range(D):
            x = some(draws, (case * R + r) * D + d, r, R, BR, 0.0)
            denominator *= 1.0 + _odds(y[d], x, False)
        total += tl.sum(tl.where((r < R)[:, None], 1.0 / denominator, 0.0), 0)
    tl.store(result + case * P + p, total / R, mask=p < P)


@triton.jit
def _backward(
    rows, others, gradient, for_rows, SHARE,
    P: tl.constexpr, R: tl.constexpr, BY_ROW: tl.constexpr, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """Gradient of the rows: points against draws and `gradient` by row, or draws against points and the other way round."""
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    y = coordinates(rows, case * P + p, p < P, D)
    moved = zeros(p, D)
    for start in range(0, R, BR):
        r = start + tl.arange(0, BR)
        denominator = tl.full((BR, BP), 1.0, dtype=tl.float32)
        odds = ()
        for d in tl.static_range(D):
            x = some(others, (case * R + r) * D + d, r, R, BR, 0.0)
            odds = odds + (_odds(y[d], x, not BY_ROW),)  # noqa: RUF005 - Triton has no unpacking
            denominator *= 1.0 + odds[d]
        pull = tl.where((r < R)[:, None], 1.0 / denominator, 0.0)
        if not BY_ROW:
            pull = pull * some(gradient, case * R + r, r, R, BR, 0.0)[:, None]
        more = ()
        for d in tl.static_range(D):
            more = more + (moved[d] + tl.sum(pull * (odds[d] / (1.0 + odds[d])), 0),)  # noqa: RUF005
        moved = more
    if BY_ROW:  # noqa: SIM108 - decided when the kernel is compiled
        factor = SHARE * tl.load(gradient + case * P + p, mask=p < P, other=0.0)
    else:
        factor = -SHARE
    for d in tl.static_range(D):
        tl.store(for_rows + (case * P + p) * D + d, moved[d] * factor, mask=p < P)


def tiles(n_targets: int) -> tuple[Tile, Tile]:
    """For the forward pass and for gradients: the fastest of some on an H200."""
    if n_targets <= 16:
        return Tile(2 * WARP, 4), Tile((2 if n_targets <= 8 else 1) * WARP, 4)
    return Tile(WARP, 1), Tile(WARP, 1)


class _SoftJointCDF(torch.autograd.Function):
    """G (n, P) of scaled points (n, P, D) under scaled draws (n, R, D)."""

    @staticmethod
    def forward(ctx, points: Tensor, draws: Tensor) -> Tensor:
        points, draws = points.contiguous(), draws.contiguous()
        ctx.save_for_backward(points, draws)
        (count, n_points, n_targets), n_draws = points.shape, draws.shape[1]
        result = points.new_empty(count, n_points)
        tile, _ = tiles(n_targets)
        grid = (count, triton.cdiv(n_points, tile.rows))
        _forward[grid](points, draws, result, n_points, n_draws, n_targets, *tile, num_warps=1)
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        points, draws = ctx.saved_tensors
        gradient = gradient.contiguous()
        (count, _, n_targets), n_draws = points.shape, draws.shape[1]
        for_points, for_draws = torch.empty_like(points), torch.empty_like(draws)
        _, tile = tiles(n_targets)
        for rows, others, result, by_row in ((points, draws, for_points, True), (draws, points, for_draws, False)):
            _backward[(count, triton.cdiv(rows.shape[1], tile.rows))](
                rows, others, gradient, result, 1.0 / n_draws,
                rows.shape[1], others.shape[1], by_row, n_targets, *tile, num_warps=1,
            )  # fmt: skip
        return for_points, for_draws


def soft_joint_cdf(points: Tensor, draws: Tensor) -> Tensor:
    """G (n, P) of scaled points (n, P, D) under scaled draws (n, R, D)."""
    return _SoftJointCDF.apply(points, draws)
