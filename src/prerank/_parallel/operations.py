"""How many threads are inside every operation that a thread calls, and what a thread knows of itself."""

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, _GeneratorContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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


class _Shared:
    """The limit, which is one for the whole process: set by the first who asks for it, lifted by the last."""

    def __init__(self) -> None:
        self.lock, self.count, self.limit = threading.Lock(), 0, ExitStack()


_shared = _Shared()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """One thread for NumPy's and SciPy's linear algebra in the whole process: their libraries know no setting of a thread.

    For a minimiser that calls it on small arrays between two looks at a loss: its threads would stay awake in between.

    >>> with single_threaded_blas():
    ...     pass
    """
    shared = _shared
    with shared.lock:
        if shared.count == 0:
            shared.limit = _limited()
        shared.count += 1
    try:
        yield
    finally:
        with shared.lock:
            shared.count -= 1
            if shared.count == 0:
                shared.limit.close()


def _limited() -> ExitStack:
    limit = ExitStack()
    controller = _controller()
    if controller is not None:
        limit.enter_context(controller.limit(limits=1, user_api="blas"))
    return limit


@cache
def _controller() -> Any:
    """What finds these libraries and sets their threads; it comes with scikit-learn. To look for them takes 2 ms."""
    try:
        import scipy.linalg  # noqa: F401 - so that its library is found
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()


def _begin_anew() -> None:
    global _shared
    _shared = _Shared()


if hasattr(os, "register_at_fork"):  # a lock may be held by a thread that the copy of this process does not have
    os.register_at_fork(after_in_child=_begin_anew)
