"""What goes along with observations and a forecast: one number or label per case, and the pre-ranks to look at."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prerank.arrays import as_tensor
from prerank.arrays.case_labels import checked_case_ids, label_array
from prerank.arrays.labels import label_text, labels_of, positions
from prerank.calibration import LEVEL
from prerank.calibration.testing import MOST_GROUPS
from prerank.diagnosis.preparation import Prepared
from prerank.preranks import Contrast, Marginal, PreRank, SquaredDifference


def projection_names(preranks: Sequence[PreRank], targets: Sequence[str]) -> dict[str, list[str]]:
    """What the projections of a pre-rank that is about single targets, or about two, are called by the targets' names."""
    known: dict[str, list[str]] = {}
    for item in preranks:
        if isinstance(item, Marginal):
            known[item.name] = list(targets)
        elif isinstance(item, Contrast):
            known[item.name] = [f"{targets[item.i]} - {targets[item.j]}"]
        elif isinstance(item, SquaredDifference):
            known[item.name] = [f"({targets[item.i]} - {targets[item.j]})²"]
    return known


def weight_per_case(values: Any, what: str, prepared: Prepared) -> Tensor | None:
    """A weight per case of the user's, aligned with y, cut to the cases that are left."""
    if values is None:
        return None
    order = positions(labels_of(values, 1).cases, prepared.labels.cases, what)
    tensor = as_tensor(values, what).to(prepared.y.device)
    if tensor.shape != (prepared.n_given,):
        raise ValueError(f"{what} has shape {tuple(tensor.shape)}; one number per case is ({prepared.n_given},)")
    if order is not None:
        tensor = tensor[torch.as_tensor(order, device=tensor.device)]
    tensor = tensor[prepared.cases]
    if not bool(tensor.isfinite().all()) or bool((tensor < 0).any()):
        bad = ~tensor.isfinite() | (tensor < 0)
        first = int(bad.nonzero()[0])
        raise ValueError(
            f"{int(bad.sum())} of {len(tensor)} {what} are negative, NaN or infinite, the first ({float(tensor[first]):g}) "
            f"for case {int(prepared.cases[first])}; a weight is a finite number of zero or more"
        )
    if not bool(tensor.sum() > 0):
        raise ValueError(f"all {len(tensor)} {what} are zero; at least one must be positive")
    return tensor


def block_labels(blocks: Any, prepared: Prepared) -> Tensor | None:
    """Numbers 0, 1, ... of the blocks that the cases belong to, in the order of their labels."""
    if blocks is None:
        return None
    labels = _label_per_case(blocks, "blocks", prepared)[prepared.cases.cpu().numpy()]
    return torch.as_tensor(_numbered(labels)).to(prepared.y.device)


def case_identifiers(case_ids: Any, prepared: Prepared) -> Tensor | None:
    """Identifiers of the cases that are left, aligned with y; None where none are given and positions serve."""
    if case_ids is None:
        return None
    order = positions(labels_of(case_ids, 1).cases, prepared.labels.cases, "case_ids")
    ids = checked_case_ids(case_ids, prepared.n_given)
    ids = ids if order is None else ids[torch.as_tensor(order)]
    return ids[prepared.cases.cpu()].to(prepared.y.device)


def groups_of(by: Any, prepared: Prepared) -> tuple[Tensor, list[Any]]:
    """Numbers of the groups that the cases belong to, and the labels of the groups in their order."""
    labels = _label_per_case(by, "by", prepared)
    numbers = _numbered(labels)
    count = int(numbers.max()) + 1
    if count > MOST_GROUPS:
        raise ValueError(
            f"{count:,} groups: the nulls of single projections have 50,000 replicates, so with more than "
            f"{MOST_GROUPS:,} groups no adjusted p-value could reach {LEVEL}; take fewer, larger groups"
        )
    names = [
        label.item() if isinstance(label, np.generic) and label.dtype.kind != "M" else label
        for label in labels[np.unique(numbers, return_index=True)[1]]
    ]
    left = numbers[prepared.cases.cpu().numpy()]
    lost = np.setdiff1d(numbers, left)
    if len(lost):
        raise ValueError(f"group {label_text(names[int(lost[0])])}: no case is left, each has a missing value; drop it")
    return torch.as_tensor(left).to(prepared.y.device), names


def _label_per_case(values: Any, what: str, prepared: Prepared) -> np.ndarray:
    order = positions(labels_of(values, 1).cases, prepared.labels.cases, what)
    labels = label_array(values, what, prepared.n_given)
    return labels if order is None else labels[order]


def _numbered(labels: np.ndarray) -> np.ndarray:
    """Whole numbers in the place of labels, in their order; labels without one (text among numbers) by their text."""
    try:
        return np.asarray(np.unique(labels, return_inverse=True)[1])
    except TypeError:
        return np.asarray(np.unique([f"{type(label).__name__} {label}" for label in labels], return_inverse=True)[1])
