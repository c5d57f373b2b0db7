"""Getting a forecast and its observations ready: missing values, units, and cases with fewer members than others."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import AffineTransform, Distribution, MultivariateNormal, TransformedDistribution

from prerank.forecast import (
    Ensemble,
    Forecast,
    GaussianMixture,
    as_ensemble,
    as_observations,
    equally_weighted_draws,
    require_vector_distribution,
)

_TENFOLD = 10.0


@dataclass(frozen=True, eq=False)
class Prepared:
    """Complete observations (N, D), the forecast for them, which of the user's cases they are, and what was done."""

    y: Tensor
    forecast: Forecast
    cases: Tensor
    present: Tensor | None
    notes: list[str]
    n_given: int


def prepare(y: Any, forecast: Any, axes: tuple[str, ...] | None, scale: str) -> Prepared:
    """Convert, drop missing observations, note missing members, bring targets to comparable units."""
    observed = as_observations(y)
    if observed.ndim != 2:
        raise ValueError(
            f"check() takes y of shape (cases, targets), got {tuple(observed.shape)}; check models one by one"
        )
    known = isinstance(forecast, Ensemble | Distribution)
    law: Forecast = forecast if known else as_ensemble(forecast, observed, axes)
    if isinstance(law, Ensemble):
        if law.members.ndim != 3 or law.members.shape[0] != len(observed) or law.n_targets != observed.shape[1]:
            raise ValueError(
                f"the ensemble has shape {tuple(law.members.shape)} (cases, members, targets), "
                f"but y has shape {tuple(observed.shape)} (cases, targets)"
            )
        dtype = torch.promote_types(observed.dtype, law.members.dtype)
        observed = observed.to(law.members.device, dtype)
        law = replace(law, members=law.members.to(dtype))
    else:
        law = _one_model(law, observed)
    _refuse_infinite(observed, law)
    notes: list[str] = []
    n_given = len(observed)
    cases = (~observed.isnan().any(-1)).nonzero()[:, 0]
    if len(cases) == 0:
        raise ValueError(f"no case is left: y has {len(observed)} cases and each has a missing value")
    if len(cases) < len(observed):
        notes.append(f"{len(observed) - len(cases)} of {len(observed)} cases dropped: the observation is missing")
        observed, law = observed[cases], _select(law, cases)
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
    observed, law, scaled = _rescale(observed, law, present, scale)
    notes.extend(scaled)
    return Prepared(observed, law, cases, present, notes, n_given)


def _one_model(law: Distribution, observed: Tensor) -> Distribution:
    """The forecast of a single model: batch shape (N,), or (1, N) as a fleet of one gives it."""
    if isinstance(law, GaussianMixture) and len(law.batch_shape) == 2 and law.batch_shape[0] == 1:
        law = GaussianMixture(law.logits[0], law.loc[0], law.scale_tril[0])
    require_vector_distribution(law)
    if law.batch_shape != observed.shape[:1]:
        raise ValueError(
            f"the forecast has batch shape {tuple(law.batch_shape)}, but y has {len(observed)} cases: "
            f"({len(observed)},) is needed, one model at a time"
        )
    return law


def _refuse_infinite(observed: Tensor, law: Forecast) -> None:
    if observed.isinf().any():
        raise ValueError(f"y has {int(observed.isinf().sum())} infinite values; NaN marks a missing one")
    if isinstance(law, Ensemble) and law.members.isinf().any():
        raise ValueError(f"members have {int(law.members.isinf().sum())} infinite values; NaN marks a missing one")


def _select(law: Forecast, cases: Tensor) -> Forecast:
    if isinstance(law, Ensemble | GaussianMixture):
        return law.select(cases)
    if isinstance(law, MultivariateNormal):
        return MultivariateNormal(law.loc[cases], scale_tril=law.scale_tril[cases])
    raise ValueError(
        f"cases with a missing observation cannot be cut out of a {type(law).__name__}; drop them from y and the "
        "forecast before, or pass draws as an Ensemble"
    )


def _rescale(y: Tensor, law: Forecast, present: Tensor | None, scale: str) -> tuple[Tensor, Forecast, list[str]]:
    """Divide each target by its pooled spread, so that no unit drowns the others; ranks stay exact."""
    if scale == "none" or y.shape[-1] == 1:
        return y, law, []
    if isinstance(law, Ensemble):
        members = law.members
        keep = ~members.isnan().any(-1) if present is None else present
        # members and observations together: a symmetric function of the points, so exchanging them changes nothing
        spread = torch.cat([members[keep], y]).std(0, correction=0)
    else:
        spread = equally_weighted_draws(law, 16, 0, "spread").members.flatten(0, -2).std(0, correction=0)
    spread = torch.where(spread > 0, spread, 1.0)
    ratio = float(spread.max() / spread.min())
    if scale == "auto" and ratio <= _TENFOLD:
        return y, law, []
    why = "asked for" if scale == "pooled" else f'spreads differ {ratio:.0f}-fold; scale="none" keeps the units'
    return y / spread.to(y), _divide(law, spread), [f"targets divided by their pooled spread ({why})"]


def _divide(law: Forecast, spread: Tensor) -> Forecast:
    if isinstance(law, Ensemble):
        reference = law.reference
        if reference is not None:
            reference = _divide(reference, spread)  # type: ignore[arg-type]
        return Ensemble(law.members / spread, law.weights, reference)
    if isinstance(law, GaussianMixture):
        spread = spread.to(law.loc)
        return GaussianMixture(law.logits, law.loc / spread, law.scale_tril / spread[:, None])
    if isinstance(law, MultivariateNormal):
        return MultivariateNormal(law.loc / spread, scale_tril=law.scale_tril / spread[:, None])
    return TransformedDistribution(law, AffineTransform(torch.zeros_like(spread), 1 / spread, event_dim=1))
