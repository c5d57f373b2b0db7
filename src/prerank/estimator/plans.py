"""Which models are fitted on which rows, and whose forecasts of which rows a correction is learnt from.

A plan is made of the test parts of folds. What the correction is learnt from is always the kind of forecast that it will be
applied to, of rows that had no part in it: neither in training nor in early stopping.
"""

import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import GroupKFold, KFold, check_cv

from prerank.estimator.foldmodels import Index, Job
from prerank.forecast import require_whole

HELD_OUT = 5
"""One in so many folds is held out of a pool."""
MODELS = 4
"""Models of a pool, at most."""


class Fold(NamedTuple):
    """Rows to fit on, and rows that are then forecast."""

    train: Index
    test: Index


def folds_by(cv: Any, X: Any, y: Any, groups: Any, seed: int) -> list[Fold]:
    """The folds of a number, shuffled, or by groups if there are some, or of a splitter of scikit-learn's."""
    if isinstance(cv, Integral) and not isinstance(cv, bool):
        n_splits = require_whole(cv, "cv", at_least=2)
        grouped = groups is not None
        cv = GroupKFold(n_splits) if grouped else KFold(n_splits, shuffle=True, random_state=seed & 0x7FFFFFFF)
    with warnings.catch_warnings():
        # groups serve the recalibrator's blocks too, so a splitter without use for them is nothing to warn of
        warnings.filterwarnings("ignore", message="The groups parameter is ignored")
        return [Fold(train, test) for train, test in check_cv(cv).split(X, y, groups)]


class Outside(NamedTuple):
    """Rows, and places of the jobs whose equal mixture forecasts them."""

    rows: Index
    jobs: tuple[int, ...]


class Plan(NamedTuple):
    """Models to fit, the forecasts to learn a correction from, and the models whose equal mixture is corrected."""

    jobs: list[Job]
    outside: list[Outside]
    final: tuple[int, ...]


def single(folds: Sequence[Fold], n_rows: int) -> Plan:
    """One model of all rows, corrected by what models of the folds say of the rows that they have not seen.

    Serves any folds; rows that no fold tests, as the first ones of a series, are fitted on and not learnt from.
    """
    jobs = [Job(fold.train, None, f"fold {k}") for k, fold in enumerate(folds)]
    outside = [Outside(fold.test, (k,)) for k, fold in enumerate(folds)]
    return Plan([*jobs, Job(np.arange(n_rows), None, "all rows")], outside, (len(jobs),))


def held_out(folds: Sequence[Fold]) -> Plan:
    """The equal mixture of models that are each stopped by another fold, corrected on the last folds, which none saw.

    A fifth of the folds is held out, and at most four models are trained, each on what is left.
    """
    tests = [fold.test for fold in folds]
    n_held_out = max(1, len(tests) // HELD_OUT)
    others, last = tests[:-n_held_out], np.concatenate(tests[-n_held_out:])
    jobs = [
        Job(np.concatenate([part for k, part in enumerate(others) if k != j]), stop, f"stopped by {j}")
        for j, stop in enumerate(others[:MODELS])
    ]
    places = tuple(range(len(jobs)))
    return Plan(jobs, [Outside(last, places)], places)
