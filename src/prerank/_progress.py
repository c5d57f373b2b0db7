"""Progress bars, for people who watch a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
