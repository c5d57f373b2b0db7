"""A progress bar for a long check, on standard error and only where somebody can see it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LARGE = 1 << 26  # numbers in the ensemble from which a check takes seconds


@contextmanager
def check_progress(size: int) -> Iterator[Callable[[int, int], None] | None]:
    """What to tell how many cases are done; None where the work is short or nobody looks."""
    if size < _LARGE:
        yield None
        return
    from rich.console import Console  # loads slowly

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("cases"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("ranking", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
