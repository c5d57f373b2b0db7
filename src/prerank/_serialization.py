"""Fitted things in one file: tensors as safetensors, all else as JSON in its header. Nothing is unpickled.

The header also carries a digest of everything in the file, because safetensors itself does not notice a flipped bit.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from prerank._reading import require_regular
from prerank._wording import printable
from prerank._writing import whole_file
from prerank.preranks import HDR, PCA, Contrast, Copula, Dependency, Location, Marginal, Scale, SquaredDifference

_PRERANKS = {
    kind.__name__: kind
    for kind in (Marginal, Location, Scale, Dependency, PCA, HDR, Copula, Contrast, SquaredDifference)
}


@dataclass(frozen=True)
class Format:
    """What a file holds: the name of its class, the version that is written, those that can be read, and what to do else."""

    kind: str
    version: int
    readable: tuple[int, ...]
    remedy: str = ""

    def write(self, path: Path | str, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Write a file whole: a kill or a full disk leaves what was there before."""
        text = json.dumps({"format": f"prerank {self.kind}", "version": self.version, **about}, allow_nan=False)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        # one entry, because safetensors writes several in any order: the same model gives the same bytes
        content = save(tensors, metadata={"prerank": f"{_digest(text, tensors)} {text}"})
        with whole_file(path) as partial:
            partial.write_bytes(content)

    def read(self, path: Path | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and description of a file that `write` made; anything else is refused."""
        path = require_regular(path)
        try:
            return self._read(path)
        except ValueError as error:
            raise ValueError(f"{error}{self.remedy}") from error.__cause__

    def _read(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        if path.is_dir():
            raise ValueError(f"{path} is a folder; a saved {self.kind} is one file")
        try:
            with safe_open(path, framework="pt") as file:
                header = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        except FileNotFoundError:
            raise
        except (SafetensorError, OSError) as error:
            raise ValueError(
                f"{path} cannot be read as a saved {self.kind} ({error}); it is truncated or something else"
            ) from error
        if "prerank" not in header:
            raise ValueError(f"{path} is a safetensors file, but not a saved {self.kind}")
        digest, _, text = header["prerank"].partition(" ")
        if digest != _digest(text, tensors):
            raise ValueError(f"{path} is damaged, or not a saved {self.kind}: its contents do not match its digest")
        with refusing_forgery(path, self.kind):
            about = json.loads(text, parse_constant=_refuse_constant)
            kind, version = about["format"], about["version"]
        if kind != f"prerank {self.kind}":
            raise ValueError(f"{path} holds {printable(repr(kind))}, not a saved {self.kind}")
        if version not in self.readable:
            known = ", ".join(map(str, self.readable))
            raise ValueError(
                f"{path} has format version {printable(repr(version))}, this release reads {known}; "
                "use the one that wrote it"
            )
        return tensors, about


@contextmanager
def refusing_forgery(path: Path | str, kind: str) -> Iterator[None]:
    """One sentence for a file that is whole, and whose contents no release has written."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, RuntimeError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else printable(f"{error}")[:200]
        raise ValueError(
            f"{path} is no {kind} that a release has saved: its contents do not fit together ({type(error).__name__}: "
            f"{what}); fit it anew and save it again"
        ) from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\x1f{name} {tensor.dtype} {tuple(tensor.shape)}\x1f".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def encode(value: Any, what: str) -> Any:
    """A parameter as JSON: numbers, strings, lists, tuples, devices and the package's pre-ranks."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | list):
        return [encode(item, what) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encode(item, what) for item in value]}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    name = type(value).__name__
    if _PRERANKS.get(name) is type(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"prerank": name, "fields": {key: encode(item, what) for key, item in fields.items()}}
    raise TypeError(
        f"{what}={value!r} cannot be saved: a file holds numbers, strings and the pre-ranks {', '.join(_PRERANKS)}, "
        "never code"
    )


def decode(value: Any) -> Any:
    """What `encode` was given."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(decode(item) for item in value["tuple"])
    if "device" in value:
        return torch.device(value["device"])
    if value["prerank"] not in _PRERANKS:
        raise ValueError(f"the file names a pre-rank {value['prerank']!r} that this release does not know")
    return _PRERANKS[value["prerank"]](**{key: decode(item) for key, item in value["fields"].items()})
