"""Pre-ranks: functions from a vector outcome to scalars, and what they may ask of a forecast."""

from prerank.preranks.custom import Custom
from prerank.preranks.directions import principal_directions
from prerank.preranks.distances import EnergyScore, Mahalanobis
from prerank.preranks.extremes import Exceedance, Maximum, Minimum, Range
from prerank.preranks.pooled_ranks import AverageRank, BandDepth
from prerank.preranks.projection import LinearProjection, PointwiseProjection, Projection
from prerank.preranks.reference_distance import ReferenceDistance
from prerank.preranks.sliced import Sliced
from prerank.preranks.spanning_tree import SpanningTree
from prerank.preranks.table1 import (
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
    paper_preranks,
)
from prerank.preranks.variogram import Isotropy, Variogram
from prerank.preranks.view import DistributionView, Learnt, Needs, PointsView, View, needs_of, view_of

__all__ = [
    "HDR",
    "PCA",
    "AverageRank",
    "BandDepth",
    "Contrast",
    "Copula",
    "Custom",
    "Dependency",
    "DistributionView",
    "EnergyScore",
    "Exceedance",
    "Isotropy",
    "Learnt",
    "LinearProjection",
    "Location",
    "Mahalanobis",
    "Marginal",
    "Maximum",
    "Minimum",
    "Needs",
    "PointsView",
    "PointwiseProjection",
    "PreRank",
    "Projection",
    "Range",
    "ReferenceDistance",
    "Scale",
    "Sliced",
    "SpanningTree",
    "SquaredDifference",
    "Variogram",
    "View",
    "needs_of",
    "paper_preranks",
    "principal_directions",
    "view_of",
]
