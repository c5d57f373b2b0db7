"""Training calibrated joint forecasts: the pre-rank penalty, fleets of networks, tuning and evaluation."""

from prerank.training.batches import TrainingSet
from prerank.training.evaluation import evaluate
from prerank.training.fitted import FittedFleet
from prerank.training.fleet import Architecture, Run
from prerank.training.loop import fit
from prerank.training.objective import EnergyScore, NegativeLogLikelihood
from prerank.training.options import FitOptions
from prerank.training.penalty import PreRankPenalty
from prerank.training.progress import Bar, Progress, Silent
from prerank.training.protocols import ForecastSizes, Numbers, Penalty, Score, SharedNumbers, Stream, declares_capture
from prerank.training.tuning import PAPER_STRENGTHS, Tuned, choose_strength, tune

__all__ = [
    "PAPER_STRENGTHS",
    "Architecture",
    "Bar",
    "EnergyScore",
    "FitOptions",
    "FittedFleet",
    "ForecastSizes",
    "NegativeLogLikelihood",
    "Numbers",
    "Penalty",
    "PreRankPenalty",
    "Progress",
    "Run",
    "Score",
    "SharedNumbers",
    "Silent",
    "Stream",
    "TrainingSet",
    "Tuned",
    "choose_strength",
    "declares_capture",
    "evaluate",
    "fit",
    "tune",
]
