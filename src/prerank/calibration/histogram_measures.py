"""One number for a rank histogram: reliability index and entropy."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from prerank._parameters import require_whole
from prerank.calibration.projected_pits import ProjectedPIT
from prerank.calibration.reliability import reliability_curve


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

    References ---------- Delle Monache et al. (2006), Probabilistic aspects of meteorological and ozone regional ensemble
    forecasts, JGR (reliability index); Taillardat et al. (2016), Calibrated ensemble forecasts using quantile regression
    forests, MWR (entropy).

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
