"""Pre-ranks that hold arrays: something of each case, or in the units of the targets, cut and rescaled with the data."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch import Tensor


class ComparedByContent:
    """Makes frozen dataclasses that may hold tensors comparable and hashable: tensors are equal if their numbers are.

    >>> import torch
    >>> from prerank.preranks import ReferenceDistance
    >>> ReferenceDistance(torch.zeros(2)) == ReferenceDistance(torch.zeros(2)) != ReferenceDistance(torch.ones(2))
    True
    """

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _content(self) == _content(other)

    def __hash__(self) -> int:
        return hash(_content(self))


def _content(value: Any) -> tuple[Any, ...]:
    parts = (getattr(value, item.name) for item in dataclasses.fields(value) if item.compare)
    return tuple(_of_array(part) if isinstance(part, Tensor) else part for part in parts)


def _of_array(values: Tensor) -> tuple[Any, ...]:
    numbers = values.detach().double() + 0.0  # -0.0 is 0.0
    return tuple(values.shape), numbers.cpu().numpy().tobytes()


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
