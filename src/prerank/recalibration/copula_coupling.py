"""Univariate recalibration of every target, and an order of members that ties the targets together again.

Each target is recalibrated by itself, so nothing is left of how targets belong together; a dependence template puts it
back, rank by rank: the raw members (ensemble copula coupling) or past observations (the Schaake shuffle). Both take the
dependence as it is, right or wrong.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank._chunks import chunks
from prerank._parallel import in_threads, single_threaded
from prerank._parameters import require_whole
from prerank._wording import counted
from prerank.arrays import as_observations
from prerank.arrays.conversion import described
from prerank.arrays.labels import Axes
from prerank.forecasts import Ensemble, GaussianMixture, equally_weighted_draws
from prerank.inputs.checks import require_observations
from prerank.randomness import case_keys, uniform
from prerank.recalibration.densities import MOST_DRAWS, as_mixture
from prerank.recalibration.held_out import FittedOn, held_out_cases, require_fitted, to_correct
from prerank.recalibration.quantiles import QuantileMap, from_normal_scores, margins, normal_scores, plotting_levels


@dataclass(eq=False)
class RecalibratedMargins:
    r"""Each target recalibrated by itself: $\hat F_d$ becomes $G_d \circ \hat F_d$, with $G_d$ the CDF of held-out PITs.

    G is the empirical CDF of the marginal PITs of held-out cases, made continuous: on the scale of normal scores it is
    linear between order statistics, k of n at level k / (n + 1), and goes on with slope one beyond. A `GaussianMixture` has
    exact margins; those of an `Ensemble` are kernel densities of its members (Scott's rule), so that an observation
    outside all members still has a place.

    Attributes
    ----------
    scores_ : Tensor, shape (n_held_out, n_targets)
        Sorted normal scores of the held-out observations: standard normal under calibration.
    fitted_on_ : FittedOn
        Number and names of the targets, and number of the members, that it was fitted on.
    """

    scores_: Tensor = field(init=False, repr=False)
    fitted_on_: FittedOn = field(init=False, repr=False)

    @single_threaded()
    @torch.no_grad()
    def fit(self, forecast: Any, y: Any, *, axes: Axes | None = None) -> "RecalibratedMargins":
        """Learn from held-out cases: observations (N, D).

        Parameters
        ----------
        forecast : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
            Forecasts of held-out cases.
        y : array_like, shape (n_cases, n_targets)
            Their observations; cases with a missing one are left out.
        axes : sequence or dict of str, optional
            What the axes of an array in another order are, as for `check`.

        Returns
        -------
        RecalibratedMargins
            Itself.

        Raises
        ------
        TypeError
            If the forecast is a distribution, and neither a mixture nor normal.
        ValueError
            If there are fewer than two complete cases.
        """
        cases = held_out_cases(forecast, y, axes, at_least=2)
        law = margins(as_mixture(cases.law))
        self.scores_ = normal_scores(cases.observed().to(law.loc), law).sort(0).values
        self.fitted_on_ = FittedOn.of(cases)
        return self

    @single_threaded()
    @torch.no_grad()
    def quantiles(self, forecast: Any, n_levels: int, *, axes: Axes | None = None) -> Tensor:
        """Recalibrated quantiles at levels m / (M + 1) for M = `n_levels`, (N, M, D), rising along their axis.

        Among M such quantiles the rank of an observation is uniform, if the margin is right.

        Parameters
        ----------
        forecast : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
            Forecasts of other cases.
        n_levels : int
            How many quantiles, M, at least one.
        axes : sequence or dict of str, optional
            What the axes of an array in another order are, as for `check`.

        Returns
        -------
        Tensor, shape (n_cases, n_levels, n_targets)
            The quantiles.

        Raises
        ------
        ValueError
            If it is not fitted yet, or the forecast is of other targets.
        """
        require_fitted(self, "scores_")
        mixture = as_mixture(to_correct(forecast, axes, self.fitted_on_, type(self).__name__).law)
        expected = torch.special.ndtri(plotting_levels(len(self.scores_), self.scores_))
        levels = torch.special.ndtri(plotting_levels(require_whole(n_levels, "n_levels"), self.scores_))
        wanted = QuantileMap(expected, self.scores_)(levels[:, None].expand(-1, mixture.n_targets))
        return torch.cat(
            in_threads(
                lambda cases: self._of(mixture.select(cases), wanted),
                self._few(mixture, len(levels)),
                spread=mixture.loc.device.type == "cpu",
            )
        )

    def _few(self, mixture: GaussianMixture, n_levels: int) -> list[slice]:
        values = n_levels * mixture.n_targets * mixture.n_components
        return chunks(mixture.loc.shape[0], values, mixture.loc.device)

    def _of(self, mixture: GaussianMixture, wanted: Tensor) -> Tensor:
        law = margins(mixture)
        by_level = type(law)(*(part[:, None] for part in law))  # (N, 1, D, C)
        return from_normal_scores(wanted.to(law.loc).expand(len(law.loc), -1, -1), by_level)


@dataclass(eq=False)
class EnsembleCopulaCoupling:
    """Recalibrated margins in the order of the raw members (Schefzik, Thorarinsdottir and Gneiting 2013; ECC-Q).

    In every target the m-th smallest raw member is replaced by the m-th smallest recalibrated quantile: the margins are
    recalibrated, the ranks are the raw ensemble's. Of a distribution, `n_draws` draws are the raw members. Equal
    members are put in a random order, each target by itself. The members of an `Ensemble` must have equal weights. The
    result is made of quantiles, which are no independent draws: fair scores of few of them are too low.

    Parameters
    ----------
    n_draws : int, default 100
        Draws of every case, where the forecast is a distribution.
    seed : int, default 0
        Seed of these draws, and of the order of equal members.

    Attributes
    ----------
    margins_ : RecalibratedMargins
        The recalibration of each target.

    References
    ----------
    Schefzik, Thorarinsdottir and Gneiting (2013): Uncertainty quantification in complex simulation models using ensemble
    copula coupling. Statistical Science 28, 616-640.

    Examples
    --------
    >>> forecast = Ensemble(torch.tensor([[[1.0, 5.0], [3.0, 4.0], [2.0, 6.0]]]).expand(50, 3, 2))
    >>> y = torch.linspace(0, 9, 50)[:, None].expand(50, 2)
    >>> coupled = EnsembleCopulaCoupling().fit(forecast, y).transform(forecast)
    >>> coupled.members[0].argsort(0).argsort(0)
    tensor([[0, 1],
            [2, 0],
            [1, 2]])
    """

    n_draws: int = 100
    seed: int = 0
    margins_: RecalibratedMargins = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_whole(self.n_draws, "n_draws", at_most=MOST_DRAWS)
        require_whole(self.seed, "seed", at_least=None)

    def fit(self, forecast: Any, y: Any, *, axes: Axes | None = None) -> "EnsembleCopulaCoupling":
        """Learn the margins from held-out cases: observations (N, D).

        Parameters
        ----------
        forecast : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
            Forecasts of held-out cases.
        y : array_like, shape (n_cases, n_targets)
            Their observations; cases with a missing one are left out.
        axes : sequence or dict of str, optional
            What the axes of an array in another order are, as for `check`.

        Returns
        -------
        EnsembleCopulaCoupling
            Itself.

        Raises
        ------
        TypeError
            If the forecast is a distribution, and neither a mixture nor normal.
        ValueError
            If there are fewer than two complete cases.
        """
        self.margins_ = RecalibratedMargins().fit(forecast, y, axes=axes)
        return self

    @single_threaded()
    @torch.no_grad()
    def transform(self, forecast: Any, *, axes: Axes | None = None) -> Ensemble:
        """The recalibrated ensemble, as many members as the raw one.

        Parameters
        ----------
        forecast : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
            Forecasts of other cases.
        axes : sequence or dict of str, optional
            What the axes of an array in another order are, as for `check`.

        Returns
        -------
        Ensemble
            Members (n_cases, n_members, n_targets), or `n_draws` of them for a distribution.

        Raises
        ------
        ValueError
            If it is not fitted yet, the forecast is of other targets, or its members carry weights.
        """
        require_fitted(self, "margins_")
        raw = checked = to_correct(forecast, axes, self.margins_.fitted_on_, type(self).__name__).law
        if isinstance(checked, Distribution):
            raw = equally_weighted_draws(checked, self.n_draws, self.seed, "raw members")
        assert isinstance(raw, Ensemble)
        _require_equal_weights(raw)
        return Ensemble(_in_the_order_of(raw.members, self.margins_.quantiles(checked, raw.n_members), self.seed))


@dataclass(eq=False)
class SchaakeShuffle:
    """Recalibrated margins in the order of past observations (Clark et al. 2004).

    In every target the m-th smallest recalibrated quantile goes where the m-th smallest of M past observations stands:
    the margins are recalibrated, the ranks are the history's, the same law of ranks in every case. Equal observations are
    put in a random order, each target by itself.

    Parameters
    ----------
    history : array_like, shape (n_past, n_targets), optional
        Past observations; those that `fit` is given by default.
    n_draws : int, optional
        How many of them are picked at random for each case, at most as many as there are; all by default.
    seed : int, default 0
        Seed of what is picked, and of the order of equal observations.

    Attributes
    ----------
    history_ : Tensor, shape (n_past, n_targets)
        The past observations.
    margins_ : RecalibratedMargins
        The recalibration of each target.

    References
    ----------
    Clark, Gangopadhyay, Hay, Rajagopalan and Wilby (2004): The Schaake shuffle: a method for reconstructing space-time
    variability in forecasted precipitation and temperature fields. Journal of Hydrometeorology 5, 243-262.
    """

    history: Any = field(default=None, repr=False)
    n_draws: int | None = None
    seed: int = 0
    history_: Tensor = field(init=False, repr=False)
    margins_: RecalibratedMargins = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.n_draws is not None:
            require_whole(self.n_draws, "n_draws")
        require_whole(self.seed, "seed", at_least=None)

    def fit(self, forecast: Any, y: Any, *, axes: Axes | None = None) -> "SchaakeShuffle":
        """Learn the margins from held-out cases, and take their observations as history where none is given.

        Parameters
        ----------
        forecast : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
            Forecasts of held-out cases.
        y : array_like, shape (n_cases, n_targets)
            Their observations; cases with a missing one are left out.
        axes : sequence or dict of str, optional
            What the axes of an array in another order are, as for `check`.

        Returns
        -------
        SchaakeShuffle
            Itself.

        Raises
        ------
        TypeError
            If the forecast is a distribution, and neither a mixture nor normal.
        ValueError
            If there are fewer than two complete cases, or the history does not fit: other targets, a missing value, or fewer
            observations than `n_draws`.
        """
        margins_ = RecalibratedMargins().fit(forecast, y, axes=axes)
        history = (
            held_out_cases(forecast, y, axes).observed() if self.history is None else as_observations(self.history)
        )
        n_targets = margins_.scores_.shape[1]
        require_observations(history)
        if history.ndim != 2 or history.shape[1] != n_targets or not len(history):
            raise ValueError(
                f"the history has shape {tuple(history.shape)}; past observations of the same {n_targets} targets are "
                f"(H, {n_targets}), at least one"
            )
        if self.n_draws is not None and require_whole(self.n_draws, "n_draws") > len(history):
            raise ValueError(
                f"n_draws={self.n_draws} members need as many past observations, but the history has {len(history)}; "
                "ask for fewer, or leave n_draws out"
            )
        self.margins_, self.history_ = margins_, history
        return self

    @single_threaded()
    @torch.no_grad()
    def transform(self, forecast: Any, *, axes: Axes | None = None) -> Ensemble:
        """The recalibrated ensemble.

        Parameters
        ----------
        forecast : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
            Forecasts of other cases.
        axes : sequence or dict of str, optional
            What the axes of an array in another order are, as for `check`.

        Returns
        -------
        Ensemble
            Members (n_cases, n_draws, n_targets), one for each past observation that is picked.

        Raises
        ------
        ValueError
            If it is not fitted yet, or the forecast is of other targets.
        """
        require_fitted(self, "margins_")
        n_draws = self.n_draws or len(self.history_)
        sorted_members = self.margins_.quantiles(forecast, n_draws, axes=axes)
        keys = case_keys(self.seed, torch.arange(len(sorted_members), device=self.history_.device), "past observations")
        picked = uniform(keys, (len(self.history_),)).argsort(-1)[:, :n_draws]
        return Ensemble(_in_the_order_of(self.history_[picked], sorted_members, self.seed))


@single_threaded()
@torch.no_grad()
def members_in_order(forecast: GaussianMixture, members: Ensemble, seed: int = 0) -> Ensemble:
    """As many members of a law as a raw ensemble has, even quantiles of its margins in the order of the raw members.

    Quantiles are at levels m / (M + 1). For those who want exactly M members of a corrected ensemble, each to stand for the
    raw member that it came from: ensemble copula coupling (Schefzik, Thorarinsdottir and Gneiting 2013) with the margins of
    the law. How targets belong together is the raw ensemble's, right or wrong. The result is made of quantiles, which
    are no independent draws: fair scores of it are too low, and a check may reject a right law.

    Parameters
    ----------
    forecast : GaussianMixture
        The law, such as `ErrorLaw` makes, of n_cases cases.
    members : Ensemble
        The raw members (n_cases, n_members, n_targets), equally weighted.
    seed : int, default 0
        Seed of the order of equal members.

    Returns
    -------
    Ensemble
        Members (n_cases, n_members, n_targets), in double precision.

    See Also
    --------
    members_about_mean : Draws about the mean, with the dependence of the law.

    Examples
    --------
    >>> law = GaussianMixture(torch.zeros(1, 1), torch.zeros(1, 1, 2), torch.eye(2)[None, None])
    >>> raw = Ensemble(torch.tensor([[[1.0, 5.0], [3.0, 4.0], [2.0, 6.0]]]))
    >>> members_in_order(law, raw).members[0].round(decimals=2) + 0.0
    tensor([[-0.6700,  0.0000],
            [ 0.6700, -0.6700],
            [ 0.0000,  0.6700]])
    """
    if not isinstance(forecast, GaussianMixture):
        raise TypeError(
            f"members_in_order takes a GaussianMixture, whose margins have quantiles, got {described(forecast)}; "
            "use members_about_mean"
        )
    if not isinstance(members, Ensemble) or members.members.shape[::2] != forecast.loc.shape[::2]:
        raise ValueError(
            f"members_in_order needs the raw Ensemble of the same {counted(len(forecast.loc), 'case')} and "
            f"{counted(forecast.n_targets, 'target')}, got {described(members)}"
        )
    _require_equal_weights(members)
    law = margins(forecast)
    by_level = type(law)(*(part[:, None] for part in law))  # (N, 1, D, C)
    levels = torch.arange(1, members.n_members + 1, dtype=torch.float64, device=forecast.loc.device)
    scores = torch.special.ndtri(levels / (members.n_members + 1)).to(law.loc)
    quantiles = from_normal_scores(scores[:, None].expand(len(law.loc), -1, forecast.n_targets), by_level)
    return Ensemble(_in_the_order_of(members.members, quantiles.to(forecast.loc), seed))


def _require_equal_weights(members: Ensemble) -> None:
    if members.weights is not None:
        raise ValueError(
            "the members carry weights, and copula coupling has ranks only; pass equally weighted members, such as "
            "draws of the forecast"
        )


def _in_the_order_of(template: Tensor, sorted_members: Tensor, seed: int) -> Tensor:
    """Sorted members (N, M, D) put where the template's (N, M, D) of the same rank stand."""
    keys = case_keys(seed, torch.arange(len(template), device=template.device), "order of equal members")
    at_random = uniform(keys, tuple(template.shape[1:])).argsort(1)
    order = at_random.gather(1, template.gather(1, at_random).argsort(dim=1, stable=True))
    return torch.empty_like(sorted_members).scatter_(1, order, sorted_members)
