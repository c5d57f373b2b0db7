"""Training calibrated joint forecasts: the pre-rank penalty, fleets of networks, tuning and evaluation."""

from prerank.training.batches import TrainingSet
from prerank.training.evaluate import evaluate
from prerank.training.fit import FitOptions, FittedFleet, fit
from prerank.training.fleet import Architecture, Penalty, Run
from prerank.training.objective import EnergyScore, NegativeLogLikelihood
from prerank.training.penalty import PreRankPenalty
from prerank.training.progress import Bar, Silent
from prerank.training.published import PublishedPenalty, published_pce
from prerank.training.tune import PAPER_STRENGTHS, Tuned, choose_strength, tune

__all__ = [
    "PAPER_STRENGTHS",
    "Architecture",
    "Bar",
    "EnergyScore",
    "FitOptions",
    "FittedFleet",
    "NegativeLogLikelihood",
    "Penalty",
    "PreRankPenalty",
    "PublishedPenalty",
    "Run",
    "Silent",
    "TrainingSet",
    "Tuned",
    "choose_strength",
    "evaluate",
    "fit",
    "published_pce",
    "tune",
]
