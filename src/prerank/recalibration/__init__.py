"""From a joint forecast to one that can be relied on, with held-out cases: prediction regions and recalibration."""

from prerank.recalibration.coupling import EnsembleCopulaCoupling, RecalibratedMargins, SchaakeShuffle
from prerank.recalibration.regions import Coverage, HighestDensityRegions, PredictionRegion, Volume
from prerank.recalibration.rivals import HDRRecalibration, LatentRecalibration

__all__ = [
    "Coverage",
    "EnsembleCopulaCoupling",
    "HDRRecalibration",
    "HighestDensityRegions",
    "LatentRecalibration",
    "PredictionRegion",
    "RecalibratedMargins",
    "SchaakeShuffle",
    "Volume",
]
