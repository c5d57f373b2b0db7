"""Marginally calibrated, jointly wrong: the example that opens the paper, in two dimensions.

Observations are bivariate normal with correlation 0.8; the forecast has the same margins and correlation 0.2. The
paper does not give its distributions; these keep the principal directions of the forecast well defined: a forecast with
independent, equally spread targets has none, and PCA would see no more than the margins do.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from prerank.calibration import pce, pce_null, projected_pit, reliability_band, reliability_curve
from prerank.forecasts import GaussianMixture
from prerank.preranks import PCA, Contrast, Marginal, PreRank

PRERANKS: tuple[PreRank, ...] = (Marginal(), Contrast(), PCA())


class MarginalExample(NamedTuple):
    """Observations and draws of the forecast (N, 2) each, curves by level, and one test per projection."""

    observations: Tensor
    draws: Tensor
    curves: pd.DataFrame
    tests: pd.DataFrame


def bivariate_normal(correlation: float, n_cases: int) -> GaussianMixture:
    """Standard margins and a correlation, the same for every case."""
    if not -1 < correlation < 1:
        raise ValueError(f"a correlation of {correlation} gives no density in the plane; use a number inside (-1, 1)")
    factor = torch.linalg.cholesky(torch.tensor([[1.0, correlation], [correlation, 1.0]], dtype=torch.float64))
    shape = (n_cases, 1, 2)
    return GaussianMixture(
        torch.zeros(shape[:2], dtype=torch.float64), torch.zeros(shape, dtype=torch.float64), factor.expand(*shape, 2)
    )


def run_marginal(
    n_cases: int = 1000, true_correlation: float = 0.8, forecast_correlation: float = 0.2, seed: int = 0
) -> MarginalExample:
    """PITs of both margins, of the contrast and of the principal components, in closed form.

    >>> example = run_marginal(500)
    >>> example.tests.set_index("projection")["p_value"].round(3).to_dict()["y1 - y2"]
    0.0
    """
    if n_cases < 10:
        raise ValueError(f"{n_cases} cases draw no curve; use 10 or more")
    forecast = bivariate_normal(forecast_correlation, n_cases)
    y = bivariate_normal(true_correlation, n_cases).ensemble(1, seed, "observations").members[:, 0]
    draws = forecast.ensemble(1, seed, "forecast").members[:, 0]
    band, null = reliability_band(n_cases), pce_null(n_cases)
    curves, tests = [], []
    for prerank in PRERANKS:
        pit = projected_pit(y, forecast, prerank)
        frequency, errors = reliability_curve(pit).frequency, pce(pit)
        for k, name in enumerate(pit.names):
            labels = {"prerank": prerank.name, "projection": name}
            curve = {"level": band.levels, "frequency": frequency[:, k], "lower": band.lower, "upper": band.upper}
            curves.append(pd.DataFrame(labels | {column: np.asarray(values) for column, values in curve.items()}))
            p_value = float(null.p_value(float(errors[k])))
            tests.append(labels | {"pce": float(errors[k]), "expected_pce": null.mean, "p_value": p_value})
    correlations = {"true_correlation": true_correlation, "forecast_correlation": forecast_correlation}
    return MarginalExample(
        y,
        draws,
        pd.concat(curves, ignore_index=True),
        pd.DataFrame(tests).assign(n_cases=n_cases, seed=seed, **correlations),
    )
