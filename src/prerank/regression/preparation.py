"""From a user's table to what a fit takes: rows split by seed, standardised by the training part, weights of mean one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from prerank.datasets import Standardiser
from prerank.datasets.standardise import require_variation
from prerank.forecasts import GaussianMixture
from prerank.io import DataError
from prerank.randomness import keyed_order
from prerank.regression.dequantising import Dequantiser
from prerank.training import TrainingSet

KNEE = 4.0
"""Standard deviations from the mean beyond which a bounded feature grows like a logarithm."""


@dataclass(frozen=True, eq=False)
class FeatureRange:
    """Smallest and largest value (L,) of each standardised feature among the training rows.

    >>> seen = FeatureRange(np.array([-1.0, -2.0]), np.array([1.0, 9.0]))
    >>> x = np.array([[0.5, 8.0], [1.5, 0.0]])
    >>> seen.outside(x)
    array([False,  True])
    >>> seen.bounded(x).round(2)
    array([[0.5 , 5.61],
           [1.  , 0.  ]])
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @staticmethod
    def of(values: NDArray[np.floating]) -> "FeatureRange":
        """The range of training rows (n, L)."""
        return FeatureRange(values.min(0).astype(np.float64), values.max(0).astype(np.float64))

    def outside(self, values: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Which rows of `values` (N, L) have a feature outside the range, (N,)."""
        return np.any((values < self.low) | (values > self.high), axis=-1)

    def bounded(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """Features within the range, and those far from the mean drawn in: x -> 4 + log(x - 3) beyond 4."""
        within = np.clip(values, self.low, self.high).astype(values.dtype)
        size = np.abs(within)
        drawn_in = KNEE + np.log1p(np.maximum(size - KNEE, 0.0))
        return np.where(size > KNEE, np.copysign(drawn_in, within), within).astype(values.dtype)


Array = NDArray[np.floating]

_LARGEST = 1e100  # its square is a number still
_SMALLEST = 1e-100


class PreparedRows(NamedTuple):
    """Standardised rows to train on and to stop by, and the way back."""

    data: TrainingSet
    x_scaler: Standardiser
    y_scaler: Standardiser
    features: FeatureRange
    dequantiser: Dequantiser


def prepare(
    x: Array,
    y: Array,
    weights: Array | None,
    validation_fraction: float,
    seed: int,
    target_names: Sequence[str],
    device: torch.device | str | None = None,
    validation_rows: NDArray[np.bool_] | None = None,
    *,
    bound_features: bool = False,
    dequantise: bool = False,
) -> PreparedRows:
    """Split x (N, L) and y (N, D) by seed, standardise both by the training rows, and bring them to the device.

    Rows of weight zero are left out before the split, so they have no influence at all. `validation_rows` (N,) says which
    rows validate; without it a share of them does. Networks have torch's default dtype; statistics are kept in double
    precision. With `bound_features` the standardised features are drawn into the range of the training rows, with
    `dequantise` targets with atoms are spread over their cells.
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
    for values, name in ((x, "X"), (y, "y")):
        _require_sizes(values, name)
    order = keyed_order(len(x), seed)
    if validation_rows is not None:
        order = np.concatenate([order[~validation_rows[order]], order[validation_rows[order]]])
    train, validation = order[:n_train], order[n_train:]
    remedy = "Give more rows, another random_state, or leave it out."
    require_variation(y[train], target_names, "training rows", remedy)
    dequantiser = Dequantiser.of(y) if dequantise else Dequantiser((None,) * y.shape[1])
    if dequantiser.has_atoms:
        y = dequantiser.dequantised(y, seed)
    if weights is not None and (weights == weights[0]).all():
        weights = None
    own, stopping = (None if weights is None else weights[part] / weights[part].mean() for part in (train, validation))
    x_scaler, y_scaler = (_standardiser(values[train], own, name) for values, name in ((x, "X"), (y, "y")))
    standard = x_scaler.apply(x.astype(np.float64))
    features = FeatureRange.of(standard[train])
    if bound_features:
        standard = features.bounded(standard)

    def tensor(values: Array) -> torch.Tensor:
        return torch.as_tensor(values, dtype=torch.get_default_dtype(), device=device)

    targets = y_scaler.apply(y)
    data = TrainingSet(
        tensor(standard[train]),
        tensor(targets[train]),
        tensor(standard[validation]),
        tensor(targets[validation]),
        None if own is None else tensor(own),
        None if stopping is None else tensor(stopping),
    )
    return PreparedRows(data, x_scaler, y_scaler, features, dequantiser)


def _require_sizes(values: Array, name: str) -> None:
    largest = float(np.abs(values).max(initial=0.0))
    if largest > _LARGEST:
        raise DataError(
            f"{name} has values as large as {largest:.3g}, whose squares are no numbers; rescale it to below 1e100."
        )


def _standardiser(values: Array, weights: Array | None, name: str) -> Standardiser:
    """Weighted mean and standard deviation of the columns of `values` (n, K).

    A constant column keeps scale 1: divided by a tiny number instead, any other value met later would be enormous.
    """
    values = values.astype(np.float64)
    mean = np.average(values, axis=0, weights=weights)
    scale = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))
    constant = (values == values[0]).all(axis=0)
    flat = ~constant & (scale < _SMALLEST)
    if flat.any():
        raise DataError(
            f"column {int(flat.argmax())} of {name} has a standard deviation of {scale[flat.argmax()]:.3g}, too small to "
            "divide by; rescale it."
        )
    return Standardiser(np.where(constant, values[0], mean), np.where(constant, 1.0, scale))


def in_target_units(law: GaussianMixture, scaler: Standardiser) -> GaussianMixture:
    r"""The law of $s \odot Y + m$: means scaled and moved, the rows of the Cholesky factors scaled, weights untouched.

    >>> import numpy as np, torch
    >>> law = GaussianMixture(torch.zeros(1, 1), torch.zeros(1, 1, 2), torch.eye(2)[None, None])
    >>> moved = in_target_units(law, Standardiser(np.array([10.0, 20.0]), np.array([2.0, 3.0])))
    >>> moved.mean, moved.variance
    (tensor([[10., 20.]]), tensor([[4., 9.]]))
    """
    scale = law.loc.new_tensor(scaler.scale)
    return GaussianMixture(law.logits, scaler.inverse(law.loc), law.scale_tril * scale[:, None])
