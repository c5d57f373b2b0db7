"""The affine step: bias and spread of every target, as far as the held-out cases give evidence."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.chunks import chunks
from prerank.forecast import Ensemble, Forecast, GaussianMixture, normal_as_mixture
from prerank.recalibration.atoms import has_atoms
from prerank.recalibration.folds import best_if_any
from prerank.recalibration.likeliest import smallest
from prerank.recalibration.moved import Moved
from prerank.recalibration.steps import HeldOut, moments, require_spread

_TEMPORARIES = 4  # that a loss keeps for its gradient, about
_SMALLEST = 0.01  # of a target's usual spread: cases whose members all but agree would decide everything otherwise


class Marginals(NamedTuple):
    """The laws of single targets: mixtures (N, C, D) of Gaussians, or Student's t where the spread is estimated.

    With an estimated spread, `freedom` (N, 1) is the number of points less one: the law of an observation given a Gaussian
    ensemble.
    """

    log_weights: Tensor
    loc: Tensor
    scale: Tensor
    centre: Tensor
    freedom: Tensor | None

    def select(self, cases: slice) -> "Marginals":
        """The laws of some cases."""
        freedom = None if self.freedom is None else self.freedom[cases]
        return Marginals(self.log_weights[cases], self.loc[cases], self.scale[cases], self.centre[cases], freedom)

    def log_density(self, values: Tensor) -> Tensor:
        """Log densities of values (..., N, D)."""
        z = (values[..., None, :] - self.loc) / self.scale
        if self.freedom is None:
            exponent = -0.5 * z.square() - 0.5 * math.log(2 * math.pi)
        else:
            f = self.freedom[..., None]
            constant = torch.lgamma((f + 1) / 2) - torch.lgamma(f / 2) - 0.5 * (f * math.pi).log()
            exponent = constant - (f + 1) / 2 * torch.log1p(z.square() / f)
        return torch.logsumexp(self.log_weights[..., None] + exponent - self.scale.log(), -2)


def marginals(forecast: Forecast, seed: int) -> Marginals:
    """Exact for a `GaussianMixture`; otherwise from mean and variance, which is all that an ensemble has to say."""
    if isinstance(forecast, GaussianMixture):
        scale = forecast.scale_tril.square().sum(-1).sqrt()
        log_weights, loc, centre = (part.double() for part in (forecast.log_weights, forecast.loc, forecast.mean))
        return Marginals(log_weights, loc, scale.double(), centre, None)
    mean, variance, size = (part.double() for part in moments(forecast, seed))
    usual = variance.mean(0, keepdim=True).sqrt()
    # an observation lies about the members' mean as a draw does, and that mean has an error of its own
    scale = torch.maximum((variance * (1 + 1 / size)).sqrt(), _SMALLEST * usual)[:, None]
    freedom = None if bool(size.isinf().all()) else (size - 1).clamp_min(1.0)
    return Marginals(torch.zeros_like(mean[:, :1]), mean[:, None], scale, mean, freedom)


@dataclass(frozen=True)
class Affine:
    """Move every target by a shift and stretch it about the forecast's mean, both learnt by likelihood and shrunk.

    The likelihood is that of single targets, exact for a `GaussianMixture`. A ridge pulls shifts (in units of the target's
    usual spread) and logarithms of spreads to zero; its strength is chosen from `ridges` by cross-validation, and nothing is
    changed where that gains no more than its standard error. A `GaussianMixture` stays one, an `Ensemble` gets moved
    members, another distribution becomes a `Moved` one. A discrete distribution is left alone: moved counts are none.
    """

    ridges: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001)

    def fit(self, forecast: Forecast, held_out: HeldOut) -> "FittedAffine":
        if isinstance(forecast, Ensemble):
            require_spread(forecast, "Affine()")
        if has_atoms(forecast):
            zero = torch.zeros(held_out.y.shape[-1], dtype=torch.float64, device=held_out.y.device)
            return FittedAffine(zero, torch.ones_like(zero), None, 0.0, 0.0, held_out.seed, discrete=True)
        law, y = marginals(normal_as_mixture(forecast), held_out.seed), held_out.y.double()
        unit = law.scale.square().mean((0, 1)).sqrt()
        # row 0 is everything, row f + 1 everything but fold f
        fold = held_out.folds.fold
        used = torch.stack([fold == fold, *(fold != f for f in range(held_out.folds.n_folds))]).double()
        used = used * held_out.weights.double()
        found = torch.zeros(len(used), 2, y.shape[-1], dtype=torch.float64, device=y.device)
        before, gains, candidates = law.log_density(y).sum(-1), [], []
        for ridge in sorted(self.ridges, reverse=True):
            found = _fit(law, y, unit, used, ridge, found)
            with torch.no_grad():
                after = _log_likelihood(law, y, unit, found[1:])
            gains.append(after.gather(0, fold[None])[0] - before)
            candidates.append((ridge, found[0]))
        choice = best_if_any(gains, held_out.weights, held_out.folds.block)
        if choice is None:
            zero = torch.zeros_like(unit)
            return FittedAffine(zero, torch.ones_like(unit), None, 0.0, 0.0, held_out.seed)
        gain, error = held_out.gain(gains[choice])
        ridge, (shift, log_scale) = candidates[choice]
        return FittedAffine(shift * unit, log_scale.exp(), ridge, gain, error, held_out.seed)


def _log_likelihood(law: Marginals, y: Tensor, unit: Tensor, parameters: Tensor) -> Tensor:
    """Log likelihood (A, N), summed over targets, for A sets of parameters (A, 2, D)."""
    shift, log_scale = (parameters[:, None, part] for part in (0, 1))
    back = (y - law.centre - shift * unit) * (-log_scale).exp() + law.centre
    return (law.log_density(back) - log_scale).sum(-1)


def _fit(law: Marginals, y: Tensor, unit: Tensor, used: Tensor, ridge: float, start: Tensor) -> Tensor:
    """The parameters (A, 2, D) of the largest penalised mean likelihood, for A sets of case weights (A, N)."""
    share = used / used.sum(-1, keepdim=True)

    def cost(parameters: Tensor) -> Tensor:
        return 0.5 * ridge * parameters.square().sum()

    def of(cases: slice) -> Callable[[Tensor], Tensor]:
        some, observed, own = law.select(cases), y[cases], share[:, cases]
        return lambda parameters: -(own * _log_likelihood(some, observed, unit, parameters)).sum()

    few = chunks(len(y), _TEMPORARIES * len(used) * law.loc[0].numel(), y.device)
    return smallest(cost, [of(cases) for cases in few], start)


@dataclass(frozen=True, eq=False)
class FittedAffine:
    """Shift and scale (D,) of the targets, the ridge (None: no change), and the gain per case on held-out folds in nats."""

    shift: Tensor
    scale: Tensor
    ridge: float | None
    gain: float
    gain_error: float
    seed: int
    discrete: bool = False

    @property
    def changed(self) -> bool:
        return self.ridge is not None

    def transform(self, forecast: Forecast) -> Forecast:
        if not self.changed:
            return forecast
        forecast = normal_as_mixture(forecast)
        if isinstance(forecast, GaussianMixture):
            mean = forecast.mean[..., None, :]
            shift, scale = self.shift.to(mean), self.scale.to(mean)
            loc = mean + shift + scale * (forecast.loc - mean)
            return GaussianMixture(forecast.logits, loc, scale[:, None] * forecast.scale_tril)
        if isinstance(forecast, Ensemble):
            mean = forecast.mean[..., None, :]
            members = mean + self.shift.to(mean) + self.scale.to(mean) * (forecast.members - mean)
            return Ensemble(members, forecast.weights)
        assert isinstance(forecast, Distribution)
        return Moved(forecast, moments(forecast, self.seed)[0], self.shift, self.scale)

    def summary(self) -> str:
        if self.discrete:
            return "affine: nothing was changed; the forecast is discrete, and moved atoms would meet no observation"
        if not self.changed:
            return "affine: nothing was changed; no shift or spread is supported by the held-out cases"
        shifts = ", ".join(f"{value:+.3g}" for value in self.shift.tolist())
        scales = ", ".join(f"{value:.3g}" for value in self.scale.tolist())
        return (
            f"affine: targets shifted by {shifts}, spreads multiplied by {scales}; "
            f"gain {self.gain:.4f} ± {self.gain_error:.4f} nats per case, single targets added up"
        )
