"""From a joint forecast to one that is calibrated: transport, then a tilt along all pre-ranks, learnt on held-out cases.

Also what others have published to the same end, in the same interface, and joint prediction regions.
"""

from prerank.recalibration.about_mean import members_about_mean
from prerank.recalibration.affine import Affine
from prerank.recalibration.copula_coupling import EnsembleCopulaCoupling, RecalibratedMargins, SchaakeShuffle
from prerank.recalibration.dressing import Dressing
from prerank.recalibration.error_law import ErrorLaw
from prerank.recalibration.joint_from_margins import (
    EmpiricalCopula,
    GaussianCopula,
    Independence,
    JointFromMargins,
    margins_kept,
)
from prerank.recalibration.marginal_forecasts import DistributionMargins, QuantileMargins
from prerank.recalibration.over_time import Issue, IssuedForecasts, recalibrate_over_time
from prerank.recalibration.published_methods import HDRRecalibration, LatentRecalibration
from prerank.recalibration.quantiles import marginal_quantiles
from prerank.recalibration.recalibrator import PITDensities, Recalibrator
from prerank.recalibration.regions import Coverage, HighestDensityRegions, PredictionRegion, Volume
from prerank.recalibration.steps import Fitted, HeldOut, Step
from prerank.recalibration.tilt import Tilt
from prerank.recalibration.tilted import Tilted
from prerank.recalibration.time_split import TimeSplit, split_by_time

__all__ = [
    "Affine",
    "Coverage",
    "DistributionMargins",
    "Dressing",
    "EmpiricalCopula",
    "EnsembleCopulaCoupling",
    "ErrorLaw",
    "Fitted",
    "GaussianCopula",
    "HDRRecalibration",
    "HeldOut",
    "HighestDensityRegions",
    "Independence",
    "Issue",
    "IssuedForecasts",
    "JointFromMargins",
    "LatentRecalibration",
    "PITDensities",
    "PredictionRegion",
    "QuantileMargins",
    "RecalibratedMargins",
    "Recalibrator",
    "SchaakeShuffle",
    "Step",
    "Tilt",
    "Tilted",
    "TimeSplit",
    "Volume",
    "marginal_quantiles",
    "margins_kept",
    "members_about_mean",
    "recalibrate_over_time",
    "split_by_time",
]
