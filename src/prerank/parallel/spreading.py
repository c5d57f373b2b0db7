"""Items of work spread over the calling thread and helpers, their results in order."""

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, NamedTuple, TypeVar

import torch

from prerank.parallel.granted import granted_threads
from prerank.parallel.operations import here, single_threaded

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_threads(
    function: Callable[[_Item], _Result],
    items: Sequence[_Item],
    take: Callable[[_Item, _Result], object] | None = None,
    *,
    spread: bool = True,
) -> list[_Result]:
    """`[function(item) for item in items]` on the threads that are granted, one thread inside every operation.

    With `take`, each result is handed to it instead, as `take(item, result)`: in the order of the items and by the calling
    thread, so that sums over results do not depend on who was faster. At most twice as many results as threads wait at a
    time. An exception is that of the first item that has one. Grad mode and context variables are the caller's. All calls
    of a process share what is granted. One item, one thread, `spread=False` (tensors on a GPU, code that is not ours) or a
    call from within another: everything is done by the calling thread.

    >>> in_threads(lambda n: n * n, [1, 2, 3])
    [1, 4, 9]
    """
    results: list[_Result] = []
    take = (lambda _, result: results.append(result)) if take is None else take
    with single_threaded():
        granted = granted_threads() if spread and len(items) > 1 and _others_see_the_same() else 1
        if granted > 1:
            _Crew(function, items, granted).work(take)
        else:
            for item in items:
                take(item, function(item))
    return results


def _others_see_the_same() -> bool:
    """Whether torch has no setting here that it keeps for each thread."""
    return torch.get_default_device().type == "cpu" and not torch.is_autocast_enabled("cpu")


class _Failure(NamedTuple):
    exception: BaseException


class _Crew:
    """The calling thread and its helpers at one list of items."""

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any], granted: int) -> None:
        self.function, self.items, self.granted = function, items, granted
        self.changed = threading.Condition()
        self.started, self.taken, self.over = 0, 0, False
        self.results: dict[int, Any] = {}
        self.helpers: list[threading.Thread] = []
        self.grad, self.inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def work(self, take: Callable[[Any, Any], object]) -> None:
        """Compute all items, and hand each result to `take`, in order."""
        try:
            here.shares = True
            _crews.enter(self)
            for place, item in enumerate(self.items):
                self._hire()
                take(item, self._result(place))
        finally:
            here.shares = False
            with self.changed:
                self.over = True
                self.changed.notify_all()
            for helper in self.helpers:  # nobody waits for what they are at, but it shall not go on unseen
                helper.join()
            _crews.leave(self)

    def _result(self, place: int) -> Any:
        """The result of an item. Until it is there, this thread computes what nobody has begun."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: place in self.results or self._may_start())
                if place in self.results:
                    found = self.results.pop(place)
                    self.taken += 1
                    self.changed.notify_all()
                    break
                own = self._start()
            self._compute(own, Exception)  # Ctrl-C is for the caller, and at once
        if isinstance(found, _Failure):
            raise found.exception
        return found

    def _hire(self) -> None:
        """Start helpers if there is work for them and other calls leave processors for them."""
        while sum(helper.is_alive() for helper in self.helpers) < min(self.granted, self._left()) - 1:
            context = copy_context()
            if not _crews.add_helper(self, threading.Thread(target=context.run, args=(self._help,), daemon=True)):
                return

    def _help(self) -> None:
        """What a helper does."""
        with torch.inference_mode(self.inference), torch.set_grad_enabled(self.grad), single_threaded():
            here.shares = True
            while (place := self._next()) is not None:
                self._compute(place, BaseException)

    def _next(self) -> int | None:
        """An item for a helper; None if all are begun, or another call needs the processor."""
        with self.changed:
            self.changed.wait_for(lambda: self.over or not self._left() or self._may_start())
            return None if self.over or not self._left() or _crews.too_many(self.granted) else self._start()

    def _left(self) -> int:
        return len(self.items) - self.started

    def _may_start(self) -> bool:
        return self._left() > 0 and self.started < self.taken + 2 * self.granted

    def _start(self) -> int:
        self.started += 1
        return self.started - 1

    def _compute(self, place: int, kept: type[BaseException]) -> None:
        """Compute an item; an exception of a kind that is kept is raised when its turn has come."""
        try:
            result = self.function(self.items[place])
        except kept as exception:
            result = _Failure(exception)
        with self.changed:
            self.results[place] = result
            self.changed.notify_all()


class _Crews:
    """All that compute in this process at the same time: together they take the threads that are granted."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.working: weakref.WeakSet[_Crew] = weakref.WeakSet()

    def enter(self, crew: _Crew) -> None:
        with self.lock:
            self.working.add(crew)

    def leave(self, crew: _Crew) -> None:
        with self.lock:
            self.working.discard(crew)

    def add_helper(self, crew: _Crew, helper: threading.Thread) -> bool:
        """Start a helper, unless as many threads as the crew may have are computing."""
        with self.lock:
            if self._size() >= crew.granted:
                return False
            helper.start()
            crew.helpers.append(helper)
            return True

    def too_many(self, granted: int) -> bool:
        with self.lock:
            return self._size() > granted

    def _size(self) -> int:
        return sum(1 + sum(helper.is_alive() for helper in crew.helpers) for crew in self.working)


_crews = _Crews()


def _begin_anew() -> None:
    """A copy of this process has none of its threads, and its locks may be held by one of them."""
    global _crews
    _crews = _Crews()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
