"""The dressing step: members become kernels, so that an ensemble has a density and support beyond its members."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from prerank.forecast import Ensemble, Forecast, GaussianMixture, described
from prerank.recalibration.likeliest import smallest
from prerank.recalibration.steps import HeldOut, require_spread
from prerank.scores import energy_score


@dataclass(frozen=True)
class Dressing:
    r"""Members moved by an affine map and dressed with one Gaussian kernel: a `GaussianMixture` of M components.

    $$\frac1M \sum_m N\bigl(c + a + s (x_m - c),\ H\bigr), \qquad c \text{ the mean of the members},$$

    with shift a and spread s per target and a kernel covariance H for all cases, by maximum likelihood on held-out cases.
    `prior_cases` pseudo-observations keep H away from zero, where a repeated observation would be its own density.
    For an `Ensemble`; every other forecast has a density or draws of its own.
    """

    prior_cases: float = 2.0

    def fit(self, forecast: Forecast, held_out: HeldOut) -> "FittedDressing":
        ensemble = _ensemble(forecast)
        require_spread(ensemble, "Dressing()")
        weights, fold = held_out.weights.double(), held_out.folds.fold
        problem = _Problem.of(ensemble, held_out.y, weights)
        found = problem.solve(weights, self.prior_cases)
        before = energy_score(held_out.y, Ensemble(ensemble.members, ensemble.weights))
        after = torch.empty_like(before)
        for f in range(held_out.folds.n_folds):
            inside, outside = fold == f, (fold != f).double()
            part = problem.fitted(problem.solve(weights * outside, self.prior_cases, found))
            dressed = part.transform(ensemble.select(inside.nonzero()[:, 0]))
            after[inside] = energy_score(held_out.y[inside], dressed, seed=held_out.seed).to(after)
        gain, error = held_out.gain(before - after)
        return problem.fitted(found, gain, error, held_out.gain(before)[0])


def _ensemble(forecast: Forecast) -> Ensemble:
    if not isinstance(forecast, Ensemble):
        raise TypeError(
            f"Dressing() is for the members of an Ensemble, and the forecast is {described(forecast)}, which has "
            "draws of its own; use Affine() instead"
        )
    return forecast


@dataclass(frozen=True, eq=False)
class _Problem:
    """Residuals (N, D) of the members' mean and deviations (N, M, D) from it, in units (D,) of the residuals' spread."""

    residual: Tensor
    deviation: Tensor
    log_weights: Tensor
    unit: Tensor

    @classmethod
    def of(cls, forecast: Ensemble, y: Tensor, weights: Tensor) -> "_Problem":
        members, mean = forecast.members.double(), forecast.mean.double()
        residual = y.double() - mean
        share = (weights / weights.sum())[:, None]
        unit = (share * (residual - (share * residual).sum(0)).square()).sum(0).sqrt()
        unit = torch.where(unit > 0, unit, 1.0)
        deviation = (members - mean[:, None]) / unit
        return cls(residual / unit, deviation, forecast.probabilities.double().log(), unit)

    def split(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Shift (D,), scale (D,) and Cholesky factor (D, D) of the kernel."""
        d = len(self.unit)
        shift, log_scale, rest = parameters[:d], parameters[d : 2 * d], parameters[2 * d :].reshape(d, d)
        return shift, log_scale.exp(), rest.tril(-1) + rest.diagonal().exp().diag()

    def solve(self, weights: Tensor, prior_cases: float, start: Tensor | None = None) -> Tensor:
        d = len(self.unit)
        if start is None:
            start = torch.zeros(2 * d + d * d, dtype=torch.float64, device=self.unit.device)
            start[2 * d :] = (math.log(0.5) * torch.eye(d)).reshape(-1).to(start)
        prior = prior_cases / float(weights.sum())

        def loss(parameters: Tensor) -> Tensor:
            factor = self.split(parameters)[2]
            inverse = torch.linalg.solve_triangular(factor, torch.eye(d).to(factor), upper=False)
            # pseudo-observations half a unit away, a quarter of the residuals' variance
            pull = factor.diagonal().log().sum() + 0.125 * inverse.square().sum()
            return prior * pull - (weights * self.log_likelihood(parameters)).sum() / weights.sum()

        return smallest(loss, start)

    def log_likelihood(self, parameters: Tensor) -> Tensor:
        """Log density (N,) of the observations, in the units of the problem."""
        shift, scale, factor = self.split(parameters)
        distance = self.residual[:, None] - shift - scale * self.deviation
        white = torch.linalg.solve_triangular(factor, distance.reshape(-1, distance.shape[-1]).mT, upper=False)
        exponent = -0.5 * white.square().sum(0).reshape(distance.shape[:-1])
        constant = factor.diagonal().log().sum() + 0.5 * len(self.unit) * math.log(2 * math.pi)
        return torch.logsumexp(self.log_weights + exponent, -1) - constant

    def fitted(
        self, parameters: Tensor, gain: float = 0.0, gain_error: float = 0.0, score: float = 0.0
    ) -> "FittedDressing":
        shift, scale, factor = self.split(parameters)
        return FittedDressing(shift * self.unit, scale, self.unit[:, None] * factor, gain, gain_error, score)


@dataclass(frozen=True, eq=False)
class FittedDressing:
    """Shift and scale (D,), the kernel's Cholesky factor (D, D), and what the energy score gained on held-out folds."""

    shift: Tensor
    scale: Tensor
    kernel_tril: Tensor
    gain: float
    gain_error: float
    score: float

    @property
    def changed(self) -> bool:
        return True

    def transform(self, forecast: Forecast) -> GaussianMixture:
        ensemble = _ensemble(forecast)
        mean = ensemble.mean[..., None, :]
        loc = mean + self.shift.to(mean) + self.scale.to(mean) * (ensemble.members - mean)
        tiny = torch.finfo(loc.dtype).tiny  # a member of weight zero stays out
        logits = ensemble.probabilities.clamp_min(tiny).log()
        return GaussianMixture(logits, loc, self.kernel_tril.to(loc).expand(*loc.shape, loc.shape[-1]))

    def summary(self) -> str:
        shifts = ", ".join(f"{value:+.3g}" for value in self.shift.tolist())
        scales = ", ".join(f"{value:.3g}" for value in self.scale.tolist())
        kernels = ", ".join(f"{value:.3g}" for value in self.kernel_tril.square().sum(-1).sqrt().tolist())
        return (
            f"dressing: members shifted by {shifts}, spreads multiplied by {scales}, kernels with standard deviations "
            f"{kernels}; energy score {self.score:.4g} before, gain {self.gain:.4g} ± {self.gain_error:.4g}"
        )
