"""The Triton kernels behind `GaussianMixture.draws_from` on a GPU.

One warp decides how many draws of a case every component gets, which draw is whose and what it weighs. All numbers of
draws are small whole numbers in floating point, so that their sums are exact in any order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank._kernels.parts_kernel import flattened

_COMPONENTS = 16  # the most, and the size of a block


@triton.jit
def _softmax(logits, case, c, C):
    """Weights of the components, zero outside."""
    logit = tl.load(logits + case * C + c, mask=c < C, other=float("-inf"))
    e = tl.exp(logit - tl.max(logit, 0))
    return e / tl.sum(e, 0)


@triton.jit
def _entry(x, c, at):
    """Entry `at` of a vector: a sum of zeros and one number is that number."""
    return tl.sum(tl.where(c == at, x, 0.0), 0)


@triton.jit
def _forward(logits, share, choice, free, at_least, S, C, BS: tl.constexpr, BC: tl.constexpr):
    case = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BC)
    s = tl.arange(0, BS)
    w = _softmax(logits, case, c, C)
    whole = tl.floor(w * free)
    remainder = tl.where(c < C, w * free - whole, -1.0)
    missing = free - tl.sum(whole, 0)
    order = tl.zeros((BC,), dtype=tl.float32)
    for other in range(C):
        rival = _entry(remainder, c, other)
        ahead = (rival > remainder) | ((rival == remainder) & (other < c))
        order += tl.where(ahead, 1.0, 0.0)
    counts = tl.where(c < C, whole + at_least + tl.where(order < missing, 1.0, 0.0), 0.0)
    # a draw belongs to the first component whose cumulative number of draws is above its position
    chosen = tl.zeros((BS,), dtype=tl.int32)
    for one in range(C - 1):
        chosen += (s >= tl.sum(tl.where(c <= one, counts, 0.0), 0)).to(tl.int32)
    value = tl.zeros((BS,), dtype=tl.float32)
    for one in range(C):
        value = tl.where(chosen == one, _entry(w / counts, c, one), value)
    tl.store(choice + case * S + s, chosen, mask=s < S)
    tl.store(share + case * S + s, value, mask=s < S)


@triton.jit
def _backward(logits, choice, gradient, for_logits, S, C, BS: tl.constexpr, BC: tl.constexpr):
    case = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BC)
    s = tl.arange(0, BS)
    chosen = tl.load(choice + case * S + s, mask=s < S, other=-1)
    g = tl.load(gradient + case * S + s, mask=s < S, other=0.0)
    of_w = tl.zeros((BC,), dtype=tl.float32)
    for one in range(C):
        own = chosen == one
        count = tl.sum(tl.where(own, 1.0, 0.0), 0)
        of_w = tl.where(c == one, tl.sum(tl.where(own, g, 0.0), 0) / tl.maximum(count, 1.0), of_w)
    w = _softmax(logits, case, c, C)
    tl.store(for_logits + case * C + c, w * (of_w - tl.sum(w * of_w, 0)), mask=c < C)


class _Allocation(torch.autograd.Function):
    """Shares (n, S) and components (n, S) of draws from logits (n, C), at least `at_least` draws per component."""

    @staticmethod
    def forward(ctx, logits: Tensor, n_draws: int, at_least: int) -> tuple[Tensor, Tensor]:
        count, n_components = logits.shape
        share = logits.new_empty(count, n_draws)
        choice = torch.empty(count, n_draws, dtype=torch.int32, device=logits.device)
        ctx.sizes = n_draws, n_components, max(32, triton.next_power_of_2(n_draws)), _COMPONENTS
        free = n_draws - at_least * n_components
        _forward[(count,)](logits, share, choice, free, at_least, *ctx.sizes, num_warps=1)
        ctx.save_for_backward(logits, choice)
        ctx.mark_non_differentiable(choice)
        ctx.set_materialize_grads(False)  # or zeros would be made for the components
        return share, choice

    @staticmethod
    def backward(ctx, gradient: Tensor | None, _):
        if gradient is None:
            return None, None, None
        logits, choice = ctx.saved_tensors
        for_logits = torch.empty_like(logits)
        _backward[(len(logits),)](logits, choice, gradient.contiguous(), for_logits, *ctx.sizes, num_warps=1)
        return for_logits, None, None


def allocation(logits: Tensor, n_draws: int, at_least: int) -> tuple[Tensor, Tensor]:
    """Shares (..., S) and components (..., S) of draws from logits (..., C)."""
    lead, flat = flattened((logits, 1))
    share, choice = _Allocation.apply(*flat, n_draws, at_least)
    return share.reshape(*lead, n_draws), choice.reshape(*lead, n_draws)
