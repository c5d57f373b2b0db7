"""From a user's table to what a fit takes: rows split by seed, standardised by the training part, weights of mean one."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from prerank.data import DataError, Standardiser, keyed_order, require_variation
from prerank.training import TrainingSet

Array = NDArray[np.floating]


class Prepared(NamedTuple):
    """Standardised rows to train on and to stop by, and the way back."""

    data: TrainingSet
    x_scaler: Standardiser
    y_scaler: Standardiser


def prepare(
    x: Array,
    y: Array,
    weights: Array | None,
    validation_fraction: float,
    seed: int,
    target_names: Sequence[str],
    device: torch.device | str | None = None,
    validation_rows: NDArray[np.bool_] | None = None,
) -> Prepared:
    """Split x (N, L) and y (N, D) by seed, standardise both by the training rows, and bring them to the device.

    Rows of weight zero are left out before the split, so they have no influence at all. `validation_rows` (N,) says which
    rows validate; without it a share of them does. Networks have torch's default dtype; statistics are kept in double
    precision.
    """
    if weights is not None:
        kept = weights > 0
        x, y, weights = x[kept], y[kept], weights[kept]
        validation_rows = None if validation_rows is None else validation_rows[kept]
    if validation_rows is None:
        n_validation = max(1, int(validation_fraction * len(x)))
        rule = f"validation_fraction={validation_fraction:g}"
    else:
        n_validation, rule = int(validation_rows.sum()), "validation_rows"
    n_train = len(x) - n_validation
    if n_train < 2 or n_validation < 1:
        left = "" if weights is None else " of positive weight"
        raise DataError(
            f"n_samples={len(x)} rows{left} split into {max(n_train, 0)} to train on and {n_validation} to validate "
            f"({rule}); at least 2 and 1 are needed. Give more rows."
        )
    order = keyed_order(len(x), seed)
    if validation_rows is not None:
        order = np.concatenate([order[~validation_rows[order]], order[validation_rows[order]]])
    train, validation = order[:n_train], order[n_train:]
    remedy = "Give more rows, another random_state, or leave it out."
    require_variation(y[train], target_names, "training rows", remedy)
    if weights is not None and (weights == weights[0]).all():
        weights = None
    own, stopping = (None if weights is None else weights[part] / weights[part].mean() for part in (train, validation))
    x_scaler, y_scaler = (_standardiser(values[train], own) for values in (x, y))

    def ready(scaler: Standardiser, values: Array) -> torch.Tensor:
        return torch.as_tensor(scaler.apply(values), dtype=torch.get_default_dtype(), device=device)

    def tensor(values: Array | None) -> torch.Tensor | None:
        return None if values is None else torch.as_tensor(values, dtype=torch.get_default_dtype(), device=device)

    data = TrainingSet(
        ready(x_scaler, x[train]),
        ready(y_scaler, y[train]),
        ready(x_scaler, x[validation]),
        ready(y_scaler, y[validation]),
        tensor(own),
        tensor(stopping),
    )
    return Prepared(data, x_scaler, y_scaler)


def _standardiser(values: Array, weights: Array | None) -> Standardiser:
    """Weighted mean and standard deviation of the columns of `values` (n, K).

    A constant column keeps scale 1: divided by a tiny number instead, any other value met later would be enormous.
    """
    values = values.astype(np.float64)
    mean = np.average(values, axis=0, weights=weights)
    scale = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))
    constant = (values == values[0]).all(axis=0)
    return Standardiser(np.where(constant, values[0], mean), np.where(constant, 1.0, scale))
