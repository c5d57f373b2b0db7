"""Models: features in, a forecast out."""

from prerank.models.network import MixtureNetwork
from prerank.models.reference import LinearGaussian

__all__ = [
    "LinearGaussian",
    "MixtureNetwork",
]
