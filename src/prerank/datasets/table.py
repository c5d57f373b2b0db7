"""A table of features and targets, and the card that says where it comes from."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike, NDArray

from prerank._wording import counted
from prerank.io.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Card:
    """What a reader must know about a table before trusting a number made from it.

    Parameters
    ----------
    name : str
        Name of the table.
    summary : str, default ''
        What it is about.
    origin : str, default ''
        Where it comes from.
    status : str, default 'exact'
        "exact" where the rows are the paper's own; substitutes and reconstructions say so here.
    licence : str, default ''
        Terms of use.
    rows_in_paper : int, optional
        Number of rows that the paper gives.
    cleaning : tuple of str, default ()
        What was left out.
    notes : tuple of str, default ()
        What else there is to know.
    """

    name: str
    summary: str = ""
    origin: str = ""
    status: str = "exact"
    licence: str = ""
    rows_in_paper: int | None = None
    cleaning: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether the rows are those of the paper: "exact", or "exact values" from another copy."""
        return self.status.startswith("exact")


@dataclass(frozen=True, eq=False)
class Table:
    """Features and targets with their names and a card; rows keep the order of the source.

    Parameters
    ----------
    x : ndarray, shape (n_cases, n_features)
        Features.
    y : ndarray, shape (n_cases, n_targets)
        Targets.
    x_names : tuple of str
        Names of the features.
    y_names : tuple of str
        Names of the targets.
    card : Card, optional
        Where it comes from.

    Raises
    ------
    DataError
        If shapes or numbers of names differ.

    Examples
    --------
    >>> table = Table.of(np.zeros((3, 1)), [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], y_names=("u", "v"))
    >>> table
    Table 'unnamed': 3 cases, 1 feature, 2 targets (u, v)
    """

    x: NDArray[np.floating]
    y: NDArray[np.floating]
    x_names: tuple[str, ...]
    y_names: tuple[str, ...]
    card: Card = field(default_factory=lambda: Card("unnamed"))

    def __post_init__(self) -> None:
        if self.x.ndim != 2 or self.y.ndim != 2 or len(self.x) != len(self.y):
            raise DataError(f"x must be (N, L) and y (N, D) with the same N; got {self.x.shape} and {self.y.shape}.")
        if (len(self.x_names), len(self.y_names)) != (self.x.shape[1], self.y.shape[1]):
            raise DataError(
                f"{self.x.shape[1]} features and {self.y.shape[1]} targets need as many names; "
                f"got {len(self.x_names)} and {len(self.y_names)}."
            )

    @classmethod
    def of(
        cls,
        x: object,
        y: object,
        x_names: tuple[str, ...] | None = None,
        y_names: tuple[str, ...] | None = None,
        card: Card | None = None,
    ) -> "Table":
        """A table from anything NumPy understands.

        Parameters
        ----------
        x : array_like, shape (n_cases, n_features) or (n_cases,)
            Features.
        y : array_like, shape (n_cases, n_targets) or (n_cases,)
            Targets.
        x_names : tuple of str, optional
            Names of the features; x0, x1, ... by default.
        y_names : tuple of str, optional
            Names of the targets; y0, y1, ... by default.
        card : Card, optional
            Where it comes from.

        Returns
        -------
        Table
            The table.
        """
        x_array, y_array = _floating(x), _floating(y)
        if x_array.ndim == 1:
            x_array = x_array[:, None]
        if y_array.ndim == 1:
            y_array = y_array[:, None]
        if x_array.ndim != 2 or y_array.ndim != 2:
            raise DataError(f"x must be (N, L) and y (N, D); got {x_array.shape} and {y_array.shape}.")
        return cls(
            x_array,
            y_array,
            x_names or tuple(f"x{i}" for i in range(x_array.shape[1])),
            y_names or tuple(f"y{i}" for i in range(y_array.shape[1])),
            card or Card("unnamed"),
        )

    @property
    def n_cases(self) -> int:
        """N, the number of rows."""
        return len(self.y)

    @property
    def n_features(self) -> int:
        """L, the number of feature columns."""
        return self.x.shape[1]

    @property
    def n_targets(self) -> int:
        """D, the number of target columns."""
        return self.y.shape[1]

    def astype(self, dtype: DTypeLike) -> "Table":
        """The same table in another floating type.

        Parameters
        ----------
        dtype : dtype_like
            A floating type.

        Returns
        -------
        Table
            The converted table.
        """
        return replace(self, x=self.x.astype(dtype, copy=False), y=self.y.astype(dtype, copy=False))

    def frame(self) -> "pd.DataFrame":
        """The table as a data frame with columns `x:NAME` and `y:NAME`.

        Returns
        -------
        pandas.DataFrame
            A row per case.
        """
        import pandas as pd

        names = [f"x:{name}" for name in self.x_names] + [f"y:{name}" for name in self.y_names]
        return pd.DataFrame(np.concatenate([self.x, self.y], axis=1), columns=pd.Index(names))

    def __repr__(self) -> str:
        targets = ", ".join(self.y_names[:6]) + (", ..." if self.n_targets > 6 else "")
        return (
            f"Table {self.card.name!r}: {counted(self.n_cases, 'case')}, {counted(self.n_features, 'feature')}, "
            f"{counted(self.n_targets, 'target')} ({targets})"
        )


def _floating(values: object) -> NDArray[np.floating]:
    array = np.asarray(values)
    return array if np.issubdtype(array.dtype, np.floating) else array.astype(np.float64)
