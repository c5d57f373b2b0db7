"""What a perfect forecast scores under each protocol's PCE."""

from functools import lru_cache

import numpy as np

from prerank.calibration import PCENull, inclusive_levels, pce_null
from prerank.randomness import numpy_generator
from prerank.studies.benchmark.summaries import Protocol
from prerank.studies.protocols import EXACT
from prerank.studies.published import batch_sizes, published_null_level

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
    return PCENull(published_null_level(n_cases), lambda: np.sort(total / len(sizes)))
