r"""Projected PITs: where the observation's projection stands among the forecast's (the paper's $Z_\rho$).

How a PIT is computed is a value: `ClosedForm()`, `RandomisedRank()`, `EmpiricalRank()` (the paper's Algorithm 1) or
`SmoothRank()` (for training). Without one, the exact way is taken: closed form for a linear pre-rank of a Gaussian
mixture, randomised ranks otherwise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from prerank.calibration.inputs import refuse_bad_input
from prerank.calibration.preranks import PreRank
from prerank.calibration.projection import LinearProjection, Projection
from prerank.calibration.ranks import all_weights_below_and_at, weight_below_and_at
from prerank.calibration.smoothrank import SmoothRank, smooth_pit
from prerank.forecast import (
    Ensemble,
    Forecast,
    GaussianMixture,
    as_observations,
    differentiable_draws,
    equally_weighted_draws,
)
from prerank.forecast.chunks import chunks
from prerank.randomness import case_keys, uniform


@dataclass(frozen=True)
class ClosedForm:
    """The CDF of the projection itself: exact, no draws. For linear pre-ranks of a `GaussianMixture`."""


@dataclass(frozen=True)
class RandomisedRank:
    """(members below + U x (ties + 1)) / (M + 1): exactly uniform under calibration for any M, ties included."""


@dataclass(frozen=True)
class EmpiricalRank:
    """Share of members at or below the observation (Algorithm 1): lives on M + 1 values, so never quite uniform."""


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

    Cases go in chunks, so that memory stays near that of the result. NaN or infinite values, shapes that do not match,
    and a case without members are refused. One member is enough (two possible ranks), so is one case.

    >>> from prerank import Location, Ensemble
    >>> y, members = torch.zeros(2, 3), torch.ones(2, 9, 3)
    >>> pit = projected_pit(Location(), Ensemble(members), y)
    >>> bool((pit.values < 0.1).all()), pit.method
    (True, 'randomised rank among 9 members')
    """
    y = as_observations(y)
    refuse_bad_input(forecast, y, observation_weights)
    ids = torch.arange(y.shape[-2], device=y.device) if case_ids is None else case_ids.to(y.device)
    preranks = list(prerank) if isinstance(prerank, Sequence) else [prerank]
    if not preranks:
        raise ValueError("no pre-rank given; pass one, or several as a list")
    for item in preranks:
        if not hasattr(item, "given"):
            raise TypeError(
                f"{item!r} is not a pre-rank; pass a value such as Location() or PCA(), or wrap f as Custom(f)"
            )
    names = [item.name for item in preranks]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"two pre-ranks are called {twice!r}, so their results could not be told apart; "
            "give one another name, such as Dependency(lag=2, name='dependency at lag 2')"
        )
    if isinstance(how, SmoothRank) and exchangeable:
        raise ValueError("smooth PITs are for training and have no test; leave exchangeable=True or SmoothRank() out")

    def some(cases: slice | None) -> ProjectedPIT:
        if cases is None:
            return _of_all_cases(preranks, forecast, y, how, observation_weights, n_draws, seed, ids, exchangeable)
        own = None if observation_weights is None else observation_weights[..., cases]
        part = forecast.select(cases)  # type: ignore[union-attr]
        return _of_all_cases(preranks, part, y[..., cases, :], how, own, n_draws, seed, ids[cases], exchangeable)

    slices = _slices(forecast, y, how, n_draws)
    if len(slices) == 1:
        return some(None)
    return _end_to_end(((cases, some(cases)) for cases in slices), y.shape[-2])


def _of_all_cases(
    preranks: Sequence[PreRank],
    forecast: Forecast,
    y: Tensor,
    how: How | None,
    observation_weights: Tensor | None,
    n_draws: int,
    seed: int,
    ids: Tensor,
    exchangeable: bool,
) -> ProjectedPIT:
    law, members = _law_and_members(forecast, y, n_draws, seed, ids, how, exchangeable)
    parts = []
    for item in preranks:
        projection = item.given(law, seed, how.temperature if isinstance(how, SmoothRank) else None, case_ids=ids)
        if members is None or (how is None and _has_closed_form(projection, forecast)) or isinstance(how, ClosedForm):
            part = _closed_form(item, projection, forecast, y, members if exchangeable else None)
        elif isinstance(how, SmoothRank):
            part = _smooth(item, projection, members, y, how)
        elif isinstance(how, EmpiricalRank):
            part = _empirical(item, projection, members, y, exchangeable)
        else:
            part = _randomised(item, projection, members, y, observation_weights, seed, ids, exchangeable)
        parts.append(part)
    return _side_by_side(parts)


def _slices(forecast: Forecast, y: Tensor, how: How | None, n_draws: int) -> list[slice]:
    """Chunks of cases whose temporaries stay small; one for all where gradients flow or a law cannot be cut."""
    whole = [slice(None)]
    if isinstance(how, SmoothRank):
        return whole
    if isinstance(forecast, GaussianMixture):
        inputs = [forecast.logits, forecast.loc, forecast.scale_tril]
        per_point = forecast.n_targets * forecast.n_components
        n_points = n_draws + 1
    elif isinstance(forecast, Ensemble) and (forecast.reference is None or hasattr(forecast.reference, "select")):
        inputs, per_point, n_points = [forecast.members], forecast.n_targets, forecast.n_members + 1
    else:
        return whole
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in [y, *inputs]):
        return whole
    lead = 1
    for size in inputs[0].shape[: inputs[0].ndim - (2 if isinstance(forecast, GaussianMixture) else 3)]:
        lead *= size
    return chunks(y.shape[-2], lead * n_points * per_point, y.device)


