"""Evidence: folds that keep blocks together, and the most cautious candidate within one standard error of the best."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from prerank.arrays.case_labels import label_array
from prerank.randomness import numpy_generator

_DATE = re.compile(r"\d{4}-?\d\d-?\d\d(\D|$)")
_NOTHING = 1e-6  # nats per case: fits are no more exact than that, and without a spread rounding would decide


class Folds(NamedTuple):
    """The fold (N,) and the block (N,) of every case, numbered from 0, and how many folds there are.

    `near` (F, N) are cases outside a fold that are too near to it to be learnt from; None where there are none.
    """

    fold: Tensor
    block: Tensor
    n_folds: int
    near: Tensor | None = None

    @property
    def without(self) -> Tensor:
        """The cases (F, N) that a fit without each of the folds learns from."""
        own = self.fold == torch.arange(self.n_folds, device=self.fold.device)[:, None]
        return ~own if self.near is None else ~(own | self.near)

    def within(self, f: int) -> "Folds":
        """The folds of the cases that a fit without fold f learns from: the others, or two halves where there is but one."""
        kept = self.without[f]
        fold, block = self.fold[kept], self.block[kept].unique(return_inverse=True)[1]
        near = None if self.near is None else torch.cat([self.near[:f], self.near[f + 1 :]])[:, kept]
        if self.n_folds > 2:
            return Folds(fold - (fold > f).long(), block, self.n_folds - 1, near)
        return Folds((2 * block > block.max()).long(), block, 2)


def folds_of(
    n_cases: int,
    count: int,
    blocks: Any,
    seed: int,
    device: torch.device,
    weights: Tensor | None = None,
    in_order: bool = False,
    gap: int = 0,
) -> Folds:
    """Cases dealt into folds of nearly equal size, whole blocks at a time; without blocks a case is its own.

    Blocks with an order of their own, numbers or times (or dates as text), are cut into runs, and so are cases `in_order`,
    which stand one after another: neighbours depend on each other, and dealt into different folds they would tell what
    they are to be judged by. `gap` blocks on both sides of a run are not learnt from when it is left out. Cases of weight
    zero have no part in a fold's size. Weights (N,) so uneven that they are worth too few cases are refused.
    """
    block, ordered = np.arange(n_cases), in_order
    if blocks is not None:
        labels = label_array(blocks, "blocks", n_cases)
        ordered = has_order(labels)
        block = np.asarray(np.unique(labels.astype(str) if labels.dtype == object else labels, return_inverse=True)[1])
    weighed = np.ones(n_cases) if weights is None else weights.cpu().double().numpy()
    sizes = np.bincount(block, weights=weighed > 0)
    if len(sizes) < 2 * count:
        what = f"{n_cases} cases" if blocks is None else f"{len(sizes)} blocks"
        raise ValueError(
            f"{what} are too few for {count}-fold cross-validation, which needs at least {2 * count}; "
            "give more held-out data"
        )
    worth = len(sizes) if weights is None else _worth(np.bincount(block, weights=weighed) / np.bincount(block))
    if worth < count - 1e-6:
        kind = "cases" if blocks is None else "blocks"
        raise ValueError(
            f"case_weights are so uneven that {len(sizes)} {kind}, {int((sizes > 0).sum())} of positive weight, are worth "
            f"{worth:.1f} equally weighted ones, too few for {count}-fold cross-validation, which needs at least "
            f"{count}; give more held-out data, or more even weights"
        )
    fold_of_block = _runs(sizes, count) if ordered else _dealt(sizes, count, seed)
    near = None
    if gap > 0:
        near = torch.as_tensor(_near(fold_of_block, count, gap, ordered)[:, block], device=device)
    fold, own = (torch.as_tensor(values, device=device) for values in (fold_of_block[block], block))
    return Folds(fold, own, count, near)


def has_order(labels: np.ndarray) -> bool:
    """Whether labels are numbers, times or text that begins as an ISO date."""
    if labels.dtype.kind in "iufmM":
        return True
    return all(hasattr(label, "toordinal") or _DATE.match(str(label)) is not None for label in labels.tolist())


def _runs(sizes: np.ndarray, count: int) -> np.ndarray:
    """Blocks in their order cut into runs of nearly equal size."""
    before = np.cumsum(sizes) - 0.5 * sizes
    fold = np.minimum((before * count / sizes.sum()).astype(np.int64), count - 1)
    if len(np.unique(fold)) < count or np.bincount(fold, weights=sizes > 0).min() == 0:
        fold = np.arange(len(sizes)) * count // len(sizes)  # one block fills several runs
    return fold


def _dealt(sizes: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Large blocks first, each into the emptiest fold, blocks of a size in a random order."""
    order = numpy_generator(seed, "recalibration folds").permutation(len(sizes))
    fold, filled = np.empty(len(sizes), dtype=np.int64), np.zeros(count)
    for item in order[np.argsort(-sizes[order], kind="stable")]:
        fold[item] = filled.argmin()
        filled[filled.argmin()] += sizes[item]
    return fold


