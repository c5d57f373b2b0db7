"""The Triton kernels behind draws of a `GaussianMixture`.

Each draw reads the factor of its own component from the cache; nothing of size (draws, targets, targets) is made.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank.kernels.parts_kernel import columns, flattened, outer_product, times


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
def _draw_many(loc, tril, choice, noise, result, S, C, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr):
    """The same for many targets: a product with a component's factor beats reading a factor for every draw.

    Draws of a component usually stand together, so that few components occur in a block.
    """
    case = tl.program_id(0).to(tl.int64)
    s = tl.program_id(1) * BS + tl.arange(0, BS)
    j = tl.arange(0, BD)
    i = tl.arange(0, BD)[:, None]
    present = (s < S)[:, None] & (j < D)[None, :]
    place = (case * S + s)[:, None] * D + j[None, :]
    e = tl.load(noise + place, mask=present, other=0.0)
    chosen = tl.load(choice + case * S + s, mask=s < S, other=-1)
    first = tl.min(tl.where(s < S, chosen, C), 0)
    last = tl.max(chosen, 0)
    total = tl.zeros((BS, BD), dtype=tl.float32)
    for c in range(first, last + 1):
        base = case * C + c
        mean = tl.load(loc + base * D + j, mask=j < D, other=0.0)
        lower = tl.load(tril + (base * D + i) * D + j[None, :], mask=(i >= j[None, :]) & (i < D), other=0.0)
        total = tl.where((chosen == c)[:, None], mean[None, :] + times(e, tl.trans(lower), BD), total)
    tl.store(result + place, total, mask=present)


@triton.jit
def _draw_backward(
    gradient, choice, noise, for_loc, for_tril, S, C, D: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr
):
    case = tl.program_id(0).to(tl.int64)
    base = case * C + tl.program_id(1)
    j = tl.arange(0, BD)
    i = tl.arange(0, BD)[:, None]
    moved = tl.zeros((BD,), dtype=tl.float32)
    outer = tl.zeros((BD, BD), dtype=tl.float32)
    for start in range(0, S, BS):
        s = start + tl.arange(0, BS)
        own = (s < S) & (tl.load(choice + case * S + s, mask=s < S, other=-1) == tl.program_id(1))
        if tl.max(own.to(tl.int32), 0) > 0:
            place = (case * S + s)[:, None] * D + j[None, :]
            g = tl.load(gradient + place, mask=own[:, None] & (j < D)[None, :], other=0.0)
            e = tl.load(noise + place, mask=own[:, None] & (j < D)[None, :], other=0.0)
            moved += tl.sum(g, 0)
            outer += outer_product(g, e, BD)
    tl.store(for_loc + base * D + j, moved, mask=j < D)
    lower = tl.where(i >= j[None, :], outer, 0.0)
    tl.store(for_tril + (base * D + i) * D + j[None, :], lower, mask=(i < D) & (j[None, :] < D))


class _Draw(torch.autograd.Function):
    """mu_c + L_c eps for chosen components: loc (n, C, D), tril (n, C, D, D), choice (n, S), noise (n, S, D)."""

    @staticmethod
    def forward(ctx, loc: Tensor, tril: Tensor, choice: Tensor, noise: Tensor) -> Tensor:
        (count, n_components, n_targets), n_draws = loc.shape, choice.shape[1]
        result = torch.empty_like(noise)
        given = loc, tril, choice, noise, result, n_draws, n_components, n_targets
        if n_targets <= 8:
            _draw[(count, triton.cdiv(n_draws, 128))](*given, 128, num_warps=4)
        else:
            _draw_many[(count, triton.cdiv(n_draws, 32))](*given, 32, columns(n_targets), num_warps=1)
        ctx.save_for_backward(choice, noise)
        ctx.shapes = loc.shape, tril.shape
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        choice, noise = ctx.saved_tensors
        shape_loc, shape_tril = ctx.shapes
        for_loc, for_tril = gradient.new_empty(shape_loc), gradient.new_empty(shape_tril)
        (count, n_components, n_targets), n_draws = shape_loc, choice.shape[1]
        _draw_backward[(count, n_components)](
            gradient.contiguous(), choice, noise, for_loc, for_tril,
            n_draws, n_components, n_targets, 128 if n_targets <= 4 else 16, columns(n_targets), num_warps=1,
        )  # fmt: skip
        return for_loc, for_tril, None, None


def draw(loc: Tensor, tril: Tensor, choice: Tensor, noise: Tensor) -> Tensor:
    """mu_c + L_c eps (..., S, D) with c = choice (..., S), eps = noise (..., S, D)."""
    lead, flat = flattened((loc, 2), (tril, 3), (choice, 1), (noise, 2))
    return _Draw.apply(*flat).reshape(*lead, *noise.shape[-2:])
