"""A tilt is kept only if draws are left to represent it, and if it scores no worse on cases that it has not seen."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.calibration import pce
from prerank.forecasts import can_be_cut, case_by_case, equally_weighted_draws
from prerank.randomness import numpy_generator
from prerank.recalibration.basis import by_case, log_tilt
from prerank.recalibration.batching import over_parts, select
from prerank.recalibration.densities import log_density
from prerank.recalibration.folds import mean_and_error
from prerank.recalibration.path import Candidate
from prerank.recalibration.pit_coordinates import OldPITs
from prerank.recalibration.steps import HeldOut
from prerank.recalibration.tilted import Tilted

AT_MOST = 512  # cases that are scored
_POOL, _SHIFTS = 1000, 16  # draws of the forecast for each, and pairs of each draw with others


class Verdict(NamedTuple):
    """Mean effective share of a pool, the energy score before and its gain with standard error, and HDR's PCE.

    The PCE is that of the corrected forecast's own density, before and after. The gain in log score is in nats per case.
    """

    effective_share: float
    score: float
    gain: float
    gain_error: float
    hdr_before: float = 0.0
    hdr_after: float = 0.0
    n_cases: int = 1
    log_gain: float = 0.0
    log_gain_error: float = 0.0

    def harmless(self, least_share: float, errors: float) -> bool:
        """Draws are left, and neither a score nor the calibration of the density is worse beyond chance."""
        chance = 2 * 0.3133 / math.sqrt(self.n_cases)  # twice the PCE expected of a calibrated forecast
        calibrated = self.hdr_after <= 1.25 * self.hdr_before + chance
        scores = self.gain >= -errors * self.gain_error and self.log_gain >= -errors * self.log_gain_error
        return calibrated and self.effective_share >= least_share and scores


class Pools(NamedTuple):
    """Draws of some cases, and the observation before them: PITs (n, P + 1, K), and what scores need of them.

    `log_before` (n, P + 1) are the weights before in logarithms, `log_density` (n, P + 1) those of the forecast that
    was drawn from, `to_y` (n, P) distances to the observation, `apart` (n, S, P) distances to the draws S places further on.
    """

    pits: Tensor
    log_before: Tensor
    log_density: Tensor
    to_y: Tensor
    apart: Tensor

    def score(self, log_weights: Tensor) -> Tensor:
        """Energy scores (n,) under weights (n, P) of the draws, which are the same for every weighting.

        A ratio of weighted sums has a bias that falls with the number of draws, as large for each half of them as for twice
        as many: it is taken out by the jackknife.
        """
        half = log_weights.shape[-1] // 2
        whole, first, second = (
            self._score(log_weights, *ends) for ends in ((0, 2 * half), (0, half), (half, 2 * half))
        )
        return 2 * whole - 0.5 * (first + second)

    def _score(self, log_weights: Tensor, start: int, stop: int) -> Tensor:
        share = torch.softmax(log_weights[:, start:stop], -1)
        distance, mass = torch.zeros_like(share[:, 0]), torch.zeros_like(share[:, 0])
        for s in range(1, _SHIFTS + 1):
            both = share[:, :-s] * share[:, s:]
            distance, mass = distance + (both * self.apart[:, s - 1, start : stop - s]).sum(-1), mass + both.sum(-1)
        tiny = torch.finfo(share.dtype).tiny
        return (share * self.to_y[:, start:stop]).sum(-1) - 0.5 * distance / mass.clamp_min(tiny)

    def hdr(self, log_weights: Tensor) -> Tensor:
        """PITs (n, 1) of the density that weights (n, P + 1) make, among weighted draws."""
        density = self.log_density + log_weights
        below = (density[:, 1:] < density[:, :1]).double()
        return (torch.softmax(log_weights[:, 1:], -1) * below).sum(-1, keepdim=True).clamp(0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Guard:
    """Pools of draws for some of the held-out cases, and their energy scores before."""

    cases: Tensor
    pools: Pools
    before: Tensor
    hdr_before: float
    held_out: HeldOut

    @classmethod
    def of(cls, forecast: Distribution, held_out: HeldOut, old: OldPITs) -> "Guard":
        device, n_cases, forecast = held_out.y.device, len(held_out.y), case_by_case(forecast)
        cases = torch.arange(n_cases, device=device)
        if n_cases > AT_MOST and can_be_cut(forecast):
            chosen = numpy_generator(held_out.seed, "cases of the guard").permutation(n_cases)[:AT_MOST]
            cases = torch.as_tensor(chosen, device=device).sort().values
            forecast = select(forecast, cases)

        def drawn_from(some: slice, part: Distribution) -> Pools:
            ids = cases[some]
            root = part.root if isinstance(part, Tilted) else part
            drawn = equally_weighted_draws(root, _POOL, held_out.seed, "pool of the guard", ids).members
            points = torch.cat([held_out.y[ids][:, None].to(drawn), drawn], 1)
            before = part.log_weights(points) if isinstance(part, Tilted) else torch.zeros_like(points[..., 0])
            density = _log_density(root, points)
            apart = [torch.linalg.vector_norm(drawn - drawn.roll(-s, 1), dim=-1) for s in range(1, _SHIFTS + 1)]
            to_y = torch.linalg.vector_norm(drawn - points[:, :1], dim=-1)
            pits = old(part, points, ids).float()
            return Pools(pits, before.double(), density.double(), to_y.double(), torch.stack(apart, 1))

        parts = over_parts(drawn_from, forecast, _POOL * 8, device, spread=old.may_be_spread)
        pools = Pools(*(torch.cat(column) for column in zip(*parts, strict=True)))
        score, hdr = pools.score(pools.log_before[:, 1:]), float(pce(pools.hdr(pools.log_before)).mean())
        return cls(cases, pools, score, hdr, held_out)

    def verdict(self, candidate: Candidate) -> Verdict:
        """Of a candidate whose coefficients for a case were fitted without its fold."""
        fold, features = self.held_out.folds.fold[self.cases], candidate.features
        exponent = self.pools.log_before.clone()
        for f, theta in enumerate(candidate.without):
            inside = fold == f
            own = theta if features is None else by_case(theta, features.values[self.cases[inside]])
            exponent[inside] += log_tilt(self.pools.pits[inside], own).double()
        share = torch.softmax(exponent[:, 1:], -1)
        effective = 1 / share.square().sum(-1) / share.shape[-1]
        weights, block = self.held_out.weights[self.cases], self.held_out.folds.block[self.cases]
        gain, error = mean_and_error(self.before - self.pools.score(exponent[:, 1:]), weights, block)
        left, score = (mean_and_error(values, weights, block)[0] for values in (effective, self.before))
        hdr = float(pce(self.pools.hdr(exponent)).mean())
        log_gain = mean_and_error(log_score(exponent) - log_score(self.pools.log_before), weights, block)
        return Verdict(left, score, gain, error, self.hdr_before, hdr, len(self.cases), *log_gain)


def log_score(log_weights: Tensor) -> Tensor:
    """Log density (n,) of the observation over that of the forecast that was drawn from, the pool as normaliser."""
    count = log_weights.shape[-1] - 1
    return log_weights[:, 0] - torch.logsumexp(log_weights[:, 1:], -1) + math.log(count)


def _log_density(law: Distribution, points: Tensor) -> Tensor:
    """Log density (n, P) of points; the same for all where the law has none, so that the tilt alone ranks them."""
    try:
        return log_density(law, points)
    except (NotImplementedError, TypeError):
        return torch.zeros_like(points[..., 0])
