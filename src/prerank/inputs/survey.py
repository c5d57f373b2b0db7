"""What there is to know about the members of some cases before any is ranked: missing ones, sizes, suspicious orders."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.forecasts.ensemble import Ensemble
from prerank.inputs.checks import Fills, fills_of, refuse_fill_values
from prerank.inputs.rescaling import Magnitudes


class Sorted(NamedTuple):
    """Whether members rise, or fall, in every case and target, and the log of how many orders they could have had."""

    rise: bool = True
    fall: bool = True
    log_orders: float = 0.0

    def joined(self, more: "Sorted") -> "Sorted":
        """Of two sets of cases together."""
        return Sorted(self.rise and more.rise, self.fall and more.fall, self.log_orders + more.log_orders)


class Survey(NamedTuple):
    """What is known about members; that of two sets of cases can be joined.

    `empty` are the places of cases without members, `n_missing` is the number of other members that are missing, `fewest`
    the smallest number of members that another case has. `early` are members of the first cases.
    """

    n_infinite: int
    fills: Fills
    moved: str | None
    empty: Tensor
    n_missing: int
    fewest: int
    sizes: Magnitudes | None
    order: Sorted
    early: Tensor

    def joined(self, more: "Survey") -> "Survey":
        """That of two sets of cases together."""
        sizes = self.sizes or more.sizes
        if self.sizes is not None and more.sizes is not None:
            sizes = self.sizes.joined(more.sizes)
        return Survey(
            self.n_infinite + more.n_infinite,
            self.fills.joined(more.fills),
            self.moved or more.moved,
            torch.cat([self.empty, more.empty]),
            self.n_missing + more.n_missing,
            min(self.fewest, more.fewest),
            sizes,
            self.order.joined(more.order),
            self.early if len(self.early) else more.early,
        )


def survey(members: Tensor, places: Tensor, complete: Tensor, moved: str | None = None) -> Survey:
    """Look at members (n, M, D) of the cases at some places; `complete` (n,) says whose observations are.

    Infinite numbers and fill values are counted in all cases, everything else where observations are complete. `moved` is
    what is to be said of their precision.
    """
    n_infinite = 0 if _all_finite(members) else int(members.isinf().sum())
    fills = fills_of(members)
    if not complete.all():
        members, places = members[complete], places[complete]
    missing = members.isnan().any(-1)
    empty = missing.all(-1)
    partly = missing & ~empty[:, None]
    there = (~missing).sum(-1)[~empty]
    some = bool(missing.any())
    points = members[~missing] if some else members.flatten(0, -2)
    return Survey(
        n_infinite,
        fills,
        moved,
        places[empty],
        int(partly.sum()),
        int(there.min()) if len(there) else members.shape[1],
        Magnitudes.of(points) if len(points) else None,
        sorted_members(members, ~missing if some else None),
        first_members(members[~empty] if bool(empty.any()) else members).clone(),
    )


def _all_finite(members: Tensor) -> bool:
    """Whether there is neither NaN nor infinity; a mask of a large ensemble would copy it."""
    return members.numel() == 0 or bool(torch.stack(members.aminmax()).isfinite().all())


def first_members(members: Tensor) -> Tensor:
    """About 20,000 values of each target, from the first cases, (n, M, D)."""
    return members[: max(1, 20_000 // members.shape[1])]


def sorted_members(members: Tensor, present: Tensor | None) -> Sorted:
    """Whether members (N, M, D) are sorted in all cases where every one is present."""
    if members.shape[-1] < 2 or members.shape[-2] < 3:
        return Sorted(False, False)
    members = members if present is None else members[present.all(-1)]
    if len(members) == 0:
        return Sorted()

    def ordered(sign: int) -> bool:  # a few cases settle it as a rule
        return all(bool((sign * part.diff(dim=-2) >= 0).all()) for part in (members[:5], members))

    rise, fall = ordered(1), ordered(-1)
    return Sorted(rise, fall, -_log_chance(members) if rise or fall else 0.0)


def _log_chance(members: Tensor) -> float:
    """Log of a bound on the probability that exchangeable members are sorted in every case and target.

    In one target of one case the M members stand in each of their M! / (t_1! t_2! ...) different orders with the same
    probability, t being the sizes of groups of equal ones. Targets may order members alike, so each case counts with one
    target, the one with most orders; cases are independent.
    """
    n_cases, n_members, n_targets = members.shape
    rises = members.diff(dim=-2) != 0
    # in sorted members equal ones are neighbours: log t! is the sum of log of each one's place in its group
    place = torch.ones(n_cases, n_targets, dtype=torch.float64, device=members.device)
    ties = torch.zeros_like(place)
    for step in range(n_members - 1):
        place = torch.where(rises[:, step], 1.0, place + 1.0)
        ties += place.log()
    orders = math.lgamma(n_members + 1) - ties.amin(-1)
    return -float(orders.sum())


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
