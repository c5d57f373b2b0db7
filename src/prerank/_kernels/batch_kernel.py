"""The Triton kernel behind a fleet's minibatches on a GPU: features, targets and weights of all models in one launch."""

import triton
import triton.language as tl
from torch import Tensor

from prerank._kernels.parts_kernel import columns

_ROWS, _MOST = 64, 64  # rows of a block, and the most of their numbers at once


@triton.jit
def _copy(values, result, source, place, inside, L, BL: tl.constexpr):
    for start in range(0, L, BL):
        k = start + tl.arange(0, BL)[None, :]
        known = inside[:, None] & (k < L)
        tl.store(result + place[:, None] * L + k, tl.load(values + source[:, None] * L + k, mask=known), mask=known)


@triton.jit
def _take(
    x, y, weights, rows, seed_of, x_taken, y_taken, weights_taken,
    N, B, L, D, BB: tl.constexpr, BL: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1) * BB + tl.arange(0, BB)
    seed = tl.load(seed_of + model)
    row = tl.load(rows + seed * B + b, mask=b < B, other=-1)
    source = seed * N + tl.maximum(row, 0)
    place = model * B + b
    _copy(x, x_taken, source, place, b < B, L, BL)
    _copy(y, y_taken, source, place, b < B, D, BD)
    weight = tl.load(weights + source, mask=row >= 0, other=0.0)
    tl.store(weights_taken + place, weight, mask=b < B)


def take(x: Tensor, y: Tensor, weights: Tensor, rows: Tensor, seed_of: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows (E, B, L), (E, B, D), (E, B) of x (M, N, L), y (M, N, D), weights (M, N) by their numbers (M, B), -1 for none."""
    (_, n_rows, n_features), n_targets = x.shape, y.shape[-1]
    n_models, size = len(seed_of), rows.shape[1]
    taken = x.new_empty(n_models, size, n_features), x.new_empty(n_models, size, n_targets), x.new_empty(n_models, size)
    _take[(n_models, triton.cdiv(size, _ROWS))](
        x, y, weights, rows.contiguous(), seed_of, *taken, n_rows, size, n_features, n_targets,
        _ROWS, min(_MOST, columns(n_features)), min(_MOST, columns(n_targets)), num_warps=4,
    )  # fmt: skip
    return taken
