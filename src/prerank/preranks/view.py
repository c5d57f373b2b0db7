"""What a pre-rank may ask of a forecast, and who answers: a distribution, or a set of points.

A view is a forecast with everything bound to it that an answer may depend on: the seed and the names of the cases for what
is drawn, and whether answers have to be smooth. What a pre-rank learns never comes from the members that are ranked: a
member that shaped its own projection is not exchangeable with the observation any more.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal

from prerank.forecasts import Ensemble, Forecast, GaussianMixture, equally_weighted_draws
from prerank.preranks.exchangeable_points import spread_matrix
from prerank.preranks.joint_cdf import smooth_log_joint_cdf
from prerank.preranks.point_density import bandwidths, joint_cdf, log_kernel_density
from prerank.preranks.projection import LinearProjection, Projection
from prerank.preranks.selection import of_cases
from prerank.randomness import case_keys, uniform

FOR_A_COVARIANCE = 1000  # draws of a distribution that does not know its own


class Learnt(NamedTuple):
    """A function of points learnt from a forecast.

    Attributes
    ----------
    function : callable
        Maps points (..., n_cases, n_points, n_targets) to (..., n_cases, n_points).
    name : str
        What it gives, such as 'log density'.
    note : str
        How it was learnt.
    """

    function: Callable[[Tensor], Tensor]
    name: str
    note: str


class View(Protocol):
    """A forecast as a pre-rank sees it: what a pre-rank may ask, and nothing else.

    See Also
    --------
    view_of : the exact view of a forecast
    PointsView : the view of an ensemble
    DistributionView : the view of a distribution
    """

    @property
    def n_targets(self) -> int:
        """Number of targets."""

    @property
    def dtype(self) -> torch.dtype:
        """Floating type of what the view gives."""

    @property
    def device(self) -> torch.device:
        """Device of what the view gives."""

    @property
    def n_points(self) -> int | None:
        """Number of points that the answers come from; None where the forecast itself answers."""

    @property
    def covariance(self) -> Tensor:
        """Covariance (..., N or 1, D, D), up to a positive factor per case."""

    def log_density(self) -> Learnt:
        """Log density of the forecast as a function of points.

        Returns
        -------
        Learnt
            The function, its name and how it was learnt.
        """

    def joint_cdf(self, n_draws: int) -> Learnt:
        """Joint CDF of the forecast as a function of points.

        Parameters
        ----------
        n_draws : int
            Draws that stand for a distribution.

        Returns
        -------
        Learnt
            The function, its name and how it was learnt.
        """

    def draws(self, name: str, n_draws: int) -> Ensemble:
        """Draws for what the other answers do not cover, independent of what is ranked.

        Parameters
        ----------
        name : str
            What the draws are for: the same draws for the same name.
        n_draws : int
            Number of draws, where the view can choose.

        Returns
        -------
        Ensemble
            Reference draws.
        """

    def uniform(self, name: str, n_cases: int, count: int) -> Tensor:
        """Uniform numbers for each case, which depend on the seed, their name and the case.

        Parameters
        ----------
        name : str
            What the numbers are for: the same numbers for the same name.
        n_cases : int
            Number of cases, named by their positions where the view knows no other names.
        count : int
            Numbers for each case.

        Returns
        -------
        Tensor, shape (n_cases, count)
            Numbers between 0 and 1.
        """


@dataclass(frozen=True, eq=False)
class PointsView:
    """Points per case that stand for a forecast: reference draws, or members pooled with the observation.

    Parameters
    ----------
    points : Ensemble
        The points and their weights.
    smooth : bool, default False
        Whether answers have to be differentiable.
    seed : int, default 0
        Seed of random numbers.
    case_ids : Tensor, shape (n_cases,), optional
        Identifiers on which the random numbers of a case depend; positions by default.
    """

    points: Ensemble
    smooth: bool = False
    seed: int = 0
    case_ids: Tensor | None = None

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self.points.n_targets

    @property
    def dtype(self) -> torch.dtype:
        """Floating type of what the view gives."""
        return self.points.members.dtype

    @property
    def device(self) -> torch.device:
        """Device of what the view gives."""
        return self.points.members.device

    @property
    def n_points(self) -> int:
        """Number of points that the answers come from; None where the forecast itself answers."""
        return self.points.n_members

    @property
    def covariance(self) -> Tensor:
        """Covariance (..., N or 1, D, D), up to a positive factor per case."""
        if self.smooth or self.points.members.requires_grad:
            return self.points.covariance_matrix
        return spread_matrix(self.points.members, self.points.weights)

    def log_density(self) -> Learnt:
        """Log density of the forecast as a function of points.

        Returns
        -------
        Learnt
            The function, its name and how it was learnt.
        """
        centres, weights = self.points.members, self.points.weights
        note = f"kernel density of {self.n_points} points, Scott's rule per target"
        return Learnt(lambda points: log_kernel_density(points, centres, weights), "log density", note)

    def joint_cdf(self, n_draws: int = 0) -> Learnt:
        """Joint CDF of the points as a function of points.

        Parameters
        ----------
        n_draws : int, default 0
            Unused: the points are what they are.

        Returns
        -------
        Learnt
            The function, its name and how it was learnt.
        """
        centres, weights = self.points.members, self.points.weights
        note = f"joint CDF of {self.n_points} points"
        if not self.smooth:
            return Learnt(lambda points: joint_cdf(points, centres, weights), "joint CDF", note)
        bandwidth = bandwidths(centres.detach(), None if weights is None else weights.detach())
        return Learnt(
            lambda points: smooth_log_joint_cdf(points, centres, weights, bandwidth),
            "log joint CDF",
            f"smooth {note}",
        )

    def draws(self, name: str, n_draws: int) -> Ensemble:
        """The points themselves.

        Parameters
        ----------
        name : str
            Unused: there is one set of points.
        n_draws : int
            Unused: the points are as many as they are.

        Returns
        -------
        Ensemble
            The points.
        """
        return self.points

    def uniform(self, name: str, n_cases: int, count: int) -> Tensor:
        """Uniform numbers for each case, which depend on the seed, their name and the case.

        Parameters
        ----------
        name : str
            What the numbers are for: the same numbers for the same name.
        n_cases : int
            Number of cases.
        count : int
            Numbers for each case.

        Returns
        -------
        Tensor, shape (n_cases, count)
            Numbers between 0 and 1.
        """
        return _keyed_uniform(self.seed, self.case_ids, name, n_cases, count, self.device)


@dataclass(frozen=True, eq=False)
class DistributionView:
    """A distribution: closed forms where it has them, otherwise draws that depend on the seed, their name and the case.

    Parameters
    ----------
    forecast : torch.distributions.Distribution
        Batch shape (..., n_cases), event shape (n_targets,).
    seed : int, default 0
        Seed of the draws.
    case_ids : Tensor, shape (n_cases,), optional
        Identifiers on which the draws of a case depend; positions by default.
    smooth : bool, default False
        Whether answers have to be differentiable.
    """

    forecast: Distribution
    seed: int = 0
    case_ids: Tensor | None = None
    smooth: bool = False

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self.forecast.event_shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """Floating type of what the view gives."""
        return self.forecast.loc.dtype if isinstance(self.forecast, GaussianMixture) else torch.float64

    @property
    def device(self) -> torch.device:
        """That of a `GaussianMixture`; torch's distributions do not say theirs, and a projection follows its points."""
        return self.forecast.loc.device if isinstance(self.forecast, GaussianMixture) else torch.device("cpu")

    @property
    def n_points(self) -> int | None:
        """Number of points that the answers come from; None where the forecast itself answers."""
        return None if self._knows_its_covariance else FOR_A_COVARIANCE

    @property
    def covariance(self) -> Tensor:
        """Covariance (..., N or 1, D, D), up to a positive factor per case."""
        if self._knows_its_covariance:
            return self.forecast.covariance_matrix  # type: ignore[attr-defined]
        drawn = self._drawn("reference for PCA", FOR_A_COVARIANCE)
        return PointsView(drawn, self.smooth).covariance

    def log_density(self) -> Learnt:
        """Log density of the forecast as a function of points.

        Returns
        -------
        Learnt
            The function, its name and how it was learnt.
        """
        note = f"log_prob of {type(self.forecast).__name__}"
        return Learnt(partial(log_density, self.forecast), "log density", note)

    def joint_cdf(self, n_draws: int) -> Learnt:
        """Joint CDF of the forecast as a function of points.

        Parameters
        ----------
        n_draws : int
            Draws that stand for a distribution.

        Returns
        -------
        Learnt
            The function, its name and how it was learnt.
        """
        return PointsView(self.draws("reference for the copula", n_draws), self.smooth).joint_cdf()

    def draws(self, name: str, n_draws: int) -> Ensemble:
        """Draws for what the other answers do not cover, independent of what is ranked.

        Parameters
        ----------
        name : str
            What the draws are for: the same draws for the same name.
        n_draws : int
            Number of draws, where the view can choose.

        Returns
        -------
        Ensemble
            Reference draws.
        """
        return self._drawn(name, n_draws)

    def uniform(self, name: str, n_cases: int, count: int) -> Tensor:
        """Uniform numbers for each case, which depend on the seed, their name and the case.

        Parameters
        ----------
        name : str
            What the numbers are for: the same numbers for the same name.
        n_cases : int
            Number of cases.
        count : int
            Numbers for each case.

        Returns
        -------
        Tensor, shape (n_cases, count)
            Numbers between 0 and 1.
        """
        return _keyed_uniform(self.seed, self.case_ids, name, n_cases, count, self.device)

    @property
    def _knows_its_covariance(self) -> bool:
        return hasattr(type(self.forecast), "covariance_matrix")

    def _drawn(self, name: str, n_draws: int) -> Ensemble:
        return equally_weighted_draws(self.forecast, n_draws, self.seed, name, self.case_ids)


