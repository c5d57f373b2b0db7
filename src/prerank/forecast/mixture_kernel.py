"""The Triton kernels behind `GaussianMixture` on a GPU: drawing, and the log density. Imported only where there is one.

One program holds a block of draws (or points) of a case and goes through the components, so that a Cholesky factor is
read from the cache and nothing larger than the result is written. Factors are lower triangular; the other triangle is
neither read nor given a gradient.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def outer_product(a, b, BD: tl.constexpr):
    """a' b of (rows, BD) each: the matrix units where they apply, plain sums for few targets."""
    if BD >= 16:  # noqa: SIM108 - decided when the kernel is compiled
        product = tl.dot(tl.trans(a), b, input_precision="ieee")
    else:
        product = tl.sum(a[:, :, None] * b[:, None, :], 0)
    return product


@triton.jit
def _draw(loc, tril, choice, noise, result, S, C, D: tl.constexpr, BS: tl.constexpr):
    case = tl.program_id(0).to(tl.int64)
    s = tl.program_id(1) * BS + tl.arange(0, BS)
    inside = s < S
    c = case * C + tl.load(choice + case * S + s, mask=inside, other=0)
    for d in tl.static_range(D):
        value = tl.load(loc + c * D + d, mask=inside, other=0.0)
        for k in tl.static_range(d + 1):
            factor = tl.load(tril + (c * D + d) * D + k, mask=inside, other=0.0)
            value += factor * tl.load(noise + (case * S + s) * D + k, mask=inside, other=0.0)
        tl.store(result + (case * S + s) * D + d, value, mask=inside)


@triton.jit
def _draw_backward(
    gradient, choice, noise, for_loc, for_tril, S, C, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr
):
    case = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, BS)[:, None]
    j = tl.arange(0, BD)[None, :]
    i = tl.arange(0, BD)[:, None]
    inside = (s < S) & (j < D)
    g = tl.load(gradient + (case * S + s) * D + j, mask=inside, other=0.0)
    e = tl.load(noise + (case * S + s) * D + j, mask=inside, other=0.0)
    chosen = tl.load(choice + case * S + s, mask=s < S, other=-1)
    for c in range(C):
        own = tl.where(chosen == c, g, 0.0)
        column = tl.arange(0, BD)
        tl.store(for_loc + (case * C + c) * D + column, tl.sum(own, 0), mask=column < D)
        outer = tl.where(i >= j, outer_product(own, e, BD), 0.0)
        tl.store(for_tril + ((case * C + c) * D + i) * D + j, outer, mask=(i < D) & (j < D))


@triton.jit
def _component(points, loc, tril, case, c, p, P, C, D: tl.constexpr, BP: tl.constexpr, BD: tl.constexpr):
    """Whitened points (BP, BD) under component c by forward substitution, and log det of its factor."""
    k = tl.arange(0, BD)
    base = case * C + c
    z = tl.zeros((BP, BD), dtype=tl.float32)
    log_det = 0.0
    for d in tl.static_range(D):
        row = tl.load(tril + (base * D + d) * D + k, mask=k < d, other=0.0)
        diagonal = tl.load(tril + (base * D + d) * D + d)
        y = tl.load(points + (case * P + p) * D + d, mask=p < P, other=0.0)
        mean = tl.load(loc + base * D + d)
        value = (y - mean - tl.sum(z * row[None, :], 1)) / diagonal
        z = tl.where((k == d)[None, :], value[:, None], z)
        log_det += tl.log(diagonal)
    return z, log_det


@triton.jit
def _density(
    points, loc, tril, log_weights, result, P, C, HALF_LOG, D: tl.constexpr, BP: tl.constexpr, BD: tl.constexpr
):
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    largest = tl.full((BP,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BP,), dtype=tl.float32)
    for c in range(C):
        z, log_det = _component(points, loc, tril, case, c, p, P, C, D, BP, BD)
        log_p = tl.load(log_weights + case * C + c) - log_det - HALF_LOG - 0.5 * tl.sum(z * z, 1)
        higher = tl.maximum(largest, log_p)
        total = total * tl.exp(largest - higher) + tl.exp(log_p - higher)
        largest = higher
    tl.store(result + case * P + p, largest + tl.log(total), mask=p < P)


