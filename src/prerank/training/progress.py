"""Progress of a fit, as a value that the loop tells what happened."""

from typing import Protocol

from torch import Tensor

from prerank._progress import bar_of


class Progress(Protocol):
    """What a fit reports: its start, every epoch, its end."""

    def start(self, n_models: int, max_epochs: int) -> None:
        """Called before the first epoch.

        Parameters
        ----------
        n_models : int
            Models of the fleet.
        max_epochs : int
            The most epochs.
        """

    def advance(self, epoch: int, n_active: int, best_score: Tensor) -> None:
        """Called after every epoch.

        Parameters
        ----------
        epoch : int
            Number of the epoch.
        n_active : int
            Models that are still trained.
        best_score : Tensor, shape (n_models,)
            Best validation score of each model.
        """

    def stop(self) -> None:
        """Called at the end, also after an error."""


class Silent:
    """No report of progress."""

    def start(self, n_models: int, max_epochs: int) -> None:
        """Called before the first epoch.

        Parameters
        ----------
        n_models : int
            Models of the fleet.
        max_epochs : int
            The most epochs.
        """

    def advance(self, epoch: int, n_active: int, best_score: Tensor) -> None:
        """Called after every epoch.

        Parameters
        ----------
        epoch : int
            Number of the epoch.
        n_active : int
            Models that are still trained.
        best_score : Tensor, shape (n_models,)
            Best validation score of each model.
        """

    def stop(self) -> None:
        """Called at the end, also after an error."""


class Bar:
    """A bar of finished models with the epoch beside it; how long early stopping takes is not known in advance.

    Parameters
    ----------
    label : str, default 'training'
        What stands beside the bar.
    """

    def __init__(self, label: str = "training") -> None:
        self.label = label

    def start(self, n_models: int, max_epochs: int) -> None:
        """Called before the first epoch.

        Parameters
        ----------
        n_models : int
            Models of the fleet.
        max_epochs : int
            The most epochs.
        """
        self.total = n_models
        self.bar = bar_of("models done, epoch {task.fields[epoch]}", transient=True)
        self.task = self.bar.add_task(self.label, total=n_models, epoch=0)
        self.bar.start()

    def advance(self, epoch: int, n_active: int, best_score: Tensor) -> None:
        """Called after every epoch.

        Parameters
        ----------
        epoch : int
            Number of the epoch.
        n_active : int
            Models that are still trained.
        best_score : Tensor, shape (n_models,)
            Best validation score of each model.
        """
        self.bar.update(self.task, completed=self.total - n_active, epoch=epoch)

    def stop(self) -> None:
        """Called at the end, also after an error."""
        self.bar.stop()
