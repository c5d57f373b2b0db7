"""Missing values: which cases are left, which members are there, and what is said about the others."""

from typing import NamedTuple

import torch
from torch import Tensor

from prerank.arrays.fill_values import refuse_fill_values
from prerank.forecasts.ensemble import Ensemble
from prerank.inputs.survey import Survey


class Left(NamedTuple):
    """Which cases are left (N,), which members of all cases are there (N, M), None: all, and what is said of the rest."""

    cases: Tensor
    present: Tensor | None
    notes: list[str]


def observed_cases(y: Tensor) -> tuple[Tensor, list[str]]:
    """Which observations (N, D) are complete, and a note if others are not; infinite numbers and fill values are refused."""
    # the extremes first: a mask of a large array would copy it, and NaN is an extreme too
    if not bool(torch.stack(y.aminmax()).isfinite().all()) and bool(y.isinf().any()):
        raise ValueError(f"y has {int(y.isinf().sum())} infinite values; NaN marks a missing one")
    refuse_fill_values(y, "y")
    complete = (~y.isnan().any(-1)).cpu()
    if not complete.any():
        raise ValueError(f"no case is left: y has {len(y)} cases and each has a missing value")
    if complete.all():
        return complete, []
    return complete, [f"{int((~complete).sum())} of {len(y)} cases dropped: the observation is missing"]


def cases_with_members(found: Survey, present: Tensor | None, complete: Tensor, n_members: int, fewest: int) -> Left:
    """Of the `complete` cases those with members enough: `fewest`, if the ensemble has as many.

    `present` (N, M) says which members are there, where that is known of all cases at once.
    """
    if found.n_infinite:
        raise ValueError(f"members have {found.n_infinite} infinite values; NaN marks a missing one")
    found.fills.refuse("the members")
    if found.sizes is None:
        raise ValueError("no case is left: every member of every case has a missing value")
    left, notes, n_missing = complete.clone(), [], found.n_missing
    if len(found.empty):
        left[found.empty.cpu()] = False
        notes.append(f"{len(found.empty)} cases dropped: all their members are missing")
    if present is not None and found.fewest < min(fewest, n_members):
        few = left & (present.sum(-1).cpu() < fewest)
        left &= ~few
        if not left.any():
            raise ValueError(f"no case is left: each has fewer than {fewest} members without a missing value")
        notes.append(f"{int(few.sum())} cases dropped: fewer than {fewest} of their members are there")
        n_missing = int((~present[left.to(present.device)]).sum())
    if n_missing:
        notes.append(f"{n_missing} of {int(left.sum()) * n_members} members left out: they have missing values")
    return Left(left, present if n_missing else None, notes)


def without_gaps(forecast: Ensemble, present: Tensor) -> Ensemble:
    """The mean of those present in the place of members that are not, with a weight of zero."""
    weights = present.to(forecast.members)
    weights = weights if forecast.weights is None else weights * forecast.weights
    there = torch.where(present[..., None], forecast.members, 0.0)
    mean = there.sum(-2, keepdim=True) / present.sum(-1)[..., None, None]
    return Ensemble(torch.where(present[..., None], forecast.members, mean), weights, forecast.reference)
