"""A progress bar for downloads, on standard error and only where somebody can see it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int | None], None]
"""Called with the bytes on disk so far and the total, or None where the server does not say."""


def silent(done: int, total: int | None) -> None:
    """Show nothing."""


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """A bar with bytes, speed and time left; silent when standard error is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal:
        yield silent
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
