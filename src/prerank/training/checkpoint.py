"""Checkpoints of a fit: one file, written whole, never unpickled."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch

from prerank._serialization import Format, refusing_forgery
from prerank.randomness import key
from prerank.training.batches import Batches
from prerank.training.fleet import Architecture, Fleet, Run
from prerank.training.options import FitOptions

_FORMAT = Format("checkpoint", 1, (1,), "; delete it to start afresh")
_WITHOUT_EFFECT = ("checkpoint", "checkpoint_seconds", "max_steps", "keep_on_interrupt")


@dataclass(eq=False)
class Checkpoint:
    """The fleet in training, the models that have left it, and where the loop stands."""

    fleet: Fleet
    done: list[Fleet]
    epoch: int
    step_in_epoch: int
    steps: int
    seconds: float


def fingerprint(runs: Sequence[Run], batches: Batches, architecture: Architecture, options: FitOptions) -> str:
    """A digest of the runs, the data and all options that change the result."""
    kept = {item.name: getattr(options, item.name) for item in fields(options) if item.name not in _WITHOUT_EFFECT}
    data = (batches.digest(), batches.size, batches.seeds)
    text = repr((list(runs), architecture, data, kept, batches.x.dtype))
    # a function prints its address, which no other process shares: Custom(f) is told by its name alone
    return str(key(0, re.sub(r" at 0x[0-9a-fA-F]+", "", text)))


def save_checkpoint(path: Path, saved: Checkpoint, fingerprint: str) -> None:
    """Write a checkpoint whole: a kill or a full disk leaves the previous one."""
    tensors = {f"fleet/{name}": tensor for name, tensor in saved.fleet.named_tensors().items()}
    for i, part in enumerate(saved.done):
        tensors |= {f"done.{i}/{name}": tensor for name, tensor in part.named_tensors().items()}
    about = {
        "fingerprint": fingerprint,
        "done": len(saved.done),
        "epoch": saved.epoch,
        "step_in_epoch": saved.step_in_epoch,
        "steps": saved.steps,
        "seconds": saved.seconds,
    }
    _FORMAT.write(path, tensors, about)


def load_checkpoint(path: Path, fingerprint: str, device: torch.device) -> Checkpoint:
    """Read a checkpoint; one that belongs to another fit, or is damaged, is refused."""
    tensors, about = _FORMAT.read(path)
    if about.get("fingerprint") != fingerprint:
        raise ValueError(
            f"{path} belongs to another fit (other runs, data or options); delete it, or give another path"
        )

    def part(prefix: str) -> Fleet:
        return Fleet.from_named(
            {name.removeprefix(prefix): own.to(device) for name, own in tensors.items() if name.startswith(prefix)}
        )

    with refusing_forgery(path, _FORMAT.kind):
        return Checkpoint(
            part("fleet/"),
            [part(f"done.{i}/") for i in range(about["done"])],
            about["epoch"],
            about["step_in_epoch"],
            about["steps"],
            about["seconds"],
        )
