"""Whether cases stand in time, and whether targets are in an order, as their labels say."""

from typing import Any, NamedTuple

import numpy as np

from prerank.inputs import Cases


class Order(NamedTuple):
    """Whether labels of cases are times that rise, and those of targets numbers or times that rise.

    Targets that are in an order, such as hours or leads, are close to their neighbours. Text says nothing of an order, nor
    does a label that is the position alone.
    """

    cases: bool
    targets: bool

    @classmethod
    def of(cls, cases: Cases) -> "Order":
        """As their labels say."""
        known = cases.labels.cases
        left = None if known is None else known[cases.index.kept.cpu().numpy()]
        return cls(_rises(left, "mM"), _rises(cases.labels.targets, "iufmM"))


def _rises(labels: Any, kinds: str) -> bool:
    values = None if labels is None else np.asarray(labels)
    if values is None or values.ndim != 1 or values.dtype.kind not in kinds or len(values) < 2:
        return False
    return bool((values[1:] > values[:-1]).all())
