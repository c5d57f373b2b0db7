"""What a perfect forecast scores under each protocol's PCE."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from prerank.calibration import PCENull, inclusive_levels, pce_null
from prerank.randomness import numpy_generator
from prerank_paper.protocols import EXACT
from prerank_paper.published import batch_sizes, published_expected_pce
from prerank_paper.report.summaries import Protocol

_REPLICATES = 20_000


def statistic_null(protocol: Protocol, n_cases: int) -> PCENull:
    """Null distribution of the PCE of one projection as the protocol computes it on `n_cases` test cases.

    Pre-ranks with several projections average their PCEs, which varies less: for them its quantiles are cautious.
    """
    return pce_null(n_cases) if protocol.evaluation == EXACT else published_null(n_cases)


@lru_cache(maxsize=64)
def published_null(n_cases: int) -> PCENull:
    """The same for the published statistic: a mean over batches of 256 cases and one smaller last batch.

    >>> null = published_null(512)
    >>> round(null.mean, 4), null.quantile(0.95) < pce_null(256).quantile(0.95)
    (0.0194, True)
    """
    levels = inclusive_levels()
    generator = numpy_generator(0, "published null", n_cases)
    sizes = batch_sizes(n_cases)
    total = np.zeros(_REPLICATES)
    for size in sizes:
        total += generator.choice(pce_null(size, levels=levels).sample, _REPLICATES)
    return PCENull(published_expected_pce(n_cases), lambda: np.sort(total / len(sizes)))


class CalibratedRange(NamedTuple):
    """Between which multiples of the expected PCE 95 % of calibrated forecasts lie: one projection, or a mean of several.

    A mean of several varies less than one of them: `mean` is the range if they were independent, `single` if all agreed.
    """

    single: tuple[float, float]
    mean: tuple[float, float]


def calibrated_range(null: PCENull, n_projections: int, coverage: float = 0.95) -> CalibratedRange:
    """The ranges of a null distribution.

    >>> found = calibrated_range(pce_null(500), 16)
    >>> found.single[0] < found.mean[0] < 1 < found.mean[1] < found.single[1]
    True
    """
    tails = ((1 - coverage) / 2, (1 + coverage) / 2)
    low, high = (float(null.quantile(tail)) / null.mean for tail in tails)
    if n_projections == 1:
        return CalibratedRange((low, high), (low, high))
    generator = numpy_generator(0, "mean of projections", n_projections)
    means = generator.choice(np.asarray(null.sample), (4000, n_projections)).mean(1) / null.mean
    below, above = np.quantile(means, tails)
    return CalibratedRange((low, high), (float(below), float(above)))
