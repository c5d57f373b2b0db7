r"""The ranking likelihood: how probable it is to pick the observation out of itself and M draws.

$$\ell_i(\theta) = s(y_i) - \log \sum_{m=0}^{M} e^{s(y_{im})}, \qquad s(y) = \sum_{kj} \theta_{jk} b_j(Z_k(y)),$$

with the observation as m = 0. Consistent for every M, concave and bounded above by zero (ranking noise-contrastive estimation, Ma and Collins
2018). A likelihood with a Monte Carlo normaliser is none of that: it gains by moving mass to where no draw fell.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.chunks import chunks
from prerank.recalibration.basis import legendre


class Value(NamedTuple):
    """Log likelihood (A, N) of every case under A sets of coefficients, and its weighted sum's gradient (A, J, K)."""

    log_likelihood: Tensor
    gradient: Tensor


def _basis(pits: Tensor, degree: int, within: Sequence[slice]) -> Iterator[tuple[slice, Tensor]]:
    """Chunks of cases with their basis (n, M + 1, J K), no chunk across the slices."""
    n_points, n_projections = pits.shape[1:]
    for part in within:
        start, stop, _ = part.indices(len(pits))
        for some in chunks(stop - start, n_points * n_projections * degree, pits.device):
            cases = slice(start + some.start, start + some.stop)
            yield cases, legendre(pits[cases], degree).flatten(-2)


def evaluate(pits: Tensor, theta: Tensor, weights: Tensor) -> Value:
    """Value and gradient for A sets of coefficients (A, J, K) at once; PITs (N, M + 1, K), weights (A, N)."""
    n_sets, degree, _ = theta.shape
    flat = theta.flatten(1).to(pits)
    result = torch.empty(n_sets, len(pits), dtype=torch.float64, device=pits.device)
    gradient = torch.zeros(n_sets, flat.shape[1], dtype=torch.float64, device=pits.device)
    for cases, basis in _basis(pits, degree, [slice(None)]):
        log_share = torch.log_softmax(basis @ flat.mT, 1)  # (n, M + 1, A)
        result[:, cases] = log_share[:, 0].mT.double()
        pull = -log_share.exp_()
        pull[:, 0] += 1.0
        pull *= weights[:, cases].mT.to(pull)[:, None]
        gradient += (pull.flatten(0, 1).mT @ basis.flatten(0, 1)).double()
    return Value(result, gradient.reshape(theta.shape))


def information(pits: Tensor, theta: Tensor, weights: Tensor, within: Sequence[slice]) -> Tensor:
    """Minus the Hessian of the weighted log likelihood of each slice of cases: (len(within), J K, J K)."""
    flat = theta.flatten().to(pits)
    result = torch.zeros(len(within), len(flat), len(flat), dtype=torch.float64, device=pits.device)
    for place, part in enumerate(within):
        for cases, basis in _basis(pits, len(theta), [part]):
            share = torch.softmax(basis @ flat, 1)[..., None]
            mean = (share * basis).sum(1)
            own = weights[cases].to(basis)[:, None]
            scaled = ((own[..., None] * share).sqrt() * basis).flatten(0, 1)
            result[place] += (scaled.mT @ scaled - (own * mean).mT @ mean).double()
    return result
