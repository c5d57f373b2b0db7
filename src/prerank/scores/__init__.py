"""Proper scores of joint forecasts: one number per case, smaller is better."""

from prerank.scores.energy import energy_score
from prerank.scores.estimators import Estimator, Fair, Paper, TwoSets
from prerank.scores.likelihood import nll
from prerank.scores.univariate import crps
from prerank.scores.variogram import variogram_score

__all__ = [
    "Estimator",
    "Fair",
    "Paper",
    "TwoSets",
    "crps",
    "energy_score",
    "nll",
    "variogram_score",
]
