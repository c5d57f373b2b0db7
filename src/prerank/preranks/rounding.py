"""Projections to a stated precision, so that what is equal but for rounding is equal.

Two different points may have the same mean, variance, density or principal component, on discrete data often, and
arithmetic in another order gives each its own last digits. Rounding restores such ties, no more: a test is valid because
the numbers do not depend on which of the points is the observation (`prerank.preranks.exchangeable_points`).
"""

import torch
from torch import Tensor

# Binary digits that are kept in double precision. Of pairs of principal components that are equal but for rounding, on
# binary, count and rounded data, 0.7 % stay apart with 42 digits and none of 24,000 with 36.
DIGITS = 36
DIGITS_SINGLE = 21  # in single precision, four units: more would make ties of numbers that are different


def rounded(projected: Tensor) -> Tensor:
    """Projections (..., N, P, K) as multiples of 2^-36 (2^-21 in single precision) of the largest of their case.

    The largest is a function of the points of a case as a set, so rounding keeps them exchangeable.

    >>> rounded(torch.tensor([[0.1 + 0.2], [0.3], [1.0]], dtype=torch.float64))[:2].diff(dim=0)
    tensor([[0.]], dtype=torch.float64)
    """
    digits = DIGITS if projected.dtype == torch.float64 else DIGITS_SINGLE
    largest = projected.abs().amax(-2, keepdim=True)
    unit = power_of_two_above(largest) * 2.0**-digits
    unit = torch.where(unit > 0, unit, 1.0)  # numbers so small that they have no smaller part are left to be equal
    result = (projected / unit).round_().mul_(unit)
    return torch.where(largest.isfinite(), result, projected)


def power_of_two_above(values: Tensor) -> Tensor:
    """The smallest power of two that exceeds each number in size, exactly, and one for zero."""
    size = values.abs()
    mantissa = torch.frexp(size).mantissa
    return torch.where(size > 0, size / torch.where(size > 0, mantissa, 1.0), 1.0)
