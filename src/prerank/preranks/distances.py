"""Pre-ranks made of distances: to the points of a case (energy score), or to their mean (Mahalanobis)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from prerank._reproducible_math import blocks, total
from prerank.forecasts import Ensemble, Forecast
from prerank.preranks.columns import by_columns
from prerank.preranks.exchangeable_points import spread_matrix
from prerank.preranks.projection import LinearProjection, PointwiseProjection
from prerank.preranks.table1 import PreRank
from prerank.preranks.view import View, view_of

FOR_A_CONSTANT = 100  # points of a pool among which the energy score takes its constant
SINGULAR = 1e-10  # of the largest eigenvalue of a correlation matrix: below it a direction has no variance


@dataclass(frozen=True)
class EnergyScore(PreRank):
    r"""The energy score at a point, $\rho(y) = \frac1R \sum_r |y - x_r| - \frac1{2R^2} \sum_{r,s} |x_r - x_s|$.

    The $x_r$ are the members pooled with the observation, or reference draws of a distribution. An ensemble's members alone
    would be no fair pool: each has a distance of zero to itself, which the observation has not. The second sum is the same
    for all points of a case; for a distribution 100 of the draws give it. Large means outlying. Sees bias, too narrow and
    too wide forecasts, as outlyingness. Blind to direction, and nearly blind to wrong dependence in many targets. Targets
    need comparable units. It can be trained with.

    Parameters
    ----------
    n_reference : int, default 1000
        Draws of a distribution that distances are taken to; unused for ensembles.
    name : str, default 'energy score'
        What results call it.

    See Also
    --------
    Mahalanobis : outlyingness that takes dependence into account

    References
    ----------
    Allen, Ziegel and Ginsbourger (2024), Assessing the calibration of multivariate probabilistic forecasts, QJRMS;
    Knüppel, Krüger and Pohle (2022), Score-based calibration testing for multivariate forecast distributions.

    Examples
    --------
    >>> from prerank import Ensemble
    >>> pool = torch.tensor([[[0.0, 0.0], [3.0, 4.0]]])
    >>> EnergyScore().given(Ensemble(pool))(torch.tensor([[[0.0, 0.0], [6.0, 8.0]]])).squeeze()
    tensor([1.2500, 6.2500])
    """

    n_reference: int = 1000
    name: str = "energy score"

    def given(self, view: View | Forecast) -> PointwiseProjection:
        pool = view_of(view).draws("reference for distances", self.n_reference)
        # the constant changes no rank, and among all draws it would cost more than the score
        first = slice(0, FOR_A_CONSTANT)
        some = Ensemble(pool.members[..., first, :], None if pool.weights is None else pool.weights[..., first])

        def score(points: Tensor) -> Tensor:
            distance = mean_distance(points, pool)
            among = distance if points is pool.members else mean_distance(some.members, some)
            if pool.weights is not None:
                among = among * some.probabilities * some.n_members
            return (distance - 0.5 * among.mean(-1, keepdim=True))[..., None]

        return PointwiseProjection(score, ("energy score",), f"distances to {pool.n_members} points")


def mean_distance(points: Tensor, pool: Ensemble) -> Tensor:
    """Mean Euclidean distance of points (..., N, P, D) to those of a pool, weighted as they are: (..., N, P)."""
    lead = torch.broadcast_shapes(points.shape[:-2], pool.members.shape[:-2])
    y = points.expand(*lead, *points.shape[-2:]).reshape(-1, *points.shape[-2:])
    x = pool.members.to(points).expand(*lead, *pool.members.shape[-2:]).reshape(-1, *pool.members.shape[-2:])
    share = None
    if pool.weights is not None:
        share = pool.probabilities.to(points).expand(*lead, -1).reshape(len(x), -1, 1)
    if torch.is_grad_enabled() and (y.requires_grad or x.requires_grad):
        distance = _distances(x, y)
        found = distance.mean(1) if share is None else (share * distance).sum(1)
        return found.reshape(*lead, points.shape[-2])
    result = y.new_empty(y.shape[:-1])
    for cases, some in blocks(y.shape[0], y.shape[1], x.shape[1], y.element_size(), y.device):
        distance = _distances(x[cases], y[cases, some])
        if share is None:
            result[cases, some] = total(distance, 1, overwrite=True) / x.shape[1]
        else:
            result[cases, some] = total(distance.mul_(share[cases]), 1, overwrite=True)
    return result.reshape(*lead, points.shape[-2])


def _distances(x: Tensor, y: Tensor) -> Tensor:
    """Distances (n, R, P) of x (n, R, D) and y (n, P, D); the exact mode, in which equal points round alike."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


