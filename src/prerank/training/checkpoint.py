"""Checkpoints of a fit: safetensors and JSON in one file, written atomically, never unpickled."""

import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from prerank._reading import require_regular
from prerank._writing import whole_file
from prerank.training.fleet import Fleet


@dataclass(eq=False)
class Checkpoint:
    """The fleet in training, the models that have left it, and where the loop stands."""

    fleet: Fleet
    done: list[Fleet]
    epoch: int
    step_in_epoch: int
    steps: int
    seconds: float


def save_checkpoint(path: Path, saved: Checkpoint, fingerprint: str) -> None:
    """Write a checkpoint whole: a kill or a full disk leaves the previous one."""
    tensors = {f"fleet/{name}": tensor.contiguous() for name, tensor in saved.fleet.named_tensors().items()}
    for i, part in enumerate(saved.done):
        tensors.update({f"done.{i}/{name}": tensor.contiguous() for name, tensor in part.named_tensors().items()})
    about = {
        "fingerprint": fingerprint,
        "done": len(saved.done),
        "epoch": saved.epoch,
        "step_in_epoch": saved.step_in_epoch,
        "steps": saved.steps,
        "seconds": saved.seconds,
        "checksum": _checksum(tensors),
    }
    with whole_file(path) as partial:
        save_file(tensors, partial, metadata={"prerank": json.dumps(about)})


def _checksum(tensors: dict[str, Tensor]) -> int:
    """CRC-32 of all numbers, by name: a bit that flipped on a disk would otherwise train on unnoticed."""
    value = 0
    for name in sorted(tensors):
        value = zlib.crc32(tensors[name].cpu().contiguous().numpy().tobytes(), zlib.crc32(name.encode(), value))
    return value


def load_checkpoint(path: Path, fingerprint: str, device: torch.device) -> Checkpoint:
    """Read a checkpoint; one that belongs to another fit, or is damaged, is refused."""
    require_regular(path)
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            about = json.loads((file.metadata() or {}).get("prerank", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a readable checkpoint ({error}); delete it to start afresh") from error
    if about.get("fingerprint") != fingerprint:
        raise ValueError(
            f"{path} belongs to another fit (other runs, data or options); delete it, or give another path"
        )
    if about.get("checksum") != _checksum(tensors):
        raise ValueError(f"{path} is damaged: its numbers do not match their checksum; delete it to start afresh")

    def part(prefix: str) -> Fleet:
        return Fleet.from_named(
            {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        )

    return Checkpoint(
        part("fleet/"),
        [part(f"done.{i}/") for i in range(about["done"])],
        about["epoch"],
        about["step_in_epoch"],
        about["steps"],
        about["seconds"],
    )
