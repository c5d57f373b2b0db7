"""The Triton kernels behind a fleet's optimiser on a GPU: one launch for all tensors of its models.

A program has a block of one model's numbers in one tensor. Tensors come in a fixed number of places, of which those
that are not needed have size zero; block numbers count through the places.
"""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024
_PLACES = 6  # for the tensors of three layers
_FOR_NUMBERS = 7  # and one for the loss


@triton.jit
def _move(
    weight, first, second, gradient, model, block, size, rate, root, epsilon,
    SHARE1: tl.constexpr, SHARE2: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adam for one block of one tensor, if the block is one of its; the number of the block in the next tensor."""
    if (block >= 0) & (block * BLOCK < size):
        i = block * BLOCK + tl.arange(0, BLOCK)
        inside = i < size
        place = model * size + i
        g = tl.load(gradient + place, mask=inside, other=0.0)
        m = _towards(tl.load(first + place, mask=inside, other=0.0), g, SHARE1)
        v = _towards(tl.load(second + place, mask=inside, other=0.0), g * g, SHARE2)
        w = tl.load(weight + place, mask=inside, other=0.0)
        w -= tl.div_rn(m * rate, tl.div_rn(tl.sqrt_rn(v), root) + epsilon)
        tl.store(first + place, m, mask=inside)
        tl.store(second + place, v, mask=inside)
        tl.store(weight + place, w, mask=inside)
    return block - tl.cdiv(size, BLOCK)


@triton.jit
def _towards(start, end, SHARE: tl.constexpr):
    """As torch has it: exact at the end that is nearer."""
    if SHARE < 0.5:  # noqa: SIM108 - decided when the kernel is compiled
        value = start + SHARE * (end - start)
    else:
        value = end - (end - start) * (1.0 - SHARE)
    return value


@triton.jit
def _adam(
    w0, w1, w2, w3, w4, w5, m0, m1, m2, m3, m4, m5, v0, v1, v2, v3, v4, v5, g0, g1, g2, g3, g4, g5,
    s0, s1, s2, s3, s4, s5, update, updates, rates, epsilon,
    LOG1: tl.constexpr, LOG2: tl.constexpr, SHARE1: tl.constexpr, SHARE2: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    if tl.load(update + model):
        # the powers in double precision: one minus a power of 0.999 would lose four digits otherwise
        count = tl.load(updates + model).to(tl.float64)
        rate = tl.div_rn(tl.load(rates + model), 1.0 - tl.exp(count * LOG1).to(tl.float32))
        root = tl.sqrt_rn(1.0 - tl.exp(count * LOG2).to(tl.float32))
        block = _move(w0, m0, v0, g0, model, block, s0, rate, root, epsilon, SHARE1, SHARE2, BLOCK)
        block = _move(w1, m1, v1, g1, model, block, s1, rate, root, epsilon, SHARE1, SHARE2, BLOCK)
        block = _move(w2, m2, v2, g2, model, block, s2, rate, root, epsilon, SHARE1, SHARE2, BLOCK)
        block = _move(w3, m3, v3, g3, model, block, s3, rate, root, epsilon, SHARE1, SHARE2, BLOCK)
        block = _move(w4, m4, v4, g4, model, block, s4, rate, root, epsilon, SHARE1, SHARE2, BLOCK)
        _move(w5, m5, v5, g5, model, block, s5, rate, root, epsilon, SHARE1, SHARE2, BLOCK)


@triton.jit
def _broken(gradient, model, size, BLOCK: tl.constexpr):
    """How many of a model's numbers in one tensor are not finite, of those that are this program's."""
    count = tl.zeros((BLOCK,), dtype=tl.int32)
    for start in range(tl.program_id(1) * BLOCK, size, tl.num_programs(1) * BLOCK):
        i = start + tl.arange(0, BLOCK)
        g = tl.load(gradient + model * size + i, mask=i < size, other=0.0)
        count += (g - g != 0.0).to(tl.int32)  # infinity minus itself is not a number, and differs from everything
    return tl.sum(count, 0)


@triton.jit
def _finite(g0, g1, g2, g3, g4, g5, g6, s0, s1, s2, s3, s4, s5, s6, finite, BLOCK: tl.constexpr):
    model = tl.program_id(0).to(tl.int64)
    count = _broken(g0, model, s0, BLOCK) + _broken(g1, model, s1, BLOCK) + _broken(g2, model, s2, BLOCK)
    count += _broken(g3, model, s3, BLOCK) + _broken(g4, model, s4, BLOCK) + _broken(g5, model, s5, BLOCK)
    count += _broken(g6, model, s6, BLOCK)
    tl.store(finite + model * tl.num_programs(1) + tl.program_id(1), count == 0)


def all_finite(tensors: Sequence[Tensor]) -> Tensor:
    """Which models (E,) have only finite numbers in all of the tensors (E, ...)."""
    found = []
    for start in range(0, len(tensors), _FOR_NUMBERS):
        part = [tensor.contiguous() for tensor in tensors[start : start + _FOR_NUMBERS]]
        sizes = [tensor[0].numel() for tensor in part] + [0] * (_FOR_NUMBERS - len(part))
        shares = triton.cdiv(max(sizes), 4 * 4 * _BLOCK)
        finite = torch.empty(len(part[0]), shares, dtype=torch.bool, device=part[0].device)
        _finite[tuple(finite.shape)](*_filled(part, _FOR_NUMBERS), *sizes, finite, 4 * _BLOCK, num_warps=8)
        found.append(finite)
    joined = found[0] if len(found) == 1 else torch.cat(found, 1)
    return joined[:, 0] if joined.shape[1] == 1 else joined.all(1)


def _filled(tensors: Sequence[Tensor], places: int = _PLACES) -> list[Tensor]:
    """The tensors and, to fill the places, the first of them again."""
    return [*tensors, *([tensors[0]] * (places - len(tensors)))]


def adam(
    weights: Sequence[Tensor],
    first_moments: Sequence[Tensor],
    second_moments: Sequence[Tensor],
    gradients: Sequence[Tensor],
    update: Tensor,
    updates: Tensor,
    rates: Tensor,
    decay: tuple[float, float],
    epsilon: float,
) -> None:
    """One step, in place, for the models whose `update` (E,) is true; `updates` (E,) counts this one already.

    `rates` (E,) are the models' learning rates.
    """
    # the plain code takes powers of single numbers
    logs = [math.log(base) if base > 0 else -math.inf for base in torch.tensor(decay, dtype=torch.float32).tolist()]
    for start in range(0, len(weights), _PLACES):
        part = slice(start, start + _PLACES)
        sizes = [weight[0].numel() for weight in weights[part]]
        n_blocks = sum(triton.cdiv(size, _BLOCK) for size in sizes)
        sizes += [0] * (_PLACES - len(sizes))
        given = [gradient.contiguous() for gradient in gradients[part]]
        tensors = [_filled(t) for t in (weights[part], first_moments[part], second_moments[part], given)]
        _adam[(len(update), n_blocks)](
            *(tensor for kind in tensors for tensor in kind), *sizes, update.contiguous(), updates, rates, epsilon,
            *logs, 1 - decay[0], 1 - decay[1], _BLOCK, num_warps=4,
        )  # fmt: skip
