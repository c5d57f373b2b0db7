"""Data that would make a verdict mean less than it says.

Targets on few values, quantiles in the place of members, and observations in another unit than the members.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from prerank.inputs.cases import Cases
from prerank.inputs.survey import Sorted

_CHANCE = 1e-6  # how often exchangeable members may be taken for quantiles
_SHOWN = 6
_FAR = 10.0  # spreads between observations and members that no forecast is wrong by


def about_data(cases: Cases) -> list[str]:
    """What makes a verdict mean less than it says."""
    found = cases.survey
    early = None if found is None else found.early
    return [
        *([] if found is None else quantiles(found.order)),
        *targets_of_few_values(cases.observed(), early, cases.names),
        *([] if early is None else other_units(cases.units.undo(cases.observed()), early, cases.names)),
    ]


def targets_of_few_values(y: Tensor, early: Tensor | None, names: Sequence[str]) -> list[str]:
    """A continuous forecast of a target that takes few values cannot have uniform PITs: say so, once for all targets.

    `early` are members of the first cases, None for a distribution.
    """
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


def other_units(y: Tensor, early: Tensor, names: Sequence[str]) -> list[str]:
    """Observations that lie many spreads from the members are in another unit, or values beside anomalies: say so."""
    if len(y) < 2:
        return []
    members = early.flatten(0, -2)
    members = members[~members.isnan().any(-1)].double()
    spread = torch.maximum(y.double().std(0), members.std(0) if len(members) > 1 else torch.zeros(()).to(members))
    means = y.double().mean(0), members.mean(0)
    apart = (means[0] - means[1]).abs() / spread
    far = (apart.isfinite() & (apart > _FAR)).nonzero()[:, 0].tolist()
    if not far:
        return []
    first = far[0]
    others = f", and so on for {len(far)} targets" if len(far) > 1 else ""
    return [
        f"target {names[first]} is {means[0][first]:.4g} on average in the observations and {means[1][first]:.4g} in the "
        f"members, {apart[first]:.0f} times its spread apart{others}: are both in one unit, and both values or both "
        "anomalies?"
    ]


def quantiles(order: Sorted) -> list[str]:
    """Members that are sorted in every case and target look like quantiles, whose joint ranks mean nothing: say so."""
    # two directions
    if not (order.rise or order.fall) or -order.log_orders > math.log(_CHANCE / 2):
        return []
    return [
        "the members are sorted in every case and target, as quantiles are: joint ranks among quantiles mean "
        "nothing; pass draws from the joint forecast, or check targets one by one with Marginal()"
    ]
