"""The average rank and the band depth: where a point stands among all points of its case, target by target."""

from dataclasses import dataclass

import torch
from torch import Tensor

from prerank._reproducible_math import total
from prerank.forecasts import Ensemble, Forecast
from prerank.preranks.projection import PointwiseProjection
from prerank.preranks.rank_counts import all_weights_below_and_at
from prerank.preranks.table1 import PreRank
from prerank.preranks.view import View, view_of


def mid_ranks(points: Tensor, pool: Ensemble) -> Tensor:
    """Mid-ranks 1..R of points (..., N, P, D) in a pool of R of them, target by target: targets first, (D, ..., N, P).

    Tied points share the mean of their ranks. A point outside the pool stands half a rank from those around it. Weights of
    the pool count as if they summed to R.

    >>> pool = torch.tensor([[[1.0], [3.0], [3.0]]])
    >>> mid_ranks(pool, Ensemble(pool))
    tensor([[[1.0000, 2.5000, 2.5000]]], dtype=torch.float64)
    """
    if points is pool.members and pool.weights is None:
        below, at = all_weights_below_and_at(points.detach(), None)
        return (2 * below.int() + at.int() + 1).movedim(-1, 0).double() / 2
    ordered, order = pool.members.detach().mT.contiguous().sort(-1)
    columns = points.detach().mT.contiguous()
    lead = torch.broadcast_shapes(ordered.shape[:-1], columns.shape[:-1])
    ordered = ordered.expand(*lead, -1).contiguous()
    columns = columns.expand(*lead, -1).contiguous()
    below = torch.searchsorted(ordered, columns)
    through = torch.searchsorted(ordered, columns, right=True)
    if pool.weights is None:
        ranks = (below + through + 1).double() / 2
    else:
        share = pool.weights.detach().double() / pool.weights.detach().double().sum(-1, keepdim=True)
        sums = (pool.n_members * share)[..., None, :].expand(order.shape).gather(-1, order).cumsum(-1)
        sums = torch.nn.functional.pad(sums, (1, 0)).expand(*lead, -1)
        ranks = (sums.gather(-1, below) + sums.gather(-1, through) + 1) / 2
    return ranks.movedim(-2, 0)


@dataclass(frozen=True)
class AverageRank(PreRank):
    r"""The mean over targets of a point's rank among all points of its case, $\rho(y) = \frac1D \sum_d r_d(y)$.

    Ranks are among the members pooled with the observation, ties at their middle, or among reference draws of a
    distribution. Large means high in most targets. It is `Location` for targets in any units: it sees a common bias and
    how often targets are high or low together, whatever their laws. Blind to errors that cancel in the mean, and to how far
    a point lies beyond the others. A step function, so nothing can be trained with it; train with `Location`.

    Parameters
    ----------
    n_reference : int, default 1000
        Draws of a distribution that points are ranked among; unused for ensembles.
    name : str, default 'average rank'
        What results call it.

    See Also
    --------
    Copula : the share of points that are lower in every target (the multivariate rank)
    BandDepth : centrality by the same ranks

    References
    ----------
    Thorarinsdottir, Scheuerer and Heinz (2016), Assessing the calibration of high-dimensional ensemble forecasts using rank
    histograms, JCGS.

    Examples
    --------
    >>> from prerank import Ensemble
    >>> points = torch.tensor([[[0.0, 0.0], [1.0, 5.0], [2.0, 1.0]]])
    >>> AverageRank().given(Ensemble(points))(points).squeeze()
    tensor([1.0000, 2.5000, 2.5000])
    """

    n_reference: int = 1000
    name: str = "average rank"
    trainable = False

    def given(self, view: View | Forecast) -> PointwiseProjection:
        view = view_of(view)
        pool = view.draws("reference for ranks", self.n_reference)
        note = f"ranks among {pool.n_members} points"
        return PointwiseProjection(lambda points: _mean(mid_ranks(points, pool), points), ("average rank",), note)


@dataclass(frozen=True)
class BandDepth(PreRank):
    r"""How central a point is: $\rho(y) = \frac1D \sum_d (R - r_d(y))(r_d(y) - 1)$, with its ranks $r_d$ among R points.

    Up to a factor the share of pairs of points between which it lies, averaged over targets (modified band depth of order
    two). Large means central, small outlying. Sees too narrow and too wide forecasts, a bias as outlyingness, and wrong
    dependence in the long run. Blind to direction: errors that exchange equally central outcomes stay hidden. It is
    constant among two points, so with one member every rank ties. A step function, so nothing can be trained with it;
    train with `HDR`.

    Parameters
    ----------
    n_reference : int, default 1000
        Draws of a distribution that points are ranked among; unused for ensembles.
    name : str, default 'band depth'
        What results call it.

    See Also
    --------
    HDR : centrality by the forecast's density
    Mahalanobis : centrality by mean and covariance

    References
    ----------
    Thorarinsdottir, Scheuerer and Heinz (2016), Assessing the calibration of high-dimensional ensemble forecasts using rank
    histograms, JCGS; Lopez-Pintado and Romo (2009), On the concept of depth for functional data, JASA.

    Examples
    --------
    >>> from prerank import Ensemble
    >>> points = torch.tensor([[[0.0, 0.0], [1.0, 5.0], [2.0, 1.0]]])
    >>> BandDepth().given(Ensemble(points))(points).squeeze()
    tensor([0.0000, 0.5000, 0.5000])
    """

    n_reference: int = 1000
    name: str = "band depth"
    trainable = False

    def given(self, view: View | Forecast) -> PointwiseProjection:
        view = view_of(view)
        pool = view.draws("reference for ranks", self.n_reference)

        def depth(points: Tensor) -> Tensor:
            ranks = mid_ranks(points, pool)
            return _mean((pool.n_members - ranks) * (ranks - 1), points)

        note = f"depth among {pool.n_members} points"
        if pool.n_members == 2 and view.n_points == 2:
            note += ", the same for all of them: one member is too few, use AverageRank()"
        return PointwiseProjection(depth, ("band depth",), note)


def _mean(values: Tensor, points: Tensor) -> Tensor:
    """Mean over targets (D, ..., N, P), (..., N, P, 1), in the type of the points."""
    return (total(values, 0) / len(values)).to(points)[..., None]
