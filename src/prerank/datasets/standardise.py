"""Standardisation by the training part's mean and standard deviation, and back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prerank.io.errors import DataError

OFFSET = 1e-7
"""Added to every standard deviation, as in the paper, so that a constant column becomes zeros."""


@dataclass(frozen=True, eq=False)
class Standardiser:
    """Standardisation of columns: subtract the mean, divide by the standard deviation plus 1e-7.

    Statistics are kept in float64; results have the type of what was passed. Both ways take (..., K), so members
    (N, M, D) go back to the targets' units in one call, as NumPy arrays or as torch tensors.

    Parameters
    ----------
    mean : ndarray, shape (n_columns,)
        What is subtracted.
    scale : ndarray, shape (n_columns,)
        What is divided by.

    Examples
    --------
    >>> scaler = Standardiser.fit(np.array([[1.0], [2.0], [3.0]]))
    >>> scaler.apply(np.array([[2.0], [4.0]])).round(4).tolist()
    [[0.0], [2.0]]
    >>> scaler.inverse(np.array([[0.0], [2.0]])).round(4).tolist()
    [[2.0], [4.0]]
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def fit(cls, values: NDArray[np.floating]) -> "Standardiser":
        """Means and standard deviations (divisor n - 1) of columns.

        Parameters
        ----------
        values : ndarray, shape (n_cases, n_columns)
            Rows to take them from, at least two.

        Returns
        -------
        Standardiser
            The fitted transformation.
        """
        if len(values) < 2:
            raise DataError(f"A standard deviation needs at least 2 rows, got {len(values)}.")
        mean = values.mean(axis=0, dtype=np.float64)
        sd = np.array([column.std(dtype=np.float64, ddof=1) for column in values.T])
        return cls(mean, sd + OFFSET)

    def apply(self, values: Any) -> Any:
        """From units of the data to standard units.

        Parameters
        ----------
        values : ndarray or Tensor, shape (..., n_columns)
            Values in units of the data.

        Returns
        -------
        ndarray or Tensor, shape (..., n_columns)
            Standardised values, of the type that was passed.
        """
        if hasattr(values, "new_tensor"):
            return (values - values.new_tensor(self.mean)) / values.new_tensor(self.scale)
        result = np.empty_like(values)
        for k in range(values.shape[-1]):  # column by column, so that float64 exists for one column at a time
            result[..., k] = (values[..., k].astype(np.float64) - self.mean[k]) / self.scale[k]
        return result

    def inverse(self, values: Any) -> Any:
        """From standard units back to units of the data.

        Parameters
        ----------
        values : ndarray or Tensor, shape (..., n_columns)
            Standardised values.

        Returns
        -------
        ndarray or Tensor, shape (..., n_columns)
            Values in units of the data, of the type that was passed.
        """
        if hasattr(values, "new_tensor"):
            return values * values.new_tensor(self.scale) + values.new_tensor(self.mean)
        return (values * self.scale + self.mean).astype(values.dtype)


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
