"""The Triton kernels behind the PIT of a `GaussianMixture` along directions.

A linear function of a mixture is a univariate mixture: its components' means and lengths are made where they are used.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank._kernels.parts_kernel import cases_of_a_block, columns, flattened, log_total


@triton.jit
def _along(
    y, loc, tril, directions, case, c, k, inside, STEP, K, C, D: tl.constexpr, BD: tl.constexpr
):  # fmt: skip
    """Direction k (BN, BD) of a block of cases, its image under the factor of component c, its length, the z-score."""
    d = tl.arange(0, BD)
    columns = inside[:, None] & (d < D)[None, :]
    u = tl.load(directions + case[:, None] * STEP + d[None, :] * K + k, mask=columns, other=0.0)
    i = d[None, :, None]
    j = d[None, None, :]
    base = case * C + c
    lower = inside[:, None, None] & (i >= j) & (i < D)
    factor = tl.load(tril + (base[:, None, None] * D + i) * D + j, mask=lower, other=0.0)
    image = tl.sum(factor * u[:, :, None], 1)
    length = tl.sqrt(tl.sum(image * image, 1))
    length = tl.where(inside, length, 1.0)
    centred = tl.load(y + case[:, None] * D + d[None, :], mask=columns, other=0.0)
    centred -= tl.load(loc + base[:, None] * D + d[None, :], mask=columns, other=0.0)
    return u, image, length, tl.sum(u * centred, 1) / length


@triton.jit
def _ndtr(z):
    return 0.5 + 0.5 * tl.erf(z * 0.7071067811865476)


@triton.jit
def _cdf(
    y, loc, tril, logits, directions, result,
    N, STEP, K, C, D: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    k = tl.program_id(1)
    inside = case < N
    total_weight = log_total(logits, case, inside, C)
    total = tl.zeros((BN,), dtype=tl.float32)
    for c in range(C):
        _, _, _, z = _along(y, loc, tril, directions, case, c, k, inside, STEP, K, C, D, BD)
        weight = tl.exp(tl.load(logits + case * C + c, mask=inside, other=0.0) - total_weight)
        total += weight * _ndtr(z)
    tl.store(result + case * K + k, tl.minimum(total, 1.0), mask=inside)


@triton.jit
def _cdf_backward(
    y, loc, tril, logits, directions, result, gradient, for_loc, for_tril, for_logits,
    N, STEP, K, C, D: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    c = tl.program_id(1)
    inside = case < N
    base = case * C + c
    d = tl.arange(0, BD)
    weight = tl.exp(tl.load(logits + base, mask=inside, other=0.0) - log_total(logits, case, inside, C))
    moved = tl.zeros((BN, BD), dtype=tl.float32)
    stretched = tl.zeros((BN, BD, BD), dtype=tl.float32)
    shifted = tl.zeros((BN,), dtype=tl.float32)
    for k in range(K):
        u, image, length, z = _along(y, loc, tril, directions, case, c, k, inside, STEP, K, C, D, BD)
        g = tl.load(gradient + case * K + k, mask=inside, other=0.0) * weight
        shifted += g * (_ndtr(z) - tl.load(result + case * K + k, mask=inside, other=0.0))
        pull = g * 0.3989422804014327 * tl.exp(-0.5 * z * z) / length
        moved -= pull[:, None] * u
        stretched -= (pull * z / length)[:, None, None] * u[:, :, None] * image[:, None, :]
    tl.store(for_logits + base, shifted, mask=inside)
    tl.store(for_loc + base[:, None] * D + d[None, :], moved, mask=inside[:, None] & (d < D)[None, :])
    i = d[None, :, None]
    j = d[None, None, :]
    place = for_tril + (base[:, None, None] * D + i) * D + j
    tl.store(place, tl.where(i >= j, stretched, 0.0), mask=inside[:, None, None] & (i < D) & (j < D))


class _CDFAlong(torch.autograd.Function):
    """CDF of u' Y at u' y, (n, K): y (n, D), loc (n, C, D), tril (n, C, D, D), logits (n, C).

    The directions (n or 1, D, K) are held fixed.
    """

    @staticmethod
    def forward(ctx, y: Tensor, loc: Tensor, tril: Tensor, logits: Tensor, directions: Tensor) -> Tensor:
        (count, n_components, n_targets), n_directions = loc.shape, directions.shape[-1]
        result = y.new_empty(count, n_directions)
        step = directions[0].numel() if len(directions) > 1 else 0
        block = cases_of_a_block(n_targets)
        ctx.sizes = count, step, n_directions, n_components, n_targets, block, columns(n_targets)
        given = y, loc, tril, logits, directions, result
        _cdf[(triton.cdiv(count, block), n_directions)](*given, *ctx.sizes, num_warps=1)
        ctx.save_for_backward(*given)
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        given = ctx.saved_tensors
        grown = [torch.empty_like(part) for part in given[1:4]]
        count, _, _, n_components, _, block, _ = ctx.sizes
        grid = (triton.cdiv(count, block), n_components)
        _cdf_backward[grid](*given, gradient.contiguous(), *grown, *ctx.sizes, num_warps=1)
        return None, *grown, None


def pit_along(y: Tensor, loc: Tensor, tril: Tensor, logits: Tensor, directions: Tensor) -> Tensor:
    """CDF of u' Y at u' y, (..., K): y (..., D), loc (..., C, D), directions (..., D, K), which may be one for all."""
    lead, flat = flattened((y, 1), (loc, 2), (tril, 3), (logits, 1))
    shape = directions.shape[-2:]
    if directions.shape[:-2].numel() > 1:
        directions = directions.expand(*lead, *shape)
    return _CDFAlong.apply(*flat, directions.reshape(-1, *shape).contiguous()).reshape(*lead, shape[-1])
