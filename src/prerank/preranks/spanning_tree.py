"""The minimum spanning tree pre-rank: how much shorter the tree of all points gets without one of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from prerank._chunks import chunks
from prerank._reproducible_math import blocks
from prerank.forecasts import Forecast
from prerank.preranks.projection import PointwiseProjection
from prerank.preranks.table1 import PreRank
from prerank.preranks.view import View, view_of


@dataclass(frozen=True)
class SpanningTree(PreRank):
    r"""The length of the minimum spanning tree of a case without the point, $\rho(y) = \ell(\text{others})$ (MST rank).

    The tree joins all other points of the case, members pooled with the observation, by the shortest lines. Small means
    outlying, because a point far off makes the tree long for all but itself. Sees bias, and too narrow and too wide
    forecasts, as outlyingness. Blind to direction, and to wrong dependence more than `Mahalanobis` is. Targets need
    comparable units. With one member it is zero, so every rank ties. Nothing can be trained with it; train with
    `EnergyScore`.

    Among reference draws, which do not hold the point, it is their tree's length less what the point adds to it.

    Parameters
    ----------
    n_reference : int, default 100
        Draws of a distribution that make the tree; unused for ensembles.
    name : str, default 'spanning tree'
        What results call it.

    References
    ----------
    Smith and Hansen (2004), Extending the limits of ensemble forecast verification with the minimum spanning tree, Monthly
    Weather Review; Wilks (2004), The minimum spanning tree histogram as a verification tool for multidimensional ensemble
    forecasts, Monthly Weather Review; Chin and Houck (1978), Algorithms for updating minimal spanning trees.

    Examples
    --------
    >>> from prerank import Ensemble
    >>> points = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [9.0, 0.0]]])
    >>> SpanningTree().given(Ensemble(points))(points).squeeze()
    tensor([8., 9., 1.])
    """

    n_reference: int = 100
    name: str = "spanning tree"
    trainable = False

    def given(self, view: View | Forecast) -> PointwiseProjection:
        pool = view_of(view).draws("reference for the spanning tree", self.n_reference)
        if pool.weights is not None:
            raise ValueError(f"{self.name}: a tree has no weights; give the reference equal ones, or use EnergyScore()")
        note = f"tree of {pool.n_members} points"
        if pool.n_members == 2 and view_of(view).n_points == 2:
            note += ", the same without either: one member is too few, use AverageRank()"
        return PointwiseProjection(
            lambda points: lengths_of_others(points, pool.members)[..., None], ("length without it",), note
        )


def lengths_of_others(points: Tensor, pool: Tensor) -> Tensor:
    """Length of the tree of a pool (..., N, R, D) less what points (..., N, P, D) add to it, (..., N, P).

    A point of the pool adds what the tree of all others lacks: its length without that point is what is left.
    """
    lead = torch.broadcast_shapes(points.shape[:-2], pool.shape[:-2])
    y = points.detach().expand(*lead, *points.shape[-2:]).reshape(-1, *points.shape[-2:])
    x = pool.detach().to(y).expand(*lead, *pool.shape[-2:]).reshape(-1, *pool.shape[-2:])
    result = y.new_empty(y.shape[:-1])
    for cases in chunks(len(y), x.shape[1] * max(x.shape[1], y.shape[1]), y.device):
        among, distance = _distances(x[cases], x[cases]), _distances(x[cases], y[cases])
        nearest = distance.min(1)
        own = nearest.values == 0
        if own.all():
            result[cases] = lengths_without_each(among).gather(1, nearest.indices)
            continue
        found = lengths_after_insertion(among, distance)
        if own.any():
            left = own.any(1).nonzero()[:, 0]
            without = lengths_without_each(among[left]).gather(1, nearest.indices[left])
            found[left] = torch.where(own[left], without, found[left])
        result[cases] = found
    return result.reshape(*lead, points.shape[-2])


def _distances(x: Tensor, y: Tensor) -> Tensor:
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def lengths_without_each(distance: Tensor) -> Tensor:
    """Lengths of the minimum spanning trees of all points but one, (n, R), from distances (n, R, R): Prim's algorithm.

    All trees of some cases grow at once, by one point in every step.

    >>> x = torch.tensor([[[0.0], [1.0], [9.0]]])
    >>> lengths_without_each(torch.cdist(x, x))
    tensor([[8., 9., 1.]])
    """
    n_cases, n_points = distance.shape[:2]
    result = distance.new_zeros(n_cases, n_points)
    if n_points <= 2:
        return result
    for cases, left_out in blocks(n_cases, n_points, 3 * n_points, distance.element_size(), distance.device):
        result[cases, left_out] = _grown(distance[cases], torch.arange(n_points, device=distance.device)[left_out])
    return result


def _grown(distance: Tensor, left_out: Tensor) -> Tensor:
    """Lengths (n, K) of the trees of all points but one, for each of K points that are left out."""
    n_cases, n_points = distance.shape[:2]
    count, device = len(left_out), distance.device
    rows = distance.reshape(-1, n_points)
    base = n_points * torch.arange(n_cases, device=device).repeat_interleave(count)
    trees = torch.arange(len(base), device=device)
    start = (left_out == 0).long().repeat(n_cases)
    closed = distance.new_zeros(len(base), n_points)
    closed[trees, left_out.repeat(n_cases)] = torch.inf
    closed[trees, start] = torch.inf
    near = torch.maximum(rows[base + start], closed)
    length, row = distance.new_zeros(len(base)), torch.empty_like(near)
    for _ in range(n_points - 2):
        step, place = near.min(1)
        length += step
        closed[trees, place] = torch.inf
        near[trees, place] = torch.inf
        torch.index_select(rows, 0, base + place, out=row)
        torch.minimum(near, torch.maximum(row, closed, out=row), out=near)
    return length.reshape(n_cases, count)


def lengths_after_insertion(among: Tensor, distance: Tensor) -> Tensor:
    """Length of a tree less what each of some points adds to it, (n, P).

    `among` (n, R, R) are the distances of the tree's points, `distance` (n, R, P) those from them to the points that are
    added, each by itself. In one pass from the leaves to the root each edge, or a line to the new point, is kept: whichever
    is shorter.

    >>> x, y = torch.tensor([[[0.0], [1.0], [9.0]]]), torch.tensor([[[5.0], [10.0]]])
    >>> lengths_after_insertion(torch.cdist(x, x), torch.cdist(x, y))
    tensor([[9., 8.]])
    """
    order, parent, edge = tree_of(among)
    line = distance.gather(1, order[..., None].expand(distance.shape))
    cases = torch.arange(len(line), device=line.device)
    total = torch.zeros_like(line[:, 0])
    for v in range(line.shape[1] - 1, 0, -1):
        own, above = edge[:, v, None], parent[:, v]
        total += torch.minimum(line[:, v], own)
        line[cases, above] = torch.minimum(line[cases, above], torch.maximum(line[:, v], own))
    return 2 * edge.sum(1, keepdim=True) - (total + line[:, 0])


def tree_of(distance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The minimum spanning tree of points with distances (n, R, R): parents stand before their children.

    Returns the points in this order, the place of each one's parent and the length of the edge to it, (n, R) each; the
    root's edge has length zero.
    """
    n_cases, n_points = distance.shape[:2]
    cases = torch.arange(n_cases, device=distance.device)
    order = torch.zeros(n_cases, n_points, dtype=torch.long, device=distance.device)
    parent, edge = torch.zeros_like(order), distance.new_zeros(n_cases, n_points)
    near, nearest = distance[:, 0].clone(), torch.zeros_like(order)
    near[:, 0] = torch.inf
    there = torch.zeros_like(order, dtype=torch.bool)
    there[:, 0] = True
    for v in range(1, n_points):
        edge[:, v], place = near.min(1)
        order[:, v], parent[:, v] = place, nearest[cases, place]
        there[cases, place] = True
        row = distance[cases, place]
        closer = (row < near) & ~there
        near = torch.where(closer, row, near).masked_fill(there, torch.inf)
        nearest = torch.where(closer, v, nearest)
    return order, parent, edge
