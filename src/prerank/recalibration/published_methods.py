"""Published recalibrations of joint forecasts along one scalar: the density, and the length of a latent vector.

Each makes one PIT uniform and leaves alone what that PIT does not see. `fit(forecast, y)` takes held-out cases,
`transform(forecast)` gives equally weighted draws of the corrected forecast.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from scipy.stats import chi
from torch import Tensor
from torch.distributions import Distribution

from prerank._parallel import single_threaded
from prerank._parameters import require_whole
from prerank.arrays.labels import Axes
from prerank.forecasts import Ensemble, GaussianMixture, equally_weighted_draws
from prerank.randomness import case_keys, normal, uniform
from prerank.recalibration.batching import over_drawn
from prerank.recalibration.densities import MOST_DRAWS, as_density, as_mixture, density_scale, log_density
from prerank.recalibration.held_out import FittedOn, held_out_cases, require_fitted, to_correct
from prerank.recalibration.quantiles import Components, QuantileMap, from_normal_scores, normal_scores, plotting_levels


@dataclass(eq=False)
class HDRRecalibration:
    """Draws resampled so that the HDR PITs of held-out cases become uniform (Chung et al. 2024).

    The mass of an outcome is the probability that the forecast gives to more probable ones. Held-out masses say how often
    observations lie at which mass, and of a pool of `n_pool` draws, sorted by density, as many are taken there: a mass
    is drawn from their continuous empirical CDF, then the draw of the pool at that mass. What lies beyond the whole pool
    cannot be reached: a forecast that is far too narrow has to be widened first. Where several outcomes
    are equally probable, their proportions stay the forecast's.

    The density is the forecast's own; an `Ensemble` is given the kernel density of its members, from which the
    pool is then drawn. HDR of the *old* density becomes uniform: rank with `Ensemble(result.members, reference=forecast)`
    to see it; a check of the result by itself uses the density of the new draws.

    Parameters
    ----------
    n_draws : int, default 100
        Draws of every corrected forecast.
    n_pool : int, default 1000
        Draws of every raw forecast that these are taken from, at least two.
    seed : int, default 0
        Seed of the draws.

    Attributes
    ----------
    masses_ : Tensor, shape (n_held_out,)
        Sorted masses of the held-out observations: uniform on (0, 1) under calibration.
    fitted_on_ : FittedOn
        Number and names of the targets, and number of the members, that it was fitted on.

    References
    ----------
    Chung, Char and Schneider (2024): Sampling-based multi-dimensional recalibration. International Conference on Machine
    Learning.
    """

    n_draws: int = 100
    n_pool: int = 1000
    seed: int = 0
    masses_: Tensor = field(init=False, repr=False)
    fitted_on_: FittedOn = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_whole(self.n_draws, "n_draws", at_most=MOST_DRAWS)
        require_whole(self.n_pool, "n_pool", at_least=2, at_most=MOST_DRAWS)
        require_whole(self.seed, "seed", at_least=None)

    @single_threaded()
    @torch.no_grad()
    def fit(self, forecast: Any, y: Any, *, axes: Axes | None = None) -> "HDRRecalibration":
        """Measure the masses of held-out observations (N, D).

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
        HDRRecalibration
            Itself.
        """
        cases = held_out_cases(forecast, y, axes)
        law, observed = as_density(cases.law), cases.observed()
        scale = density_scale(law, self.n_pool, self.seed, "held-out pool")
        masses = scale.mass(log_density(law, observed[:, None, :]))[:, 0].double()
        self.masses_ = masses.clamp(0.0, 1.0).sort().values
        self.fitted_on_ = FittedOn.of(cases)
        return self

    @single_threaded()
    @torch.no_grad()
    def transform(self, forecast: Any, *, axes: Axes | None = None) -> Ensemble:
        """`n_draws` equally weighted draws of every case.

        Parameters
        ----------
        forecast : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
            Forecasts of other cases.
        axes : sequence or dict of str, optional
            What the axes of an array in another order are, as for `check`.

        Returns
        -------
        Ensemble
            Draws (n_cases, n_draws, n_targets).

        Raises
        ------
        ValueError
            If it is not fitted yet, or the forecast is of other targets.
        """
        require_fitted(self, "masses_")
        cases = to_correct(forecast, axes, self.fitted_on_, type(self).__name__)
        law = as_density(cases.law)
        ends = self.masses_.new_tensor([0.0, 1.0])
        levels = torch.cat([ends[:1], plotting_levels(len(self.masses_), self.masses_), ends[1:]])
        corrected = QuantileMap(levels, torch.cat([ends[:1], self.masses_, ends[1:]])[:, None])

        def drawn(_: slice, part: Distribution, ids: Tensor) -> Tensor:
            pool = equally_weighted_draws(part, self.n_pool, self.seed, "new pool", ids).members
            order = log_density(part, pool).argsort(-1, descending=True)
            u = uniform(case_keys(self.seed, ids, "masses"), (self.n_draws, 1)).to(self.masses_)
            mass = corrected(u)[..., 0]
            place = (mass * self.n_pool).long().clamp_max(self.n_pool - 1).to(order.device)
            picked = order.gather(-1, place)
            return pool.gather(1, picked[..., None].expand(-1, -1, pool.shape[-1]))

        return Ensemble(torch.cat(over_drawn(drawn, law, self.n_pool)))


@dataclass(eq=False)
class LatentRecalibration:
    r"""Lengths of latent vectors rescaled so that those of held-out cases follow their law (Dheur and Ben Taieb 2025).

    The conditional CDFs of a Gaussian mixture turn an outcome into a latent vector that is standard normal if the
    forecast is right, $z_d = \Phi^{-1}(\hat F(y_d \mid y_1, \ldots, y_{d-1}))$, and back. A draw has its length |z| moved
    by the map that takes quantiles of the chi law to those of the held-out lengths, linear in logarithms; its direction
    stays. Widens and narrows without a bound, unlike resampling. Depends on the order of the targets, and sees no error
    of direction: a bias is answered with spread.

    An `Ensemble` is given the kernel density of its members; a distribution other than a mixture is refused.

    Parameters
    ----------
    n_draws : int, default 100
        Draws of every corrected forecast.
    seed : int, default 0
        Seed of the draws.

    Attributes
    ----------
    lengths_ : Tensor, shape (n_held_out,)
        Sorted lengths of the held-out latent vectors.
    fitted_on_ : FittedOn
        Number and names of the targets, and number of the members, that it was fitted on.

    References
    ----------
    Dheur and Ben Taieb (2025): Multivariate latent recalibration for conditional normalizing flows. arXiv:2505.16636. Theirs
    is the latent space of a flow, and they give a finite-sample bound.
    """

    n_draws: int = 100
    seed: int = 0
    lengths_: Tensor = field(init=False, repr=False)
    fitted_on_: FittedOn = field(init=False, repr=False)

    def __post_init__(self) -> None:
        require_whole(self.n_draws, "n_draws", at_most=MOST_DRAWS)
        require_whole(self.seed, "seed", at_least=None)

    @single_threaded()
    @torch.no_grad()
    def fit(self, forecast: Any, y: Any, *, axes: Axes | None = None) -> "LatentRecalibration":
        """Measure the latent vectors of held-out observations (N, D).

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
        LatentRecalibration
            Itself.

        Raises
        ------
        TypeError
            If the forecast is a distribution, and neither a mixture nor normal.
        ValueError
            If there are fewer than two complete cases.
        """
        cases = held_out_cases(forecast, y, axes, at_least=2)
        observed = cases.observed()
        latent = latent_vectors(observed[:, None, :].double(), as_mixture(cases.law))[:, 0]
        self.lengths_ = torch.linalg.vector_norm(latent, dim=-1).sort().values
        self.fitted_on_ = FittedOn.of(cases)
        return self

    @single_threaded()
    @torch.no_grad()
    def transform(self, forecast: Any, *, axes: Axes | None = None) -> Ensemble:
        """`n_draws` equally weighted draws of every case.

        Parameters
        ----------
        forecast : Ensemble, Distribution or array_like of shape (n_cases, n_members, n_targets)
            Forecasts of other cases.
        axes : sequence or dict of str, optional
            What the axes of an array in another order are, as for `check`.

        Returns
        -------
        Ensemble
            Draws (n_cases, n_draws, n_targets).

        Raises
        ------
        ValueError
            If it is not fitted yet, or the forecast is of other targets.
        """
        require_fitted(self, "lengths_")
        cases = to_correct(forecast, axes, self.fitted_on_, type(self).__name__)
        mixture = as_mixture(cases.law)
        levels = plotting_levels(len(self.lengths_), self.lengths_)
        expected = torch.as_tensor(chi(self.fitted_on_.n_targets).ppf(levels.cpu().numpy())).to(levels).log()
        stretch = QuantileMap(expected, self.lengths_.clamp_min(1e-300).log()[:, None])

        def moved(_: slice, part: Distribution, ids: Tensor) -> Tensor:
            assert isinstance(part, GaussianMixture)
            drawn = normal(case_keys(self.seed, ids, "latent"), (self.n_draws, self.fitted_on_.n_targets))
            length = torch.linalg.vector_norm(drawn, dim=-1, keepdim=True)
            return from_latent_vectors(drawn * (stretch(length.log()).exp() / length), part)

        return Ensemble(torch.cat(over_drawn(moved, mixture, self.n_draws)).to(mixture.loc))


def latent_vectors(points: Tensor, forecast: GaussianMixture) -> Tensor:
    r"""$\Phi^{-1}$ of the conditional CDFs, target after target, of points (N, P, D): (N, P, D).

    Standard normal vectors for draws of the forecast (Rosenblatt 1952).
    """
    return _one_after_another(points, forecast, backwards=False)


def from_latent_vectors(latent: Tensor, forecast: GaussianMixture) -> Tensor:
    """The points (N, P, D) that have these latent vectors."""
    return _one_after_another(latent, forecast, backwards=True)


def _one_after_another(given: Tensor, forecast: GaussianMixture, backwards: bool) -> Tensor:
    given = given.double()
    log_weights = forecast.log_weights.double()[:, None, :].expand(*given.shape[:2], -1)  # (N, P, C)
    loc, tril = forecast.loc.double()[:, None], forecast.scale_tril.double()[:, None]
    noise: list[Tensor] = []  # of each component, were the point its draw: (N, P, C)
    found = torch.empty_like(given)
    for d in range(given.shape[-1]):
        centre = loc[..., d].expand_as(log_weights)
        for j, own in enumerate(noise):
            centre = centre + tril[..., d, j] * own
        scale = tril[..., d, d].expand_as(log_weights)
        law = Components(torch.log_softmax(log_weights, -1), centre, scale)
        value = given[..., d]
        found[..., d] = from_normal_scores(value, law) if backwards else normal_scores(value, law)
        y = found[..., d] if backwards else value
        noise.append((y[..., None] - centre) / scale)
        log_weights = log_weights - 0.5 * noise[-1].square() - scale.log()
    return found
