r"""Projections to a stated precision, so that what is mathematically equal is equal.

Two different points may have the same mean, variance, density or principal component, on discrete data often, and
arithmetic in another order gives each its own last digits. Projections that are ranked are therefore computed in double
precision and rounded to 36 binary digits (1.5e-11): arithmetic errors are about 2^-48, so a tie is lost about once in a
few thousand, and two numbers of a continuous forecast become one about as rarely. A log density that a distribution
computes itself in single precision is rounded to 18 binary digits. Rounding restores ties, no more: a test is valid
because the numbers do not depend on which of the points is the observation, `prerank.calibration.pooling`.
"""

import torch
from torch import Tensor

DIGITS = 36  # binary digits of a projection that is computed in double precision
DIGITS_SINGLE = 18  # of one that another's code computed in single precision


def to_digits(values: Tensor, digits: int = DIGITS) -> Tensor:
    """Each number rounded to so many binary digits, relative to itself; the type stays.

    >>> to_digits(torch.tensor([0.1 + 0.2, 0.3], dtype=torch.float64)).diff()
    tensor([0.], dtype=torch.float64)
    """
    wide = values.double()
    large = wide * (2.0 ** (53 - digits) + 1)  # Veltkamp's splitting: the upper part has the digits that are kept
    upper = large - (large - wide)
    return torch.where(upper.isfinite(), upper, wide).to(values.dtype)


def to_digits_of_one(values: Tensor, digits: int = DIGITS) -> Tensor:
    """The same, but a number smaller than one is rounded as if it were one: for logarithms, whose errors are absolute."""
    shift = 1.5 * 2.0 ** (52 - digits)
    wide = values.double()
    return torch.where(wide.abs() < 1.0, (wide + shift) - shift, to_digits(wide, digits)).to(values.dtype)


def power_of_two_above(values: Tensor) -> Tensor:
    """The smallest power of two that exceeds each number in size, exactly, and one for zero."""
    size = values.abs()
    mantissa = torch.frexp(size).mantissa
    return torch.where(size > 0, size / torch.where(size > 0, mantissa, 1.0), 1.0)


def to_grid(values: Tensor, unit: Tensor, digits: int = DIGITS) -> Tensor:
    """Numbers rounded to multiples of a power of two, `unit` x 2^-digits."""
    step = unit * 2.0**-digits
    return (values / step).round_().mul_(step)
