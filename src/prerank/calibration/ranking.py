"""The PIT of one pre-rank, by each of the ways there are: closed form, rank as an interval, empirical or smooth rank."""

import torch
from torch import Tensor

from prerank.calibration.projected_pits import PreRankPIT
from prerank.calibration.rank_intervals import Intervals
from prerank.calibration.smooth_rank import SmoothRank, smooth_pit
from prerank.forecasts import Ensemble, Forecast, GaussianMixture
from prerank.preranks.exchangeable_points import CanonicalPoints
from prerank.preranks.projection import LinearProjection, Projection
from prerank.preranks.rank_counts import all_weights_below_and_at, weight_below_and_at
from prerank.preranks.rounding import rounded
from prerank.preranks.table1 import PreRank
from prerank.randomness import uniform


def has_closed_form(projection: Projection, forecast: Forecast) -> bool:
    """Whether the law of the projection is known: linear projections of a Gaussian mixture."""
    return isinstance(projection, LinearProjection) and isinstance(forecast, GaussianMixture)


def closed_form_pit(prerank: PreRank, projection: Projection, forecast: Forecast, y: Tensor) -> PreRankPIT:
    """The CDF of the projection at the observation."""
    if not isinstance(projection, LinearProjection) or not isinstance(forecast, GaussianMixture):
        raise TypeError(
            f"{prerank.name} of {type(forecast).__name__} has no closed-form PIT: that needs a linear pre-rank "
            "(marginal, location, PCA, contrast) and a GaussianMixture; leave `how` out to rank draws instead"
        )
    directions = projection.directions.to(forecast.loc)
    values = forecast.cdf_along(directions, projection(y[..., None, :]))[..., 0, :]
    if not values.requires_grad:  # in training a check on every step would wait for the device
        _refuse_nan(prerank, values)
    return _numbers(prerank, projection, values, "closed form", True)


def smooth_rank_pit(
    prerank: PreRank, projection: Projection, members: Ensemble, y: Tensor, how: SmoothRank
) -> PreRankPIT:
    """Smooth ranks among weighted draws."""
    values = smooth_pit(y, members, projection, how)
    method = f"smooth rank among {members.n_members} draws, temperature {how.temperature:g}"
    return _numbers(prerank, projection, values, method, False)


def empirical_rank_pit(
    prerank: PreRank,
    projection: Projection,
    points: CanonicalPoints,
    weights: Tensor | None,
    exchangeable: bool,
) -> PreRankPIT:
    """The share of members at or below the observation, and the same for every other point if `exchangeable`."""
    projected, _ = _project(prerank, projection, points)
    n_members = projected.shape[-2] - 1
    below, at = all_weights_below_and_at(projected, weights)
    if weights is None:
        # a whole number over a whole number: k / M is then the float nearest to it, and so is a level k / M
        ranks = (below.double() + at - 1.0) / n_members
    else:
        weights = weights.double()
        others = (weights.sum(-1, keepdim=True) - weights)[..., None]
        ranks = torch.where(others > 0, (below + at - weights[..., None]) / others, 1.0).clamp(0.0, 1.0)
    return PreRankPIT(
        prerank.name,
        projection.names,
        _values(ranks[..., 0, :]),
        f"empirical rank among {n_members} members",
        False,
        _share(_ties(projected)),
        ties=_share_of_ties(at, weights, projected),
        note=projection.note,
        n_members=n_members if weights is None else None,
        unrandomised=True,
        points=_values(ranks) if exchangeable else None,
    )


