import torch
from torch import Tensor


def canonical(points: Tensor) -> Tensor:
    points = points + 0.0
    for d in reversed(range(points.shape[-1])):
        order = points[..., d].argsort(dim=-1, stable=True)
        points = points.gather(-2, order[..., None].expand(points.shape))
    return points


def reference_subset(n_members):
    if n_members <= 1000:
        return None
    return torch.linspace(0, n_members - 1, 250).round().long()


def rounded(projected: Tensor) -> Tensor:
    """Projections (..., N, P, K) to a precision at which values that are equal but for rounding are equal.

    The precision is 2^-42 of the largest of a case in double precision, 2^-21 in single: a thousand and four units in
    the last place. It depends on the points of a case as a set, so that points stay exchangeable.
    """
    bits = 42 if projected.dtype == torch.float64 else 21
    largest = projected.abs().amax(-2, keepdim=True)
    finite = largest.isfinite() & (largest > 0)
    _, exponent = torch.frexp(torch.where(finite, largest, 1.0))
    quantum = torch.ldexp(torch.ones_like(largest), exponent - bits)
    return torch.where(finite, (projected / quantum).round() * quantum, projected)
