"""Getting a forecast and its observations ready: missing values, units, and cases with fewer members than others."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal

from prerank.calibration.inputs import refuse_bad_law, refuse_outside_support
from prerank.diagnosis.units import rescale
from prerank.forecast import Ensemble, Forecast, GaussianMixture, require_vector_distribution
from prerank.forecast.alignment import Axes, Labels
from prerank.forecast.fills import refuse_fill_values
from prerank.forecast.layout import Inputs, observations_and_forecast
from prerank.forecast.precision import in_one_precision


@dataclass(frozen=True, eq=False)
class Prepared:
    """Complete observations (N, D), the forecast for them, which of the user's cases they are, and what was done.

    `labels` are those of the user's `n_given` cases and of the targets, `names` what the targets are called.
    """

    y: Tensor
    forecast: Forecast
    cases: Tensor
    present: Tensor | None
    notes: list[str]
    labels: Labels = field(default_factory=Labels)
    names: tuple[str, ...] = ()
    n_given: int = 0


def prepare(y: Any, forecast: Any, axes: Axes | None, scale: str, density: bool = False) -> Prepared:
    """Convert, align, drop missing observations, note missing members, bring targets to comparable units.

    `density` says that a pre-rank asks for the density of the observation, which must then have one.
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
    _refuse_infinite(observed, forecast)
    names = target_names(inputs.labels, observed.shape[-1])
    n_given = len(observed)
    cases = (~observed.isnan().any(-1)).nonzero()[:, 0]
    if len(cases) == 0:
        raise ValueError(f"no case is left: y has {len(observed)} cases and each has a missing value")
    if len(cases) < len(observed):
        notes.append(f"{len(observed) - len(cases)} of {len(observed)} cases dropped: the observation is missing")
        observed, forecast = observed[cases], _select(forecast, cases)
    if density:
        refuse_outside_support(forecast, observed)
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
    observed, forecast, scaled = rescale(observed, forecast, present, scale, list(names))
    notes.extend(scaled)
    return Prepared(observed, forecast, cases, present, notes, inputs.labels, names, n_given)


def target_names(labels: Labels, n_targets: int) -> tuple[str, ...]:
    """What the targets are called by their labels; y1, y2, ... where they have none."""
    if labels.targets is None:
        return tuple(f"y{d + 1}" for d in range(n_targets))
    return tuple(_name(label) for label in labels.targets)


def _name(label: Any) -> str:
    if isinstance(label, tuple):
        return ", ".join(_name(part) for part in label)
    return str(label).removesuffix(" 00:00:00") if hasattr(label, "isoformat") else str(label)


def _refuse_shapes(inputs: Inputs) -> None:
    y, forecast = inputs.y, inputs.forecast
    if y.ndim != 2:
        raise ValueError(f"check() takes y of shape (cases, targets), got {tuple(y.shape)}; check models one by one")
    if 0 in y.shape:
        raise ValueError(f"y of shape {tuple(y.shape)} holds no case or no target; at least one of each is needed")
    if not isinstance(forecast, Ensemble):
        return
    if forecast.members.ndim != 3 or forecast.members.shape[0] != len(y) or forecast.n_targets != y.shape[1]:
        raise ValueError(
            f"the ensemble has shape {tuple(forecast.members.shape)} (cases, members, targets), "
            f"but y has shape {tuple(y.shape)} (cases, targets)"
        )
    if forecast.n_members == 0:
        raise ValueError(f"the ensemble has shape {tuple(forecast.members.shape)}: no members; at least one is needed")


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
    if forecast.event_shape != observed.shape[1:]:
        raise ValueError(
            f"the forecast is for {forecast.event_shape[0]} targets, but y has {observed.shape[1]} (shape "
            f"{tuple(observed.shape)}); both must be the same"
        )
    refuse_bad_law(forecast)
    return forecast


def _refuse_infinite(observed: Tensor, forecast: Forecast) -> None:
    parts = [(observed, "y", "y has")]
    if isinstance(forecast, Ensemble):
        parts.append((forecast.members, "the members", "members have"))
    for values, what, said in parts:
        # the extremes first: a mask of a large ensemble would copy it, and NaN is an extreme too
        if not bool(torch.stack(values.aminmax()).isfinite().all()) and bool(values.isinf().any()):
            raise ValueError(f"{said} {int(values.isinf().sum())} infinite values; NaN marks a missing one")
        refuse_fill_values(values, what)


def _select(forecast: Forecast, cases: Tensor) -> Forecast:
    if isinstance(forecast, Ensemble | GaussianMixture):
        return forecast.select(cases)
    if isinstance(forecast, MultivariateNormal):
        return MultivariateNormal(forecast.loc[cases], scale_tril=forecast.scale_tril[cases])
    raise ValueError(
        f"cases with a missing observation cannot be cut out of a {type(forecast).__name__}; drop them from y and the "
        "forecast before, or pass draws as an Ensemble"
    )
