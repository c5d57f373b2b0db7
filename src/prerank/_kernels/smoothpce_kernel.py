"""The Triton kernels behind `pce_kde` on a GPU: the smooth empirical CDF of PITs, and its distance from the diagonal.

One warp holds a few levels against a block of cases (or, backward, a few cases against a block of levels) and goes
through the blocks in order: sums depend on the number of cases and levels alone, never on the other models.
"""

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

_FEW, _BLOCK = 8, 128  # rows of a tile, each with a sum of its own, and columns


@triton.jit
def _weights(weights, model, stride, b, B, WEIGHTED: tl.constexpr):
    if WEIGHTED:  # noqa: SIM108 - decided when the kernel is compiled
        w = tl.load(weights + model * stride + b, mask=b < B, other=0.0)
    else:
        w = tl.where(b < B, 1.0, 0.0)
    return w


@triton.jit
def _forward(
    pit, weights, levels, result, stride, temperature,
    B, K, J, WEIGHTED: tl.constexpr, FEW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0).to(tl.int64)
    model = pair // K
    k = pair % K
    j = tl.program_id(1) * FEW + tl.arange(0, FEW)
    level = tl.load(levels + j, mask=j < J, other=0.0)
    below = tl.zeros((FEW, BLOCK), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, B, BLOCK):
        b = start + tl.arange(0, BLOCK)
        w = _weights(weights, model, stride, b, B, WEIGHTED)
        z = tl.load(pit + (model * B + b) * K + k, mask=b < B, other=0.0)
        below += w[None, :] / (1.0 + tl.exp(-temperature * (level[:, None] - z[None, :])))
        total += w
    tl.store(result + pair * J + j, tl.sum(below, 1) / tl.sum(total, 0), mask=j < J)


@triton.jit
def _distance(cdf, levels, result, J, exponent, ABSOLUTE: tl.constexpr, BLOCK: tl.constexpr):
    """The mean over levels of |level - frequency|^exponent."""
    pair = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, J, BLOCK):
        j = start + tl.arange(0, BLOCK)
        off = tl.load(levels + j, mask=j < J, other=0.0) - tl.load(cdf + pair * J + j, mask=j < J, other=0.0)
        total += tl.abs(off) if ABSOLUTE else _power(tl.abs(off), exponent)
    tl.store(result + pair, tl.sum(total, 0) / J)


@triton.jit
def _power(x, exponent):
    """x^exponent of numbers that are not negative."""
    return tl.where(x > 0, tl.exp(exponent * tl.log(tl.where(x > 0, x, 1.0))), 0.0)


@triton.jit
def _backward(
    pit, weights, levels, cdf, gradient, for_pit, exponent, each, stride, temperature,
    B, K, J, WEIGHTED: tl.constexpr, FEW: tl.constexpr, BLOCK: tl.constexpr, ABSOLUTE: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0).to(tl.int64)
    model = pair // K
    k = pair % K
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, B, BLOCK):
        total += _weights(weights, model, stride, start + tl.arange(0, BLOCK), B, WEIGHTED)
    b = tl.program_id(1) * FEW + tl.arange(0, FEW)
    share = _weights(weights, model, stride, b, B, WEIGHTED) / tl.sum(total, 0)
    z = tl.load(pit + (model * B + b) * K + k, mask=b < B, other=0.0)
    own = tl.load(gradient + pair) * each
    moved = tl.zeros((FEW, BLOCK), dtype=tl.float32)
    for start in range(0, J, BLOCK):
        j = start + tl.arange(0, BLOCK)
        level = tl.load(levels + j, mask=j < J, other=0.0)
        off = level - tl.load(cdf + pair * J + j, mask=j < J, other=0.0)
        g = tl.where(off > 0, -own, tl.where(off < 0, own, 0.0))  # a CDF that grows is less far below its level
        if not ABSOLUTE:
            g = g * exponent * _power(tl.abs(off), exponent - 1.0)
        sigmoid = 1.0 / (1.0 + tl.exp(-temperature * (level[None, :] - z[:, None])))
        moved += g[None, :] * sigmoid * (1.0 - sigmoid)
    tl.store(for_pit + (model * B + b) * K + k, -temperature * share * tl.sum(moved, 1), mask=b < B)


class _SmoothPCE(torch.autograd.Function):
    """Of PITs (E, B, K), weights (B,), (E, B) or None, and levels (J,): (E, K)."""

    @staticmethod
    def forward(
        ctx, pit: Tensor, weights: Tensor | None, levels: Tensor, temperature: float, exponent: float
    ) -> Tensor:
        (n_models, n_cases, n_projections), n_levels = pit.shape, len(levels)
        cdf = pit.new_empty(n_models, n_projections, n_levels)
        result = pit.new_empty(n_models, n_projections)
        stride = n_cases if weights is not None and weights.ndim == 2 else 0
        ctx.save_for_backward(pit, weights, levels, cdf)
        ctx.exponent, ctx.absolute = exponent, exponent == 1
        ctx.numbers = stride, temperature, n_cases, n_projections, n_levels, weights is not None, _FEW, _BLOCK
        grid = (n_models * n_projections, triton.cdiv(n_levels, _FEW))
        _forward[grid](pit, pit if weights is None else weights, levels, cdf, *ctx.numbers, num_warps=1)
        _distance[(result.numel(),)](cdf, levels, result, n_levels, exponent, ctx.absolute, _BLOCK, num_warps=1)
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        pit, weights, levels, cdf = ctx.saved_tensors
        n_models, n_cases, n_projections = pit.shape
        for_pit = torch.empty_like(pit)
        grid = (n_models * n_projections, triton.cdiv(n_cases, _FEW))
        _backward[grid](
            pit, pit if weights is None else weights, levels, cdf, gradient.contiguous(), for_pit,
            ctx.exponent, 1.0 / len(levels), *ctx.numbers, ctx.absolute, num_warps=1,
        )  # fmt: skip
        return for_pit, None, None, None, None


def smooth_pce(pit: Tensor, case_weights: Tensor | None, levels: Tensor, temperature: float, exponent: float) -> Tensor:
    """PCE (..., K) of PITs (..., B, K) by their smooth CDF at levels (J,); case_weights (B,), (..., B) or None."""
    lead, (n_cases, n_projections) = pit.shape[:-2], pit.shape[-2:]
    if case_weights is not None:
        case_weights = case_weights.to(pit)
        if case_weights.ndim > 1:
            lead = np.broadcast_shapes(lead, case_weights.shape[:-1])
            case_weights = case_weights.expand(*lead, n_cases).reshape(-1, n_cases)
        case_weights = case_weights.contiguous()
    flat = pit.expand(*lead, n_cases, n_projections).reshape(-1, n_cases, n_projections).contiguous()
    return _SmoothPCE.apply(flat, case_weights, levels.contiguous(), temperature, float(exponent)).reshape(*lead, -1)
