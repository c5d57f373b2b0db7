"""The Triton kernels behind `prerank.training.softcdf`; imported only where there is a GPU.

One program holds a block of points of a case against all its draws: the pairs live in registers, target after target,
nothing of size (P, R) reaches memory, and no two programs write to the same place.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_POINTS = 32  # points of a block


@triton.jit
def _products(points, draws, case, p, r, P, R, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr):
    product = tl.full((BP, BR), 1.0, dtype=tl.float32)
    for d in tl.static_range(D):
        y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
        x = tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
        product = product / (1.0 + tl.exp(x[None, :] - y[:, None]))
    return tl.where((p < P)[:, None] & (r < R)[None, :], product, 0.0)


@triton.jit
def _forward(points, draws, result, P, R, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr):
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    r = tl.arange(0, BR)
    product = _products(points, draws, case, p, r, P, R, D, BP, BR)
    tl.store(result + case * P + p, tl.sum(product, 1) / R, mask=p < P)


@triton.jit
def _backward(
    points, draws, gradient, for_points, for_draws,
    P, R, D: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    # one program goes through all blocks of a case: it alone adds to the gradients of the case's draws
    case = tl.program_id(0).to(tl.int64)
    r = tl.arange(0, BR)
    row = tl.arange(0, BD)[:, None]
    of_draws = tl.zeros((BD, BR), dtype=tl.float32)
    for start in range(0, P, BP):
        p = start + tl.arange(0, BP)
        g = tl.load(gradient + case * P + p, mask=p < P, other=0.0)
        pull = _products(points, draws, case, p, r, P, R, D, BP, BR) * (g / R)[:, None]
        for d in tl.static_range(D):
            y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
            x = tl.load(draws + (case * R + r) * D + d, mask=r < R, other=0.0)
            moved = pull / (1.0 + tl.exp(y[:, None] - x[None, :]))
            tl.store(for_points + (case * P + p) * D + d, tl.sum(moved, 1), mask=p < P)
            of_draws -= tl.where(row == d, tl.sum(moved, 0)[None, :], 0.0)
    tl.store(for_draws + (case * R + r[None, :]) * D + row, of_draws, mask=(r < R)[None, :] & (row < D))


def forward(points: Tensor, draws: Tensor) -> Tensor:
    """G (n, P) of scaled points (n, P, D) under scaled draws (n, R, D)."""
    (count, n_points, n_targets), n_draws = points.shape, draws.shape[1]
    result = torch.empty(count, n_points, device=points.device)
    block = max(16, triton.next_power_of_2(n_draws))
    grid = (count, triton.cdiv(n_points, _POINTS))
    _forward[grid](points, draws, result, n_points, n_draws, n_targets, _POINTS, block, num_warps=4)
    return result


def backward(points: Tensor, draws: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients for points and draws."""
    (count, n_points, n_targets), n_draws = points.shape, draws.shape[1]
    for_points, for_draws = torch.empty_like(points), torch.empty_like(draws)
    _backward[(count,)](
        points, draws, gradient, for_points, for_draws, n_points, n_draws, n_targets,
        _POINTS, max(16, triton.next_power_of_2(n_draws)), triton.next_power_of_2(n_targets), num_warps=4,
    )  # fmt: skip
    return for_points, for_draws
