"""Functions of points whose targets lie on the first axis, applied to a few points at a time.

With the targets first every step works element by element along a long last axis: it is fast, and rounds equal points alike
wherever they stand.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from prerank._reproducible_math import blocks, total


def by_columns(function: Callable[[Tensor], Tensor], points: Tensor, values_per_point: int) -> Tensor:
    """Values (..., N, P) of points (..., N, P, D) by a function of columns (D, n, p) -> (n, p).

    `values_per_point` is how many numbers the function makes on the way for each point.

    >>> by_columns(lambda columns: columns.amax(0), torch.tensor([[[1.0, 3.0], [2.0, 0.0]]]), 2)
    tensor([[3., 2.]])
    """
    flat = points.reshape(-1, *points.shape[-2:])
    if torch.is_grad_enabled() and points.requires_grad:
        return function(flat.movedim(-1, 0)).reshape(points.shape[:-1])
    result = flat.new_empty(flat.shape[:-1])
    for cases, some in blocks(flat.shape[0], flat.shape[1], values_per_point, flat.element_size(), flat.device):
        result[cases, some] = function(flat[cases, some].movedim(-1, 0).contiguous())
    return result.reshape(points.shape[:-1])


def variance_of_columns(columns: Tensor) -> Tensor:
    """Variance over targets of columns (D, ...), divisor D, exactly zero where all targets are equal."""
    shifted = columns - columns[:1]
    return total((shifted - total(shifted, 0) / len(columns)).square(), 0) / len(columns)
