"""The Triton kernel behind the covariance of a `GaussianMixture`, without a gradient."""

import triton
import triton.language as tl
from torch import Tensor

from prerank._kernels.parts_kernel import cases_of_a_block, columns, flattened, log_total


@triton.jit
def _covariance(loc, tril, logits, result, N, C, D: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
    case = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    inside = case < N
    d = tl.arange(0, BD)
    present = inside[:, None] & (d < D)[None, :]
    total_weight = log_total(logits, case, inside, C)
    mean = tl.zeros((BN, BD), dtype=tl.float32)
    for c in range(C):
        weight = tl.exp(tl.load(logits + case * C + c, mask=inside, other=0.0) - total_weight)
        mean += weight[:, None] * tl.load(loc + (case * C + c)[:, None] * D + d[None, :], mask=present, other=0.0)
    covariance = tl.zeros((BN, BD, BD), dtype=tl.float32)
    for c in range(C):
        base = (case * C + c)[:, None]
        weight = tl.exp(tl.load(logits + case * C + c, mask=inside, other=0.0) - total_weight)
        centred = tl.load(loc + base * D + d[None, :], mask=present, other=0.0) - mean
        own = centred[:, :, None] * centred[:, None, :]
        for j in tl.static_range(D):
            column = tl.load(tril + (base * D + d[None, :]) * D + j, mask=present & (d >= j)[None, :], other=0.0)
            own += column[:, :, None] * column[:, None, :]
        covariance += weight[:, None, None] * own
    i = d[None, :, None]
    j = d[None, None, :]
    place = result + (case[:, None, None] * D + i) * D + j
    tl.store(place, covariance, mask=inside[:, None, None] & (i < D) & (j < D))


def covariance(loc: Tensor, tril: Tensor, logits: Tensor) -> Tensor:
    """Covariance (..., D, D) of mixtures: loc (..., C, D), tril (..., C, D, D), logits (..., C)."""
    lead, (loc, tril, logits) = flattened((loc, 2), (tril, 3), (logits, 1))
    count, n_components, n_targets = loc.shape
    result = loc.new_empty(count, n_targets, n_targets)
    block = cases_of_a_block(n_targets)
    grid = (triton.cdiv(count, block),)
    _covariance[grid](
        loc, tril, logits, result, count, n_components, n_targets, block, columns(n_targets), num_warps=1
    )  # fmt: skip
    return result.reshape(*lead, n_targets, n_targets)
