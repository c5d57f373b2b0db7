"""The Triton kernels behind draws of a `GaussianMixture`.

Each draw reads the factor of its own component from the cache; nothing of size (draws, targets, targets) is made.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from prerank._kernels.parts_kernel import columns, flattened, outer_product, times


@triton.jit
def _drawn(case, owner, B, SHARED: tl.constexpr):
    """Whose numbers a case uses: its own, or those of the model that is the owner of its model's."""
    if SHARED:  # noqa: SIM108 - decided when the kernel is compiled
        drawn = tl.load(owner + case // B) * B + case % B
    else:
        drawn = case
    return drawn


@triton.jit
def _draw(loc, tril, choice, noise, owner, result, B, S, C, D: tl.constexpr, SHARED: tl.constexpr, BS: tl.constexpr):
    case = tl.program_id(0).to(tl.int64)
    drawn = _drawn(case, owner, B, SHARED)
    s = tl.program_id(1) * BS + tl.arange(0, BS)
    inside = s < S
    c = case * C + tl.load(choice + case * S + s, mask=inside, other=0)
    for d in tl.static_range(D):
        value = tl.load(loc + c * D + d, mask=inside, other=0.0)
        for k in tl.static_range(d + 1):
            factor = tl.load(tril + (c * D + d) * D + k, mask=inside, other=0.0)
            value += factor * tl.load(noise + (drawn * S + s) * D + k, mask=inside, other=0.0)
        tl.store(result + (case * S + s) * D + d, value, mask=inside)


@triton.jit
def _draw_many(
    loc, tril, choice, noise, owner, result,
    B, S, C, D: tl.constexpr, SHARED: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """The same for many targets: a product with a component's factor beats reading a factor for every draw.

    Draws of a component usually stand together, so that few components occur in a block.
    """
    case = tl.program_id(0).to(tl.int64)
    s = tl.program_id(1) * BS + tl.arange(0, BS)
    j = tl.arange(0, BD)
    i = tl.arange(0, BD)[:, None]
    present = (s < S)[:, None] & (j < D)[None, :]
    drawn = _drawn(case, owner, B, SHARED)
    e = tl.load(noise + (drawn * S + s)[:, None] * D + j[None, :], mask=present, other=0.0)
    chosen = tl.load(choice + case * S + s, mask=s < S, other=-1)
    first = tl.min(tl.where(s < S, chosen, C), 0)
    last = tl.max(chosen, 0)
    total = tl.zeros((BS, BD), dtype=tl.float32)
    for c in range(first, last + 1):
        base = case * C + c
        mean = tl.load(loc + base * D + j, mask=j < D, other=0.0)
        lower = tl.load(tril + (base * D + i) * D + j[None, :], mask=(i >= j[None, :]) & (i < D), other=0.0)
        total = tl.where((chosen == c)[:, None], mean[None, :] + times(e, tl.trans(lower), BD), total)
    tl.store(result + (case * S + s)[:, None] * D + j[None, :], total, mask=present)


@triton.jit
def _draw_backward(
    gradient, choice, noise, owner, for_loc, for_tril,
    B, S, C, D: tl.constexpr, SHARED: tl.constexpr, EACH: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """For `EACH` components of a case."""
    case = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, BD)
    i = tl.arange(0, BD)[:, None]
    drawn = _drawn(case, owner, B, SHARED)
    for number in range(EACH):
        c = tl.program_id(1) * EACH + number
        base = case * C + c
        moved = tl.zeros((BD,), dtype=tl.float32)
        outer = tl.zeros((BD, BD), dtype=tl.float32)
        for start in range(0, S, BS):
            s = start + tl.arange(0, BS)
            own = (s < S) & (tl.load(choice + case * S + s, mask=s < S, other=-1) == c)
            if tl.max(own.to(tl.int32), 0) > 0:
                present = own[:, None] & (j < D)[None, :]
                g = tl.load(gradient + (case * S + s)[:, None] * D + j[None, :], mask=present, other=0.0)
                e = tl.load(noise + (drawn * S + s)[:, None] * D + j[None, :], mask=present, other=0.0)
                moved += tl.sum(g, 0)
                outer += outer_product(g, e, BD)
        tl.store(for_loc + base * D + j, moved, mask=j < D)
        lower = tl.where(i >= j[None, :], outer, 0.0)
        tl.store(for_tril + (base * D + i) * D + j[None, :], lower, mask=(i < D) & (j[None, :] < D))


class _Draw(torch.autograd.Function):
    """mu_c + L_c eps for chosen components: loc (n, C, D), tril (n, C, D, D), choice (n, S), noise (n, S, D).

    With `owner` (E,) noise is (M B, S, D) of M models with B cases each, and model e of the n = E B cases uses those of
    owner[e].
    """

    @staticmethod
    def forward(
        ctx, loc: Tensor, tril: Tensor, choice: Tensor, noise: Tensor, owner: Tensor | None, n_cases: int
    ) -> Tensor:
        (count, n_components, n_targets), n_draws = loc.shape, choice.shape[1]
        result = noise.new_empty(count, n_draws, n_targets)
        ctx.sizes = n_cases, n_draws, n_components, n_targets, owner is not None
        given = loc, tril, choice, noise, choice if owner is None else owner, result, *ctx.sizes
        if n_targets <= 8:
            _draw[(count, triton.cdiv(n_draws, 128))](*given, 128, num_warps=4)
        else:
            _draw_many[(count, triton.cdiv(n_draws, 32))](*given, 32, columns(n_targets), num_warps=1)
        ctx.save_for_backward(choice, noise, owner)
        ctx.shapes = loc.shape, tril.shape
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        choice, noise, owner = ctx.saved_tensors
        shape_loc, shape_tril = ctx.shapes
        for_loc, for_tril = gradient.new_empty(shape_loc), gradient.new_empty(shape_tril)
        count, n_components, n_targets = shape_loc
        each = n_components if n_targets <= 4 else 1  # few targets are little work, and a program has its price
        _draw_backward[(count, n_components // each)](
            gradient.contiguous(), choice, noise, choice if owner is None else owner, for_loc, for_tril,
            *ctx.sizes, each, 128 if n_targets <= 4 else 16, columns(n_targets), num_warps=1,
        )  # fmt: skip
        return for_loc, for_tril, None, None, None, None


def draw(loc: Tensor, tril: Tensor, choice: Tensor, noise: Tensor, owner: Tensor | None = None) -> Tensor:
    """mu_c + L_c eps (..., S, D) with c = choice (..., S), eps = noise (..., S, D), or noise (M, B, S, D) by owner (E,)."""
    n_cases = loc.shape[-3] if loc.ndim > 2 else 1
    if owner is None:
        lead, flat = flattened((loc, 2), (tril, 3), (choice, 1), (noise, 2))
    else:
        lead, flat = flattened((loc, 2), (tril, 3), (choice, 1))
        flat.append(noise.flatten(0, 1).contiguous())
    return _Draw.apply(*flat, owner, n_cases).reshape(*lead, *noise.shape[-2:])
