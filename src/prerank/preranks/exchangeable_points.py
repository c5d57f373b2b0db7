"""The observation among the members: M + 1 points of a case that nothing may tell apart.

A rank test is valid if the observation, were it one of the members, would have got what that member got: everything that
a pre-rank learns and projects has to be the same, to the last digit, whichever of the M + 1 points of a case is called the
observation. So the points are put into an order of their own (`canonical_order`), a pre-rank learns from the points in that
order, projects them in that order, and equal points share one projection (`canonical_points`). What a library's sums and
products do to the last digits then depends on the set of points and nothing else, even inside a function of a user's.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from prerank._reproducible_math import total
from prerank.preranks.rank_counts import ascending
from prerank.preranks.rounding import power_of_two_above

LARGEST_REFERENCE = 1000  # members, up to which all of them are the reference
REFERENCE_OF_MANY = 250


def canonical_order(points: Tensor) -> Tensor:
    """The order (..., N, P) of points (..., N, P, D) by target one, then two, and so on; -0.0 is 0.0.

    One sort of the first target where it has no ties.

    >>> canonical_order(torch.tensor([[[2.0, 1.0], [1.0, 5.0], [1.0, -0.0]]]))
    tensor([[2, 1, 0]])
    """
    flat = points.reshape(-1, *points.shape[-2:])
    order, rises = ascending(flat[..., 0])
    n_targets, n_keys = flat.shape[-1], 1
    cases = torch.arange(0 if rises is None else len(flat), device=flat.device)
    while len(cases) and n_keys < n_targets:
        # points that agree in the targets so far and not in all of them need more targets
        ordered = _in_order(flat[cases], order[cases])
        alike = (ordered[:, 1:, :n_keys] == ordered[:, :-1, :n_keys]).all(-1)
        differ = (ordered[:, 1:, n_keys:] != ordered[:, :-1, n_keys:]).any(-1)
        cases, n_keys = cases[(alike & differ).any(-1)], min(2 * n_keys, n_targets)
        order[cases] = _sorted_by(flat[cases], n_keys)
    return order.reshape(points.shape[:-1])


def _sorted_by(points: Tensor, n_keys: int) -> Tensor:
    """Order (n, P) by the first targets of points (n, P, D): stable sorts, the last target first."""
    order = ascending(points[..., n_keys - 1]).order
    for d in reversed(range(n_keys - 1)):
        again = ascending(points[..., d].gather(1, order)).order
        order = order.gather(1, again)
    return order


def _in_order(values: Tensor, order: Tensor) -> Tensor:
    return values.gather(-2, order[..., None].expand(*order.shape, values.shape[-1]))


class CanonicalPoints(NamedTuple):
    """Points of each case in canonical order, and where each of the points as given stands in it.

    `given` and `ordered` are (..., N, P, D), `place` (..., N, P); equal points stand in one place, the first of theirs.
    `order` (..., N, P) says which of the points as given stands in each place, None where some points are equal.
    """

    given: Tensor
    ordered: Tensor
    place: Tensor
    order: Tensor | None

    def as_given(self, projected: Tensor) -> Tensor:
        """Projections (..., N, P, K) of the ordered points, put back: bitwise equal where points are equal."""
        return _in_order(projected, self.place)


def canonical_points(points: Tensor) -> CanonicalPoints:
    """Points (..., N, P, D) as given and in canonical order."""
    points = points + 0.0  # -0.0 + 0.0 is 0.0
    order = canonical_order(points)
    ordered = _in_order(points, order)
    position = torch.arange(points.shape[-2], device=points.device)
    new = torch.ones(order.shape, dtype=torch.bool, device=points.device)
    new[..., 1:] = ordered[..., 1:, 0] != ordered[..., :-1, 0]
    if not new.all():
        new[..., 1:] = (ordered[..., 1:, :] != ordered[..., :-1, :]).any(-1)
    distinct = bool(new.all())
    first = position.expand(order.shape) if distinct else torch.where(new, position, 0).cummax(-1).values
    place = torch.empty_like(order).scatter_(-1, order, first)
    return CanonicalPoints(points, ordered, place, order if distinct else None)


def spread_matrix(points: Tensor, weights: Tensor | None = None) -> Tensor:
    """Covariance of points (..., P, D) with weights (..., P), in double precision, (..., D, D), and in a unit of its own.

    The unit is a power of two for each case, so that squares neither overflow nor vanish. Centred on the first point first:
    points that are all equal have covariance zero and not rounding noise.
    """
    points = points.double()
    highest, lowest = points.amax((-2, -1), keepdim=True), points.amin((-2, -1), keepdim=True)
    deviation = points / power_of_two_above(torch.maximum(highest, -lowest))
    deviation -= deviation[..., :1, :].clone()
    if weights is None:
        deviation -= (total(deviation, -2) / points.shape[-2])[..., None, :]
        return (deviation.mT @ deviation) / points.shape[-2]
    weights = weights.double()
    share = (weights / weights.sum(-1, keepdim=True))[..., None]
    deviation -= total(share * deviation, -2)[..., None, :]
    return (share * deviation).mT @ deviation


def reference_subset(n_members: int) -> Tensor | None:
    """Which members serve as reference for all pre-ranks while the others are ranked: None, all, up to 1000 members.

    Beyond, 250 of them, evenly spaced: exact pooled densities and joint CDFs cost the square of the number of members. The
    choice depends on positions and not on values, so the observation and the members that are ranked stay exchangeable.

    >>> reference_subset(1000), reference_subset(50_000)[:3]
    (None, tensor([100, 300, 500]))
    """
    if n_members <= LARGEST_REFERENCE:
        return None
    return (torch.arange(REFERENCE_OF_MANY) * n_members + n_members // 2) // REFERENCE_OF_MANY
