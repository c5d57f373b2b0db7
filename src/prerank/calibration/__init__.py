"""Project, rank, measure, test: pre-ranks, projected PITs, calibration errors and their null distributions."""

from prerank.calibration.adjustment import holm
from prerank.calibration.confidence import PCEInterval, pce_interval
from prerank.calibration.histogram_shapes import HistogramMeasures, describe_shape, histogram_measures
from prerank.calibration.null import Band, PCENull, corrected_pce, pce_null, reliability_band
from prerank.calibration.pit import ClosedForm, EmpiricalRank, RandomisedRank, hidden_error, projected_pit
from prerank.calibration.projected_pits import ProjectedPIT
from prerank.calibration.reliability import (
    ReliabilityCurve,
    centred_levels,
    inclusive_levels,
    pce,
    pce_kde,
    reliability_curve,
)
from prerank.calibration.smooth_rank import SmoothRank, smooth_pit
from prerank.calibration.testing import PCETest, chi_square_test, ks_test, pce_test

__all__ = [
    "Band",
    "ClosedForm",
    "EmpiricalRank",
    "HistogramMeasures",
    "PCEInterval",
    "PCENull",
    "PCETest",
    "ProjectedPIT",
    "RandomisedRank",
    "ReliabilityCurve",
    "SmoothRank",
    "centred_levels",
    "chi_square_test",
    "corrected_pce",
    "describe_shape",
    "hidden_error",
    "histogram_measures",
    "holm",
    "inclusive_levels",
    "ks_test",
    "pce",
    "pce_interval",
    "pce_kde",
    "pce_null",
    "pce_test",
    "projected_pit",
    "reliability_band",
    "reliability_curve",
    "smooth_pit",
]