def _near(fold_of_block: np.ndarray, count: int, gap: int, ordered: bool) -> np.ndarray:
    """Blocks (F, blocks) within a gap of each fold."""
    if not ordered:
        raise ValueError(
            f"gap={gap} is for cases in an order, and these have none: pass blocks that are numbers or times, labels of "
            "cases that are times, or members in the order of time"
        )
    place = np.arange(len(fold_of_block))
    near = np.zeros((count, len(fold_of_block)), dtype=bool)
    for f in range(count):
        inside = place[fold_of_block == f]
        near[f] = (place >= inside[0] - gap) & (place <= inside[-1] + gap) & (fold_of_block != f)
        if not (~near[f] & (fold_of_block != f)).any():
            raise ValueError(
                f"gap={gap} leaves nothing to learn from beside fold {f + 1} of {count}; take a shorter gap"
            )
    return near


def _worth(weights: np.ndarray) -> float:
    """How many equal weights have means as precise as these: Kish's effective size."""
    shares = weights / weights.sum()
    return float(1 / np.square(shares).sum())


def mean_and_error(values: Tensor, weights: Tensor, block: Tensor) -> tuple[float, float]:
    """Weighted mean of values (N,) and its standard error, cases of a block counted as one."""
    share = (weights / weights.sum()).double()
    mean = (share * values.double()).sum()
    parts = torch.zeros(int(block.max()) + 1, dtype=torch.float64, device=values.device)
    parts.index_add_(0, block, share * (values.double() - mean))
    n_blocks = len(block.unique())
    return float(mean), float((parts.square().sum() * n_blocks / max(1, n_blocks - 1)).sqrt())


def most_cautious(gains: Sequence[Tensor], weights: Tensor, block: Tensor) -> int | None:
    """Which of the candidates to take: None for no change, otherwise a place in `gains`, the most cautious first.

    Each entry has the gain (N,) of a candidate on held-out cases over no change. The first candidate is taken whose gain
    is within one standard error of the best one's, the difference taken case by case; no change is the first of all.
    """
    if not gains:
        return None
    best = gains[_best(gains, weights)]
    for place, gain in enumerate([torch.zeros_like(best), *gains]):
        loss, error = mean_and_error(best - gain, weights, block)
        if loss <= max(error, _NOTHING):
            return None if place == 0 else place - 1
    return None


def best_if_any(gains: Sequence[Tensor], weights: Tensor, block: Tensor) -> int | None:
    """The candidate that gains most, or None where `most_cautious` would change nothing.

    For a step of few parameters, where a strong ridge costs more than a weak one.
    """
    return None if most_cautious(gains, weights, block) is None else _best(gains, weights)


def _best(gains: Sequence[Tensor], weights: Tensor) -> int:
    return max(range(len(gains)), key=lambda place: float((weights * gains[place]).sum()))
