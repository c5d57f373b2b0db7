"""What goes along with observations and a forecast, one for each case: aligned by labels, cut to the cases that are left."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prerank.arrays.case_labels import checked_case_ids, label_array
from prerank.arrays.conversion import as_tensor
from prerank.arrays.labels import is_xarray, label_text, labels_of, positions
from prerank.inputs.checks import require_case_weights


@dataclass(frozen=True, eq=False)
class CaseIndex:
    """The cases that were given, what they are called, and which of them are left.

    Parameters
    ----------
    n_given : int
        Number of cases that were given.
    labels : pandas.Index, optional
        Their labels; without them position counts.
    kept : Tensor, shape (n_left,)
        Positions of the cases that are left.
    coordinates : dict of str to (object, Tensor or None)
        What else the cases are known by: coordinates of xarray objects, and where in them each case stands.
    whose : str, default "y"
        What the labels are those of.
    """

    n_given: int
    labels: Any
    kept: Tensor
    coordinates: Mapping[str, Any] = field(default_factory=dict)
    whose: str = "y"

    def select(self, cases: Tensor) -> "CaseIndex":
        """The same with some of the cases left."""
        return replace(self, kept=self.kept[cases])

    def named(self, values: Any, what: str) -> Any:
        """The values themselves, or those of a coordinate or a level of labels that is named."""
        if not isinstance(values, str):
            return values
        if values in self.coordinates:
            found, order = self.coordinates[values]
            return np.asarray(found) if order is None else np.asarray(found)[order.cpu().numpy()]
        levels = list(getattr(self.labels, "names", []))
        if values in levels:
            return self.labels.get_level_values(values).to_numpy()
        known = dict.fromkeys([*map(str, self.coordinates), *(str(name) for name in levels if name is not None)])
        if not known:
            raise TypeError(
                f"{what} is a str, {values!r}, and the cases have no coordinates that it could name; one value per case is "
                f"needed, {self.n_given} in all"
            )
        raise ValueError(
            f"{what}={values!r} is no coordinate of the cases, which have {', '.join(known)}; name one of these, or pass "
            "one value per case"
        )

    def rows(self, values: Any, what: str) -> Tensor:
        """Where in values that came one per case those of the cases that are left stand."""
        order = positions(labels_of(values, _n_axes(values)).cases, self.labels, what, whose=self.whose)
        return self.kept if order is None else torch.as_tensor(order, device=self.kept.device)[self.kept]

    def weights(self, values: Any, what: str, device: torch.device) -> Tensor | None:
        """Weights (n_left,): finite, none negative, not all zero."""
        if values is None:
            return None
        values = self.named(values, what)
        rows = self.rows(values, what)
        tensor = as_tensor(values, what).to(device)
        if len(rows) and tensor.shape == (self.n_given,):
            return require_case_weights(tensor[rows.to(device)], what, (len(rows),), self.kept)
        return require_case_weights(tensor, what, (self.n_given,))

    def table(self, values: Any, what: str) -> Tensor:
        """Rows (n_left, ...) of a table with one row per case, or its numbers where there is one per case."""
        rows = self.rows(values, what)
        tensor = as_tensor(values, what)
        if tensor.ndim not in (1, 2) or len(tensor) != self.n_given:
            raise ValueError(
                f"{what} have shape {tuple(tensor.shape)}; a row for each of the {self.n_given} cases is needed"
            )
        return tensor[rows.to(tensor.device)]

    def identifiers(self, values: Any, device: torch.device) -> Tensor | None:
        """Identifiers (n_left,) as whole numbers; None where none are given and positions serve."""
        if values is None:
            return None
        values = self.named(values, "case_ids")
        rows = self.rows(values, "case_ids")
        return checked_case_ids(values, self.n_given)[rows.cpu()].to(device)

    def label_values(self, values: Any, what: str) -> np.ndarray:
        """Labels (n_left,), of any kind."""
        return np.asarray(self._labels(values, what)[self.kept.cpu().numpy()])

    def numbers(self, values: Any, what: str, device: torch.device) -> Tensor | None:
        """Numbers 0, 1, ... of the labels (n_left,) of blocks or groups, in the order of the labels."""
        if values is None:
            return None
        return torch.as_tensor(_numbered(self.label_values(values, what))).to(device)

    def groups(self, values: Any, what: str, device: torch.device) -> tuple[Tensor, list[Any]]:
        """The same numbers of groups, and their labels; a group of which nothing is left is refused."""
        labels = self._labels(values, what)
        numbers = _numbered(labels)
        names = [
            label.item() if isinstance(label, np.generic) and label.dtype.kind != "M" else label
            for label in labels[np.unique(numbers, return_index=True)[1]]
        ]
        left = numbers[self.kept.cpu().numpy()]
        lost = np.setdiff1d(numbers, left)
        if len(lost):
            raise ValueError(
                f"group {label_text(names[int(lost[0])])}: no case is left, each has a missing value; drop it"
            )
        return torch.as_tensor(left).to(device), names

    def _labels(self, values: Any, what: str) -> np.ndarray:
        """Labels of all the cases that were given."""
        values = self.named(values, what)
        order = positions(labels_of(values, 1).cases, self.labels, what, whose=self.whose)
        labels = label_array(values, what, self.n_given)
        return labels if order is None else labels[order]


def _n_axes(values: Any) -> int:
    return len(values.dims) if is_xarray(values) else 1


def _numbered(labels: np.ndarray) -> np.ndarray:
    """Whole numbers in the place of labels, in their order; labels without one (text among numbers) by their text."""
    try:
        return np.asarray(np.unique(labels, return_inverse=True)[1])
    except TypeError:
        return np.asarray(np.unique([f"{type(label).__name__} {label}" for label in labels], return_inverse=True)[1])
