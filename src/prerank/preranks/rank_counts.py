"""Where a value stands among others: the weight below it and the weight tied with it."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

_AT_ONCE = 1 << 16  # numbers that are sorted together: all that is made on the way stays in the cache
_WHOLE = {torch.float64: torch.int64, torch.float32: torch.int32}


def weight_below_and_at(t: Tensor, members: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weight of members (..., N, M, K) below and equal to t (..., N, K); whole numbers when there are no weights."""
    below, at = members < t[..., None, :], members == t[..., None, :]
    if weights is None:
        return below.sum(-2), at.sum(-2)
    w = weights[..., None].double()
    return (w * below).sum(-2), (w * at).sum(-2)


class Ascending(NamedTuple):
    """The order (..., P) of rows of numbers, and where the next number is a larger one (..., P - 1); None: everywhere."""

    order: Tensor
    rises: Tensor | None


def ascending(rows: Tensor) -> Ascending:
    """The order of the numbers of each row (..., P), none of which is NaN; equal ones stay in their order.

    On a CPU a number and its place make one whole number, and NumPy sorts these ten times as fast as torch sorts the two
    side by side. The place takes the last digits; rows of numbers that differ there alone are sorted as they are.

    >>> ascending(torch.tensor([0.5, -1.0, 0.5])).order
    tensor([1, 0, 2])
    """
    rows = rows.detach()
    if rows.device.type != "cpu" or rows.dtype not in _WHOLE:
        return _ascending_by_torch(rows)
    digits = (rows.shape[-1] - 1).bit_length()
    places = (1 << digits) - 1
    values = torch.add(rows, 0.0, out=torch.empty(rows.shape, dtype=rows.dtype))  # -0.0 + 0.0 is 0.0
    keys = values.view(_WHOLE[rows.dtype])
    if keys.dtype == torch.int32:
        keys = keys.long() << 32
    keys ^= (keys >> 63) & ((1 << 63) - 1)  # as whole numbers, negative ones would be in the opposite order
    keys &= ~places
    keys |= torch.arange(rows.shape[-1])
    keys.numpy().sort(-1)
    order = keys & places
    keys >>= digits
    rises = keys[..., 1:] != keys[..., :-1]
    if rises.all():
        return Ascending(order, None)
    ordered = rows.gather(-1, order)
    if torch.equal(rises, ordered[..., 1:] != ordered[..., :-1]):
        return Ascending(order, rises)
    return _ascending_by_torch(rows)


def _ascending_by_torch(rows: Tensor) -> Ascending:
    ordered, order = rows.sort(dim=-1, stable=True)
    rises = ordered[..., 1:] != ordered[..., :-1]
    return Ascending(order, None if rises.all() else rises)


def all_weights_below_and_at(
    points: Tensor, weights: Tensor | None, order: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """For every one of P points (..., N, P, K) the weight of points below it and equal to it (itself included).

    Without weights these are whole numbers, in the smallest type that holds them: a test keeps them for all points. Points
    that are not in the order of the result come with the place (..., N, P) that each has there.
    """
    n_points, n_projections = points.shape[-2:]
    whole = torch.int16 if n_points < 1 << 15 else torch.int32
    columns = points.mT.reshape(-1, n_projections, n_points)  # the sort runs over the last axis
    below = columns.new_empty(columns.shape, dtype=whole if weights is None else torch.float64)
    at = torch.ones_like(below)
    weights = None if weights is None else weights.reshape(-1, n_points)
    order = None if order is None else order.reshape(-1, n_points)
    size = len(columns)
    if points.device.type == "cpu":
        size = max(1, _AT_ONCE // (n_points * n_projections))
    for start in range(0, len(columns), size):
        cases = slice(start, start + size)
        place, rises = ascending(columns[cases])
        first, stop = runs(rises, n_points, points.device)
        if weights is None:
            under, tied = first, None if rises is None else stop - first
        else:
            shape = place.shape
            own = weights[cases, None].double().expand(shape).gather(-1, place)
            total = pad(own.cumsum(-1), (1, 0))
            under = total.gather(-1, first.expand(shape))
            tied = total.gather(-1, stop.expand(shape)) - under
        if order is not None:
            place = order[cases, None].expand(place.shape).gather(-1, place)
        below[cases].scatter_(-1, place, under.to(below.dtype).expand(place.shape))
        if tied is not None:
            at[cases].scatter_(-1, place, tied.to(at.dtype))
    shape = points.mT.shape
    return below.reshape(shape).mT, at.reshape(shape).mT


def runs(rises: Tensor | None, n_points: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where the run of equal values that holds each place of sorted rows begins, and where it ends (exclusive)."""
    place = torch.arange(n_points, device=device)
    if rises is None:  # no ties anywhere, the usual case: every run has length one
        return place, place + 1
    start = torch.where(pad(rises, (1, 0)), place, 0).cummax(-1).values
    stop = torch.where(pad(rises, (0, 1)), place + 1, n_points).flip(-1).cummin(-1).values.flip(-1)
    return start, stop
