"""The Triton kernels behind `pce_kde` on a GPU: the smooth empirical CDF of PITs.

One warp holds a few levels against a block of cases (or, backward, a few cases against a block of levels) and goes
through the blocks in order: sums depend on the number of cases and levels alone, never on the other models.
"""

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
def _backward(
    pit, weights, levels, gradient, for_pit, stride, temperature,
    B, K, J, WEIGHTED: tl.constexpr, FEW: tl.constexpr, BLOCK: tl.constexpr,
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
    moved = tl.zeros((FEW, BLOCK), dtype=tl.float32)
    for start in range(0, J, BLOCK):
        j = start + tl.arange(0, BLOCK)
        level = tl.load(levels + j, mask=j < J, other=0.0)
        g = tl.load(gradient + pair * J + j, mask=j < J, other=0.0)
        sigmoid = 1.0 / (1.0 + tl.exp(-temperature * (level[None, :] - z[:, None])))
        moved += g[None, :] * sigmoid * (1.0 - sigmoid)
    tl.store(for_pit + (model * B + b) * K + k, -temperature * share * tl.sum(moved, 1), mask=b < B)


class _SmoothCDF(torch.autograd.Function):
    """Of PITs (E, B, K), weights (B,), (E, B) or None, and levels (J,): (E, K, J)."""

    @staticmethod
    def forward(ctx, pit: Tensor, weights: Tensor | None, levels: Tensor, temperature: float) -> Tensor:
        (n_models, n_cases, n_projections), n_levels = pit.shape, len(levels)
        result = pit.new_empty(n_models, n_projections, n_levels)
        stride = n_cases if weights is not None and weights.ndim == 2 else 0
        ctx.save_for_backward(pit, weights, levels)
        ctx.numbers = stride, temperature, n_cases, n_projections, n_levels, weights is not None, _FEW, _BLOCK
        grid = (n_models * n_projections, triton.cdiv(n_levels, _FEW))
        _forward[grid](pit, pit if weights is None else weights, levels, result, *ctx.numbers, num_warps=1)
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        pit, weights, levels = ctx.saved_tensors
        n_models, n_cases, n_projections = pit.shape
        for_pit = torch.empty_like(pit)
        grid = (n_models * n_projections, triton.cdiv(n_cases, _FEW))
        _backward[grid](
            pit, pit if weights is None else weights, levels, gradient.contiguous(), for_pit, *ctx.numbers, num_warps=1
        )
        return for_pit, None, None, None


def smooth_cdf(pit: Tensor, case_weights: Tensor | None, levels: Tensor, temperature: float) -> Tensor:
    """Smooth empirical CDF (..., K, J) of PITs (..., B, K) at levels (J,); case_weights (B,), (..., B) or None."""
    lead, (n_cases, n_projections) = pit.shape[:-2], pit.shape[-2:]
    if case_weights is not None:
        case_weights = case_weights.to(pit)
        if case_weights.ndim > 1:
            lead = torch.broadcast_shapes(lead, case_weights.shape[:-1])
            case_weights = case_weights.expand(*lead, n_cases).reshape(-1, n_cases)
        case_weights = case_weights.contiguous()
    flat = pit.expand(*lead, n_cases, n_projections).reshape(-1, n_cases, n_projections).contiguous()
    return _SmoothCDF.apply(flat, case_weights, levels.contiguous(), temperature).reshape(*lead, n_projections, -1)
