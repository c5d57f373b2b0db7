"""A function of tensors, called as it is or replayed as a CUDA graph."""

import gc
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from prerank.training.protocols import declares_capture


def is_capturable(device: torch.device, *terms: object) -> bool:
    """Whether a step with these scores and penalties is replayed as a graph: on a GPU, if all of them declare it."""
    return device.type == "cuda" and all(declares_capture(term) for term in terms)


class Plain:
    """The function itself."""

    seconds = 0.0  # that it took to get ready

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __call__(self, *inputs: Tensor) -> None:
        self.function(*inputs)


class Captured:
    """The function as a CUDA graph: captured at the first call, replayed afterwards with new inputs copied in.

    Hundreds of small kernels then start without the host, which could not keep up with them. The first call runs the
    function a few times to warm libraries up, so its effects on `state`, all tensors that it changes, are undone. A
    function that waits for the device, as the library's eigenvectors do, cannot be captured and is called as it is.
    `seconds` is what a capture took, without what was compiled before it.
    """

    def __init__(self, function: Callable[..., None], state: Sequence[Tensor], warm_ups: int = 3) -> None:
        self.function, self.state, self.warm_ups = function, state, warm_ups
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: tuple[Tensor, ...] = ()
        self.waits = False
        self.seconds = 0.0

    def __call__(self, *inputs: Tensor) -> None:
        if self.graph is None and not self.waits:
            self._capture(inputs)
        if self.graph is None:
            self.function(*inputs)
            return
        for static, given in zip(self.inputs, inputs, strict=True):
            static.copy_(given)
        self.graph.replay()

    def _capture(self, inputs: tuple[Tensor, ...]) -> None:
        self.inputs = tuple(given.clone() for given in inputs)
        before = [tensor.clone() for tensor in self.state]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(self.warm_ups - 1):
                self.function(*self.inputs)
            start = time.monotonic()
            self.waits = _waits(self.function, self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        if not self.waits:
            self._record()
        for tensor, value in zip(self.state, before, strict=True):
            tensor.copy_(value)
        self.seconds = time.monotonic() - start

    def _record(self) -> None:
        # A graph of an earlier fit that is collected during the capture would invalidate it.
        gc.collect()
        collecting = gc.isenabled()
        gc.disable()
        try:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.function(*self.inputs)
        finally:
            if collecting:
                gc.enable()


def _waits(function: Callable[..., None], inputs: tuple[Tensor, ...]) -> bool:
    """Whether the function, called once, makes the host wait for the device."""
    before = torch.cuda.get_sync_debug_mode()
    _on_waiting("error")
    try:
        function(*inputs)
    except RuntimeError as failure:
        if "synchronizing CUDA operation" not in str(failure):
            raise
        return True
    finally:
        _on_waiting(before)
    return False


def _on_waiting(mode: int | str) -> None:
    with warnings.catch_warnings():
        # torch says that it may overlook a wait; the capture would then refuse it
        warnings.filterwarnings("ignore", "Synchronization debug mode")
        torch.cuda.set_sync_debug_mode(mode)


class Branches:
    """Streams that work at the same time: what is computed in `branches[k]` may run beside the other branches.

    The penalties of a fleet do not wait for each other, and each alone is too small to fill a GPU. Captured in a graph,
    the branches become parallel paths, in the backward pass too. On a CPU this is nothing.
    """

    def __init__(self, device: torch.device, count: int) -> None:
        self.streams = [torch.cuda.Stream(device) for _ in range(count)] if device.type == "cuda" else []

    def __enter__(self) -> "Branches":
        for stream in self.streams:
            stream.wait_stream(torch.cuda.current_stream())
        return self

    def __getitem__(self, number: int) -> AbstractContextManager[object]:
        return torch.cuda.stream(self.streams[number]) if self.streams else nullcontext()

    def __exit__(self, *failure: object) -> None:
        for stream in self.streams:
            torch.cuda.current_stream().wait_stream(stream)
