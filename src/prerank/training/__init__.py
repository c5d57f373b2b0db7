"""Training calibrated joint forecasts: the pre-rank penalty, fleets of networks, tuning and evaluation."""

from prerank.training.fit import FitOptions, FittedFleet, TrainingSet, fit
from prerank.training.fleet import Architecture, Penalty, Run
from prerank.training.objective import EnergyScore, NegativeLogLikelihood
from prerank.training.penalty import PreRankPenalty

__all__ = [
    "Architecture",
    "EnergyScore",
    "FitOptions",
    "FittedFleet",
    "NegativeLogLikelihood",
    "Penalty",
    "PreRankPenalty",
    "Run",
    "TrainingSet",
    "fit",
]
