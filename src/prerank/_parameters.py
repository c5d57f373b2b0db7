"""Whole numbers where whole numbers are meant, and numbers within their range."""

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np


def require_whole(value: Any, name: str, at_least: int | None = 1, at_most: int | None = None) -> int:
    """A whole number, at least and at most so large; 2.0, True and None are none.

    >>> require_whole(0, "n_draws")
    Traceback (most recent call last):
    ValueError: n_draws=0: a whole number of at least 1
    """
    said = "a whole number" if at_least is None else f"a whole number of at least {at_least}"
    said += "" if at_most is None else f" and at most {at_most:,}"
    try:
        if isinstance(value, bool | np.bool_):  # before NumPy takes its own for numbers, with a warning
            raise TypeError
        whole = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: {said}") from None
    if (at_least is not None and whole < at_least) or (at_most is not None and whole > at_most):
        raise ValueError(f"{name}={value!r}: {said}")
    return whole


def require_real(value: Any, name: str, said: str) -> float:
    """A number as such; text, True, None and complex numbers are refused in the words of `said`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}={value!r}: {said}")
    return float(value)


def require_number(
    value: Any, name: str, at_least: float = -math.inf, at_most: float = math.inf, *, above: float = -math.inf
) -> float:
    """A finite number within a range, whose ends count but for `above`; text, True and None are none.

    >>> require_number(float("nan"), "errors", at_least=0)
    Traceback (most recent call last):
    ValueError: errors=nan: a finite number of at least 0
    """
    ends = [("above", above), ("of at least", at_least), ("of at most", at_most)]
    stated = [f"{text} {end:g}" for text, end in ends if math.isfinite(end)]
    said = " ".join(["a finite number", " and ".join(stated).replace("and of", "and")]).strip()
    number = require_real(value, name, said)
    if not (math.isfinite(number) and at_least <= number <= at_most and number > above):
        raise ValueError(f"{name}={value!r}: {said}")
    return number


def require_ridges(ridges: Any) -> None:
    """Refuse what is no list of strengths of a ridge.

    >>> require_ridges((0.1, -1.0))
    Traceback (most recent call last):
    ValueError: ridges=(0.1, -1.0): at least one, each of zero or more and finite
    """
    said = f"ridges={ridges!r}: at least one, each of zero or more and finite"
    if isinstance(ridges, str) or not isinstance(ridges, Sequence):
        raise TypeError(said)
    try:
        for ridge in ridges:
            require_number(ridge, "ridges", at_least=0)
    except TypeError:
        raise TypeError(said) from None
    except ValueError:
        raise ValueError(said) from None
    if not len(ridges):
        raise ValueError(said)


def require_yes_or_no(value: Any, name: str) -> bool:
    """True or False, and not a number or text in their place."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}={value!r}: True or False")
    return bool(value)
