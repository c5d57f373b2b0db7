"""The Triton kernels behind the log density of a `GaussianMixture`.

Many points of a case are whitened together by the inverse of each factor, which is small; a single point per case is
whitened by substitution, a block of cases together.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank._kernels.parts_kernel import add_log, cases_of_a_block, columns, flattened, log_total, outer_product, times

_HALF_LOG_TWO_PI = 0.9189385332046727


@triton.jit
def _invert(tril, log_weights, inverse, height, N, D: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    """Inverses of a block of factors, row by row, and the logs of weights over their determinants."""
    n = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    inside = n < N
    i = tl.arange(0, BD)[None, :, None]
    k = tl.arange(0, BD)[None, None, :]
    found = tl.zeros((BN, BD, BD), dtype=tl.float32)
    log_height = tl.load(log_weights + n, mask=inside, other=0.0)
    for d in tl.static_range(D):
        row = tl.load(tril + (n[:, None, None] * D + d) * D + i, mask=inside[:, None, None] & (i < d), other=0.0)
        diagonal = tl.load(tril + (n * D + d) * D + d, mask=inside, other=1.0)
        value = (tl.where(k == d, 1.0, 0.0) - tl.sum(found * row, 1)[:, None, :]) / diagonal[:, None, None]
        found = tl.where(i == d, value, found)
        log_height -= tl.log(diagonal)
    place = inverse + (n[:, None, None] * D + i) * D + k
    tl.store(place, found, mask=inside[:, None, None] & (i < D) & (k < D))
    tl.store(height + n, log_height, mask=inside)


@triton.jit
def _component(points, loc, inverse, height, case, base, p, P, D: tl.constexpr, BD: tl.constexpr):
    """Whitened points (BP, BD) under a component, and the log of its weight times its density, but for a constant."""
    k = tl.arange(0, BD)[None, :]
    i = tl.arange(0, BD)[:, None]
    y = tl.load(points + (case * P + p)[:, None] * D + k, mask=(p < P)[:, None] & (k < D), other=0.0)
    mean = tl.load(loc + base * D + k, mask=k < D, other=0.0)
    transposed = tl.load(inverse + (base * D + k) * D + i, mask=(i < D) & (k < D), other=0.0)
    z = times(y - mean, transposed, BD)
    return z, tl.load(height + base) - 0.5 * tl.sum(z * z, 1)


@triton.jit
def _density(points, loc, inverse, height, result, P, C, HALF_LOG, D: tl.constexpr, BP: tl.constexpr, BD: tl.constexpr):
    case = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    largest = tl.full((BP,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BP,), dtype=tl.float32)
    for c in range(C):
        _, log_p = _component(points, loc, inverse, height, case, case * C + c, p, P, D, BD)
        largest, total = add_log(largest, total, log_p)
    tl.store(result + case * P + p, largest + tl.log(total) - HALF_LOG, mask=p < P)


@triton.jit
def _density_backward(
    points, loc, inverse, height, result, gradient, for_points, for_loc, for_tril, for_weights,
    P, C, HALF_LOG, D: tl.constexpr, BP: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BD)[None, :]
    i = tl.arange(0, BD)[:, None]
    square = (i < D) & (k < D)
    for c in range(C):
        base = case * C + c
        own = tl.load(inverse + (base * D + i) * D + k, mask=square, other=0.0)
        outer = tl.zeros((BD, BD), dtype=tl.float32)
        moved = tl.zeros((BD,), dtype=tl.float32)
        weight = 0.0
        for start in range(0, P, BP):
            p = start + tl.arange(0, BP)
            z, log_p = _component(points, loc, inverse, height, case, base, p, P, D, BD)
            log_f = tl.load(result + case * P + p, mask=p < P, other=0.0) + HALF_LOG
            g = tl.load(gradient + case * P + p, mask=p < P, other=0.0)
            share = tl.where(p < P, g * tl.exp(tl.minimum(log_p - log_f, 0.0)), 0.0)  # far out, rounding could exceed 1
            weighted = share[:, None] * times(z, own, BD)
            place = for_points + (case * P + p)[:, None] * D + k
            inside = (p < P)[:, None] & (k < D)
            before = tl.load(place, mask=inside & (c > 0), other=0.0)  # by this very program, component by component
            tl.store(place, before - weighted, mask=inside)
            outer += outer_product(weighted, z, BD)
            moved += tl.sum(weighted, 0)
            weight += tl.sum(share)
        outer = tl.where(i == k, outer - weight * own, outer)
        tl.store(for_tril + (base * D + i) * D + k, tl.where(i >= k, outer, 0.0), mask=square)
        tl.store(for_loc + base * D + tl.arange(0, BD), moved, mask=tl.arange(0, BD) < D)
        tl.store(for_weights + base, weight)
        tl.debug_barrier()  # the next component adds to what was just written


@triton.jit
def _whiten(y, loc, tril, case, c, inside, C, D: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    """One point each of a block of cases, whitened (BN, BD) under component c, and log det of its factors."""
    k = tl.arange(0, BD)[None, :]
    base = case * C + c
    z = tl.zeros((BN, BD), dtype=tl.float32)
    log_det = tl.zeros((BN,), dtype=tl.float32)
    for d in tl.static_range(D):
        row = tl.load(tril + (base[:, None] * D + d) * D + k, mask=inside[:, None] & (k < d), other=0.0)
        diagonal = tl.load(tril + (base * D + d) * D + d, mask=inside, other=1.0)
        centred = tl.load(y + case * D + d, mask=inside, other=0.0) - tl.load(
            loc + base * D + d, mask=inside, other=0.0
        )
        value = (centred - tl.sum(z * row, 1)) / diagonal
        z = tl.where(k == d, value[:, None], z)
        log_det += tl.log(diagonal)
    return z, log_det


@triton.jit
def _log_prob(
    y, loc, tril, logits, result, N, C, HALF_LOG, D: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    inside = case < N
    total_weight = log_total(logits, case, inside, C)
    largest = tl.full((BN,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BN,), dtype=tl.float32)
    for c in range(C):
        z, log_det = _whiten(y, loc, tril, case, c, inside, C, D, BN, BD)
        logit = tl.load(logits + case * C + c, mask=inside, other=0.0)
        log_p = logit - total_weight - log_det - HALF_LOG - 0.5 * tl.sum(z * z, 1)
        largest, total = add_log(largest, total, log_p)
    tl.store(result + case, largest + tl.log(total), mask=inside)


@triton.jit
def _log_prob_backward(
    y, loc, tril, logits, result, gradient, for_loc, for_tril, for_logits,
    N, C, HALF_LOG, D: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    c = tl.program_id(1)
    inside = case < N
    base = case * C + c
    k = tl.arange(0, BD)
    z, log_det = _whiten(y, loc, tril, case, c, inside, C, D, BN, BD)
    log_weight = tl.load(logits + base, mask=inside, other=0.0) - log_total(logits, case, inside, C)
    log_p = log_weight - log_det - HALF_LOG - 0.5 * tl.sum(z * z, 1)
    g = tl.load(gradient + case, mask=inside, other=0.0)
    share = g * tl.exp(tl.minimum(log_p - tl.load(result + case, mask=inside, other=0.0), 0.0))
    tl.store(for_logits + base, share - g * tl.exp(log_weight), mask=inside)
    # v solves L^T v = z, from the last target to the first
    v = tl.zeros((BN, BD), dtype=tl.float32)
    inverse = tl.zeros((BN, BD), dtype=tl.float32)
    for back in tl.static_range(D):
        d = D - 1 - back
        below = inside[:, None] & (k > d)[None, :] & (k < D)[None, :]
        column = tl.load(tril + (base[:, None] * D + k[None, :]) * D + d, mask=below, other=0.0)
        reciprocal = 1.0 / tl.load(tril + (base * D + d) * D + d, mask=inside, other=1.0)
        own = tl.sum(tl.where((k == d)[None, :], z, 0.0), 1)
        value = (own - tl.sum(v * column, 1)) * reciprocal
        v = tl.where((k == d)[None, :], value[:, None], v)
        inverse = tl.where((k == d)[None, :], reciprocal[:, None], inverse)
    columns = inside[:, None] & (k < D)[None, :]
    tl.store(for_loc + base[:, None] * D + k[None, :], share[:, None] * v, mask=columns)
    i = k[None, :, None]
    j = k[None, None, :]
    outer = v[:, :, None] * z[:, None, :] - tl.where(i == j, inverse[:, :, None], 0.0)
    outer = tl.where(i >= j, share[:, None, None] * outer, 0.0)
    place = for_tril + (base[:, None, None] * D + i) * D + j
    tl.store(place, outer, mask=inside[:, None, None] & (i < D) & (j < D))


def _points(n_targets: int) -> int:
    """Points of a block: what one warp can hold."""
    return {1: 128, 2: 128, 4: 64}.get(columns(n_targets), 16)


class _LogDensity(torch.autograd.Function):
    """Log density (n, P) of points (n, P, D): loc (n, C, D), tril (n, C, D, D), log_weights (n, C)."""

    @staticmethod
    def forward(ctx, points: Tensor, loc: Tensor, tril: Tensor, log_weights: Tensor) -> Tensor:
        (count, n_points, n_targets), n_components = points.shape, loc.shape[1]
        width, factors = columns(n_targets), cases_of_a_block(n_targets)
        inverse, height = torch.empty_like(tril), torch.empty_like(log_weights)
        n_factors = count * n_components
        _invert[(triton.cdiv(n_factors, factors),)](
            tril, log_weights, inverse, height, n_factors, n_targets, factors, width, num_warps=1
        )
        result = torch.empty(points.shape[:2], dtype=points.dtype, device=points.device)
        block = _points(n_targets)
        ctx.sizes = n_points, n_components, _HALF_LOG_TWO_PI * n_targets, n_targets, block, width
        given = points, loc, inverse, height, result
        _density[(count, triton.cdiv(n_points, block))](*given, *ctx.sizes, num_warps=1)
        ctx.save_for_backward(*given)
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        given = ctx.saved_tensors
        grown = [torch.empty_like(part) for part in given[:4]]
        _density_backward[(len(given[0]),)](*given, gradient.contiguous(), *grown, *ctx.sizes, num_warps=1)
        return tuple(grown)


class _LogProb(torch.autograd.Function):
    """Log density (n,) of one point per case, y (n, D): loc (n, C, D), tril (n, C, D, D), logits (n, C)."""

    @staticmethod
    def forward(ctx, y: Tensor, loc: Tensor, tril: Tensor, logits: Tensor) -> Tensor:
        count, n_components, n_targets = loc.shape
        result = torch.empty(count, dtype=y.dtype, device=y.device)
        block, half_log = cases_of_a_block(n_targets), _HALF_LOG_TWO_PI * n_targets
        ctx.sizes = count, n_components, half_log, n_targets, block, columns(n_targets)
        given = y, loc, tril, logits, result
        _log_prob[(triton.cdiv(count, block),)](*given, *ctx.sizes, num_warps=1)
        ctx.save_for_backward(*given)
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        given = ctx.saved_tensors
        grown = [torch.empty_like(part) for part in given[1:4]]
        count, n_components, _, _, block, _ = ctx.sizes
        grid = (triton.cdiv(count, block), n_components)
        _log_prob_backward[grid](*given, gradient.contiguous(), *grown, *ctx.sizes, num_warps=1)
        return None, *grown


def log_density(points: Tensor, loc: Tensor, tril: Tensor, log_weights: Tensor) -> Tensor:
    """Log density (..., P) of points (..., P, D) under mixtures (..., C, D), (..., C, D, D), (..., C)."""
    lead, flat = flattened((points, 2), (loc, 2), (tril, 3), (log_weights, 1))
    return _LogDensity.apply(*flat).reshape(*lead, points.shape[-2])


def log_prob(y: Tensor, loc: Tensor, tril: Tensor, logits: Tensor) -> Tensor:
    """Log density (...) of y (..., D) under mixtures (..., C, D), (..., C, D, D), (..., C)."""
    lead, flat = flattened((y, 1), (loc, 2), (tril, 3), (logits, 1))
    return _LogProb.apply(*flat).reshape(lead)
