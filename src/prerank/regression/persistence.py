"""A fitted estimator in one file (`prerank._serialization`), in this release's version or an older one."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from prerank._serialization import Format, decode, encode, refusing_forgery
from prerank.datasets import Standardiser
from prerank.models import LinearGaussian
from prerank.regression.dequantising import Dequantiser
from prerank.regression.discrete_targets import as_record, from_record
from prerank.regression.preparation import FeatureRange
from prerank.regression.settings import PAPER
from prerank.training import Architecture

# version 1 called the pre-ranks of a model `prerank`; 1 and 2 had the paper's settings alone
_FORMAT = Format("MixtureRegressor", 3, (1, 2, 3))
_PLAIN = (
    "_one_axis",
    "n_features_in_",
    "n_targets_",
    "target_names_",
    "seed_",
    "strength_",
    "validation_nll_",
    "reference_nll_",
    "uses_reference_",
    "likelihood_",
    "best_epoch_",
    "n_epochs_",
)
_SCALERS = ("x_scaler_", "y_scaler_")
_REFERENCE = ("slope", "level", "scale_tril")


def write_model(path: Path | str, parameters: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write the parameters and the fitted attributes `state` of an estimator."""
    tensors = {f"weights.{i}": tensor for i, tensor in enumerate(state["weights_"])}
    for name in _SCALERS:
        tensors[f"{name[:-1]}.mean"] = torch.from_numpy(state[name].mean)
        tensors[f"{name[:-1]}.scale"] = torch.from_numpy(state[name].scale)
    if state["feature_range_"] is not None:
        tensors["feature_range.low"] = torch.from_numpy(state["feature_range_"].low)
        tensors["feature_range.high"] = torch.from_numpy(state["feature_range_"].high)
    if state["reference_"] is not None:
        tensors |= {f"reference.{name}": getattr(state["reference_"], name) for name in _REFERENCE}
    fitted: dict[str, Any] = {name: _finite(state[name]) for name in _PLAIN}
    fitted["architecture_"] = asdict(state["architecture_"])
    fitted["dequantiser_"] = [as_record(support) for support in state["dequantiser_"].supports]
    if state["tuning_"] is not None:
        fitted["tuning_"] = state["tuning_"].to_dict("list")
    if "feature_names_in_" in state:
        fitted["feature_names_in_"] = list(state["feature_names_in_"])
    encoded = {name: encode(value, name) for name, value in parameters.items()}
    _FORMAT.write(path, tensors, {"parameters": encoded, "fitted": fitted})


def read_model(path: Path | str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the fitted attributes of an estimator that was written."""
    tensors, about = _FORMAT.read(path)
    with refusing_forgery(path, _FORMAT.kind):
        return _restored(tensors, about)


def _restored(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} has values that are no numbers")
        if name.endswith(".scale") and not bool((tensor > 0).all()):
            raise ValueError(f"{name} is not positive")
    parameters = {name: decode(value) for name, value in about["parameters"].items()}
    fitted = about["fitted"]
    if about["version"] == 1:
        parameters["preranks"] = parameters.pop("prerank")
    if about["version"] < 3:
        parameters = {**PAPER, **parameters}
        fitted |= {"target_names_": None, "reference_nll_": None, "uses_reference_": False, "likelihood_": "density"}
        fitted["dequantiser_"] = [None] * fitted["n_targets_"]
    state: dict[str, Any] = {name: fitted[name] for name in _PLAIN}
    state["validation_nll_"] = np.inf if fitted["validation_nll_"] is None else fitted["validation_nll_"]
    architecture = fitted["architecture_"]
    state["architecture_"] = Architecture(**{**architecture, "hidden": tuple(architecture["hidden"])})
    state["dequantiser_"] = Dequantiser(tuple(from_record(record) for record in fitted["dequantiser_"]))
    state["tuning_"] = pd.DataFrame(fitted["tuning_"]) if "tuning_" in fitted else None
    if "feature_names_in_" in fitted:
        state["feature_names_in_"] = np.array(fitted["feature_names_in_"], dtype=object)
    for name in _SCALERS:
        mean, scale = (tensors[f"{name[:-1]}.{part}"].numpy() for part in ("mean", "scale"))
        state[name] = Standardiser(mean, scale)
    low, high = (tensors.get(f"feature_range.{end}") for end in ("low", "high"))
    state["feature_range_"] = None if low is None or high is None else FeatureRange(low.numpy(), high.numpy())
    state["reference_"] = None
    if "reference.slope" in tensors:
        state["reference_"] = LinearGaussian(*(tensors[f"reference.{name}"] for name in _REFERENCE))
    n_weights = sum(name.startswith("weights.") for name in tensors)
    state["weights_"] = tuple(tensors[f"weights.{i}"] for i in range(n_weights))
    return parameters, state


def _finite(value: Any) -> Any:
    """None in the place of an infinite number, which JSON does not have."""
    return None if isinstance(value, float) and not np.isfinite(value) else value
