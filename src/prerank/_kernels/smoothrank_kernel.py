"""The Triton kernels behind smooth ranks on a GPU.

One warp holds the members of a case and goes through the projections: sums never leave the warp, their order depends
on the number of members alone, and nothing larger than the gradient is written.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _probabilities(weights, case, s, S, WEIGHTED: tl.constexpr):
    """Weights of the members that sum to one, zero outside, and what they were divided by."""
    if WEIGHTED:  # noqa: SIM108 - decided when the kernel is compiled
        w = tl.load(weights + case * S + s, mask=s < S, other=0.0)
    else:
        w = tl.where(s < S, 1.0, 0.0)
    total = tl.sum(w, 0)
    return w / total, total


@triton.jit
def _sigmoids(points, p, case, k, s, S, K, temperature, RELATIVE: tl.constexpr):
    """Sigmoids of the members under projection k, and the factor of their argument."""
    place = points + case * (S + 1) * K + k
    t = tl.load(place)
    m = tl.load(place + (1 + s) * K, mask=s < S, other=0.0)
    difference = t - m
    factor = temperature
    if RELATIVE:
        centred = m - tl.sum(p * m, 0)
        scale = tl.sqrt(tl.sum(p * centred * centred, 0))
        scale = tl.where(scale > 0.0, scale, 1.0)
        difference = difference / scale
        factor = temperature / scale
    return 1.0 / (1.0 + tl.exp(-temperature * difference)), factor


@triton.jit
def _forward(
    points, weights, result, S, K, temperature, WEIGHTED: tl.constexpr, RELATIVE: tl.constexpr, BS: tl.constexpr
):
    case = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, BS)
    p, _total = _probabilities(weights, case, s, S, WEIGHTED)
    for k in range(K):
        sigmoid, _factor = _sigmoids(points, p, case, k, s, S, K, temperature, RELATIVE)
        tl.store(result + case * K + k, tl.sum(p * sigmoid, 0))


@triton.jit
def _backward(
    points, weights, gradient, for_points, for_weights, S, K, temperature,
    WEIGHTED: tl.constexpr, RELATIVE: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    case = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, BS)
    p, total = _probabilities(weights, case, s, S, WEIGHTED)
    of_p = tl.zeros((BS,), dtype=tl.float32)
    for k in range(K):
        sigmoid, factor = _sigmoids(points, p, case, k, s, S, K, temperature, RELATIVE)
        g = tl.load(gradient + case * K + k)
        moved = g * factor * p * sigmoid * (1.0 - sigmoid)
        place = for_points + case * (S + 1) * K + k
        tl.store(place, tl.sum(moved, 0))
        tl.store(place + (1 + s) * K, -moved, mask=s < S)
        of_p += g * sigmoid
    if WEIGHTED:
        tl.store(for_weights + case * S + s, (of_p - tl.sum(p * of_p, 0)) / total, mask=s < S)


class _SmoothRank(torch.autograd.Function):
    """Of points (n, S + 1, K) and weights (n, S) or None."""

    @staticmethod
    def forward(ctx, points: Tensor, weights: Tensor | None, temperature: float, relative: bool) -> Tensor:
        count, n_points, n_projections = points.shape
        result = points.new_empty(count, n_projections)
        ctx.save_for_backward(points, weights)
        ctx.how = temperature, relative
        ctx.sizes = n_points - 1, n_projections
        _forward[(count,)](
            points, points if weights is None else weights, result, *ctx.sizes, temperature,
            weights is not None, relative, _block(n_points - 1), num_warps=1,
        )  # fmt: skip
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        points, weights = ctx.saved_tensors
        temperature, relative = ctx.how
        for_points = torch.empty_like(points)
        for_weights = None if weights is None else torch.empty_like(weights)
        given = (points, for_points) if weights is None else (weights, for_weights)
        _backward[(len(points),)](
            points, given[0], gradient.contiguous(), for_points, given[1], *ctx.sizes, temperature,
            weights is not None, relative, _block(ctx.sizes[0]), num_warps=1,
        )  # fmt: skip
        return for_points, for_weights, None, None


def _block(n_members: int) -> int:
    return max(32, triton.next_power_of_2(n_members))


def smooth_rank(points: Tensor, weights: Tensor | None, temperature: float, relative: bool) -> Tensor:
    """Smooth PITs (..., K) of projected points (..., S + 1, K), the observation first, among weighted members (..., S)."""
    lead = points.shape[:-2]
    if weights is not None:
        weights = weights.expand(*lead, -1).flatten(0, -2).contiguous()
    flat = points.flatten(0, -3).contiguous()
    return _SmoothRank.apply(flat, weights, temperature, relative).reshape(*lead, points.shape[-1])
