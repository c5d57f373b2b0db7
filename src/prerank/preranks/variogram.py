"""Variograms over any pairs of targets, in a row or on a grid, and how they differ by direction."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prerank._reproducible_math import total
from prerank.arrays import as_tensor
from prerank.forecasts import Forecast
from prerank.preranks.columns import by_columns, variance_of_columns
from prerank.preranks.projection import PointwiseProjection
from prerank.preranks.selection import ComparedByContent
from prerank.preranks.table1 import PreRank
from prerank.preranks.view import View, view_of

Lag = int | tuple[int, int]


@dataclass(frozen=True, eq=False)
class Variogram(ComparedByContent, PreRank):
    r"""Minus a weighted variogram over the variance, $\rho(y) = -\frac{1}{2 s_y^2} \sum_{i<j} w_{ij} |y_i - y_j|^p$.

    `Dependency` for pairs of your own: several lags, lags on a grid, weights. The weights come from one of three
    places: `lags` (all pairs at a lag share its weight of one, a sum of means over lags), `weights` (rescaled to a sum
    of one), or, by default, the inverse of the distance between targets. $s_y^2$ is the variance over targets, divisor
    D. Large means smooth: targets alike, dependence strong. Sees wrong correlation between these pairs, whatever level
    and, for p = 2, scale. Blind to common bias and, if standardised, to common spread. A vector whose entries are all
    equal counts as perfectly smooth (0). It can be trained with.

    Parameters
    ----------
    lags : int, tuple of int, or tuple of (int, int), optional
        Distances between targets in a row, or (rows, columns) between those of a grid; one of them may be negative.
    weights : array_like, shape (n_targets, n_targets), optional
        Weight of each pair, zero or more; the diagonal counts for nothing.
    exponent : float, default 2.0
        The power p of the differences. Below one it has no gradient where targets are equal.
    standardised : bool, default True
        Whether to divide by the variance, as R's MultivCalibration does for any exponent.
    shape : (int, int), optional
        Rows and columns of a grid whose points, row by row, are the targets.
    name : str, default 'variogram'
        What results call it.

    See Also
    --------
    Dependency : one lag
    Isotropy : the same along rows against along columns

    References
    ----------
    Allen, Ziegel and Ginsbourger (2024), Assessing the calibration of multivariate probabilistic forecasts, QJRMS; Scheuerer
    and Hamill (2015), Variogram-based proper scoring rules, Monthly Weather Review.

    Examples
    --------
    >>> from prerank import Ensemble
    >>> field = torch.tensor([[[0.0, 1.0, 0.0, 1.0]]])
    >>> Variogram(lags=((0, 1), (1, 0)), shape=(2, 2)).given(Ensemble(field))(field)
    tensor([[[-2.]]])
    """

    lags: Lag | tuple[Lag, ...] | None = None
    weights: Any = None
    exponent: float = 2.0
    standardised: bool = True
    shape: tuple[int, int] | None = None
    name: str = "variogram"

    def __post_init__(self) -> None:
        if not 0 < self.exponent < math.inf:
            raise ValueError(f"{self.name}: exponent={self.exponent}; a power of differences is positive and finite")
        if self.lags is not None and self.weights is not None:
            raise ValueError(f"{self.name}: lags and weights both say which pairs count; give one of them")
        if self.weights is not None:
            object.__setattr__(self, "weights", _pair_weights(self.name, self.weights))

    def given(self, view: View | Forecast) -> PointwiseProjection:
        n_targets = view_of(view).n_targets
        if n_targets == 1:
            raise ValueError(f"{self.name}: one target has no pairs; use Marginal()")
        require_grid(self.name, self.shape, n_targets)
        i, j, share = self._pairs(n_targets)
        even = self.standardised and self.exponent == 2 and len(share) == n_targets * (n_targets - 1) // 2
        if even and float(share.max() - share.min()) <= 1e-12 * float(share.max()):
            raise ValueError(
                f"{self.name} is constant for D={n_targets} targets: with equal weights of all pairs the variogram is the "
                "variance; use other weights, another exponent, standardised=False, or Scale()"
                + (" or Contrast()" if n_targets == 2 else "")
            )

        def value(columns: Tensor) -> Tensor:
            share_here = share.to(columns)[:, None, None]
            variogram = 0.5 * total(share_here * powers(columns[i] - columns[j], self.exponent), 0)
            if not self.standardised:
                return -variogram
            variance = variance_of_columns(columns)
            constant = variance == 0
            return torch.where(constant, 0.0, -variogram / torch.where(constant, 1.0, variance))

        return PointwiseProjection(
            lambda points: by_columns(value, points, 3 * len(share))[..., None], (f"variogram of {len(share)} pairs",)
        )

    def _pairs(self, n_targets: int) -> tuple[list[int], list[int], Tensor]:
        """First and second targets of all pairs that count, each once, and their weights."""
        places = places_of(n_targets, self.shape)
        if self.lags is not None:
            found = [_at_lag(self.name, lag, places) for lag in lags_of(self.lags)]
            weights = torch.zeros(n_targets, n_targets, dtype=torch.float64)
            for some in found:
                for i, j in some:
                    weights[i, j] += 1.0 / len(some)
        elif self.weights is not None:
            if len(self.weights) != n_targets:
                raise ValueError(f"{self.name}: weights of {len(self.weights)} targets, got {n_targets} targets")
            weights = self.weights.cpu().double().clone().fill_diagonal_(0.0)
            weights = weights / weights.sum()
        else:
            where = torch.tensor(places, dtype=torch.float64)
            distance = (where[:, None] - where).square().sum(-1).sqrt()
            weights = torch.where(distance > 0, 1.0 / distance, 0.0)
            weights = weights / weights.sum()
        weights = weights.triu() + weights.tril().mT
        i, j = weights.nonzero().T
        return i.tolist(), j.tolist(), weights[i, j]


@dataclass(frozen=True)
class Isotropy(PreRank):
    r"""How alike a field varies along its rows and along its columns, $\rho(y) = -\sum_h \frac{(g_1 - g_2)^2}{v_1 + v_2}$.

    $g_1$ and $g_2$ are half the mean of $|y_i - y_j|^p$ over pairs h columns and h rows apart, and $v = 2 g^2 / n$ with n
    such pairs in their direction, as in R's MultivCalibration. Zero means isotropic, very negative anisotropic. Sees
    features, such as fronts, that are stretched where the forecast's are round, or the other way round. Blind to level,
    scale, and to the direction in which a field is stretched. A constant field counts as isotropic.
    It can be trained with.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns of the grid whose points, row by row, are the targets.
    lags : tuple of int, default (1,)
        Distances h between points of a row or column, below both numbers of the shape.
    exponent : float, default 2.0
        The power p of the differences.
    name : str, default 'isotropy'
        What results call it.

    See Also
    --------
    Variogram : along any lags

    References
    ----------
    Allen, Ziegel and Ginsbourger (2024), Assessing the calibration of multivariate probabilistic forecasts, QJRMS.

    Examples
    --------
    >>> from prerank import Ensemble
    >>> fields = torch.tensor([[[0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]])
    >>> Isotropy((2, 2)).given(Ensemble(fields))(fields).squeeze()
    tensor([ 0., -1.])
    """

    shape: tuple[int, int]
    lags: tuple[int, ...] = (1,)
    exponent: float = 2.0
    name: str = "isotropy"

    def __post_init__(self) -> None:
        if not 0 < self.exponent < math.inf:
            raise ValueError(f"{self.name}: exponent={self.exponent}; a power of differences is positive and finite")

    def given(self, view: View | Forecast) -> PointwiseProjection:
        n_targets = view_of(view).n_targets
        require_grid(self.name, self.shape, n_targets)
        rows, columns = self.shape
        if not self.lags or not all(1 <= lag < min(rows, columns) for lag in self.lags):
            raise ValueError(
                f"{self.name}: lags={self.lags} on a grid of {rows} x {columns}; each is a whole number from 1 to "
                f"{min(rows, columns) - 1}"
                + ("; one row has no isotropy, use Variogram()" if min(rows, columns) < 2 else "")
            )

        def value(targets: Tensor) -> Tensor:
            field = targets.unflatten(0, self.shape)
            found = [self._at_lag(field, lag) for lag in self.lags]
            return 0.0 - total(torch.stack(found), 0)  # no negative zero

        return PointwiseProjection(lambda points: by_columns(value, points, 3 * n_targets)[..., None], ("isotropy",))

    def _at_lag(self, field: Tensor, lag: int) -> Tensor:
        rows, columns = self.shape
        along_rows = powers(field[:, lag:] - field[:, :-lag], self.exponent).flatten(0, 1)
        along_columns = powers(field[lag:] - field[:-lag], self.exponent).flatten(0, 1)
        g1, g2 = (0.5 * total(some, 0) / len(some) for some in (along_rows, along_columns))
        variance = 2 * g1.square() / (rows * (columns - lag)) + 2 * g2.square() / (columns * (rows - lag))
        constant = variance == 0
        return torch.where(constant, 0.0, (g1 - g2).square() / torch.where(constant, 1.0, variance))


def powers(differences: Tensor, exponent: float) -> Tensor:
    """Powers of the sizes of differences."""
    if exponent == 2:
        return differences.square()
    return differences.abs() if exponent == 1 else differences.abs().pow(exponent)


def require_grid(name: str, shape: Any, n_targets: int) -> None:
    """Refuse a shape that does not hold the targets."""
    if shape is None:
        return
    if len(shape) != 2 or shape[0] * shape[1] != n_targets:
        raise ValueError(f"{name}: shape={tuple(shape)} is no grid of {n_targets} targets; give (rows, columns)")


def places_of(n_targets: int, shape: tuple[int, int] | None) -> list[tuple[int, int]]:
    """Row and column of each target; a row of targets is a grid of one row."""
    width = n_targets if shape is None else shape[1]
    return [divmod(d, width) for d in range(n_targets)]


def lags_of(lags: Lag | Sequence[Lag]) -> list[tuple[int, int]]:
    """Lags as rows and columns.

    >>> lags_of(1), lags_of((1, 2)), lags_of(((0, 1), (1, -1)))
    ([(0, 1)], [(0, 1), (0, 2)], [(0, 1), (1, -1)])
    """
    each = [lags] if isinstance(lags, int) else list(lags)
    return [(0, lag) if isinstance(lag, int) else (lag[0], lag[1]) for lag in each]


def _at_lag(name: str, lag: tuple[int, int], places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs of targets at a lag; a lag and its opposite are the same."""
    there = {place: d for d, place in enumerate(places)}
    pairs = [
        (d, there[row + lag[0], column + lag[1]])
        for d, (row, column) in enumerate(places)
        if (row + lag[0], column + lag[1]) in there
    ]
    if lag == (0, 0) or not pairs:
        grid = f"{places[-1][0] + 1} x {places[-1][1] + 1}"
        said = str(lag[1]) if lag[0] == 0 and places[-1][0] == 0 else str(lag)
        raise ValueError(
            f"{name}: no two of {len(places)} targets ({grid}) are at lag {said}; use smaller lags, from 1 on"
        )
    return pairs


def _pair_weights(name: str, weights: Any) -> Tensor:
    found = as_tensor(weights, "weights").double()
    if found.ndim != 2 or found.shape[0] != found.shape[1]:
        raise ValueError(f"{name}: weights have shape {tuple(found.shape)}; one for each pair is (targets, targets)")
    if not bool(found.isfinite().all()) or bool((found < 0).any()):
        raise ValueError(f"{name}: weights must be finite and non-negative")
    if not bool((found.triu(1) + found.tril(-1).mT).any()):
        raise ValueError(f"{name}: all weights of pairs are zero; at least one must be positive")
    return found
