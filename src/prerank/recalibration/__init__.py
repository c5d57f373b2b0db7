"""From a joint forecast to one that can be relied on, with held-out cases: prediction regions and recalibration."""

from prerank.recalibration.regions import Coverage, HighestDensityRegions, PredictionRegion, Volume

__all__ = ["Coverage", "HighestDensityRegions", "PredictionRegion", "Volume"]
