"""What the shape of a PIT histogram says: in words, and as reliability index and entropy."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from prerank._parameters import require_whole
from prerank.calibration.projected_pits import ProjectedPIT
from prerank.calibration.rank_intervals import Intervals
from prerank.calibration.reliability import reliability_curve

_TAIL = 0.05


class ShapeScores(NamedTuple):
    """Standard scores (standard normal under calibration) of the PITs' mean, spread, and the two outer twentieths.

    `bias_deviation` is the standard deviation of the first for PITs that lie as far apart as these, at least one.
    """

    bias: float
    dispersion: float
    lower_tail: float
    upper_tail: float
    bias_deviation: float = 1.0


def shape(pit: Tensor | Intervals, case_weights: Tensor | None = None, points: Intervals | None = None) -> ShapeScores:
    """How PITs (N,) depart from uniform: scores of their mean, their spread, and their mass in the outer twentieths.

    Of ranks, which are intervals, the mean over each is taken; `points` (n, P), the intervals of all points that could
    have been the observation in some of the cases, then tell how much the scores vary under calibration.
    """
    seen = _features(pit if isinstance(pit, Intervals) else Intervals(pit, pit))
    weights = seen.new_full((len(seen),), 1.0 / len(seen))
    if case_weights is not None:
        weights = (case_weights / case_weights.sum()).to(seen)
    variance = torch.ones(4, dtype=seen.dtype, device=seen.device)
    if points is not None and not points.are_values:
        variance = _features(points).square().mean((0, 1))
    variance = torch.where(variance > 1e-12, variance, 1.0)
    means = (weights[:, None] * seen).sum(0)
    root = 1.0 / weights.square().sum().sqrt()  # sqrt(N) for equal weights
    apart = (weights * (seen[:, 0] - means[0]).square()).sum() / variance[0]
    bias, dispersion, lower, upper = (means * root / variance.sqrt()).tolist()
    return ShapeScores(bias, dispersion, lower, upper, max(1.0, apart.sqrt().item()))


def _features(intervals: Intervals) -> Tensor:
    """Four functions of a PIT, each with mean 0 and variance 1 where it is uniform, averaged over its interval: (..., 4).

    The first two are Legendre polynomials, which are uncorrelated there.
    """
    lower, upper = (end.double() for end in intervals.bounds())
    width = upper - lower
    x, z = 2 * lower - 1, 2 * upper - 1
    bias = 0.5 * (x + z)
    dispersion = 0.5 * (x * x + x * z + z * z) - 0.5  # the mean of (3 t² - 1) / 2 over [x, z]
    scale = (_TAIL * (1 - _TAIL)) ** 0.5
    low = torch.where(width > 0, _share_below(lower, width, _TAIL), (lower < _TAIL).double())
    high = torch.where(width > 0, 1 - _share_below(lower, width, 1 - _TAIL), (lower > 1 - _TAIL).double())
    return torch.stack([bias * 3**0.5, dispersion * 5**0.5, (low - _TAIL) / scale, (high - _TAIL) / scale], -1)


def _share_below(lower: Tensor, width: Tensor, level: float) -> Tensor:
    return ((level - lower) / width).clamp(0.0, 1.0)


def describe_shape(
    pit: Tensor | Intervals,
    p_value: float,
    level: float = 0.05,
    case_weights: Tensor | None = None,
    points: Intervals | None = None,
) -> str:
    """Words for the PITs (N,) of one projection: biased, under- or over-dispersed, heavy in a tail, or flat.

    "Biased low" means that the forecast's projection is too low: observations come out above it. The words follow the
    largest standard scores; where the test does not reject (`p_value` > `level`) the answer is "flat".

    Parameters
    ----------
    pit : Tensor or Intervals, shape (n_cases,)
        PITs of one projection, as numbers or as the intervals of ranks.
    p_value : float
        p-value of the projection.
    level : float, default 0.05
        Largest p-value that rejects.
    case_weights : Tensor, shape (n_cases,), optional
        Weights of the cases, which need not sum to one; None means equal.
    points : Intervals, shape (n, n_points), optional
        Ranks of all points that could have been the observation, in some of the cases: they say how much scores vary
        under calibration where ranks are few or tie.

    Returns
    -------
    str
        One or two of "biased low", "biased high", "over-dispersed", "under-dispersed", "heavy lower tail" and "heavy upper
        tail", joined by a comma; "flat" or "no clear shape" otherwise.

    Examples
    --------
    >>> z = torch.linspace(0.0005, 0.9995, 1000)
    >>> describe_shape(z, 0.9), describe_shape(z**2, 0.001), describe_shape(0.5 + 0.3 * (z - 0.5), 0.001)
    ('flat', 'biased high', 'over-dispersed')
    """
    if p_value > level:
        return "flat"
    seen = shape(pit, case_weights, points)
    words = []
    if abs(seen.bias) > max(2.5 * seen.bias_deviation, 0.15 * abs(seen.dispersion)):
        words.append("biased low" if seen.bias > 0 else "biased high")
    if seen.dispersion < -2.5 and abs(seen.dispersion) > 0.3 * abs(seen.bias):
        words.append("over-dispersed")
    elif seen.dispersion > 2.5 and abs(seen.dispersion) > 0.3 * abs(seen.bias):
        heavier, lighter = max(seen.lower_tail, seen.upper_tail), min(seen.lower_tail, seen.upper_tail)
        if heavier > 2.5 and lighter < 1.0 and abs(seen.dispersion) > abs(seen.bias):
            words.append("heavy upper tail" if seen.upper_tail > seen.lower_tail else "heavy lower tail")
        elif lighter > 0 or not words:
            words.append("under-dispersed")
    if not words:
        if max(seen.lower_tail, seen.upper_tail) > 2.5:
            words.append("heavy upper tail" if seen.upper_tail > seen.lower_tail else "heavy lower tail")
        else:
            words.append("no clear shape")
    return ", ".join(words)


class HistogramMeasures(NamedTuple):
    """How far rank histograms are from flat.

    Attributes
    ----------
    reliability_index : Tensor, shape (..., n_projections)
        Sum over bins of |share - 1 / bins|: zero if flat, below two.
    entropy : Tensor, shape (..., n_projections)
        Entropy over the logarithm of the number of bins: one if flat, zero if all PITs share a bin.
    """

    reliability_index: Tensor
    entropy: Tensor


def histogram_measures(
    pit: ProjectedPIT | Tensor, n_bins: int = 10, case_weights: Tensor | None = None
) -> HistogramMeasures:
    r"""Reliability index $\sum_j |f_j - 1/J|$ and normalised entropy $-\sum_j f_j \log f_j / \log J$ of rank histograms.

    Descriptions, for comparison with studies that report them: neither is zero, or one, for a calibrated forecast of
    finitely many cases, and both depend on the number of bins. To test, use `pce_test`. A rank is an interval, whose
    share of each bin counts, and an empty bin adds nothing to the entropy. With M members, M + 1 bins or a divisor of it
    cut no rank.

    Parameters
    ----------
    pit : ProjectedPIT or Tensor, shape (..., n_cases, n_projections)
        PITs.
    n_bins : int, default 10
        Bins of equal width, two or more.
    case_weights : Tensor, shape (n_cases,), optional
        Weights of the cases.

    Returns
    -------
    HistogramMeasures
        Both, for each projection.

    References
    ----------
    Delle Monache et al. (2006), Probabilistic aspects of meteorological and ozone regional ensemble forecasts, JGR
    (reliability index); Taillardat et al. (2016), Calibrated ensemble forecasts using quantile regression forests, MWR
    (entropy).

    Examples
    --------
    >>> flat, peaked = torch.linspace(0.05, 0.95, 10), torch.full((10,), 0.55)
    >>> found = histogram_measures(torch.stack([flat, peaked], 1))
    >>> found.reliability_index.round(decimals=3) + 0.0, found.entropy.round(decimals=3) + 0.0
    (tensor([0.0000, 1.8000]), tensor([1., 0.]))
    """
    n_bins = require_whole(n_bins, "n_bins")
    if n_bins < 2:
        raise ValueError(f"n_bins={n_bins}: a histogram has two bins or more")
    edges = torch.arange(1, n_bins + 1, dtype=torch.float64) / n_bins
    if isinstance(pit, ProjectedPIT):
        edges = edges.to(pit.device)
    curve = reliability_curve(pit, levels=edges, case_weights=case_weights).frequency
    share = curve.diff(dim=-2, prepend=torch.zeros_like(curve[..., :1, :]))
    index = (share - 1 / n_bins).abs().sum(-2)
    logs = torch.where(share > 0, share, 1.0).log()
    return HistogramMeasures(index, -(share * logs).sum(-2) / math.log(n_bins))
