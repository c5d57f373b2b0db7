"""The cases of a file as a recalibration needs them: complete, in order, cut into earlier and later ones."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch

from prerank._wording import counted
from prerank.arrays.labels import label_text
from prerank.cli.labels import as_label, refuse_day_first
from prerank.forecasts import Ensemble
from prerank.io import Matched
from prerank.io.label_order import coded_labels, n_before


@dataclass(frozen=True, eq=False)
class Cases:
    """What was read, the column of blocks if there is one, and what was left out of it, a sentence each."""

    found: Matched
    block: str | None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def in_memory(cls, found: Matched, block: str | None) -> "Cases":
        """What was read, with members that a large store left on the disk."""
        return cls(found._replace(members=np.asarray(found.members)), block)

    @property
    def y(self) -> pd.DataFrame:
        return self.found.y

    @property
    def members(self) -> np.ndarray:
        return self.found.members

    @property
    def n_cases(self) -> int:
        return len(self.y)

    @property
    def n_targets(self) -> int:
        return self.y.shape[1]

    @property
    def blocks(self) -> np.ndarray | None:
        return None if self.block is None else self.found.columns[self.block].to_numpy()

    @property
    def observed(self) -> bool:
        """Whether any case has an observation."""
        return bool(self.y.notna().all(axis=1).any())

    @property
    def _labels(self) -> pd.Series:
        """What the order of cases goes by: blocks, or else the first label of a case."""
        if self.block is not None:
            return self.found.columns[self.block].reset_index(drop=True).infer_objects()
        return self.y.index.get_level_values(0).to_frame(index=False).iloc[:, 0].infer_objects()

    @property
    def span(self) -> str:
        """The first and the last label, in the order in which files are read."""
        labels = coded_labels(self._labels)[1]
        first, last = (label_text(labels[place]) for place in (0, -1))
        return first if first == last else f"{first} to {last}"

    def rows(self, which: np.ndarray) -> "Cases":
        """Some of the cases, by number or by a mask."""
        places = np.flatnonzero(which) if which.dtype == bool else which
        found = Matched(self.y.iloc[places], self.members[places], self.found.columns.iloc[places])
        return Cases(found, self.block, self.notes)

    def with_members(self, members: np.ndarray) -> Matched:
        return self.found._replace(members=members)

    def with_targets_of(self, other: "Cases") -> "Cases":
        """The same cases with targets in the order of another file; other targets than its own are refused."""
        mine, theirs = self.y.columns, other.y.columns
        if mine.equals(theirs):
            return self
        if len(mine) != len(theirs) or set(mine) != set(theirs):
            said = [", ".join(map(str, list(columns)[:6])) for columns in (mine, theirs)]
            raise ValueError(
                f"the forecasts to correct are for the targets {said[0]}, those to learn from for {said[1]}; "
                "give the same targets"
            )
        order = mine.get_indexer(theirs)
        return Cases(Matched(self.y[theirs], self.members[..., order], self.found.columns), self.block, self.notes)

    def ensemble(self) -> Ensemble:
        """Members with weights of zero for those that have a missing value; equal weights where none has."""
        absent = np.isnan(self.members).any(-1)
        if not absent.any():
            return Ensemble(torch.tensor(self.members))
        empty = absent.all(1)
        if empty.any():
            raise ValueError(
                f"{int(empty.sum()):,} of {counted(self.n_cases, 'case')} have no member without a missing value; "
                "leave them out"
            )
        weights = (~absent).astype(self.members.dtype)
        filled = np.where(absent[..., None], 0.0, self.members)
        mean = (filled.sum(1) / weights.sum(1, keepdims=True))[:, None]
        return Ensemble(torch.tensor(np.where(absent[..., None], mean, self.members)), torch.tensor(weights))

    def usable_to_fit(self) -> "Cases":
        """Cases with an observation and at least two members; what is left out is noted."""
        known = self.y.notna().all(axis=1).to_numpy()
        several = (~np.isnan(self.members).any(-1)).sum(1) >= 2
        notes = [
            f"{int(left_out.sum()):,} of {counted(self.n_cases, 'case')} not fitted on: {why}"
            for left_out, why in (
                (~known, "the observation is missing"),
                (known & ~several, "fewer than 2 members are there"),
            )
            if left_out.any()
        ]
        if self.members.shape[1] < 2:
            raise ValueError("a single member has no spread; give an ensemble of at least 2")
        if not (known & several).any():
            raise ValueError(f"none of {counted(self.n_cases, 'case')} can be fitted on: {'; '.join(notes)}")
        return Cases(self.rows(known & several).found, self.block, notes)

    def split(self, share: float | None, before: str | None) -> tuple["Cases", "Cases"]:
        """Earlier cases to fit on and later ones to judge by, in the order in which files are read; blocks stay whole."""
        absent = self._labels.isna().to_numpy()
        if absent.any():
            raise ValueError(
                f"{int(absent.sum()):,} of {counted(self.n_cases, 'case')} have no label, the first is case "
                f"{int(absent.argmax())}, so earlier cases cannot be told from later ones; give every case one"
            )
        numbers, names = coded_labels(self._labels)
        refuse_day_first(names)
        if before is not None:
            early = numbers < n_before(names, as_label(before, names))
            if not early.any() or early.all():
                raise ValueError(
                    f"--before {before}: {'all' if early.all() else 'none'} of {counted(self.n_cases, 'case')} "
                    f"({self.span}) come before it; some must, to fit on, and others must not, to judge by"
                )
        else:
            early = self._first(0.5 if share is None else share, numbers)
        order = np.argsort(numbers, kind="stable") if self.block is not None else np.arange(self.n_cases)
        return self.rows(order[early[order]]), self.rows(order[~early[order]])

    def _first(self, share: float, numbers: np.ndarray) -> np.ndarray:
        if self.block is None:
            count = round(share * self.n_cases)
            early = np.arange(self.n_cases) < count
        else:
            sizes = np.bincount(numbers)
            upto = np.abs(np.cumsum(sizes) - share * self.n_cases).argmin()
            early = numbers <= min(int(upto), len(sizes) - 2)
        if not early.any() or early.all():
            raise ValueError(
                f"a share of {share:g} of {counted(self.n_cases, 'case')} leaves none to "
                f"{'judge by' if early.all() else 'fit on'}; give another share, or more cases"
            )
        return early
