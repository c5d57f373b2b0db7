"""Some of the cases of a file that was read, and targets in the order of another file."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from prerank.arrays.labels import label_text, labels_of, target_names
from prerank.cli.labels import as_label
from prerank.inputs import Cases
from prerank.io import Matched
from prerank.io.label_order import coded_labels
from prerank.recalibration import split_by_time

AXES = ("case", "member", "target")


class Read(NamedTuple):
    """What was read, in memory, and the column of blocks if there is one."""

    found: Matched
    block: str | None
    places: np.ndarray
    """Positions of the cases in what was read."""

    @classmethod
    def of(cls, found: Matched, block: str | None) -> "Read":
        """With members that a large store left on the disk."""
        return cls(found._replace(members=np.asarray(found.members)), block, np.arange(len(found.y)))

    @property
    def n_cases(self) -> int:
        return len(self.found.y)

    @property
    def blocks(self) -> np.ndarray | None:
        return None if self.block is None else self.found.columns[self.block].to_numpy()

    @property
    def names(self) -> tuple[str, ...]:
        """What the targets are called; y1, y2, ... where the file names none."""
        return target_names(labels_of(self.found.y, 2), self.found.y.shape[1])

    @property
    def has_names(self) -> bool:
        """Whether the file names its targets."""
        return labels_of(self.found.y, 2).targets is not None

    @property
    def known(self) -> np.ndarray:
        """Positions of the cases that have been observed."""
        return np.flatnonzero(self.found.y.notna().all(axis=1))

    @property
    def times(self) -> pd.Series:
        """What the order of cases goes by: blocks, or else the first label of a case."""
        if self.block is not None:
            return self.found.columns[self.block].reset_index(drop=True).infer_objects()
        return self.found.y.index.get_level_values(0).to_frame(index=False).iloc[:, 0].infer_objects()

    @property
    def span(self) -> str:
        """The first and the last time."""
        labels = coded_labels(self.times)[1]
        first, last = (label_text(labels[place]) for place in (0, -1))
        return first if first == last else f"{first} to {last}"

    def rows(self, places: np.ndarray) -> "Read":
        """Some of the cases."""
        one = self.found
        found = Matched(
            one.y.iloc[places], one.members[places], one.columns.iloc[places], member_names=one.member_names
        )
        return Read(found, self.block, self.places[places])

    def with_awaited(self, later: "Read") -> "Read":
        """The later cases, and those from their time on that have not been observed yet, in the order of the file."""
        numbers = np.arange(self.n_cases) if self.block is None else coded_labels(self.times)[0]
        several = (~np.isnan(self.found.members).any(-1)).sum(1) >= 2
        awaited = self.found.y.isna().any(axis=1).to_numpy() & several & (numbers >= numbers[later.places].min())
        awaited[later.places] = True
        return self.rows(np.flatnonzero(awaited)) if awaited.sum() > later.n_cases else later

    def usable(self) -> tuple["Read", list[str]]:
        """The cases that can be fitted on, and what was left out."""
        if self.found.members.shape[1] < 2:
            raise ValueError("a single member has no spread; give an ensemble of at least 2")
        cases = Cases.of(self.found.y, self.found.members, AXES).complete(fewest=2)
        return self.rows(cases.index.kept.numpy()), list(cases.notes)

    def split(self, share: float | None, before: str | None) -> tuple["Read", "Read"]:
        """Earlier cases to fit on and later ones to judge by; without blocks a share is one of cases."""
        times = self.times
        if before is None and self.block is None and not times.isna().any():
            coded_labels(times)
            times = pd.Series(np.arange(self.n_cases))
        label = None if before is None else as_label(before, coded_labels(times)[1])
        try:
            parts = split_by_time(times, share=share, before=label)
        except ValueError as error:
            raise ValueError(f"{'--' * str(error).startswith('before ')}{error}") from None
        # without blocks cases stay in the order of the file
        earlier, later = parts if self.block is not None else map(np.sort, parts)
        return self.rows(earlier), self.rows(later)

    def with_targets(self, names: Sequence[str], whose: str) -> "Read":
        """The same cases with targets in another order; other targets are refused."""
        own = self.names
        if own == tuple(names):
            return self
        if len(own) != len(names) or set(own) != set(names):
            said = [", ".join(each[:6]) for each in (own, tuple(names))]
            raise ValueError(
                f"the forecasts to correct are for the targets {said[0]}, {whose} for {said[1]}; give the same targets"
            )
        order = [own.index(name) for name in names]
        one = self.found
        found = Matched(one.y.iloc[:, order], one.members[..., order], one.columns, member_names=one.member_names)
        return Read(found, self.block, self.places)
