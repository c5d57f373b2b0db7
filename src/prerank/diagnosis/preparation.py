"""Getting a forecast and its observations ready: missing values, units, and cases with fewer members than others."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal

from prerank.arrays.fill_values import refuse_fill_values
from prerank.arrays.labels import Axes, Labels
from prerank.arrays.precision import in_one_precision
from prerank.forecasts import Ensemble, Forecast, GaussianMixture
from prerank.forecasts.sampling import require_vector_distribution
from prerank.forecasts.support import refuse_outside_support
from prerank.inputs.checks import require_fitting, require_parameters
from prerank.inputs.layout import Inputs, observations_and_forecast
from prerank.inputs.lazy_members import LazyMembers
from prerank.inputs.rescaling import Units, rescale
from prerank.preranks import PreRank, needs_of


@dataclass(frozen=True, eq=False)
class Prepared:
    """Complete observations (N, D), the forecast for them, which of the user's cases they are, and what was done.

    Members of a lazy forecast are those of all the user's cases. `labels` are those of the user's `n_given` cases and of
    the targets, `names` what the targets are called.
    """

    y: Tensor
    forecast: Forecast | LazyMembers
    cases: Tensor
    present: Tensor | None
    notes: list[str]
    labels: Labels = field(default_factory=Labels)
    names: tuple[str, ...] = ()
    n_given: int = 0
    units: Units = field(default_factory=Units)


def prepare(y: Any, forecast: Any, axes: Axes | None, scale: str, preranks: Callable[[int], list[PreRank]]) -> Prepared:
    """Convert, align, drop missing observations, note missing members, bring targets to comparable units.

    `preranks` are those for a number of targets: if one asks for the density of the observation, there must be one.
    """
    inputs = observations_and_forecast(y, forecast, axes)
    _refuse_shapes(inputs)
    observed, forecast = inputs.y, inputs.forecast
    notes: list[str] = []
    if isinstance(forecast, Ensemble):
        observed = observed.to(forecast.members.device)
        observed, members, moved = in_one_precision(observed, forecast.members, inputs.precision, forecast.precision)
        forecast = replace(forecast, members=members)
        notes.extend([] if moved is None else [moved])
    else:
        forecast = _one_model(forecast, observed)
    refuse_infinite(observed, "y")
    refuse_fill_values(observed, "y")
    if isinstance(forecast, Ensemble):
        refuse_infinite(forecast.members, "members")
        refuse_fill_values(forecast.members, "the members")
    names = target_names(inputs.labels, observed.shape[-1])
    n_given = len(observed)
    cases, dropped = complete_cases(observed)
    if dropped is not None:
        notes.append(dropped)
        observed, forecast = observed[cases], _select(forecast, cases)
    if any(needs_of(item, observed.shape[-1]).density for item in preranks(observed.shape[-1])):
        refuse_outside_support(observed, forecast)
    present = None
    if isinstance(forecast, Ensemble):
        missing = forecast.members.isnan().any(-1)
        if missing.any():
            present = ~missing
            empty = ~present.any(-1)
            if empty.any():
                keep = (~empty).nonzero()[:, 0]
                if len(keep) == 0:
                    raise ValueError("no case is left: every member of every case has a missing value")
                notes.append(f"{int(empty.sum())} cases dropped: all their members are missing")
                observed, forecast, cases, present = observed[keep], _select(forecast, keep), cases[keep], present[keep]
            partly = int((~present).sum())
            if partly:
                notes.append(f"{partly} of {present.numel()} members left out: they have missing values")
            else:
                present = None
    observed, forecast, units = rescale(observed, forecast, present, scale, list(names))
    notes.extend(units.notes)
    return Prepared(observed, forecast, cases, present, notes, inputs.labels, names, n_given, units)


def complete_cases(observed: Tensor) -> tuple[Tensor, str | None]:
    """The numbers of the cases whose observations (N, D) are complete, and a note if others are not."""
    cases = (~observed.isnan().any(-1)).nonzero()[:, 0]
    if len(cases) == 0:
        raise ValueError(f"no case is left: y has {len(observed)} cases and each has a missing value")
    if len(cases) == len(observed):
        return cases, None
    return cases, f"{len(observed) - len(cases)} of {len(observed)} cases dropped: the observation is missing"


def target_names(labels: Labels, n_targets: int) -> tuple[str, ...]:
    """What the targets are called by their labels; y1, y2, ... where they have none."""
    if labels.targets is None:
        return tuple(f"y{d + 1}" for d in range(n_targets))
    names = tuple(_name(label) for label in labels.targets)
    if not all(name.strip() for name in names):
        place = next(place for place, name in enumerate(names) if not name.strip())
        raise ValueError(f"target {place + 1} of {len(names)} has an empty name; give every target a name of its own")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"target {twice!r} occurs more than once; give every target a name of its own")
    return names


def _name(label: Any) -> str:
    if isinstance(label, tuple):
        return ", ".join(_name(part) for part in label)
    return str(label).removesuffix(" 00:00:00") if hasattr(label, "isoformat") else str(label)


def _refuse_shapes(inputs: Inputs) -> None:
    y, forecast = inputs.y, inputs.forecast
    if y.ndim != 2:
        raise ValueError(f"check() takes y of shape (cases, targets), got {tuple(y.shape)}; check models one by one")
    if isinstance(forecast, Ensemble) and forecast.members.ndim != 3:
        raise ValueError(
            f"check() takes members of shape (cases, members, targets), got {tuple(forecast.members.shape)}; "
            "check models one by one"
        )
    if isinstance(forecast, Ensemble):
        require_fitting(y, forecast)


def _one_model(forecast: Distribution, observed: Tensor) -> Distribution:
    """The forecast of a single model: batch shape (N,), or (1, N) as a fleet of one gives it."""
    if isinstance(forecast, GaussianMixture) and len(forecast.batch_shape) == 2 and forecast.batch_shape[0] == 1:
        forecast = GaussianMixture(forecast.logits[0], forecast.loc[0], forecast.scale_tril[0])
    require_vector_distribution(forecast, len(observed))
    if forecast.batch_shape != observed.shape[:1]:
        repeat = (
            f"; forecast.expand(({len(observed)},)) repeats it"
            if forecast.batch_shape == (1,)
            else ", one model at a time"
        )
        raise ValueError(
            f"the forecast has batch shape {tuple(forecast.batch_shape)}, but y has {len(observed)} cases: "
            f"({len(observed)},) is needed{repeat}"
        )
    require_fitting(observed, forecast)
    require_parameters(forecast)
    return forecast


def refuse_infinite(values: Tensor, said: str) -> None:
    """Refuse infinite values; NaN is passed over."""
    # the extremes first: a mask of a large ensemble would copy it, and NaN is an extreme too
    if not bool(torch.stack(values.aminmax()).isfinite().all()) and bool(values.isinf().any()):
        verb = "has" if said == "y" else "have"
        raise ValueError(f"{said} {verb} {int(values.isinf().sum())} infinite values; NaN marks a missing one")


def _select(forecast: Forecast, cases: Tensor) -> Forecast:
    if isinstance(forecast, Ensemble | GaussianMixture):
        return forecast.select(cases)
    if isinstance(forecast, MultivariateNormal):
        return MultivariateNormal(forecast.loc[cases], scale_tril=forecast.scale_tril[cases])
    raise ValueError(
        f"cases with a missing observation cannot be cut out of a {type(forecast).__name__}; drop them from y and the "
        "forecast before, or pass draws as an Ensemble"
    )
