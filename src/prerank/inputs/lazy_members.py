"""Members that stay where they are, on a disk or a cluster, and are read a few cases at a time."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prerank.arrays.conversion import as_observations
from prerank.arrays.labels import Axes, Labels, is_xarray, labels_of, oriented, positions
from prerank.arrays.precision import precision_of
from prerank.inputs.layout import refuse_idle_axes, refuse_other_layouts, refuse_swapped

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

    @property
    def shape(self) -> tuple[int, int, int]:
        return tuple(self.array.shape)

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


@dataclass(frozen=True, eq=False)
class LazyInputs:
    """Observations (N, D) in memory, the members for them, the labels of both, and the floating type that y came in."""

    y: Tensor
    members: LazyMembers
    labels: Labels
    precision: torch.dtype | None


def observations_and_lazy_members(y: Any, forecast: Any, axes: Axes | None = None) -> LazyInputs:
    """Orient both by the names of their dimensions and match cases and targets by their labels; members are not read."""
    refuse_swapped(y, forecast)
    refuse_idle_axes(y, forecast, axes)
    y, forecast, known = oriented(y, forecast, axes)
    if forecast.ndim != 3:
        raise ValueError(
            f"a forecast of Dask chunks has the dimensions {tuple(forecast.dims)}; give three: case, member, target"
        )
    if forecast.dtype.kind not in "fiub":
        raise TypeError(
            f"the forecast has dtype {forecast.dtype}; prerank needs numbers (convert text and dates first)"
        )
    observed = as_observations(y)
    labels, own = labels_of(y, observed.ndim), labels_of(forecast, 3)
    refuse_other_layouts(tuple(forecast.shape), tuple(observed.shape), known=known)
    order = positions(own.cases, labels.cases, "the forecast")
    targets = positions(own.targets, labels.targets, "the forecast", "target")
    places = None
    if order is not None:
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order))
    found = Labels(
        own.cases if labels.cases is None else labels.cases, own.targets if labels.targets is None else labels.targets
    )
    return LazyInputs(observed, LazyMembers(forecast, places, targets), found, precision_of(y))


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
