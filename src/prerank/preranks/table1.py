r"""The pre-ranks of the paper's Table 1 and Algorithm 2, and a few simple ones, as frozen values.

A pre-rank is given a view of a forecast (`prerank.preranks.view`) and becomes a `Projection`: K scalars per point.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from prerank._kernels import SPREAD, kernel_for
from prerank.forecasts import Forecast
from prerank.preranks.directions import principal_directions
from prerank.preranks.projection import LinearProjection, PointwiseProjection, Projection
from prerank.preranks.view import Learnt, View, view_of


class PreRank(Protocol):
    """Anything with a name that turns a view of a forecast into a `Projection`.

    It asks the view for what it needs (`View`): how many targets there are, a covariance, a log density, a joint CDF,
    reference draws. A forecast may stand in the place of a view of it: `PCA().given(forecast)`. A class that declares
    `capturable = True` may be replayed as a CUDA graph in training: it works on the device alone and reads no value. A
    mapping `words` says in sentences what the words of a reading mean for the targets: {"biased high": "the highest of
    {targets} is overdone"}, with `{targets}` for all of them and `{each}` for the projection.

    See Also
    --------
    Custom : a pre-rank from a function of a point
    """

    @property
    def name(self) -> str:
        """What results call it; each pre-rank of a check has another name."""

    def given(self, view: View) -> Projection:
        """Turn a view of a forecast into a projection.

        Parameters
        ----------
        view : View
            What may be asked of the forecast.

        Returns
        -------
        Projection
            A function of points, the same for observations and members.
        """


@dataclass(frozen=True)
class Marginal(PreRank):
    r"""Each target by itself, $\rho_d(y) = y_d$: D projections.

    Sees bias, spread and shape of every target. Blind to all dependence between targets: independent forecasts of
    dependent targets look perfect.

    Parameters
    ----------
    name : str, default 'marginal'
        What results call it.

    Examples
    --------
    >>> from prerank import Ensemble
    >>> Marginal().given(Ensemble(torch.zeros(4, 10, 3))).names
    ('y1', 'y2', 'y3')
    """

    name: str = "marginal"
    capturable = True

    def given(self, view: View | Forecast) -> LinearProjection:
        view = view_of(view)
        axes = torch.eye(view.n_targets, dtype=view.dtype, device=view.device)[None]
        return LinearProjection(axes, tuple(f"y{d + 1}" for d in range(view.n_targets)), identity=True)


@dataclass(frozen=True)
class Location(PreRank):
    r"""The mean over targets, $\rho(y) = \frac1D \sum_d y_d$.

    Sees a common bias and the variance of the sum, so also a common sign of wrong correlation. Blind to errors that
    cancel in the mean, such as biases of opposite sign.

    Parameters
    ----------
    name : str, default 'location'
        What results call it.

    Examples
    --------
    >>> from prerank import Ensemble
    >>> Location().given(Ensemble(torch.zeros(1, 10, 3)))(torch.tensor([[[1.0, 2.0, 6.0]]]))
    tensor([[[3.]]])
    """

    name: str = "location"
    capturable = True

    def given(self, view: View | Forecast) -> LinearProjection:
        view = view_of(view)
        shape = (1, view.n_targets, 1)
        mean = torch.full(shape, 1.0 / view.n_targets, dtype=view.dtype, device=view.device)
        return LinearProjection(mean, ("mean",))


@dataclass(frozen=True)
class Scale(PreRank):
    r"""The variance over targets, $\rho(y) = \frac1D \sum_d (y_d - \bar y)^2$.

    Sees how far the targets lie apart: wrong variances, and wrong correlation through the spread. Blind to a bias
    common to all targets and to the order of the targets.

    Parameters
    ----------
    name : str, default 'scale'
        What results call it.

    Examples
    --------
    >>> from prerank import Ensemble
    >>> Scale().given(Ensemble(torch.zeros(1, 10, 2)))(torch.tensor([[[1.0, 3.0]]]))
    tensor([[[1.]]])
    """

    name: str = "scale"
    capturable = True

    def given(self, view: View | Forecast) -> PointwiseProjection:
        if view_of(view).n_targets == 1:
            raise ValueError("Scale() is constant (zero) for D=1 target, so its ranks would be ties; use Marginal()")
        return PointwiseProjection(_variance, ("variance",))


@dataclass(frozen=True)
class Dependency(PreRank):
    r"""Minus the variogram at a lag over the variance, $\rho(y) = -\gamma_y(h) / s_y^2$.

    Sees how alike neighbouring targets are, whatever their level and spread: wrong correlation, wrong order. Blind to
    common bias and common scale. A vector whose entries are all equal counts as perfectly dependent (T = 0).

    Parameters
    ----------
    lag : int, default 1
        Distance h between the targets that are compared, below the number of targets, which is at least three.
    name : str, default 'dependency'
        What results call it.

    See Also
    --------
    Contrast : for two targets

    Examples
    --------
    >>> from prerank import Ensemble
    >>> Dependency().given(Ensemble(torch.zeros(1, 10, 3)))(torch.tensor([[[0.0, 0.0, 3.0]]]))
    tensor([[[-1.1250]]])
    """

    lag: int = 1
    name: str = "dependency"
    capturable = True

    def given(self, view: View | Forecast) -> PointwiseProjection:
        targets = view_of(view).n_targets
        if self.lag < 1:
            raise ValueError(f"Dependency(lag={self.lag}): the lag is a distance between targets, 1 or more")
        if targets <= 2:
            raise ValueError(
                f"Dependency(lag={self.lag}) is constant for D={targets} targets, "
                "so its ranks would be rounding noise; "
                + ("use Scale() or Contrast()" if targets == 2 else "use Marginal()")
            )
        if self.lag >= targets:
            raise ValueError(
                f"Dependency(lag={self.lag}) needs more than {self.lag} targets, got D={targets}; "
                f"use a lag of at most {targets - 1}"
            )
        return PointwiseProjection(self._ratio, (f"variogram lag {self.lag}",))

    def _ratio(self, points: Tensor) -> Tensor:
        if fused := kernel_for(SPREAD, points):
            return fused(points, self.lag)
        difference = points[..., self.lag :] - points[..., : -self.lag]
        variogram = difference.square().sum(-1, keepdim=True) / (2 * difference.shape[-1])
        variance = _variance(points)
        constant = variance == 0
        return torch.where(constant, 0.0, -variogram / torch.where(constant, 1.0, variance))


@dataclass(frozen=True)
class PCA(PreRank):
    r"""Principal components of the forecast, $\rho_k(x, y) = v_k(x)^\top y$ (Algorithm 2): up to D projections.

    Sees errors along the directions in which the forecast itself varies most and least, so wrong correlation as well
    as wrong variance and bias. Blind to dependence that second moments do not show. Keeps at most D components, M for
    M members pooled with the observation, R - 1 for R reference draws. Signs are fixed: the largest entry of a
    direction is positive.

    Parameters
    ----------
    n_components : int, optional
        Components that are kept, those of the largest variance first; all by default.
    attached : bool, default False
        Whether gradients reach the directions.
    name : str, default 'PCA'
        What results call it.

    Examples
    --------
    >>> from prerank import Ensemble
    >>> members = torch.tensor([[[-1.0, -1.0], [0.0, 0.1], [1.0, 1.0]]])
    >>> PCA(n_components=1).given(Ensemble(members)).directions.round(decimals=1)
    tensor([[[0.7000],
             [0.7000]]], dtype=torch.float64)
    """

    n_components: int | None = None
    attached: bool = False
    name: str = "PCA"
    capturable = True

    def given(self, view: View | Forecast) -> LinearProjection:
        view = view_of(view)
        if self.n_components is not None and self.n_components < 1:
            raise ValueError(f"PCA(n_components={self.n_components}): at least one component is needed")
        targets, n_points = view.n_targets, view.n_points
        at_most = targets if n_points is None else min(targets, n_points - 1)
        if at_most < 1:
            raise ValueError("PCA() needs at least two points per case to find a direction, got one; use Marginal()")
        kept = min(self.n_components or targets, at_most)
        with torch.set_grad_enabled(self.attached and torch.is_grad_enabled()):
            directions = principal_directions(view.covariance)[..., :kept]
        note = "" if kept == targets else f"{kept} of {targets} components"
        return LinearProjection(directions, tuple(f"component {k + 1}" for k in range(kept)), note)


@dataclass(frozen=True)
class HDR(PreRank):
    r"""The forecast's log density, $\rho(x, y) = \log \hat f(y \mid x)$ (same ranks as the density itself).

    Sees outcomes that are too often improbable (over-confidence) or too rarely so, in any direction. Blind to which
    direction: errors that exchange equally probable outcomes stay hidden. An ensemble without a reference density is
    given the kernel density of its members pooled with the observation (Scott's rule per target).

    Parameters
    ----------
    name : str, default 'HDR'
        What results call it.

    Examples
    --------
    >>> forecast = torch.distributions.MultivariateNormal(torch.zeros(1, 2), torch.eye(2))
    >>> HDR().given(forecast)(torch.zeros(1, 1, 2))  # - log(2 pi)
    tensor([[[-1.8379]]])
    """

    name: str = "HDR"
    capturable = True

    def given(self, view: View | Forecast) -> PointwiseProjection:
        return _of_one_number(view_of(view).log_density())


@dataclass(frozen=True)
class Copula(PreRank):
    r"""The forecast's joint CDF, $\rho(x, y) = \hat F(y \mid x)$.

    Sees dependence and joint bias at once: how often all targets are low together. Sees less in high dimensions, where
    almost no point lies below another in every target and ranks tie. The CDF is that of the members pooled
    with the observation, or of `n_reference` independent draws of a distribution. Of an ensemble it is the share of points
    that are at most as high in every target: the multivariate rank, or orthant rank.

    Parameters
    ----------
    n_reference : int, default 1000
        Draws of a distribution whose joint CDF is taken; unused for ensembles.
    name : str, default 'copula'
        What results call it.

    References
    ----------
    Gneiting, Stanberry, Grimit, Held and Johnson (2008), Assessing probabilistic forecasts of multivariate quantities, with
    an application to ensemble predictions of surface winds, TEST (the multivariate rank).

    Examples
    --------
    >>> from prerank import Ensemble
    >>> members = torch.tensor([[[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]])
    >>> Copula().given(Ensemble(members))(torch.tensor([[[1.5, 5.0]]]))
    tensor([[[0.5000]]])
    """

    n_reference: int = 1000
    name: str = "copula"
    capturable = True

    def given(self, view: View | Forecast) -> PointwiseProjection:
        return _of_one_number(view_of(view).joint_cdf(self.n_reference))


@dataclass(frozen=True)
class Contrast(PreRank):
    r"""The signed difference of two targets, $\rho(y) = y_i - y_j$: the pre-rank for dependence in two dimensions.

    Sees a wrong correlation of the pair (too wide if correlation is underestimated) and a bias of one against the
    other. Blind to anything the two have in common. Linear, so closed form for mixtures.

    Parameters
    ----------
    i : int, default 0
        The target that counts positively, from zero.
    j : int, default 1
        The target that is subtracted.
    name : str, default 'contrast'
        What results call it.

    Examples
    --------
    >>> from prerank import Ensemble
    >>> Contrast(0, 2).given(Ensemble(torch.zeros(1, 10, 3)))(torch.tensor([[[5.0, 0.0, 3.0]]]))
    tensor([[[2.]]])
    """

    i: int = 0
    j: int = 1
    name: str = "contrast"
    capturable = True

    def given(self, view: View | Forecast) -> LinearProjection:
        view = view_of(view)
        _require_pair(self, self.i, self.j, view.n_targets)
        direction = torch.zeros(1, view.n_targets, 1, dtype=view.dtype, device=view.device)
        direction[0, self.i], direction[0, self.j] = 1.0, -1.0
        return LinearProjection(direction, (f"y{self.i + 1} - y{self.j + 1}",))


@dataclass(frozen=True)
class SquaredDifference(PreRank):
    r"""$\rho(y) = (y_i - y_j)^2$: what the paper's tables call dependency when D = 2.

    For D = 2 it is four times Scale and ranks identically. It exists to reproduce those tables; `Contrast` keeps the
    sign and sees more.

    Parameters
    ----------
    i : int, default 0
        A target, from zero.
    j : int, default 1
        Another target.
    name : str, default 'squared difference'
        What results call it.

    Examples
    --------
    >>> from prerank import Ensemble
    >>> SquaredDifference().given(Ensemble(torch.zeros(1, 10, 2)))(torch.tensor([[[5.0, 3.0]]]))
    tensor([[[4.]]])
    """

    i: int = 0
    j: int = 1
    name: str = "squared difference"
    capturable = True

    def given(self, view: View | Forecast) -> PointwiseProjection:
        _require_pair(self, self.i, self.j, view_of(view).n_targets)
        return PointwiseProjection(
            lambda points: (points[..., self.i, None] - points[..., self.j, None]).square(),
            (f"(y{self.i + 1} - y{self.j + 1})²",),
        )


def _require_pair(prerank: object, i: int, j: int, targets: int) -> None:
    if i == j or not (0 <= i < targets and 0 <= j < targets):
        raise ValueError(f"{prerank}: i and j are two different targets between 0 and {targets - 1} for D={targets}")


def _variance(points: Tensor) -> Tensor:
    """Variance over targets, divisor D, exactly zero where all targets are equal."""
    if fused := kernel_for(SPREAD, points):
        return fused(points, 0)
    # Centred on the first target first, so that a constant vector has variance zero and not rounding noise.
    shifted = points - points[..., :1]
    return (shifted - shifted.mean(-1, keepdim=True)).square().mean(-1, keepdim=True)


def _of_one_number(learnt: Learnt) -> PointwiseProjection:
    return PointwiseProjection(lambda points: learnt.function(points)[..., None], (learnt.name,), learnt.note)


def paper_preranks(n_targets: int) -> tuple[PreRank, ...]:
    """The pre-ranks of the paper that are defined for this many targets, in the order of its tables.

    Parameters
    ----------
    n_targets : int
        Number of targets D. With two, `Contrast` stands in the place of `Dependency`; with one, `Marginal` and `HDR`
        are left.

    Returns
    -------
    tuple of PreRank
        Values to be passed to `check`, `projected_pit` or `PreRankPenalty`.

    Examples
    --------
    >>> [prerank.name for prerank in paper_preranks(2)]
    ['marginal', 'location', 'scale', 'contrast', 'PCA', 'HDR', 'copula']
    """
    if n_targets == 1:
        return (Marginal(), HDR())
    dependence: PreRank = Dependency() if n_targets > 2 else Contrast()
    return (Marginal(), Location(), Scale(), dependence, PCA(), HDR(), Copula())


def listed_preranks(preranks: Any, n_targets: int | None = None) -> list[PreRank]:
    """One pre-rank or several as a list, those of the paper for None; names, classes and functions are refused."""
    if preranks is None and n_targets is not None:
        return list(paper_preranks(n_targets))
    if isinstance(preranks, str | type) or hasattr(preranks, "given") or not isinstance(preranks, Iterable):
        items = [preranks]
    else:
        items = list(preranks)
    if not items:
        raise ValueError("no pre-rank given; pass one, or several as a list")
    for item in items:
        if isinstance(item, type):
            raise TypeError(f"{item.__name__} is a class; pass {item.__name__}()")
        if not hasattr(item, "given"):
            raise TypeError(
                f"{item!r} is not a pre-rank; pass a value such as Location() or PCA(), or wrap f as Custom(f)"
            )
    names = [item.name for item in items]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"two pre-ranks are called {twice!r}, so their results could not be told apart; "
            "give one another name, such as Dependency(lag=2, name='dependency at lag 2')"
        )
    return items
