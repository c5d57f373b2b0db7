"""The Triton kernel behind `prerank.preranks.point_density.bandwidths` on a GPU: one program for the points of a case."""

import triton
import triton.language as tl
from torch import Tensor

from prerank._kernels.parts_kernel import columns

_ROWS = 128  # points of a block


@triton.jit
def _block(centres, weights, case, r, k, first, R, D: tl.constexpr):
    """Deviations (BR, BD) of a block of points from the first point, and their weights (BR,)."""
    inside = (r < R)[:, None] & (k < D)[None, :]
    x = tl.load(centres + (case * R + r)[:, None] * D + k[None, :], mask=inside, other=0.0)
    w = tl.load(weights + case * R + r, mask=r < R, other=0.0)
    return tl.where(inside, x - first[None, :], 0.0), w


@triton.jit
def _bandwidths(centres, weights, result, R, POWER, D: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr):
    case = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BD)
    first = tl.load(centres + case * R * D + k, mask=k < D, other=0.0)
    largest = tl.zeros((BD,), dtype=tl.float32)
    total = 0.0
    for start in range(0, R, BR):
        x, w = _block(centres, weights, case, start + tl.arange(0, BR), k, first, R, D)
        largest = tl.maximum(largest, tl.max(tl.abs(x), 0))
        total += tl.sum(w, 0)
    # in a unit whose squares do not overflow; where all points agree, any will do
    unit = tl.where(largest > 0, largest, 1.0)
    mean = tl.zeros((BD,), dtype=tl.float32)
    squares = 0.0
    for start in range(0, R, BR):
        x, w = _block(centres, weights, case, start + tl.arange(0, BR), k, first, R, D)
        share = w / total
        mean += tl.sum(share[:, None] * (x / unit[None, :]), 0)
        squares += tl.sum(share * share, 0)
    variance = tl.zeros((BD,), dtype=tl.float32)
    for start in range(0, R, BR):
        x, w = _block(centres, weights, case, start + tl.arange(0, BR), k, first, R, D)
        centred = x / unit[None, :] - mean[None, :]
        variance += tl.sum((w / total)[:, None] * centred * centred, 0)
    spread = tl.sqrt(variance) * unit
    shrink = tl.exp(tl.log(squares) * POWER)
    tl.store(result + case * D + k, tl.where(spread > 0, spread, 1.0) * shrink, mask=k < D)


def bandwidths(centres: Tensor, weights: Tensor) -> Tensor:
    """Scott's rule per target (..., 1, D) for points (..., R, D) with weights (..., R)."""
    *lead, n_points, n_targets = centres.shape
    result = centres.new_empty(*lead, 1, n_targets)
    weights = weights.expand(*lead, n_points).contiguous()
    _bandwidths[(result.numel() // n_targets,)](
        centres.contiguous(), weights, result, n_points, 1.0 / (n_targets + 4), n_targets,
        _ROWS, columns(n_targets), num_warps=1 if n_targets <= 4 else 4,
    )  # fmt: skip
    return result
