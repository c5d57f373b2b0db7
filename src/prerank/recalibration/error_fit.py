"""Fit sizes, scatter and shape of errors, each from what fits without a case's fold leave."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import StudentT

from prerank.forecasts import Ensemble
from prerank.randomness import case_keys, normal
from prerank.recalibration.error_mean import Mean
from prerank.recalibration.error_scale import FREEDOM, Sizes, fit_sizes
from prerank.recalibration.error_scatter import OWN_SHARES, Scatter, fit_scatter, own_densities
from prerank.recalibration.error_shape import COUNTS, SHARES, Groups, covariances, fit_groups, log_densities
from prerank.recalibration.folds import Folds
from prerank.recalibration.steps import HeldOut
from prerank.scores import energy_score

_LEAST_MEMBERS = 5  # that have a shape
_CLEARLY = 3.0  # standard errors of a gain by the level, which drifts out of what was seen
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
    """A mean, sizes of what it leaves, log sizes (N, D) by fits without the case's fold, and the scatter of both.

    `weights` (N,) are those of the cases in how sizes differ.
    """

    mean: Mean
    sizes: Sizes
    log_size: Tensor
    scatter: Scatter
    standardised: Tensor
    weights: Tensor


class Shape(NamedTuple):
    """A kind of shape, with the scatter or covariance (D, D) of standardised errors, the members' share, and groups."""

    kind: str
    covariance: Tensor
    share: float = 0.0
    groups: Groups | None = None


class ErrorProblem(NamedTuple):
    """Errors (N, D) in their units, functions of sizes, standardised deviations of members, and weights for usual cases."""

    errors: Tensor
    basis: Tensor
    deviations: Tensor
    robust: Tensor
    cases: Cases
    ordered: bool

    def _log_sizes(self, rest: Tensor, weights: Tensor) -> tuple[Tensor, Sizes]:
        """Log sizes (N, D) by fits without the case's fold, and the sizes of all cases."""
        cases = self.cases
        sizes = fit_sizes(rest, self.basis, weights, cases.n_blocks)
        log_size = torch.empty_like(rest)
        for f, used in enumerate(cases.folds.without):
            inside = cases.folds.fold == f
            without = fit_sizes(rest, self.basis, weights * used, cases.n_blocks, sizes)
            log_size[inside] = without.log_size(self.basis[inside])
        return log_size, sizes

    def solved(self, mean: Mean) -> Solution:
        """Sizes and scatter of what is left by a mean, all from fits without the case's fold.

        How sizes differ is learnt from all cases alike, or from usual ones above all, whichever is better for cases of
        other folds; how large they are is left to the scatter, and every case.
        """
        return max((self.solved_by(mean, weights) for weights in (self.cases.weights, self.robust)), key=self._total)

    def solved_by(self, mean: Mean, weights: Tensor) -> Solution:
        """The same with given weights (N,) for how sizes differ."""
        rest = self.errors - mean.held_out
        log_size, sizes = self._log_sizes(rest, weights)
        z = rest * (-log_size).exp()
        scatter = fit_scatter(z, self.cases.weights, self.cases.folds, self.ordered)
        return Solution(mean, sizes, log_size, scatter, z, weights)

    def _total(self, solution: Solution) -> float:
        return solution.scatter.log_likelihood - float(self.cases.weights @ solution.log_size.sum(1))

    def log_densities(self, solution: Solution) -> Tensor:
        """Log densities (N,) of the errors by fits without the case's fold."""
        scatter, fold = solution.scatter, self.cases.folds.fold
        found = own_densities(solution.standardised, scatter, self.deviations, fold, (0.0,))[0]
        return found - solution.log_size.sum(1)

    def with_level(self, level: Tensor, solution: Solution, held_out: HeldOut) -> tuple["ErrorProblem", Solution]:
        """Sizes that depend on the members' level (N, 1), too, where the log score clearly gains; otherwise no change.

        Single targets are looked at first, which is quick.
        """
        column = level.expand_as(self.errors)[..., None]
        problem = self._replace(basis=torch.cat([self.basis, column], -1))
        rest, values = self.errors - solution.mean.held_out, []
        for log_size in (solution.log_size, problem._log_sizes(rest, solution.weights)[0]):
            values.append((StudentT(FREEDOM).log_prob(rest * (-log_size).exp()) - log_size).sum(1))
        if self._clear(values[1] - values[0], held_out):
            other = problem.solved_by(solution.mean, solution.weights)
            if self._clear(problem.log_densities(other) - self.log_densities(solution), held_out):
                return problem, other
        return self, solution

    @staticmethod
    def _clear(gains: Tensor, held_out: HeldOut) -> bool:
        gain, error = held_out.gain(gains)
        return gain > _CLEARLY * error

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
        """The members' shape, or groups of errors, where that gains more than a standard error over a t's density (N,)."""
        z, cases = solution.standardised, self.cases
        best = Shape("t", solution.scatter.whole)
        if self.deviations.shape[1] >= _LEAST_MEMBERS:
            whole, parts = covariances(z, cases.weights, cases.folds.without, solution.scatter)
            own = parts[cases.folds.fold]
            points = self.deviations * own.diagonal(dim1=-2, dim2=-1).sqrt()[:, None]
            values = log_densities(z, torch.linalg.cholesky(own), points)
            place = int((values @ cases.weights).argmax())
            gain, error = held_out.gain(values[place] - density)
            if gain > error:
                best, density = Shape("members", whole, SHARES[place]), values[place]
        for count in COUNTS:
            value = torch.empty_like(density)
            for f, used in enumerate(cases.folds.without):
                inside, used = cases.folds.fold == f, used & (cases.weights > 0)
                value[inside] = fit_groups(z[used], cases.weights[used], count).joint(z[inside]).logsumexp(1)
            gain, error = held_out.gain(value - density)
            if gain > error:
                used = cases.weights > 0
                groups = fit_groups(z[used], cases.weights[used], count)
                best, density = Shape("groups", groups.covariance, groups=groups), value
        return best
