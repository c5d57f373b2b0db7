"""How many threads are inside every operation that a thread calls, and what a thread knows of itself."""

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import _GeneratorContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch


class Here(threading.local):
    """What a thread knows of itself: the number of threads that its caller gave it (None outside of our calls), and
    whether it is one of several at the same work."""

    given: int | None = None
    shares: bool = False


here = Here()


def single_threaded() -> _GeneratorContextManager[None]:
    """One thread for every operation of torch that this thread calls, and the caller's setting again afterwards.

    A context manager and a decorator; inside of another it does nothing. Other threads keep their setting, and so do those
    that start in the meantime.

    >>> with single_threaded():
    ...     torch.get_num_threads()
    1
    """
    return threads_inside(1)


@contextmanager
def threads_inside(n_threads: int) -> Iterator[None]:
    """The same with another number of threads, for a few large operations."""
    if here.given is not None:
        yield
        return
    before = torch.get_num_threads()  # which also lets torch set up this thread: later it would undo what follows
    products = 0
    try:
        here.given = before
        products = _set(n_threads, n_threads)
        yield
    finally:
        _set(before, products)
        here.given = None


class _OwnSettings(NamedTuple):
    """What sets the number of threads of the calling thread: OpenMP's, and MKL's, which returns what it was."""

    openmp: Callable[[int], object]
    mkl: Callable[[int], int]


def _set(n_threads: int, products: int) -> int:
    """Set the number of threads of this thread's operations; that of matrix products, 0 for the same, is given back."""
    own = _own_settings()
    if own is None:
        torch.set_num_threads(n_threads)
        return 0
    own.openmp(n_threads)
    return own.mkl(products)


@cache
def _own_settings() -> _OwnSettings | None:
    """OpenMP and MKL as torch has loaded them; None where they are not found.

    `torch.set_num_threads` sets these two, and besides what new threads start with: one of the user's that began while we
    compute would have a single thread for good.
    """
    suffix = "dylib" if sys.platform == "darwin" else "so"
    try:
        library = ctypes.PyDLL(str(Path(torch.__file__).parent / "lib" / f"libtorch_cpu.{suffix}"))
        if library.omp_get_max_threads() != torch.get_num_threads():
            return None
        return _OwnSettings(
            library.omp_set_num_threads, getattr(library, "MKL_Set_Num_Threads_Local", lambda n_threads: 0)
        )
    except (OSError, AttributeError):
        return None
