"""Eigenvectors of many small symmetric matrices on a GPU, by Jacobi's method, one matrix per program.

The library routine checks for errors on the host after every call, so it cannot be part of a captured graph, and its
batched version is slow for the thousands of small matrices that a fleet asks for. A cyclic Jacobi sweep rotates D/2
disjoint pairs of axes at once (a round-robin schedule): every column meets one other, and the two are mixed.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _jacobi(matrix, vectors, N: tl.constexpr, EVEN: tl.constexpr, SIZE: tl.constexpr, ROUNDS: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * N * N
    i = tl.arange(0, SIZE)[:, None]
    j = tl.arange(0, SIZE)[None, :]
    inside = (i < N) & (j < N)
    a = tl.load(matrix + start + i * N + j, mask=inside, other=0.0)
    v = tl.where(i == j, 1.0, 0.0)
    M: tl.constexpr = EVEN - 1
    for round_number in range(ROUNDS):
        r = round_number % M
        # round robin: place EVEN - 1 stays, the others meet (2r - k) mod (EVEN - 1), or the one that stays
        q = (2 * r - j + 2 * M) % M
        partner = tl.where(j >= EVEN, j, tl.where(j == M, r, tl.where(q == j, M, q)))
        across = partner + tl.zeros((SIZE, SIZE), dtype=tl.int32)
        swapped = tl.gather(a, across, 1)
        own = tl.sum(tl.where(i == j, a, 0.0), 0)[None, :]
        other = tl.sum(tl.where(i == partner, swapped, 0.0), 0)[None, :]
        off = tl.sum(tl.where(i == j, swapped, 0.0), 0)[None, :]
        first = j < partner
        rotate = (partner != j) & (off != 0.0)
        difference = tl.where(first, other - own, own - other)
        tau = difference / tl.where(rotate, 2.0 * off, 1.0)
        t = tl.where(tau >= 0.0, 1.0, -1.0) / (tl.abs(tau) + tl.sqrt_rn(1.0 + tau * tau))
        t = tl.where(rotate, t, 0.0)
        c = tl.div_rn(1.0 + 0.0 * t, tl.sqrt_rn(1.0 + t * t))
        s = tl.where(first, -t * c, t * c)
        # with the rotation R the new matrix is R'AR, and since it is symmetric, (AR)'R: columns are all that ever turns
        a = tl.trans(a * c + swapped * s)
        a = a * c + tl.gather(a, across, 1) * s
        v = v * c + tl.gather(v, across, 1) * s
    # the places of the columns, largest eigenvalue first; one that is not a number comes last
    own = tl.sum(tl.where(i == j, a, 0.0), 0)[None, :]
    own = tl.where(j < N, tl.where(own == own, own, -3e38), float("-inf"))
    other = tl.sum(tl.where(i == j, own, 0.0), 1)[:, None]
    place = tl.sum(((other > own) | ((other == own) & (i > j))).to(tl.int32), 0)[None, :]
    # the first of the entries that are largest up to rounding is made positive
    size = tl.abs(v)
    largest = size >= 0.99999 * tl.max(size, 0)[None, :]
    first = tl.min(tl.where(largest, i, SIZE), 0)[None, :]
    sign = tl.where(tl.sum(tl.where(i == first, v, 0.0), 0) < 0, -1.0, 1.0)[None, :]
    tl.store(vectors + start + i * N + place, v * sign, mask=inside)


def principal_directions(matrix: Tensor, sweeps: int = 7) -> Tensor:
    """Eigenvectors in columns, largest eigenvalue first, the first of the largest entries positive; no gradient."""
    size = matrix.shape[-1]
    flat = matrix.detach().reshape(-1, size, size).contiguous()
    vectors = torch.empty_like(flat)
    even = size + size % 2
    padded = 16 if size <= 16 else 32
    rounds = sweeps * (even - 1) if size > 2 else 1
    _jacobi[(len(flat),)](flat, vectors, size, max(even, 2), padded, rounds, num_warps=1)
    return vectors.reshape(matrix.shape)
