"""Splitting a table as the paper does: sizes by rule, rows by seed, standardised by the training part alone."""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from prerank.datasets import Standardiser, Table
from prerank.datasets.standardise import require_variation
from prerank.io import DataError
from prerank.randomness import keyed_order

PAPER_SEEDS = (0, 42, 866, 12, 4)
"""The paper's five seeds; one seed drives split and initialisation."""


class SplitSizes(NamedTuple):
    """Rows of each part."""

    train: int
    validation: int
    calibration: int
    test: int


@dataclass(frozen=True)
class SplitProtocol:
    """Shares of train, validation and calibration; the test part takes the rest.

    The calibration part holds at most `calibration_cap` rows; the surplus is shared equally by the other three. Sizes
    are truncated, in exact arithmetic, and the test part takes the remainder.

    Parameters
    ----------
    train : Fraction, default 2/5
        Share of the training part.
    validation : Fraction, default 1/10
        Share of the validation part.
    calibration : Fraction, default 3/10
        Share of the calibration part.
    calibration_cap : int or None, default 2048
        The most rows of the calibration part; None for no limit.

    Raises
    ------
    DataError
        If a share is negative or none is left for the test part.

    Examples
    --------
    >>> PAPER_SPLIT.sizes(7_207)
    SplitSizes(train=2920, validation=758, calibration=2048, test=1481)
    """

    train: Fraction = field(default=Fraction(4, 10))
    validation: Fraction = field(default=Fraction(1, 10))
    calibration: Fraction = field(default=Fraction(3, 10))
    calibration_cap: int | None = 2048

    def __post_init__(self) -> None:
        shares = (self.train, self.validation, self.calibration)
        if min(shares) < 0 or sum(shares) >= 1:
            raise DataError(
                f"Shares must not be negative and must leave rows for the test part; got {', '.join(map(str, shares))}."
            )

    def sizes(self, n_cases: int) -> SplitSizes:
        """Sizes of the parts of a table.

        Parameters
        ----------
        n_cases : int
            Rows of the table.

        Returns
        -------
        SplitSizes
            Rows of train, validation, calibration and test.
        """
        calibration = Fraction(self.calibration) * n_cases
        surplus = Fraction(0)
        if self.calibration_cap is not None and calibration > self.calibration_cap:
            surplus = (calibration - self.calibration_cap) / 3
            calibration = Fraction(self.calibration_cap)
        train, validation = (int(Fraction(share) * n_cases + surplus) for share in (self.train, self.validation))
        rest = n_cases - train - validation - int(calibration)
        return SplitSizes(train, validation, int(calibration), rest)


PAPER_SPLIT = SplitProtocol()
"""40 / 10 / 30 / 20 %, calibration capped at 2,048 rows."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of a table, standardised.

    Attributes
    ----------
    x : ndarray, shape (n_cases, n_features)
        Features.
    y : ndarray, shape (n_cases, n_targets)
        Targets.
    rows : ndarray of int, shape (n_cases,)
        Which rows of the table they are; they serve as case identifiers.
    """

    x: NDArray[np.floating]
    y: NDArray[np.floating]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class Split:
    """The four parts of a table and the standardisers, made from `train` alone.

    Attributes
    ----------
    train : Part
        Rows to fit to.
    validation : Part
        Rows for early stopping.
    calibration : Part
        Rows for recalibration.
    test : Part
        Rows for evaluation.
    x_scaler : Standardiser
        Of the features.
    y_scaler : Standardiser
        Of the targets; `inverse` brings forecasts back to their units.
    seed : int
        Seed of the split.
    """

    train: Part
    validation: Part
    calibration: Part
    test: Part
    x_scaler: Standardiser
    y_scaler: Standardiser
    seed: int

    @property
    def sizes(self) -> SplitSizes:
        """Rows of each part."""
        return SplitSizes(len(self.train), len(self.validation), len(self.calibration), len(self.test))


Order = Callable[[int, int], NDArray[np.int64]]
"""A shuffling of the rows: (number of rows, seed) -> row numbers."""


def published_order(n_cases: int, seed: int) -> NDArray[np.int64]:
    """The order of the published experiments: torch's random permutation from a generator with that seed.

    With the paper's seeds and tables this gives the very rows that its models were trained and tested on
    (`torch.utils.data.random_split` in the authors' data module). It is as stable as torch's generator.

    >>> sorted(published_order(4, seed=0).tolist())
    [0, 1, 2, 3]
    """
    import torch

    return torch.randperm(n_cases, generator=torch.Generator().manual_seed(seed)).numpy()


def split(table: Table, seed: int, protocol: SplitProtocol = PAPER_SPLIT, order: Order = keyed_order) -> Split:
    """Split a table into train, validation, calibration and test, and standardise by the training part.

    The same seed gives the same rows on any machine. Validation and test rows never enter the statistics.

    Parameters
    ----------
    table : Table
        Features and targets.
    seed : int
        Seed of the shuffling.
    protocol : SplitProtocol, default SplitProtocol()
        Sizes of the parts; the default is the paper's.
    order : callable, default keyed_order
        How rows are shuffled, (number of rows, seed) to row numbers; `published_order` for the rows of the published
        experiments.

    Returns
    -------
    Split
        The parts and the standardisers.

    Raises
    ------
    DataError
        If there are too few rows, or a target does not vary in the training part.

    Examples
    --------
    >>> from prerank_paper.datasets.loading import load
    >>> split(load("diabetes"), seed=0).sizes
    SplitSizes(train=176, validation=44, calibration=132, test=90)
    """
    sizes = protocol.sizes(table.n_cases)
    if sizes.train < 2 or sizes.test < 1:
        raise DataError(
            f"{table.n_cases} cases split into {sizes.train} training and {sizes.test} test rows; "
            "at least 2 and 1 are needed. Use more data or another SplitProtocol."
        )
    parts = np.split(order(table.n_cases, seed), np.cumsum(sizes)[:-1])
    x_scaler, y_scaler = Standardiser.fit(table.x[parts[0]]), Standardiser.fit(table.y[parts[0]])
    remedy = "Use more data, another seed, or leave it out."
    require_variation(table.y[parts[0]], table.y_names, "training rows", remedy)
    train, validation, calibration, test = (
        Part(x_scaler.apply(table.x[rows]), y_scaler.apply(table.y[rows]), rows) for rows in parts
    )
    return Split(train, validation, calibration, test, x_scaler, y_scaler, seed)
