"""Which models are fitted on which rows, and whose forecasts of which rows a correction is learnt from.

A plan is made of the test parts of folds. What the correction is learnt from is always the kind of forecast that it will be
applied to, of rows that had no part in it: neither in training nor in early stopping.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from prerank.estimator.foldmodels import Index, Job


class Fold(NamedTuple):
    """Rows to fit on, and rows that are then forecast."""

    train: Index
    test: Index


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
    """The equal mixture of models that are each stopped by another fold, corrected on the last fold, which none saw."""
    parts = [fold.test for fold in folds]
    return _without(parts, len(parts) - 1)


def nested(folds: Sequence[Fold]) -> Plan:
    """The equal mixture of models that are each stopped by another fold.

    For every fold there is the mixture of models that never saw it; what those say of their folds is learnt from.
    """
    parts = [fold.test for fold in folds]
    plans = [_without(parts, i) for i in range(len(parts))]
    jobs = [job for plan in plans for job in plan.jobs]
    outside, first = [], 0
    for plan in plans:
        outside.append(Outside(plan.outside[0].rows, tuple(first + j for j in plan.outside[0].jobs)))
        first += len(plan.jobs)
    final = [Job(_joined(parts, {j}), parts[j], f"stopped by {j}") for j in range(len(parts))]
    return Plan([*jobs, *final], outside, tuple(range(len(jobs), len(jobs) + len(final))))


def _without(parts: Sequence[Index], i: int) -> Plan:
    """Models that never see part i, one stopped by every other part, and their forecast of part i."""
    jobs = [Job(_joined(parts, {i, j}), parts[j], f"without {i}, stopped by {j}") for j in range(len(parts)) if j != i]
    places = tuple(range(len(jobs)))
    return Plan(jobs, [Outside(parts[i], places)], places)


def _joined(parts: Sequence[Index], but: set[int]) -> Index:
    return np.concatenate([part for k, part in enumerate(parts) if k not in but])
