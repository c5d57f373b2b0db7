"""The dressing step: members become kernels, so that an ensemble has a density and support beyond its members."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from prerank._chunks import chunks
from prerank._parameters import require_number
from prerank.forecasts import Ensemble, Forecast, GaussianMixture
from prerank.recalibration._lbfgs import smallest
from prerank.recalibration.steps import NOT_SAVED, HeldOut, in_place, require_ensemble, require_spread
from prerank.scores import energy_score

# log odds of wide kernels, and the logarithm of their log factor, so that they are wider than the others
_NO_TAILS = (-torch.inf, -torch.inf)
_TAILS = (-2.0, math.log(math.log(2.0)))
_ALL = slice(None)
_TEMPORARIES = 4  # that a loss keeps for its gradient, about


@dataclass(frozen=True)
class Dressing:
    r"""Members moved by an affine map and dressed with Gaussian kernels: a `GaussianMixture`.

    $$\frac1M \sum_m \sum_{j=1}^{2} p_j\, N\bigl(c + a + s (x_m - c),\ r_j^2 H\bigr), \qquad r_1 = 1,$$

    c the mean of the members, with shift a and spread s per target and a kernel covariance H for all cases, by maximum
    likelihood on held-out cases.
    Errors that are larger in some cases than in others give kernels heavy tails: a share $p_2$ of them is wider by a factor
    $r_2$, where cross-validation supports it, and otherwise all are alike and there are M components.

    `prior_cases` pseudo-observations keep H away from zero, where a repeated observation would be its own density; as many
    blocks (cases without them) pull shifts and spreads to no change. For an `Ensemble`; every other forecast has a density
    or draws of its own.

    Parameters
    ----------
    prior_cases : float, default 2.0
        How many pseudo-observations there are, more than zero.
    """

    prior_cases: float = 2.0

    def __post_init__(self) -> None:
        require_number(self.prior_cases, "prior_cases", above=0)

    def fit(self, forecast: Forecast, held_out: HeldOut) -> "FittedDressing":
        """Learn shifts, spreads and kernels from an ensemble of held-out cases and their observations.

        Parameters
        ----------
        forecast : Ensemble
            Members of the held-out cases.
        held_out : HeldOut
            Observations, weights and folds.

        Returns
        -------
        FittedDressing
            What was learnt, with the mixtures of the held-out cases by fits without their fold.

        Raises
        ------
        TypeError
            If the forecast is no `Ensemble`.
        ValueError
            If there is a single member, or all members of a target agree in every case.
        """
        ensemble = require_ensemble(forecast, "Dressing")
        require_spread(ensemble, "Dressing()")
        n_blocks = len(held_out.folds.block.unique())
        problem = _Problem.of(ensemble, held_out.y, held_out.weights.double(), self.prior_cases, n_blocks)
        plain, tailed = (problem.cross_validated(held_out, tails) for tails in (False, True))
        gain, error = held_out.gain(tailed.held_out - plain.held_out)
        chosen = tailed if gain > error else plain
        before = energy_score(held_out.y, Ensemble(ensemble.members, ensemble.weights))
        after = torch.empty_like(before)
        parts = []
        for f, parameters in enumerate(chosen.without):
            inside = held_out.folds.fold == f
            dressed = problem.fitted(parameters).transform(ensemble.select(inside.nonzero()[:, 0]))
            after[inside] = energy_score(held_out.y[inside], dressed, seed=held_out.seed).to(after)
            parts.append(dressed)
        gain, error = held_out.gain(before - after)
        whole, score = problem.fitted(chosen.whole), held_out.gain(before)[0]
        together = in_place(parts, held_out.folds)
        return replace(whole, gain=gain, gain_error=error, score=score, out_of_fold=together)


class _Fit(NamedTuple):
    """Parameters of all cases and of all but each fold, and log densities (N,) of cases by those of the other folds."""

    whole: Tensor
    without: list[Tensor]
    held_out: Tensor


class _Kernel(NamedTuple):
    """Shift and scale (D,), Cholesky factor (D, D) of the kernel, log odds and log factor of the wide ones."""

    shift: Tensor
    log_scale: Tensor
    factor: Tensor
    tail_odds: Tensor
    tail_factor: Tensor


@dataclass(frozen=True, eq=False)
class _Problem:
    """Residuals (N, D) of the members' mean and deviations (N, M, D) from it, in units (D,) of the residuals' spread.

    `reach` (D,) is the size of a usual residual in these units, one or more: how far shifts may go.
    """

    residual: Tensor
    deviation: Tensor
    log_weights: Tensor
    unit: Tensor
    reach: Tensor
    prior_cases: float
    n_blocks: int

    @classmethod
    def of(cls, forecast: Ensemble, y: Tensor, weights: Tensor, prior_cases: float, n_blocks: int) -> "_Problem":
        members, mean = forecast.members.double(), forecast.mean.double()
        residual = y.double() - mean
        share = (weights / weights.sum())[:, None]
        unit = (share * (residual - (share * residual).sum(0)).square()).sum(0).sqrt()
        size = (share * residual.square()).sum(0).sqrt()
        # residuals that are all the same have a spread of rounding noise
        unit = torch.where(unit > 1e-9 * size, unit, torch.where(size > 0, size, 1.0))
        deviation = (members - mean[:, None]) / unit
        logs = forecast.probabilities.double().log()
        return cls(residual / unit, deviation, logs, unit, (size / unit).clamp_min(1.0), prior_cases, n_blocks)

    def cross_validated(self, held_out: HeldOut, tails: bool) -> _Fit:
        weights, fold = held_out.weights.double(), held_out.folds.fold
        whole = self.solve(weights, self._start(tails, weights))
        without = [self.solve(weights * used, whole) for used in held_out.folds.without]
        values = torch.stack([self.log_likelihood(parameters) for parameters in without])
        return _Fit(whole, without, values.gather(0, fold[None])[0])

    def _tailed(self, parameters: Tensor) -> bool:
        return len(parameters) > len(self.unit) * (2 + len(self.unit))

    def _start(self, tails: bool, weights: Tensor) -> Tensor:
        d = len(self.unit)
        bias = (weights[:, None] * self.residual).sum(0).cpu() / float(weights.sum())
        kernel = (math.log(0.5) * torch.eye(d, dtype=torch.float64)).reshape(-1)
        wide = torch.tensor(_TAILS if tails else (), dtype=torch.float64)
        return torch.cat([bias, torch.zeros(d, dtype=torch.float64), kernel, wide]).to(self.unit.device)

    def split(self, parameters: Tensor) -> _Kernel:
        d = len(self.unit)
        shift, log_scale, rest = parameters[:d], parameters[d : 2 * d], parameters[2 * d : 2 * d + d * d].reshape(d, d)
        factor = rest.tril(-1) + rest.diagonal().exp().diag()
        odds, tail_factor = parameters[-2:] if self._tailed(parameters) else parameters.new_tensor(_NO_TAILS)
        return _Kernel(shift, log_scale, factor, odds, tail_factor.exp())

    def solve(self, weights: Tensor, start: Tensor) -> Tensor:
        """The parameters of the largest penalised likelihood under weights (N,) of the cases."""
        per_case = self.prior_cases / float(weights.sum())
        per_block = self.prior_cases / self.n_blocks

        def prior(parameters: Tensor) -> Tensor:
            kernel = self.split(parameters)
            eye = torch.eye(len(self.unit), dtype=kernel.factor.dtype, device=kernel.factor.device)
            inverse = torch.linalg.solve_triangular(kernel.factor, eye, upper=False)
            # pseudo-observations half a unit away, a quarter of the residuals' variance
            pull = kernel.factor.diagonal().log().sum() + 0.125 * inverse.square().sum()
            still = 0.5 * ((kernel.shift / self.reach).square().sum() + kernel.log_scale.square().sum())
            if self._tailed(parameters):
                still = still + 0.5 * (parameters[-2:] - parameters.new_tensor(_TAILS)).square().sum()
            return per_case * pull + per_block * still

        share = weights / weights.sum()

        def of(cases: slice) -> Callable[[Tensor], Tensor]:
            return lambda parameters: -(share[cases] * self.log_likelihood(parameters, cases)).sum()

        few = chunks(len(weights), _TEMPORARIES * self.deviation[0].numel(), weights.device)
        return smallest(prior, [of(cases) for cases in few], start)

    def log_likelihood(self, parameters: Tensor, cases: slice = _ALL) -> Tensor:
        """Log density (n,) of the observations of some cases, in the units of the problem."""
        kernel = self.split(parameters)
        distance = self.residual[cases, None] - kernel.shift - kernel.log_scale.exp() * self.deviation[cases]
        white = torch.linalg.solve_triangular(kernel.factor, distance.reshape(-1, distance.shape[-1]).mT, upper=False)
        square = white.square().sum(0).reshape(distance.shape[:-1])
        exponent = -0.5 * square
        if self._tailed(parameters):
            wide = -0.5 * square * (-2 * kernel.tail_factor).exp() - len(self.unit) * kernel.tail_factor
            odds = kernel.tail_odds
            exponent = torch.logaddexp(exponent + logsigmoid(-odds), wide + logsigmoid(odds))
        constant = kernel.factor.diagonal().log().sum() + 0.5 * len(self.unit) * math.log(2 * math.pi)
        return torch.logsumexp(self.log_weights[cases] + exponent, -1) - constant

    def fitted(self, parameters: Tensor) -> "FittedDressing":
        kernel = self.split(parameters)
        share, factor = float(kernel.tail_odds.sigmoid()), float(kernel.tail_factor.exp())
        return FittedDressing(
            kernel.shift * self.unit,
            kernel.log_scale.exp(),
            self.unit[:, None] * kernel.factor,
            tail_share=share,
            tail_factor=factor,
        )


@dataclass(frozen=True, eq=False)
class FittedDressing:
    """Shift and scale (D,), the kernel's Cholesky factor (D, D), and what the energy score gained on held-out folds.

    A share `tail_share` of the kernels is wider by `tail_factor`.
    """

    shift: Tensor
    scale: Tensor
    kernel_tril: Tensor
    gain: float = 0.0
    gain_error: float = 0.0
    score: float = 0.0
    tail_share: float = 0.0
    tail_factor: float = 1.0
    out_of_fold: GaussianMixture | None = field(default=None, repr=False, metadata=NOT_SAVED)

    @property
    def changed(self) -> bool:
        return True

    def transform(self, forecast: Forecast) -> GaussianMixture:
        ensemble = require_ensemble(forecast, "Dressing")
        mean = ensemble.mean[..., None, :]
        loc = mean + self.shift.to(mean) + self.scale.to(mean) * (ensemble.members - mean)
        tiny = torch.finfo(loc.dtype).tiny  # a member of weight zero stays out
        logits = ensemble.probabilities.clamp_min(tiny).log()
        tril = self.kernel_tril.to(loc).expand(*loc.shape, loc.shape[-1])
        if self.tail_share == 0.0:
            return GaussianMixture(logits, loc, tril)
        parts = ((1 - self.tail_share, 1.0), (self.tail_share, self.tail_factor))
        return GaussianMixture(
            torch.cat([logits + math.log(share) for share, _ in parts], -1),
            torch.cat([loc, loc], -2),
            torch.cat([factor * tril for _, factor in parts], -3),
        )

    def summary(self) -> str:
        shifts = ", ".join(f"{value:+.3g}" for value in self.shift.tolist())
        scales = ", ".join(f"{value:.3g}" for value in self.scale.tolist())
        kernels = ", ".join(f"{value:.3g}" for value in self.kernel_tril.square().sum(-1).sqrt().tolist())
        tails = f", {self.tail_share:.0%} of them {self.tail_factor:.2g} times as wide" if self.tail_share > 0 else ""
        return (
            f"dressing: members shifted by {shifts}, spreads multiplied by {scales}, kernels with standard deviations "
            f"{kernels}{tails}; energy score {self.score:.4g} before, gain {self.gain:.4g} ± {self.gain_error:.4g}"
        )
