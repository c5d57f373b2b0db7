"""The Triton kernels behind the published soft draws; imported only where there is a GPU.

A soft draw is an average of one draw per component. Written with library calls, every step of it is a tensor with an
axis of components; here a program goes through them and writes the average alone.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank.forecast.mixture_kernel import outer_product


@triton.jit
def _average(loc, tril, share, noise, result, S, C, D: tl.constexpr, BS: tl.constexpr):
    case = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, BS)
    inside = s < S
    for d in tl.static_range(D):
        total = tl.zeros((BS,), dtype=tl.float32)
        for c in range(C):
            base = case * C + c
            drawn = (case * S + s) * C + c
            value = tl.zeros((BS,), dtype=tl.float32) + tl.load(loc + base * D + d)
            for k in tl.static_range(d + 1):
                factor = tl.load(tril + (base * D + d) * D + k)
                value += factor * tl.load(noise + drawn * (D + 1) + k, mask=inside, other=0.0)
            total += tl.load(share + drawn, mask=inside, other=0.0) * value
        tl.store(result + (case * S + s) * D + d, total, mask=inside)


@triton.jit
def _average_backward(
    loc, tril, share, noise, gradient, for_loc, for_tril, for_share,
    S, C, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    base = case * C + tl.program_id(1)
    s = tl.arange(0, BS)
    k = tl.arange(0, BD)
    i = tl.arange(0, BD)[:, None]
    inside = (s < S)[:, None] & (k < D)[None, :]
    drawn = (case * S + s) * C + tl.program_id(1)
    g = tl.load(gradient + (case * S + s)[:, None] * D + k[None, :], mask=inside, other=0.0)
    e = tl.load(noise + drawn[:, None] * (D + 1) + k[None, :], mask=inside, other=0.0)
    w = tl.load(share + drawn, mask=s < S, other=0.0)
    mean = tl.load(loc + base * D + k, mask=k < D, other=0.0)
    lower = (i >= k[None, :]) & (i < D)
    factor = tl.load(tril + (base * D + i) * D + k[None, :], mask=lower, other=0.0)
    own = w[:, None] * g
    if BD >= 16:
        moved = tl.dot(e, tl.trans(factor), input_precision="ieee")
    else:
        moved = tl.sum(e[:, None, :] * factor[None, :, :], 2)
    tl.store(for_share + drawn, tl.sum(g * (mean[None, :] + moved), 1), mask=s < S)
    tl.store(for_loc + base * D + k, tl.sum(own, 0), mask=k < D)
    place = for_tril + (base * D + i) * D + k[None, :]
    tl.store(place, tl.where(lower, outer_product(own, e, BD), 0.0), mask=(i < D) & (k[None, :] < D))


class Average(torch.autograd.Function):
    """sum_c share_c (mu_c + L_c eps_c): loc (n, C, D), tril (n, C, D, D), share (n, S, C), noise (n, S, C, D + 1)."""

    @staticmethod
    def forward(ctx, loc: Tensor, tril: Tensor, share: Tensor, noise: Tensor) -> Tensor:
        (count, n_components, n_targets), n_draws = loc.shape, share.shape[1]
        result = loc.new_empty(count, n_draws, n_targets)
        block = max(16, triton.next_power_of_2(n_draws))
        _average[(count,)](loc, tril, share, noise, result, n_draws, n_components, n_targets, block, num_warps=4)
        ctx.save_for_backward(loc, tril, share, noise)
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        loc, tril, share, noise = ctx.saved_tensors
        (count, n_components, n_targets), n_draws = loc.shape, share.shape[1]
        for_loc, for_tril, for_share = torch.empty_like(loc), torch.empty_like(tril), torch.empty_like(share)
        _average_backward[(count, n_components)](
            loc, tril, share, noise, gradient.contiguous(), for_loc, for_tril, for_share,
            n_draws, n_components, n_targets,
            max(16, triton.next_power_of_2(n_draws)), triton.next_power_of_2(n_targets), num_warps=4,
        )  # fmt: skip
        return for_loc, for_tril, for_share, None
