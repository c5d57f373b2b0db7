"""A calibrated estimator in one file: the files of its models and of its recalibrator, side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prerank._parameters import require_whole
from prerank._serialization import Format, refusing_forgery
from prerank._wording import counted
from prerank.recalibration import Recalibrator
from prerank.regression.regressor import MixtureRegressor

_FORMAT = Format("CalibratedRegressorCV", 1, (1,))

_KEYS = ("n_models", "names", "n_models_", "n_features_in_", "n_targets_", "target_names_", "_one_axis")


def write_parts(
    path: Path | str, models: Sequence[MixtureRegressor], recalibrator: Recalibrator | None, about: Mapping[str, Any]
) -> None:
    """Write models and recalibrator whole; what is not of this package is code, and is refused."""
    for part, kind in [*((model, MixtureRegressor) for model in models), (recalibrator, Recalibrator)]:
        if part is not None and type(part) is not kind:
            raise TypeError(
                f"{type(part).__name__} cannot be saved: a file holds models of MixtureRegressor and a Recalibrator, "
                "never code"
            )
    with TemporaryDirectory() as folder:
        tensors = {f"model {k}": _bytes_of(model, Path(folder) / f"{k}") for k, model in enumerate(models)}
        if recalibrator is not None:
            tensors["recalibrator"] = _bytes_of(recalibrator, Path(folder) / "recalibrator")
    _FORMAT.write(path, tensors, {**about, "n_models": len(models)})


def read_parts(path: Path | str) -> tuple[list[MixtureRegressor], Recalibrator | None, dict[str, Any]]:
    """What `write_parts` wrote."""
    tensors, about = _FORMAT.read(path)
    with TemporaryDirectory() as folder, refusing_forgery(path, _FORMAT.kind):
        if lacking := [name for name in _KEYS if name not in about]:
            raise ValueError(f"it lacks {lacking[0]}")
        count, files = require_whole(about["n_models"], "n_models"), {}
        expected = {f"model {k}" for k in range(count)} if count <= len(tensors) else set()
        if set(tensors) - {"recalibrator"} != expected:  # names become those of files
            raise ValueError(
                f"it holds {counted(len(tensors), 'part')} that are not those of {counted(count, 'model')}"
            )
        for name, content in tensors.items():
            files[name] = Path(folder) / name
            files[name].write_bytes(content.numpy().tobytes())
        models = [MixtureRegressor.load(files[f"model {k}"]) for k in range(count)]
        recalibrator = Recalibrator.load(files["recalibrator"]) if "recalibrator" in files else None
    return models, recalibrator, about


def _bytes_of(part: MixtureRegressor | Recalibrator, path: Path) -> Tensor:
    part.save(path)
    return torch.from_numpy(np.frombuffer(path.read_bytes(), dtype=np.uint8).copy())
