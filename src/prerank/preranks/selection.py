"""Pre-ranks that hold something of each case, or something in the units of the targets, cut and rescaled with the data."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor


def of_cases(preranks: Sequence[Any], cases: Tensor | slice) -> list[Any]:
    """Pre-ranks for some of the cases: those that hold something for each case know how to `select` them.

    >>> from prerank import Location
    >>> of_cases([Location()], slice(0, 5))
    [Location(name='location')]
    """
    return [item.select(cases) if hasattr(item, "select") else item for item in preranks]


def in_units(preranks: Sequence[Any], divisors: Sequence[Tensor]) -> list[Any]:
    """Pre-ranks for targets that are divided by numbers (D,), one after the other."""
    listed = list(preranks)
    for divisor in divisors:
        listed = [item.in_units(divisor) if hasattr(item, "in_units") else item for item in listed]
    return listed
