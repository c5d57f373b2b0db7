"""What the Triton kernels about mixtures have in common.

Factors are lower triangular; the other triangle is neither read nor given a gradient.
"""

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def outer_product(a, b, BD: tl.constexpr):
    """a' b of (rows, BD) each: the matrix units where they apply, as exact as without them; plain sums for few targets."""
    if BD >= 16:  # noqa: SIM108 - decided when the kernel is compiled
        product = tl.dot(tl.trans(a), b, input_precision="tf32x3")
    else:
        product = tl.sum(a[:, :, None] * b[:, None, :], 0)
    return product


@triton.jit
def times(a, b, BD: tl.constexpr):
    """a b of (rows, BD) and (BD, BD)."""
    if BD >= 16:  # noqa: SIM108 - decided when the kernel is compiled
        product = tl.dot(a, b, input_precision="tf32x3")
    else:
        product = tl.sum(a[:, :, None] * b[None, :, :], 1)
    return product


@triton.jit
def coordinates(rows, at, inside, D: tl.constexpr):
    """Coordinates of rows of D numbers each: one block for every target, to be held in registers."""
    found = ()
    for d in tl.static_range(D):
        found = found + (tl.load(rows + at * D + d, mask=inside, other=0.0),)  # noqa: RUF005 - Triton has no unpacking
    return found


@triton.jit
def zeros(like, D: tl.constexpr):
    """A block of zeros for every target."""
    found = ()
    for _ in tl.static_range(D):
        found = found + (tl.zeros(like.shape, dtype=tl.float32),)  # noqa: RUF005
    return found


@triton.jit
def some(values, at, number, N: tl.constexpr, BLOCK: tl.constexpr, OTHER: tl.constexpr):
    """A block of N numbers, the last of which may be incomplete: no question is asked where none of them is."""
    if N % BLOCK == 0:  # noqa: SIM108 - decided when the kernel is compiled
        found = tl.load(values + at)
    else:
        found = tl.load(values + at, mask=number < N, other=OTHER)
    return found


@triton.jit
def add_log(largest, total, value):
    """One more term of a sum of exponentials, kept as exp(largest) times total: both after it."""
    higher = tl.maximum(largest, value)
    return higher, total * tl.exp(largest - higher) + tl.exp(value - higher)


@triton.jit
def log_total(logits, case, inside, C):
    """log of the sum of exp of all logits, for a block of cases."""
    largest = tl.load(logits + case * C, mask=inside, other=0.0)
    total = tl.full(largest.shape, 1.0, dtype=tl.float32)
    for c in range(1, C):
        largest, total = add_log(largest, total, tl.load(logits + case * C + c, mask=inside, other=0.0))
    return largest + tl.log(total)


def columns(n_targets: int) -> int:
    """Columns of a block that holds all targets: a power of two."""
    return triton.next_power_of_2(n_targets)


def flattened(*parts: tuple[Tensor, int]) -> tuple[torch.Size, list[Tensor]]:
    """Leading axes that tensors broadcast to, and the tensors with those as one; each is given with its number of others."""
    lead = torch.Size(np.broadcast_shapes(*(part.shape[: part.ndim - own] for part, own in parts)))
    flat = [
        part.expand(*lead, *part.shape[part.ndim - own :]).reshape(lead.numel(), *part.shape[part.ndim - own :])
        for part, own in parts
    ]
    return lead, [part.contiguous() for part in flat]


def cases_of_a_block(n_targets: int) -> int:
    """Cases whose factors are held together: about a thousand numbers."""
    return min(64, max(1, 1024 // columns(n_targets) ** 2))
