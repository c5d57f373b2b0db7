"""What comes into an estimator: features as scikit-learn has them, targets and weights as the library's other inputs."""

from collections.abc import Sized
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length, validate_data
from torch import Tensor
from torch.distributions import Distribution

from prerank.arrays.conversion import as_tensor, described, without_mask
from prerank.forecasts import Ensemble, Forecast
from prerank.inputs.checks import require_case_weights, require_observations

Array = NDArray[np.floating]


class Targets(NamedTuple):
    """Values (N, D) in the precision that they came in, names where they have some, and whether they had one axis."""

    values: Array
    names: list[str] | None
    one_axis: bool


def features_of(estimator: Any, X: Any, *, reset: bool, **options: Any) -> NDArray[Any]:
    """Features (N, L), noted by the estimator in a fit (`reset`) and compared with those of the fit otherwise."""
    X = without_mask(X)
    _require_numbers(X, "X")
    return validate_data(estimator, X, reset=reset, **options)


def table_of(estimator: Any, X: Any, *, reset: bool) -> Any:
    """The same where X is handed on to estimators that judge what is in it."""
    X = without_mask(X)
    shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
    if len(shape) != 2:
        raise ValueError(
            f"X has shape {shape}; it is a table (rows, features). Reshape your data: X.reshape(1, -1) is one row"
        )
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    return X


def require_targets(estimator: Any, y: Any) -> None:
    """Refuse a fit without targets, in scikit-learn's words."""
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None; give targets")


def targets_of(estimator: Any, y: Any, X: Any) -> Targets:
    """Targets for the rows of X, all of them numbers."""
    require_targets(estimator, y)
    values = target_values(y)
    if values.ndim not in (1, 2) or not values.size:
        raise ValueError(f"y has shape {values.shape}; targets are (rows,) or (rows, targets), at least one")
    check_consistent_length(X, values)
    require_observations(torch.from_numpy(values if values.ndim == 2 else values[:, None]), "drop those rows")
    return Targets(values if values.ndim == 2 else values[:, None], target_names(y), values.ndim == 1)


def target_names(y: Any) -> list[str] | None:
    """The names of the targets, where they have some."""
    if isinstance(y, pd.DataFrame):
        return [str(name) for name in y.columns]
    return [str(y.name)] if isinstance(y, pd.Series) and y.name is not None else None


def target_values(y: Any) -> Array:
    """Targets as they lie, in single precision if they came in it, otherwise in double."""
    y = without_mask(y)
    _require_numbers(y, "y")
    kind = getattr(y, "dtype", None)
    try:
        # torch wants an array that can be written to
        return np.array(y, dtype=np.float32 if kind == np.float32 else np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"y is {described(y)} that holds other things than numbers; convert text and dates first"
        ) from None


def weights_of(sample_weight: Any, rows: Sized) -> NDArray[np.float64] | None:
    """Weights (N,) of rows: finite, none negative, not all zero."""
    if sample_weight is None:
        return None
    weights = as_tensor(sample_weight, "sample_weight").double()
    return require_case_weights(weights, "sample_weight", (len(rows),)).cpu().numpy()


def observed_for(y: Any, forecast: Forecast) -> Tensor:
    """Targets (N, D) or (N,) as observations (N, D), where the forecast is."""
    values = target_values(y).astype(np.float64)
    place = getattr(forecast, "members", getattr(forecast, "loc", None))
    device = None if place is None else place.device
    return torch.as_tensor(values[:, None] if values.ndim == 1 else values, device=device)


def row_mask(values: Any, n_rows: int) -> NDArray[np.bool_]:
    """`validation_rows` as a mask (N,)."""
    mask = np.asarray(values)
    if mask.dtype != bool or mask.shape != (n_rows,):
        raise ValueError(
            f"validation_rows has shape {mask.shape} and type {mask.dtype}; it is a mask of True and False, ({n_rows},)"
        )
    return mask


def _require_numbers(value: Any, what: str) -> None:
    """Refuse what is no array of numbers, before NumPy says so in its own words."""
    remedy = "pass an array of numbers or a DataFrame"
    if isinstance(value, pd.DataFrame | pd.Series) or hasattr(type(value), "toarray") or value is None:
        return  # what is sparse, or nothing, scikit-learn refuses in words of its own
    if isinstance(value, dict | set | str | bytes | type | Ensemble | Distribution) or callable(value):
        raise TypeError(f"{what} is {described(value)}; {remedy}")
    try:
        kind = np.asarray(value).dtype
    except ValueError:
        raise ValueError(f"{what} has rows of different lengths; give every row the same length") from None
    if kind.kind == "c":
        raise ValueError(
            f"Complex data not supported: {what} has dtype {kind}; pass real and imaginary parts side by side"
        )
