"""Data that would make a verdict mean less than it says: targets on few values, and quantiles in the place of members."""

import math
from collections.abc import Sequence

from torch import Tensor

from prerank.inputs.cases import Cases
from prerank.inputs.survey import Sorted

_CHANCE = 1e-6  # how often exchangeable members may be taken for quantiles
_SHOWN = 6


def about_data(cases: Cases) -> list[str]:
    """What makes a verdict mean less than it says."""
    found = cases.survey
    early = None if found is None else found.early
    return [
        *([] if found is None else quantiles(found.order)),
        *targets_of_few_values(cases.observed(), early, cases.names),
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


def quantiles(order: Sorted) -> list[str]:
    """Members that are sorted in every case and target look like quantiles, whose joint ranks mean nothing: say so."""
    # two directions
    if not (order.rise or order.fall) or -order.log_orders > math.log(_CHANCE / 2):
        return []
    return [
        "the members are sorted in every case and target, as quantiles are: joint ranks among quantiles mean "
        "nothing; pass draws from the joint forecast, or check targets one by one with Marginal()"
    ]