def _end_to_end(parts: Iterator[tuple[slice, ProjectedPIT]], n_cases: int) -> ProjectedPIT:
    """One result from those of chunks of cases, written in place: the points of all cases exist only once."""
    whole: dict[str, Tensor] = {}
    first: ProjectedPIT | None = None
    tied = torch.zeros(())
    axes = {"values": -2, "points": -3, "pick": -2}
    for cases, part in parts:
        first = first or part
        tied = tied.to(part.tied) + part.tied * ((cases.stop - cases.start) / n_cases)
        for name, axis in axes.items():
            piece = getattr(part, name)
            if piece is None:
                continue
            if name not in whole:
                shape = list(piece.shape)
                shape[axis] = n_cases
                whole[name] = piece.new_empty(shape)
            whole[name].narrow(axis, cases.start, cases.stop - cases.start).copy_(piece)
    assert first is not None
    return replace(first, tied=tied, **whole)  # type: ignore[arg-type]


def _law_and_members(
    forecast: Forecast, y: Tensor, n_draws: int, seed: int, ids: Tensor, how: How | None, exchangeable: bool
) -> tuple[Forecast, Ensemble | None]:
    """What the pre-ranks may look at, and the members that are ranked."""
    if not isinstance(forecast, Ensemble):
        if isinstance(how, ClosedForm) and not exchangeable:
            return forecast, None
        if isinstance(how, SmoothRank):
            return forecast, differentiable_draws(forecast, n_draws, seed, case_ids=ids)
        return forecast, equally_weighted_draws(forecast, n_draws, seed, "members", ids)
    if forecast.reference is not None:
        return forecast.reference, forecast  # type: ignore[return-value]
    pooled = torch.cat([y[..., None, :].expand(*forecast.members.shape[:-2], 1, -1), forecast.members], -2)
    return Ensemble(pooled), forecast


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
    if not values.requires_grad:  # in training a check on every step would wait for the device
        _refuse_nan(prerank, values)
    points = None
    if members is not None:
        drawn = forecast.cdf_along(directions, projection(members.members))
        points = torch.cat([values[..., None, :], drawn.to(values)], -2)
    return _part(prerank, projection, values, "closed form", True, torch.zeros_like(values[..., 0, :]), points=points)


def _smooth(prerank: PreRank, projection: Projection, members: Ensemble, y: Tensor, how: SmoothRank) -> ProjectedPIT:
    values = smooth_pit(projection, members, y, how)
    method = f"smooth rank among {members.n_members} draws, temperature {how.temperature:g}"
    return _part(prerank, projection, values, method, False, torch.zeros_like(values[..., 0, :]))


def _empirical(
    prerank: PreRank, projection: Projection, members: Ensemble, y: Tensor, exchangeable: bool
) -> ProjectedPIT:
    projected = _project(prerank, projection, members, y)
    ties = (projected[..., 1:, :] == projected[..., :1, :]).any(-2)
    method = f"empirical rank among {members.n_members} members"
    n_members, weights, pick = members.n_members, members.weights, None
    if weights is not None:
        weights = pad(weights, (1, 0))  # the observation counts for nothing
        pick = weights / weights.sum(-1, keepdim=True)
    below, at = all_weights_below_and_at(projected, weights)
    if weights is None:
        # a whole number over a whole number: k / M is then the float nearest to it, and so is a level k / M
        points = (below + at - 1.0) / n_members
    else:
        others = (weights.sum(-1, keepdim=True) - weights)[..., None]
        points = torch.where(others > 0, (below + at - weights[..., None]) / others, 1.0).clamp(0.0, 1.0)
    return _part(
        prerank,
        projection,
        points[..., 0, :],
        method,
        False,
        _share(ties),
        n_members=n_members if weights is None else None,
        points=points if exchangeable else None,
        pick=pick,
    )


def _project(prerank: PreRank, projection: Projection, members: Ensemble, y: Tensor) -> Tensor:
    """Projections (..., N, M + 1, K) of the observation and the members, the observation first."""
    points = torch.cat([y[..., None, :].expand(*members.members.shape[:-2], 1, -1), members.members], -2)
    projected = projection(points)
    _refuse_nan(prerank, projected)
    return projected


def _refuse_nan(prerank: PreRank, projected: Tensor) -> None:
    if projected.isnan().any():
        bad = int(projected.isnan().any(-1).sum())
        raise ValueError(
            f"{prerank.name} gave NaN for {bad} of {projected[..., 0].numel()} points; "
            "a pre-rank must be a number for every point (and a forecast's parameters must be numbers)"
        )


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
    projected = _project(prerank, projection, members, y)
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
            at, total = (at - weights[..., None]).clamp_min(0.0), total - weights[..., None]
        # weights are summed in two orders, so their quotient may leave [0, 1] by a rounding error
        z = torch.where(total > 0, (below + u * at) / total, u).clamp(0.0, 1.0)
        return _part(prerank, projection, z[..., 0, :], method, exact, _share(ties), points=z, pick=pick)
    below, at = weight_below_and_at(projected[..., 0, :], projected, weights)
    total = projected.new_tensor(float(n_points)) if weights is None else weights.sum(-1)[..., None]
    values = ((below + u[..., 0, :] * at) / total).clamp(0.0, 1.0)
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
