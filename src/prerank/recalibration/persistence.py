"""Fitted steps in one file: their tensors as safetensors, their other fields as JSON."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from prerank.recalibration.affine import FittedAffine
from prerank.recalibration.dressing import FittedDressing
from prerank.recalibration.guard import Verdict
from prerank.recalibration.steps import Fitted
from prerank.recalibration.tilt import FittedTilt
from prerank.saving import Format, decode, encode

_FORMAT = Format("Recalibrator", 1, (1,))
_STEPS: dict[str, Any] = {kind.__name__: kind for kind in (FittedAffine, FittedDressing, FittedTilt)}


def write(path: Path | str, steps: tuple[Fitted, ...], about: Mapping[str, Any]) -> None:
    """Write steps and what else is known about them, whole."""
    tensors: dict[str, Tensor] = {}
    described = []
    for place, step in enumerate(steps):
        name = type(step).__name__
        if _STEPS.get(name) is not type(step):
            raise TypeError(f"the step {step!r} cannot be saved: a file holds {', '.join(_STEPS)}, never code")
        fields = {field.name: getattr(step, field.name) for field in dataclasses.fields(step)}  # type: ignore[arg-type]
        # copies, because steps may share a tensor, and a file may not
        tensors |= {f"{place}.{key}": value.clone() for key, value in fields.items() if isinstance(value, Tensor)}
        rest = {key: encode(value, key) for key, value in fields.items() if not isinstance(value, Tensor)}
        described.append({"step": name, "fields": rest})
    _FORMAT.write(path, tensors, {**about, "steps": described})


def read(path: Path | str) -> tuple[tuple[Fitted, ...], dict[str, Any]]:
    """What `write` wrote."""
    tensors, about = _FORMAT.read(path)
    steps = []
    for place, item in enumerate(about["steps"]):
        fields = {key: decode(value) for key, value in item["fields"].items()}
        own = f"{place}."
        fields |= {key.removeprefix(own): value for key, value in tensors.items() if key.startswith(own)}
        if "verdict" in fields:
            fields["verdict"] = Verdict(*fields["verdict"])
        steps.append(_STEPS[item["step"]](**fields))
    return tuple(steps), about
