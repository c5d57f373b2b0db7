"""Features of the cases that a correction may depend on."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prerank.arrays import as_tensor

_FURTHEST = 3.0  # standard deviations: a case far out must not carry a correction with it


@dataclass(frozen=True, eq=False)
class Features:
    """Features (N, L) as given, standardised and clipped, and the centre and spread (L,) that they are standardised by."""

    raw: Tensor
    values: Tensor
    centre: Tensor
    spread: Tensor

    @classmethod
    def of(cls, given: Any, n_cases: int, device: torch.device) -> "Features":
        """Of held-out cases: by their own mean and standard deviation. A constant feature is zero everywhere."""
        raw = raw_features(given, n_cases).to(device)
        centre, spread = raw.mean(0), raw.std(0)
        return cls(raw, standardised(raw, centre, spread), centre, spread)


def raw_features(given: Any, n_cases: int) -> Tensor:
    """Features (N, L) in double precision, checked; one number per case is a single feature."""
    raw = as_tensor(given, "features").double()
    raw = raw[:, None] if raw.ndim == 1 else raw
    if raw.ndim != 2 or len(raw) != n_cases or raw.shape[1] == 0:
        raise ValueError(f"features have shape {tuple(raw.shape)}; a row for each of the {n_cases} cases is needed")
    bad = ~raw.isfinite().all(-1)
    if bool(bad.any()):
        raise ValueError(
            f"features are NaN or infinite in {int(bad.sum())} of {n_cases} cases, the first of them case "
            f"{int(bad.nonzero()[0])}; fill them in, or leave those cases out"
        )
    largest = float(raw.abs().max())
    if largest > 1e100:
        raise ValueError(f"features go up to {largest:.3g}, whose squares are no numbers; rescale them to below 1e100")
    return raw


def standardised(raw: Tensor, centre: Tensor, spread: Tensor) -> Tensor:
    """Features in units of their spread about their centre, clipped."""
    moved = (raw - centre.to(raw)) / torch.where(spread > 0, spread, torch.inf).to(raw)
    return moved.clamp(-_FURTHEST, _FURTHEST)