def rank_pit(
    prerank: PreRank,
    projection: Projection,
    points: CanonicalPoints,
    weights: Tensor | None,
    exact: bool,
    keys: Tensor | None,
    exchangeable: bool,
) -> PreRankPIT:
    """Ranks as intervals, or, with keys, a uniform number in each."""
    in_order = exchangeable and weights is None
    projected, order = _project(prerank, projection, points, in_order)
    n_points, n_projections = projected.shape[-2:]
    unit = n_points if weights is None else 1
    if exchangeable:
        below, at = all_weights_below_and_at(projected, weights, order)
    else:
        below, at = (part[..., None, :] for part in weight_below_and_at(projected[..., 0, :], projected, weights))
    tied = at[..., 0, :] > 1 if in_order else _ties(projected)
    ties = _share_of_ties(at, weights, projected)
    lower, upper = below, below + at
    if weights is not None:
        own = weights.double()[..., None] if exchangeable else weights.double()[..., :1, None]
        total = weights.double().sum(-1)[..., None, None]
        if not exact:
            # a member stands in for the observation, whose weight does not count: neither does the member's then
            upper, total = lower + (at - own).clamp_min(0.0), total - own
        # weights are summed in two orders, so their quotient may leave [0, 1] by a rounding error
        lower, upper = (torch.where(total > 0, end / total, rest) for end, rest in ((lower, 0.0), (upper, 1.0)))
        lower, upper = lower.clamp(0.0, 1.0), upper.clamp(0.0, 1.0)
    ranks = Intervals(lower, upper, unit)
    method = f"rank among {n_points - 1} members"
    if weights is not None:
        method = f"weighted {method}" + ("" if exact else ", the observation's own weight unknown: approximate")
    if keys is not None:
        u = uniform(keys, (ranks.lower.shape[-2], n_projections))
        low, high = ranks.bounds()
        ranks, method = _values((low + u * (high - low)).clamp(0.0, 1.0)), f"randomised {method}"
    return PreRankPIT(
        prerank.name,
        projection.names,
        _values(ranks.lower[..., 0, :]) if ranks.are_values else _first(ranks),
        method,
        exact,
        _share(tied),
        ties=torch.zeros_like(ties) if keys is not None else ties,
        note=projection.note,
        n_members=n_points - 1 if weights is None and keys is None else None,
        points=ranks if exchangeable else None,
    )


def _first(points: Intervals) -> Intervals:
    """The observation's intervals, as fractions."""
    lower, upper = Intervals(points.lower[..., 0, :], points.upper[..., 0, :], points.unit).bounds()
    return Intervals(lower, upper)


def _project(
    prerank: PreRank, projection: Projection, points: CanonicalPoints, in_order: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Projections (..., N, M + 1, K) of the observation and the members, the observation first.

    Those of points that are all different may be left `in_order`, with the place that each has among the points as given.
    """
    if isinstance(projection, LinearProjection) and projection.identity:
        return points.given, None
    projected = projection(points.ordered)
    _refuse_nan(prerank, projected)
    projected = rounded(projected)
    if in_order and points.order is not None:
        return projected, points.order
    return points.as_given(projected), None


def _refuse_nan(prerank: PreRank, projected: Tensor) -> None:
    if projected.isnan().any():
        bad = int(projected.isnan().any(-1).sum())
        raise ValueError(
            f"{prerank.name} gave NaN for {bad} of {projected[..., 0].numel()} points; "
            "a pre-rank must be a number for every point (and a forecast's parameters must be numbers)"
        )


def _ties(projected: Tensor) -> Tensor:
    """Whether the observation ties with a member, (..., N, K)."""
    return (projected[..., 1:, :] == projected[..., :1, :]).any(-2)


def _share_of_ties(at: Tensor, weights: Tensor | None, projected: Tensor) -> Tensor:
    """Share of the points, or with weights of the observations, that tie with another, (K,)."""
    ties = at > 1 if weights is None else _ties(projected)
    return ties.flatten(0, -2).double().mean(0)


def _share(ties: Tensor) -> Tensor:
    return ties.double().mean(-2)


def _values(values: Tensor) -> Intervals:
    return Intervals(values, values)


def _numbers(prerank: PreRank, projection: Projection, values: Tensor, method: str, exact: bool) -> PreRankPIT:
    """PITs that are numbers."""
    return PreRankPIT(
        prerank.name,
        projection.names,
        _values(values),
        method,
        exact,
        torch.zeros_like(values[..., 0, :], dtype=torch.float64),
        ties=torch.zeros(values.shape[-1], dtype=torch.float64, device=values.device),
        note=projection.note,
    )
