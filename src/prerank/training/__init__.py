"""Training calibrated joint forecasts: the pre-rank penalty, fleets of networks, tuning and evaluation."""

from prerank.training.batches import TrainingSet
from prerank.training.evaluate import (
    Column,
    column_of,
    evaluate,
    exact_errors,
    exact_scores,
    points_per_case,
    some_models_at_a_time,
)
from prerank.training.fitted import FittedFleet
from prerank.training.fleet import Architecture, Run, forecast_of
from prerank.training.loop import fit
from prerank.training.objective import EnergyScore, NegativeLogLikelihood
from prerank.training.options import FitOptions
from prerank.training.penalty import PreRankPenalty, listed
from prerank.training.progress import Bar, Progress, Silent, Stopwatch
from prerank.training.terms import Numbers, Penalty, Score, SharedNumbers, Sizes, Stream, declares_capture
from prerank.training.tuning import PAPER_STRENGTHS, Tuned, choose_strength, tune

__all__ = [
    "PAPER_STRENGTHS",
    "Architecture",
    "Bar",
    "Column",
    "EnergyScore",
    "FitOptions",
    "FittedFleet",
    "NegativeLogLikelihood",
    "Numbers",
    "Penalty",
    "PreRankPenalty",
    "Progress",
    "Run",
    "Score",
    "SharedNumbers",
    "Silent",
    "Sizes",
    "Stopwatch",
    "Stream",
    "TrainingSet",
    "Tuned",
    "choose_strength",
    "column_of",
    "declares_capture",
    "evaluate",
    "exact_errors",
    "exact_scores",
    "fit",
    "forecast_of",
    "listed",
    "points_per_case",
    "some_models_at_a_time",
    "tune",
]
