"""Project, rank, measure, test: pre-ranks, projected PITs, calibration errors and their null distributions."""

from prerank.calibration.adjustment import holm
from prerank.calibration.blindness import NEARLY_BLIND
from prerank.calibration.custom import Custom, call_only_ours
from prerank.calibration.directions import principal_directions
from prerank.calibration.errors import (
    ReliabilityCurve,
    centred_levels,
    inclusive_levels,
    pce,
    pce_kde,
    reliability_curve,
)
from prerank.calibration.inputs import checked_case_ids, label_array, require_power, require_whole
from prerank.calibration.interval import (
    FEWEST_BLOCKS,
    PCEInterval,
    pce_interval,
    pce_intervals,
    pce_intervals_of_groups,
)
from prerank.calibration.intervals import Intervals
from prerank.calibration.jointcdf import cases_at_once
from prerank.calibration.null import Band, PCENull, corrected_pce, in_quadrature, pce_null, reliability_band
from prerank.calibration.pit import ClosedForm, EmpiricalRank, RandomisedRank, hidden_error, projected_pit
from prerank.calibration.pooled import bandwidths
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
from prerank.calibration.projectedpit import PreRankPIT, ProjectedPIT
from prerank.calibration.projection import LinearProjection, PointwiseProjection, Projection
from prerank.calibration.reading import read
from prerank.calibration.signs import Setting
from prerank.calibration.smoothrank import SmoothRank, smooth_pit
from prerank.calibration.tallies import Accumulated, Chunking, Tally, tally
from prerank.calibration.testing import (
    LEVEL,
    MOST_GROUPS,
    PCETest,
    chi_square_test,
    enough_replicates,
    ks_test,
    pce_test,
)
from prerank.calibration.views import DistributionView, Learnt, Needs, PointsView, View, needs_of, view_of

__all__ = [
    "FEWEST_BLOCKS",
    "HDR",
    "LEVEL",
    "MOST_GROUPS",
    "NEARLY_BLIND",
    "PCA",
    "Accumulated",
    "Band",
    "Chunking",
    "ClosedForm",
    "Contrast",
    "Copula",
    "Custom",
    "Dependency",
    "DistributionView",
    "EmpiricalRank",
    "Intervals",
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
    "PreRankPIT",
    "ProjectedPIT",
    "Projection",
    "RandomisedRank",
    "ReliabilityCurve",
    "Scale",
    "Setting",
    "SmoothRank",
    "SquaredDifference",
    "Tally",
    "View",
    "bandwidths",
    "call_only_ours",
    "cases_at_once",
    "centred_levels",
    "checked_case_ids",
    "chi_square_test",
    "corrected_pce",
    "enough_replicates",
    "hidden_error",
    "holm",
    "in_quadrature",
    "inclusive_levels",
    "ks_test",
    "label_array",
    "listed_preranks",
    "needs_of",
    "paper_preranks",
    "pce",
    "pce_interval",
    "pce_intervals",
    "pce_intervals_of_groups",
    "pce_kde",
    "pce_null",
    "pce_test",
    "principal_directions",
    "projected_pit",
    "read",
    "reliability_band",
    "reliability_curve",
    "require_power",
    "require_whole",
    "smooth_pit",
    "tally",
    "view_of",
]
