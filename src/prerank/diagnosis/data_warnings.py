"""Data that would make a verdict mean less than it says: targets on few values, and quantiles in the place of members."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.diagnosis.preparation import Prepared
from prerank.forecasts import Ensemble

_CHANCE = 1e-6  # how often exchangeable members may be taken for quantiles
_SHOWN = 6


def few_values(prepared: Prepared) -> list[str]:
    """A continuous forecast of a target that takes few values cannot have uniform PITs: say so, once for all targets."""
    early = first_members(prepared.forecast.members) if isinstance(prepared.forecast, Ensemble) else None
    return targets_of_few_values(prepared.y, early, prepared.names)


def first_members(members: Tensor) -> Tensor:
    """About 20,000 values of each target, from the first cases, (n, M, D)."""
    return members[: max(1, 20_000 // members.shape[1])]


def targets_of_few_values(y: Tensor, early: Tensor | None, names: Sequence[str]) -> list[str]:
    """The same from y (N, D) and members of the first cases, None for a distribution."""
    found = []
    for d in range(y.shape[-1]):
        observed = len(y[:, d].unique())
        if len(y) < 5 * observed or len(y) < 20:
            continue
        if early is not None and len(early[..., d].unique()) <= 4 * observed:
            continue  # the members take few values too, and ties are ranked fairly
        found.append((names[d], observed))
    if not found:
        return []
    if len(found) == 1:
        name, count = found[0]
        return [f"{name} takes only {count} values in {len(y)} cases: no continuous forecast of it can be uniform"]
    shown = ", ".join(f"{name}: {count}" for name, count in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return [
        f"{len(found)} targets take only few values in {len(y)} cases ({shown}{more}): no continuous forecast of them can "
        "be uniform"
    ]


class Sorted(NamedTuple):
    """Whether members rise, or fall, in every case and target, and the log of how many orders they could have had."""

    rise: bool = True
    fall: bool = True
    log_orders: float = 0.0

    def joined(self, more: "Sorted") -> "Sorted":
        """Of two sets of cases together."""
        return Sorted(self.rise and more.rise, self.fall and more.fall, self.log_orders + more.log_orders)

    def notes(self) -> list[str]:
        """What is said about members that look like quantiles."""
        # two directions
        if not (self.rise or self.fall) or -self.log_orders > math.log(_CHANCE / 2):
            return []
        return [
            "the members are sorted in every case and target, as quantiles are: joint ranks among quantiles mean "
            "nothing; pass draws from the joint forecast, or check targets one by one with Marginal()"
        ]


def quantiles(prepared: Prepared) -> list[str]:
    """Members that are sorted in every case and target look like quantiles, whose joint ranks mean nothing: say so."""
    forecast = prepared.forecast
    if not isinstance(forecast, Ensemble):
        return []
    return sorted_members(forecast.members, prepared.present).notes()


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
