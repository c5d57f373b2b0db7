"""Densities of any forecast, and a scale on which those of different cases can be compared.

A density has the unit of its targets, and a sharp forecast has higher ones than a wide one. Among the densities of the
forecast's own draws it has a place that means the same in every case: the probability that the forecast gives to more
probable outcomes.
"""

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal

from prerank._wording import counted
from prerank.arrays.conversion import described
from prerank.arrays.labels import Axes
from prerank.forecasts import Ensemble, Forecast, GaussianMixture, equally_weighted_draws
from prerank.forecasts.sampling import require_vector_distribution
from prerank.forecasts.support import inside_support
from prerank.inputs import as_ensemble
from prerank.inputs.checks import require_fitting, require_members, require_observations, require_parameters
from prerank.inputs.layout import observations_and_forecast, refuse_idle_axes
from prerank.preranks import view_of
from prerank.preranks.point_density import bandwidths
from prerank.randomness import seeded
from prerank.recalibration.batching import over_drawn

LARGEST = 1e100  # numbers whose squares are numbers still
MOST_DRAWS = 1_000_000  # of each case
_AXES = re.compile(r"(axes=\([^)]*\))")


def held_out_cases(
    forecast: Any, y: Any, at_least: int = 1, axes: Axes | None = None, takes_axes: bool = False
) -> tuple[Forecast, Tensor]:
    """A forecast and the observations (N, D) of the same cases, checked; the forecast comes first, in X's place.

    A caller that does not take `axes` says how else the axes of an array can be named.
    """
    if isinstance(y, Ensemble | Distribution):
        raise TypeError(
            f"y is {described(y)}, which is a forecast: the order is fit(forecast, y), the forecast in the place of X"
        )
    try:
        inputs = observations_and_forecast(y, forecast, axes)
    except ValueError as error:
        if takes_axes:
            raise
        raise ValueError(_AXES.sub(r"as_ensemble(forecast, \1)", str(error))) from None
    require_fitting(inputs.y, inputs.forecast)
    require_observations(inputs.y)
    require_sizes(inputs.y, "y")
    if inputs.y.ndim != 2:
        raise ValueError(f"y has shape {tuple(inputs.y.shape)}; pass one model at a time, y (cases, targets)")
    if inputs.y.shape[-2] < at_least:
        raise ValueError(f"{inputs.y.shape[-2]} held-out cases; at least {at_least} are needed")
    return one_model(inputs.forecast), inputs.y


def one_model(forecast: Any, axes: Axes | None = None, n_members: int | None = None) -> Forecast:
    """A forecast with a single axis of cases and parameters or members that are numbers; arrays become an `Ensemble`.

    Without observations nothing says which axis of an array is which, but for the members that there were in fit: an array
    that has as many first, and not second, is refused.
    """
    refuse_idle_axes(None, forecast, axes)
    if not isinstance(forecast, Distribution):
        shape, given = tuple(getattr(forecast, "shape", ())), forecast
        forecast = as_ensemble(forecast, None, axes)
        if axes is None and not isinstance(given, Ensemble) and tuple(forecast.members.shape) == shape:
            _refuse_sample_first(shape, n_members)
        if 0 in forecast.members.shape:
            raise ValueError(
                f"the forecast has shape {tuple(forecast.members.shape)} (cases, members, targets); at least one of each "
                "is needed"
            )
        require_members(forecast)
        require_sizes(forecast.members, "the forecast")
        lead = tuple(forecast.members.shape[:-3])
    else:
        require_vector_distribution(forecast)
        require_parameters(forecast)
        _require_draws(forecast)
        lead = tuple(forecast.batch_shape[:-1])
    if lead:
        raise ValueError(f"the forecast has leading axes {lead} before its cases; pass one model at a time")
    return forecast


def require_sizes(values: Tensor, what: str) -> None:
    """Refuse numbers whose squares are none, or are all zero."""
    largest = float(values.detach().abs().max()) if values.numel() else 0.0
    most = min(LARGEST, torch.finfo(values.dtype).max ** 0.5)
    if largest > most or 0.0 < largest < 1 / LARGEST:
        raise ValueError(
            f"the values of {what} go up to {largest:.3g}, and their squares cannot be computed with; rescale what is "
            f"forecast to between {1 / LARGEST:g} and {most:.3g}"
        )


