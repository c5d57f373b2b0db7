"""Clip features to the training range, and flag extrapolation."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KNEE = 4.0
"""Standard deviations from the mean beyond which a bounded feature grows like a logarithm."""


@dataclass(frozen=True, eq=False)
class FeatureRange:
    """Smallest and largest value (L,) of each standardised feature among the training rows.

    >>> seen = FeatureRange(np.array([-1.0, -2.0]), np.array([1.0, 9.0]))
    >>> x = np.array([[0.5, 8.0], [1.5, 0.0]])
    >>> seen.outside(x)
    array([False,  True])
    >>> seen.bounded(x).round(2)
    array([[0.5 , 5.61],
           [1.  , 0.  ]])
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @staticmethod
    def of(values: NDArray[np.floating]) -> "FeatureRange":
        """The range of training rows (n, L)."""
        return FeatureRange(values.min(0).astype(np.float64), values.max(0).astype(np.float64))

    def outside(self, values: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Which rows of `values` (N, L) have a feature outside the range, (N,)."""
        return np.any((values < self.low) | (values > self.high), axis=-1)

    def bounded(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """Features within the range, and those far from the mean drawn in: x -> 4 + log(x - 3) beyond 4."""
        within = np.clip(values, self.low, self.high).astype(values.dtype)
        size = np.abs(within)
        drawn_in = KNEE + np.log1p(np.maximum(size - KNEE, 0.0))
        return np.where(size > KNEE, np.copysign(drawn_in, within), within).astype(values.dtype)
