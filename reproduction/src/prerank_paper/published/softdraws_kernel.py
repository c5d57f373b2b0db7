"""The Triton kernels behind the published soft draws.

A soft draw is an average of one draw per component. Written with library calls, every step of it is a tensor with an
axis of components, and every model has its own copy of the noise; here a program goes through the components, writes the
average alone, and models of one seed read the same noise. It is laid out draw by draw last, so that threads with a draw
each read numbers that stand beside each other.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank._kernels.parts_kernel import add_log, columns, flattened, outer_product, times


@triton.jit
def _log_share(log_weights, noise, case, drawn, c, s, S, C, D: tl.constexpr):
    """log of weight times exp(Gumbel variable) of one component, for each draw (BS,)."""
    gumbel = tl.load(noise + ((drawn * C + c) * (D + 1) + D) * S + s, mask=s < S, other=0.0)
    return tl.load(log_weights + case * C + c) + gumbel


@triton.jit
def _component(loc, tril, noise, base, c, drawn, s, S, C, D: tl.constexpr, BD: tl.constexpr):
    """Draws (BS, BD) of one component, and the normal numbers they are made of."""
    k = tl.arange(0, BD)
    i = tl.arange(0, BD)[:, None]
    place = noise + ((drawn * C + c) * (D + 1) + k[None, :]) * S + s[:, None]
    e = tl.load(place, mask=(s < S)[:, None] & (k < D)[None, :], other=0.0)
    mean = tl.load(loc + base * D + k, mask=k < D, other=0.0)
    factor = tl.load(tril + (base * D + i) * D + k[None, :], mask=(i >= k[None, :]) & (i < D), other=0.0)
    return mean[None, :] + times(e, tl.trans(factor), BD), e


@triton.jit
def _average(
    loc, tril, log_weights, noise, owner, log_totals, result,
    B, S, C, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    s = tl.program_id(1) * BS + tl.arange(0, BS)
    k = tl.arange(0, BD)
    drawn = tl.load(owner + case // B) * B + case % B
    largest = tl.full((BS,), float("-inf"), dtype=tl.float32)
    exponentials = tl.zeros((BS,), dtype=tl.float32)
    for c in range(C):
        value = _log_share(log_weights, noise, case, drawn, c, s, S, C, D)
        largest, exponentials = add_log(largest, exponentials, value)
    log_total = largest + tl.log(exponentials)
    tl.store(log_totals + case * S + s, log_total, mask=s < S)
    total = tl.zeros((BS, BD), dtype=tl.float32)
    for c in range(C):
        each, _ = _component(loc, tril, noise, case * C + c, c, drawn, s, S, C, D, BD)
        value = _log_share(log_weights, noise, case, drawn, c, s, S, C, D)
        total += tl.exp(value - log_total)[:, None] * each
    place = result + (case * S + s)[:, None] * D + k[None, :]
    tl.store(place, total, mask=(s < S)[:, None] & (k < D)[None, :])


@triton.jit
def _average_backward(
    loc, tril, log_weights, noise, owner, log_totals, result, gradient, for_loc, for_tril, for_weights,
    B, S, C, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """For `EACH` components of a case."""
    case = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BD)
    i = tl.arange(0, BD)[:, None]
    drawn = tl.load(owner + case // B) * B + case % B
    for number in range(EACH):
        c = tl.program_id(1) * EACH + number
        base = case * C + c
        weight = 0.0
        moved = tl.zeros((BD,), dtype=tl.float32)
        outer = tl.zeros((BD, BD), dtype=tl.float32)
        for start in range(0, S, BS):
            s = start + tl.arange(0, BS)
            inside = s < S
            log_total = tl.load(log_totals + case * S + s, mask=inside, other=0.0)
            each, e = _component(loc, tril, noise, base, c, drawn, s, S, C, D, BD)
            value = _log_share(log_weights, noise, case, drawn, c, s, S, C, D)
            share = tl.where(inside, tl.exp(value - log_total), 0.0)
            place = (case * S + s)[:, None] * D + k[None, :]
            present = inside[:, None] & (k < D)[None, :]
            g = tl.load(gradient + place, mask=present, other=0.0)
            average = tl.load(result + place, mask=present, other=0.0)
            # through the softmax: a share gains by how much its component lies above the average along the gradient
            weight += tl.sum(share * tl.sum(g * (each - average), 1))
            own = share[:, None] * g
            moved += tl.sum(own, 0)
            outer += outer_product(own, e, BD)
        tl.store(for_weights + base, weight)
        tl.store(for_loc + base * D + k, moved, mask=k < D)
        lower = tl.where(i >= k[None, :], outer, 0.0)
        tl.store(for_tril + (base * D + i) * D + k[None, :], lower, mask=(i < D) & (k[None, :] < D))


class _Average(torch.autograd.Function):
    """sum_c share_c (mu_c + L_c eps_c) (n, S, D), with shares softmax_c(log w_c + gumbel_c).

    loc (n, C, D), tril (n, C, D, D), log_weights (n, C) of n = models x B cases; noise (M, B, C, D + 1, S), normal numbers
    and after them a Gumbel variable; model e uses those of owner[e].
    """

    @staticmethod
    def forward(ctx, loc: Tensor, tril: Tensor, log_weights: Tensor, noise: Tensor, owner: Tensor) -> Tensor:
        (_, n_cases, n_components, _, n_draws), n_targets = noise.shape, loc.shape[-1]
        log_totals, result = loc.new_empty(len(loc), n_draws), loc.new_empty(len(loc), n_draws, n_targets)
        block = _block(n_targets)
        sizes = n_cases, n_draws, n_components, n_targets, block, columns(n_targets)
        given = loc, tril, log_weights, noise, owner, log_totals, result
        _average[(len(loc), triton.cdiv(n_draws, block))](*given, *sizes, num_warps=1)
        ctx.save_for_backward(*given)
        ctx.sizes = sizes
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        given = ctx.saved_tensors
        grown = [torch.empty_like(part) for part in given[:3]]
        count, n_components, n_targets = given[0].shape
        each = n_components if n_targets <= 4 else 1
        _average_backward[(count, n_components // each)](
            *given, gradient.contiguous(), *grown, *ctx.sizes, each, num_warps=1
        )
        return *grown, None, None


def _block(n_targets: int) -> int:
    """Draws of a block: what one warp can hold."""
    return 128 if n_targets <= 4 else 16


def soft_draws(loc: Tensor, tril: Tensor, log_weights: Tensor, noise: Tensor, owner: Tensor) -> Tensor:
    """Soft draws (..., B, S, D) of mixtures (..., B, C, D), (..., B, C, D, D), (..., B, C).

    Noise (M, B, S, C, D + 1) is copied unless `with_gumbel` has laid it out already; owner as above.
    """
    lead, flat = flattened((loc, 2), (tril, 3), (log_weights, 1))
    laid_out = noise.movedim(2, -1).contiguous()
    return _Average.apply(*flat, laid_out, owner).reshape(*lead, noise.shape[2], loc.shape[-1])
