r"""Projected PITs: where the observation's projection stands among the forecast's (the paper's $Z_\rho$).

How a PIT is computed is a value: `ClosedForm()`, `RandomisedRank()`, `EmpiricalRank()` (the paper's Algorithm 1) or
`SmoothRank()` (for training). Without one, the exact way is taken: closed form for a linear pre-rank of a Gaussian
mixture, randomised ranks otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.calibration.preranks import PreRank
from prerank.calibration.projection import LinearProjection, Projection, chunks
from prerank.calibration.ranks import all_weights_below_and_at, weight_below_and_at
from prerank.forecast import (
    Ensemble,
    Forecast,
    GaussianMixture,
    as_observations,
    equally_weighted_draws,
    require_vector_distribution,
)
from prerank.randomness import case_keys, uniform


@dataclass(frozen=True)
class ClosedForm:
    """The CDF of the projection itself: exact, no draws. For linear pre-ranks of a `GaussianMixture`."""


@dataclass(frozen=True)
class RandomisedRank:
    """(members below + U x (ties + 1)) / (M + 1): exactly uniform under calibration for any M, ties included."""


@dataclass(frozen=True)
class EmpiricalRank:
    """Share of members at or below the observation, as in Algorithm 1: lives on M + 1 values, so never quite uniform."""


@dataclass(frozen=True)
class SmoothRank:
    r"""$\sum_m w_m\, \sigma(\tau (T - \hat T_m) / s)$ with s the forecast's spread of T: differentiable, for training.

    `relative=False` leaves s out, as the published experiments did: the temperature then depends on the units.
    """

    temperature: float = 100.0
    relative: bool = True


How = ClosedForm | RandomisedRank | EmpiricalRank | SmoothRank


@dataclass(frozen=True, eq=False)
class ProjectedPIT:
    """PITs of one or several pre-ranks, and all that a test needs to know about them.

    `values` (..., N, K); `names` of the K projections and `groups`, the pre-rank each belongs to; `exact` is whether
    they are uniform under calibration; `tied` (..., K) is the share of cases in which the observation ties with a
    member; `points` (..., N, P, K), the PITs of all points that are exchangeable with the observation under
    calibration, the observation first (only if asked for), and `pick` (..., N, P) the probability with which each
    of them could have been the observation (None: equal). `n_members` is set for unrandomised ranks.
    """

    values: Tensor
    names: tuple[str, ...]
    groups: tuple[str, ...]
    method: str
    exact: bool
    tied: Tensor
    notes: dict[str, str] = field(default_factory=dict)
    n_members: int | None = None
    points: Tensor | None = None
    pick: Tensor | None = None


def projected_pit(
    prerank: PreRank | Sequence[PreRank],
    forecast: Forecast,
    y: Tensor,
    how: How | None = None,
    *,
    observation_weights: Tensor | None = None,
    n_draws: int = 100,
    seed: int = 0,
    case_ids: Tensor | None = None,
    exchangeable: bool = False,
) -> ProjectedPIT:
    r"""PIT of each projection, $Z = \hat F_{T \mid X}(T)$: y (..., N, D) -> values (..., N, K).

    A distribution is evaluated by closed form where there is one, otherwise among `n_draws` equally weighted draws.
    For an `Ensemble` with weights, uniformity is exact only with `observation_weights` (..., N), the weight that the
    observation itself carries (an importance ratio, say); without it the PIT is that of the weighted members,
    approximate of order one over the effective size, and `exact` is False. Randomisation depends on
    (`seed`, `case_ids`, pre-rank) alone. `exchangeable=True` also ranks every other point, which tests over
    several projections need. Several pre-ranks are computed on the same members and stand side by side.

    >>> from prerank import Location, Ensemble
    >>> y, members = torch.zeros(2, 3), torch.ones(2, 9, 3)
    >>> pit = projected_pit(Location(), Ensemble(members), y)
    >>> bool((pit.values < 0.1).all()), pit.method
    (True, 'randomised rank among 9 members')
    """
    y = as_observations(y)
    _refuse_bad_input(forecast, y, observation_weights)
    ids = torch.arange(y.shape[-2], device=y.device) if case_ids is None else case_ids.to(y.device)
    preranks = list(prerank) if isinstance(prerank, Sequence) else [prerank]
    if not preranks:
        raise ValueError("no pre-rank given; pass one, or several as a list")
    for item in preranks:
        if not hasattr(item, "given"):
            raise TypeError(f"{item!r} is not a pre-rank; pass a value such as Location() or PCA(), or wrap f as Custom(f)")
    law, members = _law_and_members(forecast, y, n_draws, seed, ids, how)
    parts = []
    for item in preranks:
        projection = item.given(law, seed, how.temperature if isinstance(how, SmoothRank) else None)
        if members is None or (how is None and _has_closed_form(projection, forecast)) or isinstance(how, ClosedForm):
            part = _closed_form(item, projection, forecast, y, members if exchangeable else None)
        elif isinstance(how, SmoothRank):
            part = _smooth(item, projection, members, y, how)
        elif isinstance(how, EmpiricalRank):
            part = _empirical(item, projection, members, y)
        else:
            part = _randomised(item, projection, members, y, observation_weights, seed, ids, exchangeable)
        parts.append(part)
    return _side_by_side(parts)


def smooth_pit(projection: Projection, draws: Ensemble, y: Tensor, how: SmoothRank, scale: Tensor | None = None) -> Tensor:
    """Smooth PIT (..., N, K) of y among weighted draws under a given projection; `scale` (..., N, 1, K) may be held fixed."""
    t, members = projection(y[..., None, :]), projection(draws.members)
    weights = draws.probabilities[..., None]
    if how.relative and scale is None:
        scale = spread(members, weights)
    difference = t - members if scale is None else (t - members) / scale
    return (weights * torch.sigmoid(how.temperature * difference)).sum(-2)


def spread(members: Tensor, weights: Tensor) -> Tensor:
    """Detached standard deviation of projected members (..., N, M, K) over the members, 1 where they all agree."""
    members, weights = members.detach(), weights.detach()
    centred = members - (weights * members).sum(-2, keepdim=True)
    scale = (weights * centred.square()).sum(-2, keepdim=True).sqrt()
    return torch.where(scale > 0, scale, 1.0)


def _law_and_members(
    forecast: Forecast, y: Tensor, n_draws: int, seed: int, ids: Tensor, how: How | None
) -> tuple[Forecast, Ensemble | None]:
    """What the pre-ranks may look at, and the members that are ranked."""
    if not isinstance(forecast, Ensemble):
        if isinstance(how, ClosedForm):
            return forecast, None
        if isinstance(how, SmoothRank):
            return forecast, _differentiable_draws(forecast, n_draws, seed)
        return forecast, equally_weighted_draws(forecast, n_draws, seed, "members", ids)
    if forecast.reference is not None:
        return forecast.reference, forecast  # type: ignore[return-value]
    pooled = torch.cat([y[..., None, :].expand(*forecast.members.shape[:-2], 1, -1), forecast.members], -2)
    return Ensemble(pooled), forecast


def _differentiable_draws(law: Distribution, n_draws: int, seed: int) -> Ensemble:
    if isinstance(law, GaussianMixture):
        return law.draw(n_draws, seed)
    if not law.has_rsample:
        raise TypeError(
            f"{type(law).__name__} has no reparameterised draws (has_rsample is False), so a smooth PIT would have a "
            "zero gradient without a word; use GaussianMixture, a distribution with rsample, or an Ensemble of "
            "differentiable members"
        )
    return Ensemble(law.rsample(torch.Size((n_draws,))).movedim(0, -2))


def _has_closed_form(projection: Projection, forecast: Forecast) -> bool:
    return isinstance(projection, LinearProjection) and isinstance(forecast, GaussianMixture)


def _closed_form(
    prerank: PreRank, projection: Projection, forecast: Forecast, y: Tensor, members: Ensemble | None
) -> ProjectedPIT:
    if not isinstance(projection, LinearProjection) or not isinstance(forecast, GaussianMixture):
        raise TypeError(
            f"{prerank.name} of {type(forecast).__name__} has no closed-form PIT: that needs a linear pre-rank "
            "(marginal, location, PCA, contrast) and a GaussianMixture; leave `how` out to rank draws instead"
        )
    directions = projection.directions.to(forecast.loc)
    values = forecast.cdf_along(directions, projection(y[..., None, :]))[..., 0, :]
    points = None
    if members is not None:
        drawn = _cdf_in_chunks(forecast, directions, projection(members.members))
        points = torch.cat([values[..., None, :], drawn], -2)
    return _part(prerank, projection, values, "closed form", True, torch.zeros_like(values[..., 0, :]), points=points)


def _cdf_in_chunks(law: GaussianMixture, directions: Tensor, values: Tensor) -> Tensor:
    """`law.cdf_along`, some cases at a time: the temporary is C times as large as the result."""
    per_case = values[..., 0, :, :].numel() * law.n_components
    parts = []
    for cases in chunks(values.shape[-3], per_case):
        along = directions if directions.shape[-3] == 1 else directions[..., cases, :, :]
        parts.append(law.select(cases).cdf_along(along, values[..., cases, :, :]))
    return torch.cat(parts, -3)


def _smooth(prerank: PreRank, projection: Projection, members: Ensemble, y: Tensor, how: SmoothRank) -> ProjectedPIT:
    values = smooth_pit(projection, members, y, how)
    method = f"smooth rank among {members.n_members} draws, temperature {how.temperature:g}"
    return _part(prerank, projection, values, method, False, torch.zeros_like(values[..., 0, :]))


def _empirical(prerank: PreRank, projection: Projection, members: Ensemble, y: Tensor) -> ProjectedPIT:
    t, projected = projection(y[..., None, :])[..., 0, :], projection(members.members)
    below, at = weight_below_and_at(t, projected, members.probabilities)
    ties = (projected == t[..., None, :]).any(-2)
    method = f"empirical rank among {members.n_members} members"
    n_members = members.n_members if members.weights is None else None
    return _part(prerank, projection, below + at, method, False, _share(ties), n_members=n_members)


def _randomised(
    prerank: PreRank,
    projection: Projection,
    members: Ensemble,
    y: Tensor,
    observation_weights: Tensor | None,
    seed: int,
    ids: Tensor,
    exchangeable: bool,
) -> ProjectedPIT:
    points = torch.cat([y[..., None, :].expand(*members.members.shape[:-2], 1, -1), members.members], -2)
    projected = projection(points)
    if projected.isnan().any():
        raise ValueError(
            f"{prerank.name} gave NaN for {int(projected.isnan().any(-1).sum())} of {projected[..., 0].numel()} points; "
            "a pre-rank must be a number for every point"
        )
    n_points, n_projections = projected.shape[-2:]
    keys = case_keys(seed, ids, "randomised rank", prerank.name)
    ties = (projected[..., 1:, :] == projected[..., :1, :]).any(-2)
    count = f"randomised rank among {members.n_members} members"
    weights, pick, method, exact = members.weights, None, count, True
    if weights is not None:
        own = torch.zeros_like(weights[..., 0]) if observation_weights is None else observation_weights
        weights = torch.cat([own[..., None].to(weights), weights], -1)
        pick = weights / weights.sum(-1, keepdim=True)
        exact = observation_weights is not None
        method = f"weighted {count}" + ("" if exact else ", the observation's own weight unknown: approximate")
    u = uniform(keys, (n_points if exchangeable else 1, n_projections), projected.dtype)
    if exchangeable:
        below, at = all_weights_below_and_at(projected, weights)
        total = projected.new_tensor(float(n_points)) if weights is None else weights.sum(-1)[..., None, None]
        if not exact and weights is not None:
            # a member stands in for the observation, whose weight does not count: neither does the member's then
            at, total = at - weights[..., None], total - weights[..., None]
        z = torch.where(total > 0, (below + u * at) / total, u)
        return _part(prerank, projection, z[..., 0, :], method, exact, _share(ties), points=z, pick=pick)
    below, at = weight_below_and_at(projected[..., 0, :], projected, weights)
    total = projected.new_tensor(float(n_points)) if weights is None else weights.sum(-1)[..., None]
    values = (below + u[..., 0, :] * at) / total
    return _part(prerank, projection, values, method, exact, _share(ties), pick=pick)


def _share(ties: Tensor) -> Tensor:
    return ties.double().mean(-2)


def _part(
    prerank: PreRank,
    projection: Projection,
    values: Tensor,
    method: str,
    exact: bool,
    tied: Tensor,
    n_members: int | None = None,
    points: Tensor | None = None,
    pick: Tensor | None = None,
) -> ProjectedPIT:
    notes = {prerank.name: projection.note} if projection.note else {}
    groups = (prerank.name,) * values.shape[-1]
    return ProjectedPIT(values, projection.names, groups, method, exact, tied, notes, n_members, points, pick)


def _side_by_side(parts: list[ProjectedPIT]) -> ProjectedPIT:
    if len(parts) == 1:
        return parts[0]
    methods = dict.fromkeys(part.method for part in parts)
    points = [part.points for part in parts if part.points is not None]
    return ProjectedPIT(
        values=torch.cat([part.values for part in parts], -1),
        names=tuple(name for part in parts for name in part.names),
        groups=tuple(group for part in parts for group in part.groups),
        method="; ".join(methods),
        exact=all(part.exact for part in parts),
        tied=torch.cat([part.tied for part in parts], -1),
        notes={group: note for part in parts for group, note in part.notes.items()},
        n_members=parts[0].n_members,
        points=torch.cat(points, -1) if len(points) == len(parts) else None,
        pick=next((part.pick for part in parts if part.pick is not None), None),
    )


def _refuse_bad_input(forecast: Forecast, y: Tensor, observation_weights: Tensor | None) -> None:
    """Everything that would otherwise end in a wrong number or an obscure error, said with numbers."""
    if isinstance(forecast, Ensemble):
        batch, targets = forecast.members.shape[:-2], forecast.n_targets
        if forecast.n_members == 0:
            raise ValueError("the ensemble has no members; at least one is needed")
    elif isinstance(forecast, Distribution):
        require_vector_distribution(forecast)
        batch, targets = forecast.batch_shape, forecast.event_shape[-1]
    else:
        raise TypeError(
            f"the forecast is a {type(forecast).__name__}; pass an Ensemble, a GaussianMixture or a torch distribution"
        )
    if y.shape[-2] == 0 or y.shape[-1] == 0:
        raise ValueError(f"y of shape {tuple(y.shape)} holds no case or no target; at least one of each is needed")
    if y.shape[-1] != targets or y.shape[-2] != batch[-1]:
        raise ValueError(
            f"y has shape {tuple(y.shape)}, but the forecast is for {batch[-1]} cases and {targets} targets"
        )
    if not y.isfinite().all():
        bad = int((~y.isfinite()).any(-1).sum())
        raise ValueError(
            f"y has NaN or infinite values in {bad} of {y[..., 0].numel()} cases; drop them, or call check(), which "
            "drops missing observations and says how many"
        )
    if isinstance(forecast, Ensemble):
        if not forecast.members.isfinite().all():
            bad = int((~forecast.members.isfinite()).any(-1).any(-1).sum())
            raise ValueError(
                f"members have NaN or infinite values in {bad} of {forecast.members[..., 0, 0].numel()} cases; "
                "drop them, or call check(), which leaves missing members out of their case"
            )
        weights = forecast.weights
        if weights is not None and not (weights.isfinite().all() and (weights >= 0).all() and (weights.sum(-1) > 0).all()):
            raise ValueError("member weights must be finite and non-negative, with a positive sum in every case")
    if observation_weights is not None:
        if not isinstance(forecast, Ensemble) or forecast.weights is None:
            raise ValueError("observation_weights go with member weights; give the Ensemble weights too")
        if observation_weights.shape != forecast.weights.shape[:-1]:
            raise ValueError(
                f"observation_weights have shape {tuple(observation_weights.shape)}, one per case is "
                f"{tuple(forecast.weights.shape[:-1])}"
            )
        if not (observation_weights.isfinite().all() and (observation_weights >= 0).all()):
            raise ValueError("observation_weights must be finite and non-negative")
