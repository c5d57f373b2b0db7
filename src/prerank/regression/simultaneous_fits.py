"""Several regressors trained as one fleet, each on rows of its own."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from prerank.regression.fitting import Chosen, Task, train
from prerank.regression.regressor import MixtureRegressor
from prerank.training import Bar, Silent, TrainingSet, fit

_ALIKE = 0.9  # smallest share of the largest model's rows that a fleet is padded from


class Rows(NamedTuple):
    """What `fit` is given for one model: features, targets, weights, and a mask of the rows that validate."""

    x: Any
    y: Any
    sample_weight: Any = None
    validation_rows: Any = None


def fit_together(models: Sequence[MixtureRegressor], rows: Sequence[Rows]) -> None:
    """Fit models that differ in seed alone, in fleets of those with about as many rows.

    Shorter tables are filled up with rows of weight zero, so that their minibatches are a little smaller now and then; a
    model is otherwise what it would be alone. Models that choose their strength are fleets already, and trained in turn.
    """
    tasks = [model._task(*each) for model, each in zip(models, rows, strict=True)]
    for group in _alike(tasks):
        own = [tasks[i] for i in group]
        progress = Bar() if models[group[0]].verbose else Silent()
        if len(group) == 1 or own[0].tolerance is not None:
            for i in group:
                models[i]._keep(tasks[i], train(tasks[i], progress))
            continue
        # a seed stands for its rows in a fleet
        seeds = _distinct([task.seed for task in own])
        data = dict(zip(seeds, _filled([task.prepared.data for task in own]), strict=True))
        fleet = fit([task.runs[0] for task in own], data, own[0].options, progress)
        for place, i in enumerate(group):
            models[i]._keep(tasks[i], Chosen.only(fleet, place, tasks[i].prepared.data))


def _distinct(seeds: Sequence[int]) -> list[int]:
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"models of one fleet need seeds of their own, got {list(seeds)}")
    return list(seeds)


def _alike(tasks: Sequence[Task]) -> Iterator[list[int]]:
    """Places of tasks with the same options whose numbers of rows are near enough for one fleet, the largest first."""
    left = sorted(range(len(tasks)), key=lambda i: -len(tasks[i].prepared.data.x))
    while left:
        first = tasks[left[0]]
        fewest = _ALIKE * len(first.prepared.data.x)
        group = [i for i in left if len(tasks[i].prepared.data.x) >= fewest and tasks[i].options == first.options]
        yield sorted(group)
        left = [i for i in left if i not in group]


def _filled(sets: Sequence[TrainingSet]) -> list[TrainingSet]:
    """Sets of equal sizes: shorter ones repeat their first row with weight zero."""
    n_train, n_validation = max(len(each.x) for each in sets), max(len(each.x_validation) for each in sets)
    return [
        TrainingSet(
            _repeated(each.x, n_train),
            _repeated(each.y, n_train),
            _repeated(each.x_validation, n_validation),
            _repeated(each.y_validation, n_validation),
            _zeros_after(each.weights, each.x, n_train),
            _zeros_after(each.validation_weights, each.x_validation, n_validation),
        )
        for each in sets
    ]


def _repeated(values: Tensor, n_rows: int) -> Tensor:
    return torch.cat([values, values[:1].expand(n_rows - len(values), -1)])


def _zeros_after(weights: Tensor | None, values: Tensor, n_rows: int) -> Tensor | None:
    if weights is None and len(values) == n_rows:
        return None
    own = torch.ones_like(values[:, 0]) if weights is None else weights
    return torch.cat([own, own.new_zeros(n_rows - len(own))])
