"""Whether cases stand in time, and whether targets are in an order, as their labels say."""

from typing import Any, NamedTuple

import numpy as np

from prerank.arrays.labels import labels_of


class Order(NamedTuple):
    """Whether labels of cases are times that rise, and those of targets numbers or times that rise.

    Targets that are in an order, such as hours or leads, are close to their neighbours. Text says nothing of an order, nor
    does a label that is the position alone.
    """

    cases: bool
    targets: bool

    @classmethod
    def of(cls, y: Any, forecast: Any) -> "Order":
        """As the observations say, or else the forecast."""
        found = [labels_of(y, 2), labels_of(forecast, 3)]
        cases, targets = (
            next((label for label in (getattr(labels, role) for labels in found) if label is not None), None)
            for role in ("cases", "targets")
        )
        return cls(_rises(cases, "mM"), _rises(targets, "iufmM"))


def _rises(labels: Any, kinds: str) -> bool:
    values = None if labels is None else np.asarray(labels)
    if values is None or values.ndim != 1 or values.dtype.kind not in kinds or len(values) < 2:
        return False
    return bool((values[1:] > values[:-1]).all())
