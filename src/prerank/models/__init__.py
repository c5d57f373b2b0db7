"""Models: features in, a forecast out."""

from prerank.models.network import MixtureNetwork, mixture_from, perceptron

__all__ = [
    "MixtureNetwork",
    "mixture_from",
    "perceptron",
]