def _keyed_uniform(
    seed: int, case_ids: Tensor | None, name: str, n_cases: int, count: int, device: torch.device
) -> Tensor:
    ids = torch.arange(n_cases, device=device) if case_ids is None else case_ids.to(device)
    return uniform(case_keys(seed, ids, name), (count,))


class Needs(NamedTuple):
    """What a pre-rank needs of any forecast.

    Attributes
    ----------
    linear : bool
        Whether its projection is linear, so that PITs of mixtures have a closed form.
    reference : bool
        Whether it asks for draws.
    density : bool
        Whether it asks for a density.
    """

    linear: bool
    reference: bool
    density: bool


def needs_of(prerank: "Asking", n_targets: int) -> Needs:
    """Find out what a pre-rank asks of a forecast, on a standard normal forecast of one case.

    With it random numbers can be drawn before they are used.

    Parameters
    ----------
    prerank : PreRank
        Asked once, if it has a hash.
    n_targets : int
        Number of targets D.

    Returns
    -------
    Needs
        Whether it is linear, needs draws, needs a density.

    Examples
    --------
    >>> from prerank.preranks import Copula
    >>> needs_of(Copula(), n_targets=2)
    Needs(linear=False, reference=True, density=False)
    """
    try:
        hash(prerank)
    except TypeError:  # a pre-rank without a hash is asked each time
        return _probe(prerank, n_targets)
    return _probe_once(prerank, n_targets)  # type: ignore[arg-type]


