"""A tilt is kept only if draws are left to represent it, and if it scores no worse on cases that it has not seen."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.forecast import equally_weighted_draws
from prerank.randomness import numpy_generator
from prerank.recalibration.basis import log_tilt
from prerank.recalibration.folds import mean_and_error
from prerank.recalibration.oldpits import OldPITs, select, some_cases
from prerank.recalibration.path import Candidate
from prerank.recalibration.steps import HeldOut
from prerank.recalibration.tilted import Tilted

AT_MOST = 512  # cases that are scored
_POOL, _SHIFTS = 1000, 16  # draws of the forecast for each, and pairs of each draw with others


class Verdict(NamedTuple):
    """Mean effective share of a pool, and the energy score before and its gain with standard error."""

    effective_share: float
    score: float
    gain: float
    gain_error: float

    def harmless(self, least_share: float, errors: float) -> bool:
        return self.effective_share >= least_share and self.gain >= -errors * self.gain_error


class Pools(NamedTuple):
    """Draws of some cases: PITs (n, P, K), weights before in logarithms (n, P), and what the energy score needs.

    `to_y` (n, P) are distances to the observation, `apart` (n, S, P) distances to the draws S places further on.
    """

    pits: Tensor
    log_before: Tensor
    to_y: Tensor
    apart: Tensor

    def score(self, log_weights: Tensor) -> tuple[Tensor, Tensor]:
        """Energy scores (n,) and effective shares (n,) of the draws under weights (n, P).

        The same draws for every weighting, so that differences are quiet; pairs of different draws only.
        """
        share = torch.softmax(log_weights, -1)
        distance, mass = torch.zeros_like(share[:, 0]), torch.zeros_like(share[:, 0])
        for s in range(_SHIFTS):
            both = share * share.roll(-(s + 1), -1)
            distance, mass = distance + (both * self.apart[:, s]).sum(-1), mass + both.sum(-1)
        tiny = torch.finfo(share.dtype).tiny
        score = (share * self.to_y).sum(-1) - 0.5 * distance / mass.clamp_min(tiny)
        return score, 1 / share.square().sum(-1) / share.shape[-1]


@dataclass(frozen=True, eq=False)
class Guard:
    """Pools of draws for some of the held-out cases, and their energy scores before."""

    cases: Tensor
    pools: Pools
    before: Tensor
    held_out: HeldOut

    @classmethod
    def of(cls, forecast: Distribution, held_out: HeldOut, old: OldPITs) -> "Guard":
        device, n_cases = held_out.y.device, len(held_out.y)
        cases = torch.arange(n_cases, device=device)
        if n_cases > AT_MOST and hasattr(forecast, "select"):
            chosen = numpy_generator(held_out.seed, "cases of the guard").permutation(n_cases)[:AT_MOST]
            cases = torch.as_tensor(chosen, device=device).sort().values
            forecast = select(forecast, cases)
        parts = []
        for some in some_cases(forecast, _POOL * 8, device):
            part, ids = select(forecast, some), cases[some]
            root = part.root if isinstance(part, Tilted) else part
            drawn = equally_weighted_draws(root, _POOL, held_out.seed, "pool of the guard", ids).members
            before = part.log_weights(drawn) if isinstance(part, Tilted) else torch.zeros_like(drawn[..., 0])
            y = held_out.y[ids][:, None].to(drawn)
            apart = [torch.linalg.vector_norm(drawn - drawn.roll(-(s + 1), 1), dim=-1) for s in range(_SHIFTS)]
            to_y = torch.linalg.vector_norm(drawn - y, dim=-1)
            parts.append(Pools(old(part, drawn, ids).float(), before.double(), to_y.double(), torch.stack(apart, 1)))
        pools = Pools(*(torch.cat(column) for column in zip(*parts, strict=True)))
        return cls(cases, pools, pools.score(pools.log_before)[0], held_out)

    def verdict(self, candidate: Candidate) -> Verdict:
        """Of a candidate whose coefficients for a case were fitted without its fold."""
        fold, features = self.held_out.folds.fold[self.cases], self.held_out.features
        exponent = self.pools.log_before.clone()
        for f, theta in enumerate(candidate.without):
            inside = fold == f
            if theta.ndim == 3:
                assert features is not None
                theta = by_case(theta, features[self.cases[inside]])
            exponent[inside] += log_tilt(self.pools.pits[inside], theta).double()
        after, effective = self.pools.score(exponent)
        weights, block = self.held_out.weights[self.cases], self.held_out.folds.block[self.cases]
        gain, error = mean_and_error(self.before - after, weights, block)
        share, score = (mean_and_error(values, weights, block)[0] for values in (effective, self.before))
        return Verdict(share, score, gain, error)


def by_case(theta: Tensor, features: Tensor) -> Tensor:
    """Coefficients (n, J, K) of cases with features (n, L), from those (L, J, K) of each feature."""
    return torch.einsum("nl,ljk->njk", features.to(theta), theta)
