"""Progress of a fit, as a value that the loop tells what happened."""

import time
from typing import Protocol

from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from torch import Tensor


class Progress(Protocol):
    """What a fit reports: its start, every epoch, its end."""

    def start(self, n_models: int, max_epochs: int) -> None: ...

    def advance(self, epoch: int, n_active: int, best_score: Tensor) -> None: ...

    def stop(self) -> None: ...


class Silent:
    """Says nothing."""

    def start(self, n_models: int, max_epochs: int) -> None:
        pass

    def advance(self, epoch: int, n_active: int, best_score: Tensor) -> None:
        pass

    def stop(self) -> None:
        pass


class Stopwatch:
    """Only notes the times of reports; the loop reads the fleet before it reports, so the device has caught up."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def start(self, n_models: int, max_epochs: int) -> None:
        pass

    def advance(self, epoch: int, n_active: int, best_score: Tensor) -> None:
        self.times.append(time.perf_counter())

    def stop(self) -> None:
        pass


class Bar:
    """A bar of finished models with the epoch beside it; how long early stopping takes is not known in advance."""

    def __init__(self, label: str = "training") -> None:
        self.label = label

    def start(self, n_models: int, max_epochs: int) -> None:
        self.total = n_models
        self.bar = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("models done, epoch {task.fields[epoch]}"),
            TimeElapsedColumn(),
            transient=True,
        )
        self.task = self.bar.add_task(self.label, total=n_models, epoch=0)
        self.bar.start()

    def advance(self, epoch: int, n_active: int, best_score: Tensor) -> None:
        self.bar.update(self.task, completed=self.total - n_active, epoch=epoch)

    def stop(self) -> None:
        self.bar.stop()
