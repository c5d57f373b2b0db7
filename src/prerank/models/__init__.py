"""Models: features in, a forecast out."""

from prerank.models.network import MixtureNetwork

__all__ = ["MixtureNetwork"]
