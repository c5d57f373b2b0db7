"""Pre-ranks: functions from a vector outcome to scalars, and what they may ask of a forecast."""

from prerank.preranks.custom import Custom
from prerank.preranks.directions import principal_directions
from prerank.preranks.projection import LinearProjection, PointwiseProjection, Projection
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
from prerank.preranks.view import DistributionView, Learnt, Needs, PointsView, View, needs_of, view_of

__all__ = [
    "HDR",
    "PCA",
    "Contrast",
    "Copula",
    "Custom",
    "Dependency",
    "DistributionView",
    "Learnt",
    "LinearProjection",
    "Location",
    "Marginal",
    "Needs",
    "PointsView",
    "PointwiseProjection",
    "PreRank",
    "Projection",
    "Scale",
    "SquaredDifference",
    "View",
    "needs_of",
    "paper_preranks",
    "principal_directions",
    "view_of",
]
