"""Where a value stands among others: the weight below it and the weight tied with it."""

import torch
from torch import Tensor


def weight_below_and_at(t: Tensor, members: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weight of members (..., N, M, K) below and equal to t (..., N, K); unit weights when None."""
    below, at = members < t[..., None, :], members == t[..., None, :]
    if weights is None:
        return below.sum(-2).to(t.dtype), at.sum(-2).to(t.dtype)
    w = weights[..., None].to(t.dtype)
    return (w * below).sum(-2), (w * at).sum(-2)


def all_weights_below_and_at(points: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """For every one of P points (..., N, P, K) the weight of points below it and equal to it (itself included)."""
    columns = points.mT.contiguous()  # the sort runs over the last axis
    ordered, order = columns.sort(-1)
    first = torch.searchsorted(ordered, columns)
    last = torch.searchsorted(ordered, columns, right=True)
    if weights is None:
        return first.mT.to(points.dtype), (last - first).mT.to(points.dtype)
    sorted_weights = weights[..., None, :].expand(columns.shape).gather(-1, order)
    total = torch.nn.functional.pad(sorted_weights.cumsum(-1), (1, 0))
    below = total.gather(-1, first)
    return below.mT, (total.gather(-1, last) - below).mT
