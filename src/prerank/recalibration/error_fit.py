"""Fit sizes, scatter and shape of errors, each from what fits without a case's fold leave."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.forecasts import Ensemble
from prerank.randomness import case_keys, normal
from prerank.recalibration.error_mean import Mean
from prerank.recalibration.error_scale import Sizes, fit_sizes
from prerank.recalibration.error_scatter import OWN_SHARES, Scatter, fit_scatter, own_densities
from prerank.recalibration.error_shape import SHAPES, SHARES, Shape, covariances, log_densities, some_errors
from prerank.recalibration.folds import Folds
from prerank.recalibration.steps import HeldOut
from prerank.scores import energy_score

_LEAST_MEMBERS = 5  # that have a shape
_DRAWS = 40  # whose energy scores decide how much of a regression is used


class Cases(NamedTuple):
    """Observations, weights and folds of the cases, and the number of blocks that have weight."""

    y: Tensor
    weights: Tensor
    folds: Folds
    n_blocks: int

    @classmethod
    def of(cls, held_out: HeldOut) -> "Cases":
        n_blocks = len(held_out.folds.block[held_out.weights > 0].unique())
        return cls(held_out.y.double(), held_out.weights.double(), held_out.folds, n_blocks)


class Solution(NamedTuple):
    """A mean, sizes of what it leaves, log sizes (N, D) by fits without the case's fold, and the scatter of both."""

    mean: Mean
    sizes: Sizes
    log_size: Tensor
    scatter: Scatter
    standardised: Tensor


class ErrorProblem(NamedTuple):
    """Errors (N, D) in their units, functions of sizes, standardised deviations of members, and weights for usual cases."""

    errors: Tensor
    basis: Tensor
    deviations: Tensor
    robust: Tensor
    cases: Cases
    ordered: bool

    def solved(self, mean: Mean) -> Solution:
        """Sizes and scatter of what is left by a mean, all from fits without the case's fold.

        How sizes differ is learnt from all cases alike, or from usual ones above all, whichever is better for cases of
        other folds; how large they are is left to the scatter, and every case.
        """
        solutions = [self._solved(mean, weights) for weights in (self.cases.weights, self.robust)]
        return max(solutions, key=self._log_likelihood)

    def _solved(self, mean: Mean, weights: Tensor) -> Solution:
        rest, cases = self.errors - mean.held_out, self.cases
        sizes = fit_sizes(rest, self.basis, weights, cases.n_blocks)
        log_size = torch.empty_like(rest)
        for f, used in enumerate(cases.folds.without):
            inside = cases.folds.fold == f
            without = fit_sizes(rest, self.basis, weights * used, cases.n_blocks, sizes)
            log_size[inside] = without.log_size(self.basis[inside])
        z = rest * (-log_size).exp()
        scatter = fit_scatter(z, cases.weights, cases.folds, self.ordered)
        return Solution(mean, sizes, log_size, scatter, z)

    def _log_likelihood(self, solution: Solution) -> float:
        return solution.scatter.log_likelihood - float(self.cases.weights @ solution.log_size.sum(1))

    def score(self, solution: Solution, unit: Tensor, seed: int) -> float:
        """The energy score of draws of every case's law without its fold, by the same noise for every solution."""
        n_cases, n_targets = self.errors.shape
        ids = torch.arange(n_cases, device=self.errors.device)
        noise = normal(case_keys(seed, ids, "error law"), (_DRAWS, n_targets), torch.float64)
        if not math.isinf(solution.scatter.freedom):
            # a chi-square by its cube root (Wilson and Hilferty), from one more normal number
            root = normal(case_keys(seed, ids, "error law", "sizes"), (_DRAWS, 1), torch.float64)
            small = 2 / (9 * solution.scatter.freedom)
            noise = noise / (1 - small + small**0.5 * root).clamp_min(0.05) ** 1.5
        factor = torch.linalg.cholesky(solution.scatter.without)[self.cases.folds.fold]
        drawn = solution.mean.held_out[:, None] + solution.log_size.exp()[:, None] * (noise @ factor.mT)
        scores = energy_score(unit * self.errors, Ensemble(unit * drawn))
        return float((self.cases.weights * scores).mean())

    def own_share(self, solution: Solution, held_out: HeldOut) -> tuple[float, Tensor]:
        """The share of every case's own scatter that gains most, if that is more than a standard error.

        With it the log densities (N,) of standardised errors.
        """
        alone = self.errors.shape[1] < 2 or self.deviations.shape[1] < 2
        shares = (0.0, *(() if alone else OWN_SHARES))
        values = own_densities(solution.standardised, solution.scatter, self.deviations, self.cases.folds.fold, shares)
        place = int((values @ self.cases.weights).argmax())
        gain, error = held_out.gain(values[place] - values[0])
        place = place if gain > error else 0
        return shares[place], values[place]

    def shape(self, solution: Solution, density: Tensor, held_out: HeldOut) -> Shape:
        """The members' shape, or that of past errors, where it gains more than a standard error over a t's density (N,)."""
        z, (n_members, n_targets) = solution.standardised, self.deviations.shape[1:]
        without, fold = self.cases.folds.without, self.cases.folds.fold
        whole, parts = covariances(z, self.cases.weights, without, solution.scatter)
        factor = torch.linalg.cholesky(parts)[fold]
        past = some_errors(z, self.cases.weights, without, held_out.seed)
        nothing = z.new_zeros(0, n_targets)
        best = Shape("t", 0.0, solution.scatter.whole, solution.scatter.without, nothing, nothing)
        for kind in SHAPES[1:]:
            if kind == "members" and n_members < _LEAST_MEMBERS:
                continue
            size = parts.diagonal(dim1=-2, dim2=-1).sqrt()[fold]
            points = self.deviations * size[:, None] if kind == "members" else past[1:][fold]
            values = log_densities(z, factor, points)
            place = int((values @ self.cases.weights).argmax())
            gain, error = held_out.gain(values[place] - density)
            if gain > error:
                kept = (past[0], past[1:]) if kind == "errors" else (nothing, nothing)
                best, density = Shape(kind, SHARES[place], whole, parts, *kept), values[place]
        return best
