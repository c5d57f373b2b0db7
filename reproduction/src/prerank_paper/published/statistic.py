r"""The test statistic as the paper prints it, which is not the one it plots.

Printed is a mean of PCEs of single PIT values, $\frac1n \sum_i \mathrm{PCE}(U_i)$. The PCE of one value u is
$\int_0^1 |1\{u \le \alpha\} - \alpha|\,d\alpha = \frac14 + (u - \frac12)^2$, so that the mean is 1/3 under calibration,
above it where PITs lie too far out (a forecast that is too narrow, or biased) and *below* it for a forecast that is too
wide, which a test of the right tail cannot see.
"""

import torch
from torch import Tensor

from prerank.calibration import inclusive_levels, pce


def printed_statistic(pit: Tensor) -> Tensor:
    """Mean over cases of the PCE of each PIT alone: (..., N, K) -> (..., K).

    >>> printed_statistic(torch.linspace(0.0005, 0.9995, 1000)[:, None])
    tensor([0.3333])
    >>> printed_statistic(torch.full((1000, 1), 0.5))
    tensor([0.2500])
    """
    levels = inclusive_levels().to(pit)
    each = (pit[..., None] <= levels).to(pit) - levels
    # the ends of the grid count half, as in an integral: both deviations are zero there for nearly every PIT
    weight = torch.ones_like(levels)
    weight[0] = weight[-1] = 0.5
    return ((each.abs() * weight).sum(-1) / weight.sum()).mean(-2)


def plotted_statistic(pit: Tensor) -> Tensor:
    """The PCE of all cases together, which the paper's histograms show: (..., N, K) -> (..., K)."""
    return pce(pit, levels=inclusive_levels())