@triton.jit
def _density_backward(
    points, loc, tril, log_weights, result, gradient, for_points, for_loc, for_tril, for_weights,
    P, C, HALF_LOG, D: tl.constexpr, BP: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    # one program per case and component: each has its own part of the gradient for the points, summed afterwards
    case = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1)
    k = tl.arange(0, BD)
    i = tl.arange(0, BD)[:, None]
    base = case * C + c
    outer = tl.zeros((BD, BD), dtype=tl.float32)
    moved = tl.zeros((BD,), dtype=tl.float32)
    weight = 0.0
    for start in range(0, P, BP):
        p = start + tl.arange(0, BP)
        z, log_det = _component(points, loc, tril, case, c, p, P, C, D, BP, BD)
        log_p = tl.load(log_weights + base) - log_det - HALF_LOG - 0.5 * tl.sum(z * z, 1)
        log_f = tl.load(result + case * P + p, mask=p < P, other=0.0)
        g = tl.load(gradient + case * P + p, mask=p < P, other=0.0)
        share = tl.where(p < P, g * tl.exp(log_p - log_f), 0.0)
        # v solves L^T v = z, from the last target to the first
        v = tl.zeros((BP, BD), dtype=tl.float32)
        for back in tl.static_range(D):
            d = D - 1 - back
            column = tl.load(tril + (base * D + k) * D + d, mask=(k > d) & (k < D), other=0.0)
            diagonal = tl.load(tril + (base * D + d) * D + d)
            own = tl.sum(tl.where((k == d)[None, :], z, 0.0), 1)
            value = (own - tl.sum(v * column[None, :], 1)) / diagonal
            v = tl.where((k == d)[None, :], value[:, None], v)
        weighted = share[:, None] * v
        place = for_points + (base * P + p[:, None]) * D + k[None, :]
        tl.store(place, -weighted, mask=(p < P)[:, None] & (k < D)[None, :])
        outer += outer_product(weighted, z, BD)
        moved += tl.sum(weighted, 0)
        weight += tl.sum(share)
    diagonals = tl.load(tril + (base * D + i) * D + i, mask=i < D, other=1.0)
    outer = tl.where(i == k[None, :], outer - weight / diagonals, outer)
    outer = tl.where(i >= k[None, :], outer, 0.0)
    tl.store(for_tril + (base * D + i) * D + k[None, :], outer, mask=(i < D) & (k[None, :] < D))
    tl.store(for_loc + base * D + k, moved, mask=k < D)
    tl.store(for_weights + base, weight)


_HALF_LOG_TWO_PI = 0.9189385332046727


_BLOCK = 32  # points of a block


def _columns(n_targets: int) -> int:
    """Columns of a block: a power of two."""
    return triton.next_power_of_2(n_targets)


class Draw(torch.autograd.Function):
    """mu_c + L_c eps for chosen components: loc (n, C, D), tril (n, C, D, D), choice (n, S), noise (n, S, D)."""

    @staticmethod
    def forward(ctx, loc: Tensor, tril: Tensor, choice: Tensor, noise: Tensor) -> Tensor:
        (count, n_components, n_targets), n_draws = loc.shape, choice.shape[1]
        result = torch.empty_like(noise)
        grid = (count, triton.cdiv(n_draws, 128))
        _draw[grid](loc, tril, choice, noise, result, n_draws, n_components, n_targets, 128, num_warps=4)
        ctx.save_for_backward(choice, noise)
        ctx.shapes = loc.shape, tril.shape
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        choice, noise = ctx.saved_tensors
        shape_loc, shape_tril = ctx.shapes
        for_loc, for_tril = gradient.new_empty(shape_loc), gradient.new_empty(shape_tril)
        (count, n_components, n_targets), n_draws = shape_loc, choice.shape[1]
        _draw_backward[(count,)](
            gradient.contiguous(), choice, noise, for_loc, for_tril,
            n_draws, n_components, n_targets, max(16, triton.next_power_of_2(n_draws)), _columns(n_targets), num_warps=4,
        )  # fmt: skip
        return for_loc, for_tril, None, None


class LogDensity(torch.autograd.Function):
    """Log density (n, P) of points (n, P, D): loc (n, C, D), tril (n, C, D, D), log_weights (n, C)."""

    @staticmethod
    def forward(ctx, points: Tensor, loc: Tensor, tril: Tensor, log_weights: Tensor) -> Tensor:
        (count, n_points, n_targets), n_components = points.shape, loc.shape[1]
        result = torch.empty(points.shape[:2], dtype=points.dtype, device=points.device)
        _density[(count, triton.cdiv(n_points, _BLOCK))](
            points, loc, tril, log_weights, result,
            n_points, n_components, _HALF_LOG_TWO_PI * n_targets, n_targets, _BLOCK, _columns(n_targets), num_warps=1,
        )  # fmt: skip
        ctx.save_for_backward(points, loc, tril, log_weights, result)
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        points, loc, tril, log_weights, result = ctx.saved_tensors
        (count, n_points, n_targets), n_components = points.shape, loc.shape[1]
        for_points = points.new_empty(count, n_components, n_points, n_targets)
        for_loc, for_tril = torch.empty_like(loc), torch.empty_like(tril)
        for_weights = torch.empty_like(log_weights)
        _density_backward[(count, n_components)](
            points, loc, tril, log_weights, result, gradient.contiguous(), for_points, for_loc, for_tril, for_weights,
            n_points, n_components, _HALF_LOG_TWO_PI * n_targets, n_targets, _BLOCK, _columns(n_targets), num_warps=1,
        )  # fmt: skip
        return for_points.sum(1), for_loc, for_tril, for_weights
