"""Models: features in, a forecast out."""

from prerank.models.anchored import anchored_mixture, anchored_output, anchored_weights
from prerank.models.network import MixtureNetwork, mixture_from, perceptron
from prerank.models.reference import LinearGaussian
from prerank.models.scaled import ScaledMixture

__all__ = [
    "LinearGaussian",
    "MixtureNetwork",
    "ScaledMixture",
    "anchored_mixture",
    "anchored_output",
    "anchored_weights",
    "mixture_from",
    "perceptron",
]
