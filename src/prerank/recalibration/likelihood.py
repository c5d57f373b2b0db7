r"""The ranking likelihood: how probable it is to pick the observation out of itself and M draws.

$$\ell_i(\theta) = s(y_i) - \log \sum_{m=0}^{M} e^{s(y_{im})}, \qquad s(y) = \sum_{kj} \theta_{jk} b_j(Z_k(y)),$$

with the observation as m = 0. Consistent for every M, concave and bounded above by zero (ranking noise-contrastive
estimation, Ma and Collins 2018). A likelihood with a Monte Carlo normaliser is not safe: it gains by moving mass to where no
draw fell.

Ma and Collins (2018): Noise contrastive estimation and negative sampling for conditional models: consistency and statistical
efficiency. Conference on Empirical Methods in Natural Language Processing.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from prerank._chunks import chunks
from prerank._parallel import in_threads
from prerank.recalibration.basis import legendre

_KEPT = 1 << 28  # numbers of a basis that is kept: a gigabyte in single precision


class Value(NamedTuple):
    """Log likelihood (A, N) of every case under A sets of coefficients, and its weighted sum's gradient (A, ...)."""

    log_likelihood: Tensor
    gradient: Tensor


class Points:
    """The observation and M draws of every case by their PITs (N, M + 1, K), the observation first, and their basis.

    With features (N, L) the basis is multiplied by each of them: coefficients are then (L, J, K) instead of (J, K). The
    basis is kept where it is small enough, and otherwise made a few cases at a time on every pass.
    """

    def __init__(self, pits: Tensor, degree: int, features: Tensor | None = None, keep: int = _KEPT) -> None:
        self.pits, self.degree = pits, degree
        self.features = None if features is None else features.to(pits)
        self.shape = (*(() if features is None else features.shape[1:]), degree, pits.shape[-1])
        self._kept: Tensor | None = None
        width = math.prod(self.shape)
        if len(pits) * pits.shape[1] * width <= keep:
            self._kept = pits.new_empty(*pits.shape[:2], width)
            kept = self._kept
            in_threads(self._made, self._chunks(slice(None)), kept.__setitem__, spread=self._on_cpu)

    def _made(self, cases: slice) -> Tensor:
        basis = legendre(self.pits[cases], self.degree).flatten(-2)
        if self.features is None:
            return basis
        return (self.features[cases][:, None, :, None] * basis[:, :, None]).flatten(-2)

    @property
    def _on_cpu(self) -> bool:
        return self.pits.device.type == "cpu"

    def _chunks(self, within: slice) -> list[slice]:
        chosen = range(len(self.pits))[within]
        some = chunks(len(chosen), self.pits.shape[1] * math.prod(self.shape), self.pits.device)
        return [slice(part.start, part.stop, part.step) for part in (chosen[cases] for cases in some)]

    def basis(self, cases: slice) -> Tensor:
        """The basis of some cases, (n, M + 1, coefficients)."""
        return self._made(cases) if self._kept is None else self._kept[cases]

    def evaluate(self, theta: Tensor, weights: Tensor) -> Value:
        """Value and gradient for A sets of coefficients (A, ...) at once, with weights (A, N) of the cases."""
        flat = theta.flatten(1).to(self.pits)
        result = torch.empty(len(theta), len(self.pits), dtype=torch.float64, device=self.pits.device)
        gradient = torch.zeros(flat.shape, dtype=torch.float64, device=self.pits.device)

        def of(cases: slice) -> Tensor:
            basis = self.basis(cases)
            log_share = torch.log_softmax(basis @ flat.mT, 1)  # (n, M + 1, A)
            result[:, cases] = log_share[:, 0].mT.double()
            pull = -log_share.exp_()
            pull[:, 0] += 1.0
            pull *= weights[:, cases].mT.to(pull)[:, None]
            return (pull.flatten(0, 1).mT @ basis.flatten(0, 1)).double()

        in_threads(of, self._chunks(slice(None)), lambda _, part: gradient.add_(part), spread=self._on_cpu)
        return Value(result, gradient.reshape(theta.shape))

    def information(self, theta: Tensor, weights: Tensor, within: Sequence[slice]) -> Tensor:
        """Minus the Hessian of the weighted log likelihood of each slice of cases, at some coefficients:

        (len(within), coefficients, coefficients)."""
        flat = theta.flatten().to(self.pits)
        result = torch.zeros(len(within), len(flat), len(flat), dtype=torch.float64, device=self.pits.device)

        def of(item: tuple[int, slice]) -> Tensor:
            basis = self.basis(item[1])
            share = torch.softmax(basis @ flat, 1)[..., None]
            mean = (share * basis).sum(1)
            own = weights[item[1]].to(basis)[:, None]
            scaled = ((own[..., None] * share).sqrt() * basis).flatten(0, 1)
            return (scaled.mT @ scaled - (own * mean).mT @ mean).double()

        items = [(place, cases) for place, part in enumerate(within) for cases in self._chunks(part)]
        in_threads(of, items, lambda item, part: result[item[0]].add_(part), spread=self._on_cpu)
        return result
