"""What a pair plot of the targets shows, computed apart from drawing it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from prerank.datasets import Table
from prerank.io import DataError

_FEW_VALUES = 12


class PairCounts(NamedTuple):
    """Counts of each target (D, B) and of each pair (D, D, B, B) on `edges` (D, B + 1), and rank correlations (D, D).

    `pairs[i, j]` counts target j along its first axis and target i along its second.
    """

    names: tuple[str, ...]
    edges: NDArray[np.float64]
    singles: NDArray[np.float64]
    pairs: NDArray[np.float64]
    correlations: NDArray[np.float64]


def pair_counts(table: Table, n_bins: int = 32, most_targets: int = 6, tail: float = 0.005) -> PairCounts:
    """The counts behind a pair plot of the first `most_targets` targets.

    Edges run between the `tail` and `1 - tail` quantiles, or a single outlier would leave one full cell; the rest is
    counted in the outermost cells, so that no row is lost.

    >>> from prerank_paper.datasets.loading import load
    >>> pair_counts(load("bimodal")).singles.sum(axis=1)
    array([2000., 2000.])
    """
    if not 0 <= tail < 0.5:
        raise DataError(f"tail is a share of rows in [0, 0.5), got {tail}.")
    y = table.y[:, :most_targets].astype(np.float64)
    n_targets = y.shape[1]
    edges = np.stack([_edges(column, n_bins, tail) for column in y.T])
    cells = np.stack([_cells(column, edge) for column, edge in zip(y.T, edges, strict=True)])
    singles = np.stack([np.bincount(cell, minlength=n_bins) for cell in cells]).astype(np.float64)
    pairs = np.zeros((n_targets, n_targets, n_bins, n_bins))
    for i in range(n_targets):
        for j in range(n_targets):
            joint = np.bincount(cells[j] * n_bins + cells[i], minlength=n_bins**2)
            pairs[i, j] = joint.reshape(n_bins, n_bins)
    return PairCounts(table.y_names[:most_targets], edges, singles, pairs, _rank_correlations(y))


def _edges(column: NDArray[np.float64], n_bins: int, tail: float) -> NDArray[np.float64]:
    low, high = np.quantile(column, [tail, 1 - tail])
    if low == high:  # nearly all rows share one value: fall back on the whole range
        low, high = column.min(), column.max()
    values = np.unique(column)
    if len(values) <= _FEW_VALUES:  # half a step more on both sides, so that no value sits on the frame
        step = (values[-1] - values[0]) / (len(values) - 1) if len(values) > 1 else 1.0
        low, high = values[0] - step / 2, values[-1] + step / 2
    return np.linspace(low, high, n_bins + 1)


def _cells(column: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.clip(np.searchsorted(edges, column, side="right") - 1, 0, len(edges) - 2)


def _rank_correlations(y: NDArray[np.float64]) -> NDArray[np.float64]:
    if y.shape[1] == 1 or len(y) < 2:
        return np.eye(y.shape[1])
    matrix = np.asarray(spearmanr(y).statistic, dtype=np.float64)
    return matrix if matrix.ndim == 2 else np.array([[1.0, float(matrix)], [float(matrix), 1.0]])
