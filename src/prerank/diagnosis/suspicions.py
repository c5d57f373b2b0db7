"""Data that would make a verdict mean less than it says: targets on few values, and quantiles in the place of members."""

import math

import torch
from torch import Tensor

from prerank.diagnosis.preparation import Prepared
from prerank.forecast import Ensemble

_CHANCE = 1e-6  # how often exchangeable members may be taken for quantiles
_SHOWN = 6


def few_values(prepared: Prepared) -> list[str]:
    """A continuous forecast of a target that takes few values cannot have uniform PITs: say so, once for all targets."""
    y, found = prepared.y, []
    for d in range(y.shape[-1]):
        observed = len(y[:, d].unique())
        if len(y) < 5 * observed or len(y) < 20:
            continue
        if isinstance(prepared.forecast, Ensemble):
            members = prepared.forecast.members[..., d]
            if len(members[: max(1, 20_000 // members.shape[1])].unique()) <= 4 * observed:
                continue  # the members take few values too, and ties are ranked fairly
        found.append((prepared.names[d], observed))
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


def quantiles(prepared: Prepared) -> list[str]:
    """Members that are sorted in every case and target look like quantiles, whose joint ranks mean nothing: say so."""
    forecast = prepared.forecast
    if not isinstance(forecast, Ensemble) or forecast.n_targets < 2 or forecast.n_members < 3:
        return []
    members = forecast.members if prepared.present is None else forecast.members[prepared.present.all(-1)]
    if len(members) == 0:
        return []
    for sign in (1, -1):
        # a few cases settle it as a rule
        for part in (members[:5], members):
            if not bool((sign * part.diff(dim=-2) >= 0).all()):
                break
        else:
            if _log_chance(members) <= math.log(_CHANCE / 2):  # two directions
                return [
                    "the members are sorted in every case and target, as quantiles are: joint ranks among quantiles mean "
                    "nothing; pass draws from the joint forecast, or check targets one by one with Marginal()"
                ]
    return []


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
