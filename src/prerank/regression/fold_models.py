"""Models of the same kind, each fitted on rows of its own: networks as one fleet, anything else in turn."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from prerank.randomness import key
from prerank.regression.regressor import MixtureRegressor
from prerank.regression.simultaneous_fits import Rows, fit_together

Index = NDArray[np.int64]


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
