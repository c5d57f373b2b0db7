r"""How the paper's published numbers were made, as values of their own.

The published experiments did not draw from the mixture: for every draw they took one normal draw per component and
averaged them under soft random weights (Gumbel-softmax, temperature 1), in training and in evaluation. Such an average is
too narrow, so that even a perfect forecast looks miscalibrated. Indicators were sigmoids in raw units, levels ran from
0 to 1 inclusive, PCA directions were common to a minibatch, and the test PCE was a mean over minibatches of 256. All
of that is here, to reproduce those tables and for nothing else; `PreRankPenalty` and `projected_pit` are the exact way.
"""

from prerank_paper.published.evaluation import (
    BATCH,
    batch_sizes,
    published_expected_pce,
    published_pce,
    published_pits,
)
from prerank_paper.published.penalty import PublishedPenalty
from prerank_paper.published.softcdf import soft_joint_cdf
from prerank_paper.published.softdraws import SoftDraws, soft_draws, with_gumbel
from prerank_paper.published.view import PUBLISHED_RANK, PublishedView, published_pit

__all__ = [
    "BATCH",
    "PUBLISHED_RANK",
    "PublishedPenalty",
    "PublishedView",
    "SoftDraws",
    "batch_sizes",
    "published_expected_pce",
    "published_pce",
    "published_pit",
    "published_pits",
    "soft_draws",
    "soft_joint_cdf",
    "with_gumbel",
]
