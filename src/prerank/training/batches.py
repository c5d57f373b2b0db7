"""The rows that a fleet is trained on: one set per seed, on one device, and their shuffled minibatches by number."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from prerank._kernels import MINIBATCH, kernel_for
from prerank.models import LinearGaussian
from prerank.randomness import bits, key, mix
from prerank.training.fleet import Run


class TrainingSet(NamedTuple):
    """Standardised features and targets to train on and to stop by.

    Parameters
    ----------
    x : Tensor, shape (n_cases, n_features)
        Features of the training rows.
    y : Tensor, shape (n_cases, n_targets)
        Targets of the training rows.
    x_validation : Tensor, shape (n_validation, n_features)
        Features of the validation rows.
    y_validation : Tensor, shape (n_validation, n_targets)
        Targets of the validation rows.
    weights : Tensor, shape (n_cases,), optional
        Weights of the training rows; None means equal.
    validation_weights : Tensor, shape (n_validation,), optional
        Weights of the validation rows; None means equal.
    """

    x: Tensor
    y: Tensor
    x_validation: Tensor
    y_validation: Tensor
    weights: Tensor | None = None
    validation_weights: Tensor | None = None


class Batches:
    """The data of all seeds on one device, and their shuffled minibatches by number."""

    def __init__(self, sets: Sequence[TrainingSet], seeds: Sequence[int], batch_size: int) -> None:
        self.seeds = list(seeds)
        self.x = torch.stack([item.x for item in sets])
        self.y = torch.stack([item.y for item in sets])
        self.x_validation = torch.stack([item.x_validation for item in sets])
        self.y_validation = torch.stack([item.y_validation for item in sets])
        ones = torch.ones_like(self.y[0, :, 0])
        self.weights = torch.stack([ones if item.weights is None else item.weights.to(ones) for item in sets])
        ones = torch.ones_like(self.y_validation[0, :, 0])
        shares = [ones if item.validation_weights is None else item.validation_weights.to(ones) for item in sets]
        self.validation_shares = torch.stack([share / share.sum() for share in shares])
        self.n_rows = self.x.shape[1]
        self.size = min(batch_size, self.n_rows)
        self.per_epoch = -(-self.n_rows // self.size)
        self.keys = torch.tensor([key(seed, "batches") for seed in seeds], device=self.x.device)

    @staticmethod
    def of(runs: Sequence[Run], data: TrainingSet | Mapping[int, TrainingSet], batch_size: int) -> "Batches":
        if not runs:
            raise ValueError("no run to train: give at least one Run(seed=..., penalty=..., strength=...)")
        seeds = sorted({run.seed for run in runs})
        by_seed = dict.fromkeys(seeds, data) if isinstance(data, TrainingSet) else dict(data)
        lacking = [seed for seed in seeds if seed not in by_seed]
        if lacking:
            raise ValueError(f"no data for the seeds {lacking}; there are data for {sorted(by_seed)}")
        sets = [by_seed[seed] for seed in seeds]
        for item in sets:
            _refuse_bad_set(item)
        shapes = {tuple(tuple(part.shape) for part in item[:4]) for item in sets}
        if len(shapes) > 1:
            raise ValueError(f"the data of different seeds have different shapes: {sorted(shapes)}")
        return Batches(sets, seeds, batch_size)

    def references(self) -> dict[int, LinearGaussian]:
        """The linear-Gaussian reference of every seed's training rows."""
        parts = zip(self.seeds, self.x, self.y, self.weights, strict=True)
        return {seed: LinearGaussian.fit(x, y, weights) for seed, x, y, weights in parts}

    def digest(self) -> str:
        """A hash of all numbers, so that a checkpoint is not resumed on other data of the same size."""
        hashed = hashlib.blake2b(digest_size=16)
        parts = (self.x, self.y, self.x_validation, self.y_validation, self.weights, self.validation_shares)
        for tensor in parts:
            hashed.update(repr(tensor.shape).encode() + tensor.cpu().contiguous().numpy().tobytes())
        return hashed.hexdigest()

    def order(self, epoch: int) -> Tensor:
        """Row numbers (seeds, batches x size) of an epoch, shuffled by (seed, epoch); missing rows of the last are -1."""
        shuffled = bits(mix(self.keys + epoch), (self.n_rows,)).argsort(-1)
        missing = self.per_epoch * self.size - self.n_rows
        return torch.nn.functional.pad(shuffled, (0, missing), value=-1)

    def take(self, rows: Tensor, seed_of: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features, targets and weights (E, size, ...) of row numbers (seeds, size) for E models; weight 0 where missing.

        `seed_of` (E,) are the places of the models' seeds.
        """
        if fused := kernel_for(MINIBATCH, self.x):
            return fused(self.x, self.y, self.weights, rows, seed_of)
        seed = torch.arange(len(self.seeds), device=rows.device)[:, None]
        real = rows >= 0
        rows = rows.clamp_min(0)
        taken = self.x[seed, rows], self.y[seed, rows], self.weights[seed, rows] * real
        x, y, weights = (part[seed_of] for part in taken)
        return x, y, weights


def _refuse_bad_set(item: TrainingSet) -> None:
    shapes = {what: tuple(getattr(item, what).shape) for what in ("x", "y", "x_validation", "y_validation")}
    if any(len(shape) != 2 for shape in shapes.values()):
        raise ValueError(
            f"features and targets are tables (rows, columns), got {shapes}; use y[:, None] for one target"
        )
    if shapes["x"][1] != shapes["x_validation"][1] or shapes["y"][1] != shapes["y_validation"][1]:
        raise ValueError(f"training and validation rows differ in columns: {shapes}")
    dtypes = {tensor.dtype for tensor in item[:4]}
    if len(dtypes) > 1 or not item.x.is_floating_point():
        raise TypeError(f"features and targets must have one floating point type, got {sorted(map(str, dtypes))}")
    rows, validation = len(item.x), len(item.x_validation)
    if rows < 2 or validation < 1:
        raise ValueError(f"{rows} training and {validation} validation rows: at least 2 and 1 are needed")
    if len(item.y) != rows or len(item.y_validation) != validation:
        raise ValueError(
            f"features and targets differ in rows: {rows} and {len(item.y)} to train on, "
            f"{validation} and {len(item.y_validation)} to validate"
        )
    for what, tensor in zip(("x", "y", "x_validation", "y_validation"), item[:4], strict=True):
        bad = int((~tensor.isfinite()).any(-1).sum())
        if bad:
            raise ValueError(
                f"{what} has NaN or infinite values in {bad} of {len(tensor)} rows; drop or fill them first"
            )
    for weights, count, part in ((item.weights, rows, "training"), (item.validation_weights, validation, "validation")):
        if weights is None:
            continue
        if weights.shape != (count,):
            raise ValueError(f"weights have shape {tuple(weights.shape)} for {count} {part} rows; give one per row")
        bad = int((~weights.isfinite() | (weights < 0)).sum())
        if bad or not weights.sum() > 0:
            raise ValueError(f"weights must be finite, not negative and not all zero; {bad} of {count} are not")
