"""Project, rank, measure, test: pre-ranks, projected PITs, calibration errors and their null distributions."""

from prerank.calibration.custom import Custom
from prerank.calibration.directions import principal_directions
from prerank.calibration.errors import (
    ReliabilityCurve,
    centred_levels,
    inclusive_levels,
    pce,
    pce_kde,
    reliability_curve,
)
from prerank.calibration.exchange import Replicates, exchange_replicates
from prerank.calibration.holm import holm
from prerank.calibration.interval import PCEInterval, pce_interval
from prerank.calibration.null import Band, PCENull, corrected_pce, pce_null, reliability_band
from prerank.calibration.pit import ClosedForm, EmpiricalRank, RandomisedRank, projected_pit
from prerank.calibration.preranks import (
    HDR,
    PCA,
    Contrast,
    Copula,
    Dependency,
    Location,
    Marginal,
    PreRank,
    Scale,
    SquaredDifference,
    listed_preranks,
    paper_preranks,
)
from prerank.calibration.projectedpit import ProjectedPIT
from prerank.calibration.projection import LinearProjection, PointwiseProjection, Projection
from prerank.calibration.reading import read
from prerank.calibration.smoothrank import SmoothRank, smooth_pit
from prerank.calibration.testing import PCETest, chi_square_test, ks_test, pce_test
from prerank.calibration.views import DistributionView, Learnt, Needs, PointsView, View, needs_of, view_of

__all__ = [
    "HDR",
    "PCA",
    "Band",
    "ClosedForm",
    "Contrast",
    "Copula",
    "Custom",
    "Dependency",
    "DistributionView",
    "EmpiricalRank",
    "Learnt",
    "LinearProjection",
    "Location",
    "Marginal",
    "Needs",
    "PCEInterval",
    "PCENull",
    "PCETest",
    "PointsView",
    "PointwiseProjection",
    "PreRank",
    "ProjectedPIT",
    "Projection",
    "RandomisedRank",
    "ReliabilityCurve",
    "Replicates",
    "Scale",
    "SmoothRank",
    "SquaredDifference",
    "View",
    "centred_levels",
    "chi_square_test",
    "corrected_pce",
    "exchange_replicates",
    "holm",
    "inclusive_levels",
    "ks_test",
    "listed_preranks",
    "needs_of",
    "paper_preranks",
    "pce",
    "pce_interval",
    "pce_kde",
    "pce_null",
    "pce_test",
    "principal_directions",
    "projected_pit",
    "read",
    "reliability_band",
    "reliability_curve",
    "smooth_pit",
    "view_of",
]