def _probe(prerank: "Asking", n_targets: int) -> Needs:
    view = _Probe(GaussianMixture(torch.zeros(1, 1), torch.zeros(1, 1, n_targets), torch.eye(n_targets)[None, None]))
    with torch.no_grad():
        projection = of_cases([prerank], slice(0, 1))[0].given(view)
        projection(torch.zeros(1, 1, n_targets))
    return Needs(isinstance(projection, LinearProjection), "draws" in view.asked, "density" in view.asked)


_probe_once = lru_cache(maxsize=256)(_probe)


class Asking(Protocol):
    """A pre-rank."""

    def given(self, view: View) -> Projection: ...


@dataclass(frozen=True, eq=False)
class _Probe(DistributionView):
    """A view that remembers what it was asked for."""

    asked: set[str] = field(default_factory=set)

    def draws(self, name: str, n_draws: int) -> Ensemble:
        self.asked.add("draws")
        return self._drawn(name, 2)

    def log_density(self) -> Learnt:
        self.asked.add("density")
        return super().log_density()


def view_of(forecast: Forecast | View) -> View:
    """The exact view of a forecast; a view is one already.

    Parameters
    ----------
    forecast : Ensemble, Distribution or View
        What a pre-rank is given.

    Returns
    -------
    View
        What a pre-rank may ask.

    Examples
    --------
    >>> view_of(Ensemble(torch.zeros(7, 20, 3))).n_targets
    3
    """
    if isinstance(forecast, Ensemble):
        return PointsView(forecast)
    return DistributionView(forecast) if isinstance(forecast, Distribution) else forecast


def log_density(law: Distribution, points: Tensor) -> Tensor:
    """Log density of points (..., N, P, D) under any distribution with batch shape (..., N)."""
    if isinstance(law, MultivariateNormal):  # torch's own triangular solve rounds equal points by their position
        law = GaussianMixture.of_normal(law)
    if hasattr(law, "log_density"):
        return law.log_density(points)
    given = points.movedim(-2, 0)
    try:
        return law.log_prob(given).movedim(0, -1)
    except NotImplementedError:  # a RuntimeError too, so it comes first
        raise TypeError(
            f"HDR() needs log_prob, which {type(law).__name__} does not have; pass its draws as an Ensemble instead"
        ) from None
    except RuntimeError:
        if given.dtype is not torch.float64:
            raise
        return law.log_prob(given.float()).to(given).movedim(0, -1)  # networks of a flow take their own precision alone