def _require_draws(forecast: Distribution) -> None:
    """Refuse a distribution of torch's or another's whose draws are no numbers: its parameters are none."""
    if hasattr(forecast, "ensemble") or isinstance(forecast, MultivariateNormal):
        return
    try:
        with seeded(0, "one draw of each case"), torch.no_grad():
            drawn = forecast.sample()
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"{described(forecast)} cannot be drawn from ({str(error).splitlines()[0]}); look at its parameters"
        ) from None
    bad = ~drawn.isfinite().flatten(1).all(1) if drawn.ndim > 1 else ~drawn.isfinite()
    if bool(bad.any()):
        raise ValueError(
            f"draws of {described(forecast)} are NaN or infinite in {int(bad.sum())} of {len(bad)} cases; "
            "a forecast's parameters must be numbers"
        )


def _refuse_sample_first(shape: tuple[int, ...], n_members: int | None) -> None:
    if n_members is not None and len(shape) == 3 and shape[0] == n_members != shape[1]:
        raise ValueError(
            f"the forecast has shape {shape}, {shape[1]} members for each of {shape[0]} cases, and in fit there were "
            f'{n_members} members: it looks sample-first; pass as_ensemble(forecast, axes=("member", "case", "target")), or '
            "Ensemble(forecast) if it is as it should be"
        )


def members_of(forecast: Forecast) -> int | None:
    """How many members an ensemble has; None for a distribution."""
    return forecast.n_members if isinstance(forecast, Ensemble) else None


def require_fitted(step: object, attribute: str) -> None:
    """Refuse to go on before `fit`, which sets the attribute."""
    if not hasattr(step, attribute):
        raise ValueError(f"{type(step).__name__} is not fitted yet; call fit(forecast, y) with held-out cases first")


def require_targets(step: object, forecast: Forecast, fitted: int) -> None:
    """Refuse a forecast of another number of targets than was fitted on."""
    targets = forecast.n_targets if isinstance(forecast, Ensemble) else forecast.event_shape[-1]
    if targets != fitted:
        raise ValueError(
            f"{type(step).__name__} was fitted on {counted(fitted, 'target')}, but the forecast is for {targets}; "
            "give it a forecast of the same targets"
        )


def kernel_mixture(ensemble: Ensemble) -> GaussianMixture:
    """The Gaussian kernel density of the members, Scott's rule per target, as a mixture of M components.

    A target on which all members of a case agree is given a kernel as wide as one unit by the same rule.

    >>> kernel_mixture(Ensemble(torch.zeros(7, 20, 3)))
    GaussianMixture(7 cases, 20 components, 3 targets)
    """
    members = ensemble.members.double()
    weights = None if ensemble.weights is None else ensemble.weights.double()
    width = bandwidths(members, weights).expand_as(members)
    return GaussianMixture(ensemble.probabilities.double().log(), members, torch.diag_embed(width))


def as_density(forecast: Forecast) -> Distribution:
    """A forecast that has a density: the distribution itself, or the kernel density of an ensemble's members."""
    return kernel_mixture(forecast) if isinstance(forecast, Ensemble) else forecast


def as_mixture(forecast: Forecast) -> GaussianMixture:
    """A forecast whose CDFs are closed forms: a mixture or one Gaussian as it is, an ensemble by its kernel density."""
    if isinstance(forecast, MultivariateNormal):
        return GaussianMixture.of_normal(forecast)
    forecast = as_density(forecast)
    if isinstance(forecast, GaussianMixture):
        return forecast
    raise TypeError(
        f"the CDFs of {described(forecast)} are not known in closed form; pass a GaussianMixture, or draws: "
        "prerank.forecasts.equally_weighted_draws(forecast, 200)"
    )


