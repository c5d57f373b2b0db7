"""Whole numbers where whole numbers are meant."""

import operator
from typing import Any

import numpy as np


def require_whole(value: Any, name: str, at_least: int | None = 1) -> int:
    """A whole number, at least so large; 2.0, True and None are none.

    >>> require_whole(0, "n_draws")
    Traceback (most recent call last):
    ValueError: n_draws=0: a whole number of at least 1
    """
    said = "a whole number" if at_least is None else f"a whole number of at least {at_least}"
    try:
        if isinstance(value, bool | np.bool_):  # before NumPy takes its own for numbers, with a warning
            raise TypeError
        whole = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: {said}") from None
    if at_least is not None and whole < at_least:
        raise ValueError(f"{name}={value!r}: {said}")
    return whole
