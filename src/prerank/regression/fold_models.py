"""Models of the same kind, each fitted on rows of its own: networks as one fleet, anything else in turn."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter
from torch import Tensor

from prerank.randomness import key
from prerank.regression.fitting import Chosen, Task, train
from prerank.regression.regressor import MixtureRegressor
from prerank.training import Bar, Silent, TrainingSet, fit

Index = NDArray[np.int64]


class Rows(NamedTuple):
    """What `fit` is given for one model: features, targets, weights, and a mask of the rows that validate."""

    x: Any
    y: Any
    sample_weight: Any = None
    validation_rows: Any = None


class Job(NamedTuple):
    """One model: the rows that it is trained on, those that decide when to stop, if any, and its name.

    An estimator whose `fit` takes no `validation_rows` makes no use of the second.
    """

    train: Index
    stop: Index | None
    name: str


def fitted_models(
    estimator: Any, X: Any, y: Any, weights: np.ndarray | None, jobs: Sequence[Job], seed: int
) -> list[Any]:
    """A fitted copy of the estimator for every job, with a seed of its own. A pipeline's transformers see `train` alone."""
    models = [seeded_copy(estimator, key(seed, job.name) & 0x7FFFFFFF) for job in jobs]
    prepared = [_prepared(model, X, y, weights, job) for model, job in zip(models, jobs, strict=True)]
    last = [_last(model) for model in models]
    if weights is not None and not has_fit_parameter(last[0], "sample_weight"):
        raise TypeError(f"{type(last[0]).__name__}.fit takes no sample_weight; leave it out")
    if all(isinstance(each, MixtureRegressor) for each in last):
        fit_together(last, prepared)
        return models
    for each, rows in zip(last, prepared, strict=True):
        more = {name: value for name, value in zip(Rows._fields[2:], rows[2:], strict=True) if value is not None}
        each.fit(rows.x, rows.y, **more)
    return models


def seeded_copy(estimator: Any, seed: int) -> Any:
    """An unfitted copy whose `random_state`, or those of its parts, are set."""
    copy = clone(estimator)
    names = [name for name in copy.get_params() if name == "random_state" or name.endswith("__random_state")]
    return copy.set_params(**{name: key(seed, name) & 0x7FFFFFFF for name in sorted(names)}) if names else copy


def _last(model: Any) -> Any:
    return model.steps[-1][1] if isinstance(model, Pipeline) else model


def _prepared(model: Any, X: Any, y: Any, weights: np.ndarray | None, job: Job) -> Rows:
    """What the model itself, or a pipeline's last step, is fitted on; the steps before it are fitted here."""
    stop = job.stop if job.stop is not None and has_fit_parameter(_last(model), "validation_rows") else None
    rows = job.train if stop is None else np.concatenate([job.train, stop])
    mask = None if stop is None else np.arange(len(rows)) >= len(job.train)
    taken = _safe_indexing(X, rows)
    if isinstance(model, Pipeline) and len(model.steps) > 1:
        before = model[:-1]
        parts = [before.fit_transform(_safe_indexing(X, job.train), _safe_indexing(y, job.train))]
        model.steps[:-1] = before.steps  # with a cache the fitted ones are copies
        parts += [] if stop is None else [before.transform(_safe_indexing(X, stop))]
        frames = all(isinstance(part, pd.DataFrame) for part in parts)
        taken = pd.concat(parts) if frames else np.concatenate(parts)
    return Rows(taken, _safe_indexing(y, rows), None if weights is None else weights[rows], mask)


_ALIKE = 0.9  # smallest share of the largest model's rows that a fleet is padded from


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