def log_density(forecast: Distribution, points: Tensor) -> Tensor:
    """Log density of points (N, P, D): (N, P); minus infinity outside the support."""
    function = view_of(forecast).log_density().function
    if isinstance(forecast, GaussianMixture | MultivariateNormal):
        return function(points)
    inside = _inside(forecast, points)
    if inside is None or bool(inside.all()):
        return function(points)
    with seeded(0, "a point inside"), torch.no_grad():
        somewhere = forecast.sample()[:, None, :].to(points)
    return function(torch.where(inside[..., None], points, somewhere)).masked_fill(~inside, -torch.inf)


def _inside(forecast: Distribution, points: Tensor) -> Tensor | None:
    inside = inside_support(points.movedim(-2, 0), forecast)
    return None if inside is None else inside.movedim(0, -1)


@dataclass(frozen=True, eq=False)
class DensityScale:
    r"""The forecast probability of everything more probable than a point, from sorted log densities of draws.

    `falling` (N, M) holds the log densities of M draws of each case, highest first. A point as probable as the highest
    draw has mass 0, as the lowest 1, linear between neighbours. Beyond the draws mass goes on, so that points can be told
    apart there: below 0 by the nats above the highest draw, above 1 by the nats below the lowest. Log densities are exact up
    to `resolution` times their size.

    >>> scale = DensityScale(torch.tensor([[0.0, -1.0, -3.0]]))
    >>> scale.mass(torch.tensor([[0.5, 0.0, -1.0, -2.0, -4.0]]))
    tensor([[-0.5000,  0.0000,  0.5000,  0.7500,  2.0000]])
    >>> scale.log_density(0.75)
    tensor([-2.])
    """

    falling: Tensor
    resolution: float = 0.0

    def mass(self, log_densities: Tensor) -> Tensor:
        """Mass of log densities (N, P): (N, P), infinite for those of impossible points."""
        rising, x = -self.falling, -log_densities.to(self.falling)
        last = rising.shape[-1] - 1
        above = torch.searchsorted(rising, x.contiguous())
        upper = above.clamp(1, last)
        left, right = rising.gather(-1, upper - 1), rising.gather(-1, upper)
        gap = right - left
        between = (upper - 1 + ((x - left) / torch.where(gap > 0, gap, 1.0)).clamp(0.0, 1.0)) / last
        between = torch.where(above > last, 1.0 + x - rising[:, -1:], between)
        return torch.where(above == 0, x - rising[:, :1], between)

    def log_density(self, mass: float) -> Tensor:
        """The log density (N,) at which a mass is reached in each case."""
        last = self.falling.shape[-1] - 1
        if mass <= 0:
            return self.falling[:, 0] - mass
        if mass >= 1:
            return self.falling[:, -1] - (mass - 1.0)
        place = min(int(mass * last), last - 1)
        share = mass * last - place
        return self.falling[:, place] * (1.0 - share) + self.falling[:, place + 1] * share

    def threshold(self, mass: float) -> Tensor:
        """The log density (N,) at which a mass is reached, rounded so that points of this mass are not below it."""
        exact = self.log_density(mass)
        rounding = 256 * self.resolution * (1 + exact.abs()) + 1e-12 * (1 + self.falling[:, 0] - self.falling[:, -1])
        return exact - rounding


def density_scale(forecast: Distribution, n_draws: int, seed: int, stream: str, common: bool = False) -> DensityScale:
    """The scale of every case in double precision, from `n_draws` draws of its own.

    With `common` random numbers are the same in every case, where draws can be keyed by case.
    """

    if n_draws <= getattr(forecast, "draws_in_pool", 0):
        found = forecast.density_of_draws(n_draws, f"{stream} {seed}")  # type: ignore[attr-defined]
        return DensityScale(found.double().sort(-1, descending=True).values, torch.finfo(found.dtype).eps)

    def falling(_: slice, part: Distribution, ids: Tensor) -> tuple[Tensor, float]:
        names = torch.zeros_like(ids) if common else ids
        drawn = equally_weighted_draws(part, n_draws, seed, stream, names).members
        found = log_density(part, drawn)
        return found.double().sort(-1, descending=True).values, torch.finfo(found.dtype).eps

    parts, resolutions = zip(*over_drawn(falling, forecast, n_draws), strict=True)
    return DensityScale(torch.cat(parts), resolutions[-1])
