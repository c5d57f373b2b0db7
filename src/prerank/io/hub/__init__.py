"""Forecast hubs in the hubverse layout: samples and quantiles with their observations, and corrected samples back."""

from prerank.io.hub.quantiles import Quantiles, read_hub_quantiles
from prerank.io.hub.reading import read_hub

__all__ = ["Quantiles", "read_hub", "read_hub_quantiles"]