@dataclass(frozen=True)
class Mahalanobis(PreRank):
    r"""The squared Mahalanobis distance from the mean, $\rho(y) = (y - m)^\top S^{-1} (y - m)$ (Box ordinate transform).

    Mean m and covariance S are those of the members pooled with the observation, so that every point has its own share in
    both: the fair form of the transform, exact for any number of members. A distribution gives them by reference draws.
    Large means outlying. Sees bias, too narrow and too wide forecasts, and wrong correlation, in any units of the targets.
    Blind to direction, and to shapes that mean and covariance do not show.

    With D or fewer members all points of a case are equally far from their mean and every rank ties; the result's note says
    so. `shrinkage` towards uncorrelated targets helps. It can be trained with; no gradient passes through the covariance.

    Parameters
    ----------
    shrinkage : float, default 0.0
        All correlations are multiplied by 1 - shrinkage; between 0 and 1.
    n_reference : int, default 1000
        Draws of a distribution that give mean and covariance; unused for ensembles.
    name : str, default 'Mahalanobis'
        What results call it.

    See Also
    --------
    HDR : outlyingness by the density, for forecasts of any shape

    References
    ----------
    arXiv:2506.22601 (2025), the fair form; Box (1980), Sampling and Bayes' inference in scientific modelling and robustness,
    JRSS A.

    Examples
    --------
    >>> from prerank import Ensemble
    >>> pool = torch.tensor([[[-1.0, 0.0], [1.0, 0.0], [0.0, -2.0], [0.0, 2.0]]])
    >>> Mahalanobis().given(Ensemble(pool))(torch.tensor([[[1.0, 0.0], [1.0, 2.0]]])).squeeze()
    tensor([2.0000, 4.0000])
    """

    shrinkage: float = 0.0
    n_reference: int = 1000
    name: str = "Mahalanobis"

    def __post_init__(self) -> None:
        if not 0.0 <= self.shrinkage <= 1.0:
            raise ValueError(f"Mahalanobis(shrinkage={self.shrinkage}): a number between 0 and 1")

    def given(self, view: View | Forecast) -> PointwiseProjection:
        view = view_of(view)
        pool = view.draws("reference for Mahalanobis", self.n_reference)
        note = f"mean and covariance of {pool.n_members} points"
        if view.n_points is not None and pool.n_members <= view.n_targets + 1 and self.shrinkage == 0:
            note += (
                f", from which all of them are equally far: {view.n_targets} targets need {view.n_targets + 1} members; "
                "use Mahalanobis(shrinkage=0.2) or EnergyScore()"
            )
        origin, axes = _standardising(pool, self.shrinkage)
        directions = LinearProjection(axes, ())

        def distance(points: Tensor) -> Tensor:
            along = directions(points - origin.to(points))
            return by_columns(lambda columns: total(columns.square(), 0), along, along.shape[-1])[..., None]

        return PointwiseProjection(distance, ("squared distance",), note)


def _standardising(pool: Ensemble, shrinkage: float) -> tuple[Tensor, Tensor]:
    """The mean (..., N, 1, D) of a pool, and directions (..., N, D, D) along which it has unit variances.

    Directions without variance are zero. No gradient passes through the directions.
    """
    if pool.weights is None:
        share = torch.full_like(pool.members[..., :1], 1.0 / pool.n_members)
    else:
        share = pool.probabilities.to(pool.members)[..., None]
    first = pool.members[..., :1, :]
    mean = first + total(share * (pool.members - first), -2)[..., None, :]
    with torch.no_grad():
        deviation = pool.members.double() - mean.double()
        spread = total(share.double() * deviation.square(), -2).sqrt()
        spread = torch.where(spread > 0, spread, 1.0)
        correlation = spread_matrix(deviation / spread[..., None, :], pool.weights)
        unit = correlation.diagonal(dim1=-2, dim2=-1).amax(-1)[..., None, None]  # a case has a unit of its own
        correlation = correlation / torch.where(unit > 0, unit, 1.0)
        diagonal = torch.diag_embed(correlation.diagonal(dim1=-2, dim2=-1))
        values, vectors = torch.linalg.eigh((1 - shrinkage) * correlation + shrinkage * diagonal)
        there = values > SINGULAR * values[..., -1:].clamp_min(torch.finfo(values.dtype).tiny)
        if shrinkage == 0 and pool.weights is None:  # R points in R - 1 directions are equally far from their mean
            there = there & (there.sum(-1, keepdim=True) < pool.n_members - 1)
        axes = torch.where(there, values, 1.0).rsqrt() * there
        return mean, (vectors / spread[..., :, None] * axes[..., None, :]).to(pool.members)
