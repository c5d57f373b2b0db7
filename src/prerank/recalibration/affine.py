"""The affine step: bias and spread of every target, as far as the held-out cases give evidence."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank._chunks import chunks
from prerank._parameters import require_ridges
from prerank.forecasts import Ensemble, Forecast, GaussianMixture
from prerank.forecasts.affine_transformed import Moved
from prerank.forecasts.mixture import normal_as_mixture
from prerank.forecasts.support import has_bounds_within
from prerank.randomness import numpy_generator
from prerank.recalibration._lbfgs import smallest
from prerank.recalibration.atoms import has_atoms
from prerank.recalibration.folds import best_if_any, mean_and_error
from prerank.recalibration.steps import NOT_SAVED, HeldOut, has_moments, moments, require_spread
from prerank.scores import energy_score

_TEMPORARIES = 4  # that a loss keeps for its gradient, about
_AGREE = (
    0.1  # of a target's usual spread: below it members agree, and no stretch takes them to an observation elsewhere
)
_FAR = 20.0  # spreads from the mean: a bound beyond it is out of reach
_AT_MOST = 512  # cases whose energy scores are compared
_MEMBERS = 200  # members that these are computed from
_ERRORS = 2.0  # standard errors by which the energy score may be worse
REASONS = {  # why nothing was changed
    "": "no shift or spread is supported by the held-out cases",
    "bounded": (
        "the forecast has bounds within reach, and a shift or stretch would give probability to values that it calls "
        "impossible; what follows corrects it inside them, or forecast a transformed target, such as the logarithm"
    ),
    "no moments": "the forecast has no finite mean and variance to be moved and stretched about",
    "harm": "a shift and stretch fits, but the energy score is worse with it on held-out folds",
}


class Marginals(NamedTuple):
    """The laws of single targets: mixtures (N, C, D) of Gaussians, or Student's t where the spread is estimated.

    With an estimated spread, `freedom` (N, 1) is the number of points less one: the law of an observation given a Gaussian
    ensemble. `told` (N, D) is zero where members agree: a residual is endless in units of no spread, so a few such cases
    would decide.
    """

    log_weights: Tensor
    loc: Tensor
    scale: Tensor
    centre: Tensor
    freedom: Tensor | None
    told: Tensor

    def select(self, cases: slice) -> "Marginals":
        """The laws of some cases."""
        freedom = None if self.freedom is None else self.freedom[cases]
        log_weights, loc, scale, centre = (
            part[cases] for part in (self.log_weights, self.loc, self.scale, self.centre)
        )
        return Marginals(log_weights, loc, scale, centre, freedom, self.told[cases])

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
        return Marginals(log_weights, loc, scale.double(), centre, None, torch.ones_like(centre))
    mean, variance, size = (part.double() for part in moments(forecast, seed))
    usual = variance.mean(0, keepdim=True).sqrt()
    # an observation lies about the members' mean as a draw does, and that mean has an error of its own
    scale, least = (variance * (1 + 1 / size)).sqrt(), _AGREE * usual
    told = (scale > least).double()
    scale = torch.maximum(scale, least)[:, None]
    freedom = None if bool(size.isinf().all()) else (size - 1).clamp_min(1.0)
    return Marginals(torch.zeros_like(mean[:, :1]), mean[:, None], scale, mean, freedom, told)


@dataclass(frozen=True)
class Affine:
    """Move every target by a shift and stretch it about the forecast's mean, both learnt by likelihood and shrunk.

    The likelihood is that of single targets, exact for a `GaussianMixture`. A ridge pulls shifts (in units of the target's
    usual spread) and logarithms of spreads to zero; its strength is chosen from `ridges` by cross-validation, and nothing is
    changed where that gains no more than its standard error. A `GaussianMixture` stays one, an `Ensemble` gets moved
    members, another distribution becomes a `Moved` one.

    Where a case's members agree on a target (less than a tenth of its usual spread), no stretch helps, and the case says
    nothing of that target. Moved members are kept only if the energy score is not worse by more than two standard errors on
    folds that the fit has not seen. Left alone, and the summary says so: a discrete distribution, since moved counts are
    none; one with bounds within twenty spreads of its mean, since moved values would lie beyond them; one without a mean or
    a variance.

    Parameters
    ----------
    ridges : tuple of float, default (1.0, 0.1, 0.01, 0.001)
        Strengths of the ridge to choose from, each of zero or more.
    """

    ridges: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001)

    def __post_init__(self) -> None:
        require_ridges(self.ridges)

    def fit(self, forecast: Forecast, held_out: HeldOut) -> "FittedAffine":
        """Learn shifts and spreads from a forecast of held-out cases and their observations.

        Parameters
        ----------
        forecast : Ensemble or Distribution
            The forecast of the held-out cases.
        held_out : HeldOut
            Observations, weights and folds.

        Returns
        -------
        FittedAffine
            What was learnt; with the moved mixtures or members of the held-out cases by fits without their fold.

        Raises
        ------
        ValueError
            If an ensemble has a single member, or all members of a target agree in every case.
        """
        if isinstance(forecast, Ensemble):
            require_spread(forecast, "Affine()")
        if has_atoms(forecast):
            return _nothing(held_out, discrete=True)
        if not has_moments(forecast):
            return _nothing(held_out, why="no moments")
        law, y = marginals(normal_as_mixture(forecast), held_out.seed), held_out.y.double()
        if isinstance(forecast, Distribution) and has_bounds_within(forecast, law.centre, _FAR * law.scale[:, 0]):
            return _nothing(held_out, why="bounded")
        unit = law.scale.square().mean((0, 1)).sqrt()
        # row 0 is everything, row f + 1 everything but fold f
        fold = held_out.folds.fold
        used = torch.cat([torch.ones_like(fold)[None], held_out.folds.without]).double() * held_out.weights.double()
        found = torch.zeros(len(used), 2, y.shape[-1], dtype=torch.float64, device=y.device)
        before, gains, candidates = (law.told * law.log_density(y)).sum(-1), [], []
        for ridge in sorted(self.ridges, reverse=True):
            found = _fit(law, y, unit, used, ridge, found)
            with torch.no_grad():
                after = _log_likelihood(law, y, unit, found[1:])
            gains.append(after.gather(0, fold[None])[0] - before)
            candidates.append((ridge, found))
        choice = best_if_any(gains, held_out.weights, held_out.folds.block)
        if choice is None:
            return _nothing(held_out)
        gain, error = held_out.gain(gains[choice])
        ridge, found = candidates[choice]
        if isinstance(forecast, Ensemble) and _harms(forecast, held_out, found[1:, 0] * unit, found[1:, 1].exp()):
            return _nothing(held_out, why="harm")
        shift, log_scale = found[0]
        own = found[1 + fold]
        movable, out_of_fold = normal_as_mixture(forecast), None
        if isinstance(movable, GaussianMixture | Ensemble):
            out_of_fold = moved(movable, own[:, 0] * unit, own[:, 1].exp(), held_out.seed)
        scale = log_scale.exp()
        return FittedAffine(shift * unit, scale, ridge, gain, error, held_out.seed, out_of_fold=out_of_fold)


def _nothing(held_out: HeldOut, **why: Any) -> "FittedAffine":
    """No change, and why."""
    zero = torch.zeros(held_out.y.shape[-1], dtype=torch.float64, device=held_out.y.device)
    return FittedAffine(zero, torch.ones_like(zero), None, 0.0, 0.0, held_out.seed, **why)


def _harms(forecast: Ensemble, held_out: HeldOut, shift: Tensor, scale: Tensor) -> bool:
    """Whether moved members score worse beyond chance, each case with shift and scale (F, D) of fits without its fold."""
    chosen = numpy_generator(held_out.seed, "cases of the affine step").permutation(len(held_out.y))[:_AT_MOST]
    cases = torch.as_tensor(chosen, device=held_out.y.device).sort().values
    some, y = Ensemble(forecast.members, forecast.weights).select(cases), held_out.y[cases]
    fold, mean = held_out.folds.fold[cases], some.mean[..., None, :]
    every = slice(None) if some.weights is not None else slice(None, None, max(1, some.n_members // _MEMBERS))
    moved = mean + shift[fold, None].to(mean) + scale[fold, None].to(mean) * (some.members - mean)
    before, after = (energy_score(y, Ensemble(part[:, every], some.weights)) for part in (some.members, moved))
    gain, error = mean_and_error(before - after, held_out.weights[cases], held_out.folds.block[cases])
    return gain < -_ERRORS * error


def _log_likelihood(law: Marginals, y: Tensor, unit: Tensor, parameters: Tensor) -> Tensor:
    """Log likelihood (A, N), summed over targets, for A sets of parameters (A, 2, D)."""
    shift, log_scale = (parameters[:, None, part] for part in (0, 1))
    back = (y - law.centre - shift * unit) * (-log_scale).exp() + law.centre
    return (law.told * (law.log_density(back) - log_scale)).sum(-1)


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


def moved(forecast: Forecast, shift: Tensor, scale: Tensor, seed: int) -> Forecast:
    """A forecast with every target shifted and stretched about its mean: all cases alike (D,), or each by itself (N, D)."""
    if isinstance(forecast, GaussianMixture | Ensemble):
        mean = forecast.mean[..., None, :]
        shift, scale = (part.to(mean)[..., None, :] for part in (shift, scale))
        if isinstance(forecast, Ensemble):
            return Ensemble(mean + shift + scale * (forecast.members - mean), forecast.weights)
        loc = mean + shift + scale * (forecast.loc - mean)
        return GaussianMixture(forecast.logits, loc, scale[..., :, None] * forecast.scale_tril)
    assert isinstance(forecast, Distribution)
    return Moved(forecast, moments(forecast, seed)[0], shift, scale)


@dataclass(frozen=True, eq=False)
class FittedAffine:
    """Shift and scale (D,) of the targets, the ridge (None: no change), and the gain per case on held-out folds in nats.

    `why` says why nothing was changed: "" for want of evidence, "bounded", "no moments", or "harm".
    """

    shift: Tensor
    scale: Tensor
    ridge: float | None
    gain: float
    gain_error: float
    seed: int
    discrete: bool = False
    why: str = ""
    out_of_fold: Forecast | None = field(default=None, repr=False, metadata=NOT_SAVED)

    @property
    def changed(self) -> bool:
        return self.ridge is not None

    def transform(self, forecast: Forecast) -> Forecast:
        if not self.changed:
            return forecast
        return moved(normal_as_mixture(forecast), self.shift, self.scale, self.seed)

    def summary(self) -> str:
        if self.discrete:
            return "affine: nothing was changed; the forecast is discrete, and moved atoms would meet no observation"
        if not self.changed:
            return f"affine: nothing was changed; {REASONS[self.why]}"
        shifts = ", ".join(f"{value:+.3g}" for value in self.shift.tolist())
        scales = ", ".join(f"{value:.3g}" for value in self.scale.tolist())
        return (
            f"affine: targets shifted by {shifts}, spreads multiplied by {scales}; "
            f"gain {self.gain:.4f} ± {self.gain_error:.4f} nats per case in the log scores of single targets, added up"
        )
