"""One thread for the linear algebra of NumPy and SciPy."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any


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
