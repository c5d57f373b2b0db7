"""Where a value stands among others: the weight below it and the weight tied with it."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def weight_below_and_at(t: Tensor, members: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weight of members (..., N, M, K) below and equal to t (..., N, K); whole numbers when there are no weights."""
    below, at = members < t[..., None, :], members == t[..., None, :]
    if weights is None:
        return below.sum(-2), at.sum(-2)
    w = weights[..., None].double()
    return (w * below).sum(-2), (w * at).sum(-2)


def all_weights_below_and_at(points: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """For every one of P points (..., N, P, K) the weight of points below it and equal to it (itself included).

    Without weights these are whole numbers, in the smallest type that holds them: a test keeps them for all points.
    """
    columns = points.mT.contiguous()  # the sort runs over the last axis
    ordered, order = columns.sort(-1)
    start, stop = _runs(ordered)
    if weights is None:
        dtype = torch.int16 if points.shape[-2] < 1 << 15 else torch.int32
        below, at = start, stop - start
    else:
        dtype = torch.float64
        sorted_weights = weights[..., None, :].double().expand(columns.shape).gather(-1, order)
        total = pad(sorted_weights.cumsum(-1), (1, 0))
        below = total.gather(-1, start.expand(columns.shape))
        at = total.gather(-1, stop.expand(columns.shape)) - below
    return _unsorted(below, order, dtype).mT, _unsorted(at, order, dtype).mT


def _unsorted(values: Tensor, order: Tensor, dtype: torch.dtype) -> Tensor:
    """Values of sorted places put back where they came from."""
    result = torch.empty(order.shape, dtype=dtype, device=order.device)
    return result.scatter_(-1, order, values.to(dtype).expand(order.shape))


def _runs(ordered: Tensor) -> tuple[Tensor, Tensor]:
    """Where the run of equal values that holds each place of sorted rows begins, and where it ends (exclusive)."""
    n_points = ordered.shape[-1]
    place = torch.arange(n_points, device=ordered.device)
    rises = ordered[..., 1:] != ordered[..., :-1]
    if rises.all():  # no ties anywhere, the usual case: every run has length one
        return place, place + 1
    start = torch.where(pad(rises, (1, 0)), place, 0).cummax(-1).values
    stop = torch.where(pad(rises, (0, 1)), place + 1, n_points).flip(-1).cummin(-1).values.flip(-1)
    return start, stop
