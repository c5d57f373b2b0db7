"""Progress bars, for people who watch a terminal."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

Tell = Callable[[int, int | None], None]
"""Called with how much is done and the total, or None where nobody knows it."""


def silent(done: int, total: int | None) -> None:
    """Show nothing."""


def bar_of(unit: str, **options: Any) -> "Bar":
    """A bar with a description, a count of units and the time; "bytes" have a speed and the time left instead.

    A unit may name fields of the task, as in "models done, epoch {task.fields[epoch]}"; `options` are those of rich's
    `Progress`.
    """
    from rich.progress import (  # what shows no bar needs no rich
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    first = (TextColumn("{task.description}", markup=False), BarColumn())
    if unit == "bytes":
        return Progress(*first, DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(), **options)
    return Progress(*first, MofNCompleteColumn(), TextColumn(unit, markup=False), TimeElapsedColumn(), **options)


@contextmanager
def progress_bar(title: str, unit: str) -> Iterator[Tell | None]:
    """What to tell how much is done; None where standard error is no terminal, so that nobody looks."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with bar_of(unit, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


SLOW = 2.0  # seconds that nobody minds


@contextmanager
def shown_if_slow(title: str, unit: str = "") -> Iterator[Tell]:
    """What to tell how much is done: a bar appears when the work has taken two seconds, in a terminal.

    Work inside of other work has a line of its own below, while it lasts.
    """
    lines = _lines.get()
    if lines is None and not getattr(sys.stderr, "isatty", bool)():
        yield silent
        return
    if lines is not None:
        with lines.line(title, unit) as tell:
            yield tell
        return
    lines = _Lines()
    token = _lines.set(lines)
    timer = threading.Timer(SLOW, lines.appear)
    timer.daemon = True
    timer.start()
    try:
        with lines.line(title, unit) as tell:
            yield tell
    finally:
        timer.cancel()
        _lines.reset(token)
        lines.vanish()


class _Lines:
    """Lines of work in progress, shown from a moment on that a timer chooses."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lines: dict[int, tuple[str, str, int, int | None]] = {}
        self.bar: Bar | None = None
        self.tasks: dict[int, Any] = {}
        self.over = False

    @contextmanager
    def line(self, title: str, unit: str) -> Iterator[Tell]:
        with self.lock:
            place = max(self.lines, default=-1) + 1
        self._told(place, (title, unit, 0, None))
        try:
            yield lambda done, total: self._told(place, (title, unit, done, total))
        finally:
            with self.lock:
                del self.lines[place]
                if self.bar is not None and place in self.tasks:
                    self.bar.remove_task(self.tasks.pop(place))

    def appear(self) -> None:
        """Show the lines that there are, and all that come."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[count]}"))
        with self.lock:
            if self.over:
                return
            self.bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
            self.bar.start()
        for place, state in list(self.lines.items()):
            self._told(place, state)

    def vanish(self) -> None:
        """Take all away."""
        with self.lock:
            self.over = True
            if self.bar is not None:
                self.bar.stop()
                self.bar = None

    def _told(self, place: int, state: tuple[str, str, int, int | None]) -> None:
        with self.lock:
            self.lines[place] = state
            if self.bar is None:
                return
            title, unit, done, total = state
            count = "" if total is None else f"{done}/{total} {unit}"
            if place not in self.tasks:
                self.tasks[place] = self.bar.add_task(title, total=total, completed=done, count=count)
            else:
                self.bar.update(self.tasks[place], total=total, completed=done, count=count)


_lines: ContextVar[_Lines | None] = ContextVar("_lines", default=None)
