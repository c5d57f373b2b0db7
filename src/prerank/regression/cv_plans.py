"""Which models are fitted on which rows, and whose forecasts of which rows a correction is learnt from.

A plan is made of the test parts of folds. What the correction is learnt from is always the kind of forecast that it will be
applied to, of rows that had no part in it: neither in training nor in early stopping.
"""

import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import GroupKFold, KFold

from prerank._parameters import require_whole
from prerank._wording import counted
from prerank.arrays.case_labels import label_array
from prerank.regression.fold_models import Index, Job

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
    groups = None if groups is None else label_array(groups, "groups", len(y))
    if isinstance(cv, Integral) and not isinstance(cv, bool):
        n_splits = require_whole(cv, "cv", at_least=2)
        grouped = groups is not None
        cv = GroupKFold(n_splits) if grouped else KFold(n_splits, shuffle=True, random_state=seed & 0x7FFFFFFF)
    with warnings.catch_warnings():
        # groups serve the recalibrator's blocks too, so a splitter without use for them is nothing to warn of
        warnings.filterwarnings("ignore", message="The groups parameter is ignored")
        return separate(_pairs(cv, X, y, groups), np.shape(X)[0] if y is None else len(y), cv)


def _pairs(cv: Any, X: Any, y: Any, groups: Any) -> list[Any]:
    """Training and test rows as a splitter, or a list of them, gives them."""
    if isinstance(cv, str | bytes | type) or not (hasattr(cv, "split") or hasattr(cv, "__iter__")):
        raise TypeError(
            f"cv={cv!r}: a number of folds of at least 2, a splitter such as KFold(5), or pairs of training and test rows"
        )
    pairs = [tuple(pair) for pair in (cv.split(X, y, groups) if hasattr(cv, "split") else cv)]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"cv={cv!r} has {counted(len(pairs), 'fold')}; pairs (training rows, test rows) are needed")
    return pairs


def separate(pairs: Sequence[Any], n_rows: int, cv: Any) -> list[Fold]:
    """Folds of row numbers or masks, refused where a row is tested twice, or by a model that is trained on it."""
    folds = []
    for k, (train, test) in enumerate(pairs):
        fold = Fold(
            _row_numbers(train, n_rows, f"the training rows of fold {k}"), _row_numbers(test, n_rows, f"fold {k}")
        )
        both = np.intersect1d(fold.train, fold.test)
        if len(both):
            raise ValueError(
                f"cv: fold {k} tests {len(both)} of its {len(fold.test)} rows by a model that is trained on them, the first "
                f"row {int(both[0])}; a row that is learnt from has no part in its own forecast: take test rows out of the "
                "training rows"
            )
        folds.append(fold)
    tested = np.bincount(np.concatenate([fold.test for fold in folds]), minlength=n_rows)
    if (tested > 1).any():
        raise ValueError(
            f"cv={cv!r} tests {int((tested > 1).sum())} of {n_rows} rows more than once, and a row can be learnt "
            "from once; use folds without repetition, such as KFold"
        )
    return folds


def _row_numbers(rows: Any, n_rows: int, what: str) -> Index:
    found = np.asarray(rows)
    if found.dtype == bool and found.shape == (n_rows,):
        found = np.flatnonzero(found)
    if found.ndim != 1 or not len(found) or found.dtype.kind not in "iu":
        raise ValueError(
            f"cv: {what} has shape {found.shape} and type {found.dtype}; numbers of rows, at least one, are needed"
        )
    outside = (found < 0) | (found >= n_rows)
    if outside.any():
        raise ValueError(f"cv: {what} has row {int(found[outside][0])}, but rows are numbered from 0 to {n_rows - 1}")
    if len(np.unique(found)) < len(found):
        raise ValueError(f"cv: {what} names {len(found) - len(np.unique(found))} rows more than once; name each once")
    return found.astype(np.int64)


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
