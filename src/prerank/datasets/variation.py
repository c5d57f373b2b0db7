"""A target that never changes has no spread to forecast or to divide by."""

from collections.abc import Sequence

import numpy as np

from prerank.io.errors import DataError


def require_variation(y: np.ndarray, names: Sequence[str], rows: str, remedy: str) -> None:
    """Refuse y (n, D) with a constant target; `rows` says what its rows are, `remedy` what to do.

    >>> require_variation(np.array([[1.0, 3.0], [2.0, 3.0]]), ("a", "b"), "rows", "Leave it out.")
    Traceback (most recent call last):
    prerank.io.errors.DataError: Target 'b' is constant: 3 in all 2 rows, so it has no spread to forecast. Leave it out.
    """
    for name, column in zip(names, y.T, strict=True):
        if (column == column[0]).all():
            raise DataError(
                f"Target {name!r} is constant: {float(column[0]):g} in all {len(column):,} {rows}, so it has no spread to "
                f"forecast. {remedy}"
            )
