"""Observations and members of different precision: compared in the coarser one, so that equal values stay equal."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prerank.arrays.conversion import as_tensor


def precision_of(value: Any) -> torch.dtype | None:
    """The floating type that values came in; None for whole numbers and booleans, which are exact in any.

    For what `as_tensor` takes.

    >>> precision_of(np.zeros(3, dtype=np.float16)), precision_of([1, 2])
    (torch.float16, None)
    """
    if isinstance(value, Tensor):
        return value.dtype if value.is_floating_point() else None
    dtypes: Any = getattr(value, "dtypes", getattr(value, "dtype", None))
    if hasattr(type(value), "columns"):
        floating = [dtype for dtype in dtypes if getattr(dtype, "kind", "O") == "f"]
        return _named(max(floating, key=lambda dtype: dtype.itemsize)) if floating else None
    if dtypes is None:
        if isinstance(value, list | tuple) and len(value) and isinstance(value[0], Tensor):
            return precision_of(value[0])
        dtypes = np.asarray(value).dtype
    return _named(dtypes)


def _named(dtype: Any) -> torch.dtype | None:
    if getattr(dtype, "kind", "O") != "f":
        return None
    return {2: torch.float16, 4: torch.float32}.get(dtype.itemsize, torch.float64)


def rounded(values: Tensor, precision: torch.dtype) -> Tensor:
    """Values rounded to a coarser type, in their own; those beyond its range are left as they are.

    >>> rounded(torch.tensor([0.1, 1e39], dtype=torch.float64), torch.float32)
    tensor([1.0000e-01, 1.0000e+39], dtype=torch.float64)
    """
    coarse = values.to(precision).to(values.dtype)
    return torch.where(coarse.isinf(), values, coarse)


def in_one_precision(
    y: Tensor, members: Tensor, of_y: torch.dtype | None, of_members: torch.dtype | None
) -> tuple[Tensor, Tensor, str | None]:
    """y and members in one type, the wider, with the values of the coarser one, and a note if that moved any.

    0.1 in single precision is not 0.1 in double: unrounded, an observation that equals a member would lie above or below
    it. Whole numbers (no precision) are exact and move nothing.
    """
    dtype = torch.promote_types(y.dtype, members.dtype)
    y, members = y.to(dtype), members.to(dtype)
    if of_y is None or of_members is None or of_y == of_members:
        return y, members, None
    coarse = max(of_y, of_members, key=lambda kind: torch.finfo(kind).eps)
    moved, what = (y, "y") if coarse == of_members else (members, "members")
    result = rounded(moved, coarse)
    changed = not torch.equal(result.nan_to_num(), moved.nan_to_num())
    note = f"{what} rounded to {str(coarse).removeprefix('torch.')}, the precision of " + (
        "the members, so that equal values stay equal" if what == "y" else "y, so that equal values stay equal"
    )
    return (result, members, note if changed else None) if what == "y" else (y, result, note if changed else None)


@dataclass(frozen=True)
class Precisions:
    """The floating types that y and the members came in; they are compared in the coarser one."""

    of_y: torch.dtype | None = None
    of_members: torch.dtype | None = None

    def together(self, y: Tensor, members: Any) -> tuple[Tensor, Tensor, str | None]:
        """y and members, and a note if one of them was rounded."""
        return in_one_precision(y, as_tensor(members, "the forecast"), self.of_y, self.of_members)
