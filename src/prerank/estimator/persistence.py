"""A fitted estimator in one file (`prerank.saving`), in this release's version or an older one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from prerank.saving import Format

_VERSION = 2  # 1 called the pre-ranks of a model `prerank`
_READABLE = (1, 2)


def write(path: Path | str, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write a file whole: a kill or a full disk leaves what was there before."""
    Format("MixtureRegressor", _VERSION, _READABLE).write(path, tensors, about)


def read(path: Path | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and description of a file that `write` made; anything else is refused."""
    tensors, about = Format("MixtureRegressor", _VERSION, _READABLE).read(path)
    if about["version"] == 1:
        about["parameters"]["preranks"] = about["parameters"].pop("prerank")
    return tensors, about
