"""Items of work spread over the calling thread and helpers, their results in order."""

import math
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

import torch

from prerank._parallel.operations import here, single_threaded

VARIABLE = "PRERANK_NUM_THREADS"


def granted_threads() -> int:
    """The least of what the machine, the caller and the environment grant.

    That is the processors that this process may run on, a container's share of them (rounded up), what
    `torch.get_num_threads()` says to the caller, and the variables `OMP_NUM_THREADS` and `PRERANK_NUM_THREADS`. In a
    thread that is one of several at the same work it is one.
    """
    if here.shares:
        return 1
    limits = [_processors(), torch.get_num_threads() if here.given is None else here.given]
    quota = cgroup_quota()
    if quota is not None:
        limits.append(math.ceil(quota))
    openmp = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # one number for each level of nesting
    if openmp.isdecimal():
        limits.append(int(openmp))
    own = os.environ.get(VARIABLE, "").strip()
    if own:
        if not own.isdecimal() or int(own) < 1:
            raise ValueError(f"{VARIABLE}={own!r}; it is a whole number of at least 1, or not set")
        limits.append(int(own))
    return max(1, min(limits))


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def cgroup_quota(mounted: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """Processors that the control groups of this process (a container, a job) may use at a time; None without a limit."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # version 2 has one tree and no controllers here, version 1 a tree for each or for several
        for top in [mounted / controllers, mounted / "cpu"] if controllers else [mounted]:
            inside = top / path.lstrip("/")
            # a limit holds for all groups below; a container may be told the host's path, and see its own group as the top
            quotas += [_quota(folder) for folder in (inside, *inside.parents) if folder.is_relative_to(top)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota(folder: Path) -> float | None:
    """The limit of one control group: in `cpu.max` by version 2, in two files by version 1."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else None  # -1 stands for no limit
    except (OSError, ValueError, ZeroDivisionError):  # "max" stands for no limit, too
        return None


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

NAME = "prerank"  # of helpers, for those who look at a process from outside


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
    """The calling thread and its helpers at one list of items.

    They speak through queues, which Ctrl-C cannot leave locked, as it could a condition.
    """

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any], granted: int) -> None:
        self.function, self.items, self.granted = function, items, granted
        self.fed, self.over = 0, False
        self.to_do: SimpleQueue[int | None] = SimpleQueue()  # places of items; None sends a helper home
        self.done: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self.helpers: list[threading.Thread] = []
        self.grad, self.inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def work(self, take: Callable[[Any, Any], object]) -> None:
        """Compute all items, and hand each result to `take`, in order."""
        waiting: dict[int, Any] = {}
        try:
            here.shares = True
            _crews.enter(self)
            for place, item in enumerate(self.items):
                self._feed(place + 2 * self.granted)
                self._hire(len(self.items) - place)
                while place not in waiting:
                    waiting.update([self._one_more()])
                result = waiting.pop(place)
                if isinstance(result, _Failure):
                    raise result.exception
                take(item, result)
        finally:
            here.shares = False
            self.over = True
            for _ in self.helpers:
                self.to_do.put(None)
            for helper in self.helpers:  # nobody waits for what they are at, but it shall not go on unseen either
                if helper.is_alive():
                    helper.join()
            _crews.leave(self)

    def _feed(self, until: int) -> None:
        """Let so many items be begun."""
        for place in range(self.fed, min(until, len(self.items))):
            self.to_do.put(place)
            self.fed = place + 1

    def _hire(self, n_left: int) -> None:
        """Start helpers if there is work for them and other calls leave processors for them."""
        while sum(helper.is_alive() for helper in self.helpers) < min(self.granted, n_left) - 1:
            helper = threading.Thread(target=copy_context().run, args=(self._help,), name=NAME, daemon=True)
            if not _crews.add_helper(self, helper):
                return

    def _one_more(self) -> tuple[int, Any]:
        """The next result of anyone; if there is none, that of an item that nobody has begun."""
        if self.done.empty():
            try:
                place = self.to_do.get_nowait()
            except Empty:
                return self.done.get()
            assert place is not None  # helpers are sent home when all is taken
            return place, self._computed(place, Exception)  # Ctrl-C is not for later
        return self.done.get()

    def _help(self) -> None:
        """What a helper does, until all is done or another call needs the processor."""
        with torch.inference_mode(self.inference), torch.set_grad_enabled(self.grad), single_threaded():
            here.shares = True
            while not _crews.too_many(self.granted):
                place = self.to_do.get()
                if place is None or self.over:
                    return
                self.done.put((place, self._computed(place, BaseException)))

    def _computed(self, place: int, kept: type[BaseException]) -> Any:
        """The result of an item, or an exception of a kind that is kept until its turn has come."""
        try:
            return self.function(self.items[place])
        except kept as exception:
            return _Failure(exception)


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
            crew.helpers.append(helper)
            helper.start()
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
