"""Getting a forecast and its observations ready: missing values, units, and cases with fewer members than others."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal

from prerank.calibration import PreRank, needs_of
from prerank.diagnosis.units import rescale
from prerank.forecast import Ensemble, Forecast, GaussianMixture, require_vector_distribution
from prerank.forecast.alignment import Axes, Labels
from prerank.forecast.fills import refuse_fill_values
from prerank.forecast.layout import Inputs, observations_and_forecast
from prerank.forecast.precision import in_one_precision
from prerank.forecast.requirements import require_fitting, require_parameters
from prerank.forecast.support import refuse_outside_support


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


def prepare(y: Any, forecast: Any, axes: Axes | None, scale: str, preranks: Callable[[int], list[PreRank]]) -> Prepared:
    """Convert, align, drop missing observations, note missing members, bring targets to comparable units.

    `preranks` are those for a number of targets: if one asks for the density of the observation, there must be one.
    """
    inputs = observations_and_forecast(y, forecast, axes)
    _refuse_shapes(inputs)
    observed, law = inputs.y, inputs.forecast
    notes: list[str] = []
    if isinstance(law, Ensemble):
        observed = observed.to(law.members.device)
        observed, members, moved = in_one_precision(observed, law.members, inputs.precision, law.precision)
        law = replace(law, members=members)
        notes.extend([] if moved is None else [moved])
    else:
        law = _one_model(law, observed)
    _refuse_infinite(observed, law)
    names = target_names(inputs.labels, observed.shape[-1])
    n_given = len(observed)
    cases = (~observed.isnan().any(-1)).nonzero()[:, 0]
    if len(cases) == 0:
        raise ValueError(f"no case is left: y has {len(observed)} cases and each has a missing value")
    if len(cases) < len(observed):
        notes.append(f"{len(observed) - len(cases)} of {len(observed)} cases dropped: the observation is missing")
        observed, law = observed[cases], _select(law, cases)
    if any(needs_of(item, observed.shape[-1]).density for item in preranks(observed.shape[-1])):
        refuse_outside_support(law, observed)
    present = None
    if isinstance(law, Ensemble):
        missing = law.members.isnan().any(-1)
        if missing.any():
            present = ~missing
            empty = ~present.any(-1)
            if empty.any():
                keep = (~empty).nonzero()[:, 0]
                if len(keep) == 0:
                    raise ValueError("no case is left: every member of every case has a missing value")
                notes.append(f"{int(empty.sum())} cases dropped: all their members are missing")
                observed, law, cases, present = observed[keep], _select(law, keep), cases[keep], present[keep]
            partly = int((~present).sum())
            if partly:
                notes.append(f"{partly} of {present.numel()} members left out: they have missing values")
            else:
                present = None
    observed, law, scaled = rescale(observed, law, present, scale, list(names))
    notes.extend(scaled)
    return Prepared(observed, law, cases, present, notes, inputs.labels, names, n_given)


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
    y, law = inputs.y, inputs.forecast
    if y.ndim != 2:
        raise ValueError(f"check() takes y of shape (cases, targets), got {tuple(y.shape)}; check models one by one")
    if isinstance(law, Ensemble) and law.members.ndim != 3:
        raise ValueError(
            f"check() takes members of shape (cases, members, targets), got {tuple(law.members.shape)}; "
            "check models one by one"
        )
    if isinstance(law, Ensemble):
        require_fitting(y, law)


def _one_model(law: Distribution, observed: Tensor) -> Distribution:
    """The forecast of a single model: batch shape (N,), or (1, N) as a fleet of one gives it."""
    if isinstance(law, GaussianMixture) and len(law.batch_shape) == 2 and law.batch_shape[0] == 1:
        law = GaussianMixture(law.logits[0], law.loc[0], law.scale_tril[0])
    require_vector_distribution(law, len(observed))
    if law.batch_shape != observed.shape[:1]:
        repeat = f"; law.expand(({len(observed)},)) repeats it" if law.batch_shape == (1,) else ", one model at a time"
        raise ValueError(
            f"the forecast has batch shape {tuple(law.batch_shape)}, but y has {len(observed)} cases: "
            f"({len(observed)},) is needed{repeat}"
        )
    require_fitting(observed, law)
    require_parameters(law)
    return law


def _refuse_infinite(observed: Tensor, law: Forecast) -> None:
    parts = [(observed, "y", "y has")]
    if isinstance(law, Ensemble):
        parts.append((law.members, "the members", "members have"))
    for values, what, said in parts:
        # the extremes first: a mask of a large ensemble would copy it, and NaN is an extreme too
        if not bool(torch.stack(values.aminmax()).isfinite().all()) and bool(values.isinf().any()):
            raise ValueError(f"{said} {int(values.isinf().sum())} infinite values; NaN marks a missing one")
        refuse_fill_values(values, what)


def _select(law: Forecast, cases: Tensor) -> Forecast:
    if isinstance(law, Ensemble | GaussianMixture):
        return law.select(cases)
    if isinstance(law, MultivariateNormal):
        return MultivariateNormal(law.loc[cases], scale_tril=law.scale_tril[cases])
    raise ValueError(
        f"cases with a missing observation cannot be cut out of a {type(law).__name__}; drop them from y and the "
        "forecast before, or pass draws as an Ensemble"
    )
