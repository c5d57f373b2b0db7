"""Members that stay where they are, on a disk or a cluster, and are read a few cases at a time."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prerank._parallel import single_threaded
from prerank.arrays.labels import Labels, is_xarray, positions
from prerank.arrays.precision import Precisions, precision_of
from prerank.inputs.survey import Survey, survey

VALUES = 1 << 24  # values that are read at once, unless a chunk of the array has more


def is_lazy(value: object) -> bool:
    """Whether a forecast is an xarray array of Dask chunks."""
    return is_xarray(value) and not hasattr(type(value), "data_vars") and getattr(value, "chunks", None) is not None


@dataclass(frozen=True, eq=False)
class LazyMembers:
    """An xarray array (case, member, target) of Dask chunks.

    `places` (N,) say which case of y each of its cases is, `targets` (D,) which of its targets each target of y is; None:
    the same.
    """

    array: Any
    places: np.ndarray | None
    targets: np.ndarray | None

    @classmethod
    def of(cls, array: Any, own: Labels, wanted: Labels) -> "LazyMembers":
        """An array of three dimensions in order, whose labels are its own, for observations with labels of theirs."""
        if array.ndim != 3:
            raise ValueError(
                f"a forecast of Dask chunks has the dimensions {tuple(array.dims)}; give three: case, member, target"
            )
        if array.dtype.kind not in "fiub":
            raise TypeError(
                f"the forecast has dtype {array.dtype}; prerank needs numbers (convert text and dates first)"
            )
        order = positions(own.cases, wanted.cases, "the forecast")
        targets = positions(own.targets, wanted.targets, "the forecast", "target")
        places = None
        if order is not None:
            places = np.empty(len(order), dtype=np.int64)
            places[order] = np.arange(len(order))
        return cls(array, places, targets)

    @property
    def shape(self) -> tuple[int, int, int]:
        return tuple(self.array.shape)

    @property
    def batch_shape(self) -> torch.Size:
        """Cases, as forecasts in memory have it."""
        return torch.Size(self.shape[:1])

    @property
    def event_shape(self) -> torch.Size:
        """Targets, as forecasts in memory have it."""
        return torch.Size(self.shape[2:])

    @property
    def n_members(self) -> int:
        """Number of members M."""
        return self.shape[1]

    @property
    def precision(self) -> torch.dtype | None:
        return precision_of(np.empty(0, dtype=self.array.dtype))

    def slices(self) -> list[slice]:
        """Cases to read together: whole chunks, several where they are small."""
        _, n_members, n_targets = self.shape
        most = max(1, VALUES // (n_members * n_targets))
        found: list[slice] = []
        stop = 0
        for size in self.array.chunks[0]:
            start, stop = stop, stop + int(size)
            if found and stop - found[-1].start <= most:
                found[-1] = slice(found[-1].start, stop)
            else:
                found.append(slice(start, stop))
        return found

    def places_of(self, cases: slice) -> Tensor:
        """Which cases of y those of a slice are."""
        if self.places is None:
            return torch.arange(cases.start, cases.stop)
        return torch.from_numpy(self.places[cases])

    def block(self, cases: slice) -> Any:
        """The Dask array of a slice, with the targets in the order of y."""
        array = self.array.data[cases]
        return array if self.targets is None else array[..., self.targets]


def survey_in_chunks(
    members: LazyMembers,
    y: Tensor,
    complete: Tensor,
    precisions: Precisions,
    done: Callable[[int], None] | None = None,
) -> Survey:
    """Look at all members, a chunk at a time; `complete` (N,) says which observations y (N, D) are."""

    def calls() -> Iterator[tuple[Any, ...]]:
        for cases in members.slices():
            places = members.places_of(cases)
            yield members.block(cases), y[places], places, complete[places], precisions

    found: Survey | None = None
    for cases, one in zip(members.slices(), in_order(_look, calls()), strict=True):
        found = one if found is None else found.joined(one)
        if done is not None:
            done(cases.stop)
    assert found is not None
    return found


@single_threaded()
def _look(block: np.ndarray, y: Tensor, places: Tensor, complete: Tensor, precisions: Precisions) -> Survey:
    """The survey of some cases."""
    _, members, moved = precisions.together(y, block)
    return survey(members, places, complete, moved)


def in_order(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """`function(block as an array, *others)` for each call (block, *others), in their order.

    On the workers of a Dask cluster if a `distributed.Client` is active here, a few calls ahead; otherwise one by one in
    this process, blocks being read by Dask's own scheduler.
    """
    client = _client()
    if client is None:
        for block, *others in calls:
            yield function(np.asarray(block), *others)
        return
    import dask

    lazily = dask.delayed(function, pure=False)
    ahead = 2 * max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
    pending: deque[Any] = deque()
    try:
        for block, *others in calls:
            pending.append(client.compute(lazily(block, *others)))
            if len(pending) >= ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        client.cancel(list(pending))


def _client() -> Any:
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_client()
    except ValueError:  # none is active
        return None
