"""A tilt is kept only if draws are left to represent it, and if they score no worse on cases that it has not seen."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.forecast import Ensemble, equally_weighted_draws
from prerank.randomness import case_keys, numpy_generator, uniform
from prerank.recalibration.basis import log_tilt
from prerank.recalibration.folds import mean_and_error
from prerank.recalibration.oldpits import OldPITs, select, some_cases
from prerank.recalibration.path import Candidate
from prerank.recalibration.steps import HeldOut
from prerank.recalibration.tilted import resampled
from prerank.scores import energy_score

AT_MOST = 512  # cases that are scored
_POOL, _SCORED = 1000, 200  # draws of the forecast for each, and equally weighted draws among them


class Verdict(NamedTuple):
    """Mean effective share of a pool, and the energy score before and its gain with standard error."""

    effective_share: float
    score: float
    gain: float
    gain_error: float

    def harmless(self, least_share: float) -> bool:
        return self.effective_share >= least_share and self.gain >= -self.gain_error


@dataclass(frozen=True, eq=False)
class Guard:
    """Pools of draws for some of the held-out cases, their PITs, and the score of draws that weigh the same."""

    cases: Tensor
    members: Tensor
    pits: Tensor
    before: Tensor
    places: Tensor
    held_out: HeldOut

    @classmethod
    def of(cls, forecast: Distribution, held_out: HeldOut, old: OldPITs) -> "Guard":
        device, n_cases = held_out.y.device, len(held_out.y)
        cases = torch.arange(n_cases, device=device)
        if n_cases > AT_MOST and hasattr(forecast, "select"):
            chosen = numpy_generator(held_out.seed, "cases of the guard").permutation(n_cases)[:AT_MOST]
            cases = torch.as_tensor(chosen, device=device).sort().values
            forecast = select(forecast, cases)
        members, pits = [], []
        for some in some_cases(forecast, _POOL * 8, device):
            part, ids = select(forecast, some), cases[some]
            drawn = equally_weighted_draws(part, _POOL, held_out.seed, "pool of the guard", ids).members
            members.append(drawn)
            pits.append(old(part, drawn, ids).float())
        pooled = torch.cat(members)
        # one number per case and even steps from it: the same for every candidate, so that differences are quiet
        start = uniform(case_keys(held_out.seed, cases, "resampling of the guard"), (1,))
        places = (torch.arange(_SCORED, device=device) + start) / _SCORED
        equal = torch.full(pooled.shape[:2], 1 / _POOL, dtype=torch.float64, device=device)
        before = energy_score(held_out.y[cases], Ensemble(resampled(pooled, equal, places)))
        return cls(cases, pooled, torch.cat(pits), before, places, held_out)

    def verdict(self, candidate: Candidate) -> Verdict:
        """Of a candidate whose coefficients for a case were fitted without its fold."""
        fold, y = self.held_out.folds.fold[self.cases], self.held_out.y[self.cases]
        share = torch.empty(self.pits.shape[:2], dtype=torch.float64, device=y.device)
        for f, theta in enumerate(candidate.without):
            inside = fold == f
            share[inside] = torch.softmax(log_tilt(self.pits[inside], theta).double(), -1)
        after = energy_score(y, Ensemble(resampled(self.members, share, self.places)))
        weights, block = self.held_out.weights[self.cases], self.held_out.folds.block[self.cases]
        gain, error = mean_and_error(self.before - after, weights, block)
        effective = mean_and_error(1 / share.square().sum(-1) / _POOL, weights, block)[0]
        return Verdict(effective, mean_and_error(self.before, weights, block)[0], gain, error)
