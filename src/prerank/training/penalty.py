"""The paper's method: a differentiable penalty on the PITs of a pre-rank, added to a proper score."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from prerank.arrays import as_observations
from prerank.arrays.conversion import described
from prerank.calibration import SmoothRank, pce_kde, smooth_pit
from prerank.forecasts import Ensemble, Forecast, GaussianMixture, differentiable_draws
from prerank.inputs.checks import require_fitting, require_observations
from prerank.preranks import DistributionView, LinearProjection, PointsView, PreRank, View, needs_of
from prerank.preranks.table1 import listed_preranks
from prerank.randomness import key, normal
from prerank.training.protocols import ForecastSizes, Numbers, Penalty, SharedNumbers, Stream, declares_capture

RANKED, LEARNT = "ranked", "learnt"
"""Streams of the draws that are ranked and of those that pre-ranks learn from."""

Noise = Mapping[str, Numbers]


@dataclass(frozen=True)
class PreRankPenalty:
    r"""Penalty on the training PITs (eq. 8), $\frac1J \sum_j |\alpha_j - \Phi_{KDE}(\alpha_j)|^p$, one value per model.

    PITs are closed form for linear pre-ranks of a Gaussian mixture; for the rest weighted draws from every component
    (`GaussianMixture.draw`) are ranked smoothly. It works in any PyTorch loop.

    Parameters
    ----------
    preranks : PreRank or tuple of PreRank
        One pre-rank or several, whose penalties are averaged.
    temperature : float, default 100
        The paper's tau, the sharpness of the smooth indicator.
    n_levels : int, default 100
        The paper's M, the number of levels.
    exponent : float, default 1
        The paper's p, 1 or more.
    n_draws : int, default 100
        Draws that are ranked, and as many of a mixture that pre-ranks learn from. Of another law with `rsample`, such as a
        flow, these draws are all that is made, and what a step costs grows with their number: 16 will do.
    rank : SmoothRank, default SmoothRank()
        How draws are ranked, with a temperature of its own.

    See Also
    --------
    training.loop.fit : trains a fleet with it
    tune : chooses its strength

    Examples
    --------
    >>> from prerank import GaussianMixture, Location
    >>> loc, y = torch.zeros(64, 1, 2, requires_grad=True), torch.ones(64, 2)
    >>> forecast = GaussianMixture(torch.zeros(64, 1), loc, torch.eye(2).expand(64, 1, 2, 2))
    >>> loss = -forecast.log_prob(y).mean() + 10.0 * PreRankPenalty(Location())(y, forecast)
    >>> loss.backward()
    """

    preranks: PreRank | tuple[PreRank, ...]
    temperature: float = 100.0
    n_levels: int = 100
    exponent: float = 1
    n_draws: int = 100
    rank: SmoothRank = field(default_factory=SmoothRank)

    def __post_init__(self) -> None:
        object.__setattr__(self, "preranks", listed(self.preranks))
        for item in self.preranks:  # type: ignore[union-attr]
            _require_trainable(item)
        _require_sound(self.temperature, self.n_levels, self.exponent, self.n_draws)

    @property
    def name(self) -> str:
        """Names of the pre-ranks."""
        return " + ".join(item.name for item in listed(self.preranks))

    @property
    def capturable(self) -> bool:
        """Whether all pre-ranks declare that they can be replayed as a CUDA graph."""
        return all(declares_capture(item, "given") for item in listed(self.preranks))

    def parts(self) -> list["PreRankPenalty"]:
        """A penalty for each pre-rank: this one is their mean.

        Returns
        -------
        list of PreRankPenalty
            In the order of the pre-ranks.
        """
        return [replace(self, preranks=item) for item in listed(self.preranks)]

    def streams(self, sizes: ForecastSizes, n_cases: int) -> dict[str, Stream]:
        """Normal numbers for the draws to rank and for those to learn from, where the pre-ranks need any.

        Parameters
        ----------
        sizes : ForecastSizes
            Numbers of targets and components.
        n_cases : int
            Cases of a minibatch.

        Returns
        -------
        dict of str to Stream
            "ranked", "learnt", both or none.
        """
        stream = Stream((n_cases, self.n_draws, sizes.n_targets), shared=True)
        needs = [needs_of(item, sizes.n_targets) for item in listed(self.preranks)]
        ranked, learnt = not all(item.linear for item in needs), any(item.reference for item in needs)
        return {name: stream for name, needed in ((RANKED, ranked), (LEARNT, learnt)) if needed}

    def __call__(
        self,
        y: Tensor,
        forecast: Forecast,
        seed: int = 0,
        step: int = 0,
        case_weights: Tensor | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        """Penalty of forecasts.

        Parameters
        ----------
        y : array_like, shape (..., n_cases, n_targets)
            Observations.
        forecast : GaussianMixture, Distribution with rsample, or Ensemble of differentiable members
            Batch shape (..., n_cases).
        seed : int, default 0
            Seed of the draws.
        step : int, default 0
            Give it in a loop, so that every step has its own draws.
        case_weights : Tensor, shape (n_cases,) or (..., n_cases), optional
            Weights in the empirical CDF of the PITs.
        noise : dict of str to Tensor or SharedNumbers, optional
            Standard normal numbers (..., n_cases, n_draws, n_targets) in place of the keyed ones: "ranked" for the
            draws that are ranked, "learnt" for those that pre-ranks learn from.

        Returns
        -------
        Tensor, shape (...)
            One value per model, differentiable.
        """
        y = _checked_observations(y, forecast)
        levels = (torch.arange(self.n_levels, dtype=y.dtype, device=y.device) + 0.5) / self.n_levels
        errors = [
            pce_kde(pit, self.temperature, exponent=self.exponent, levels=levels, case_weights=case_weights)
            for pit in self.pits(y, forecast, seed, step, noise)
        ]
        # a mean of one number is that number: on a GPU every operation that is left out is a start that is saved
        means = [error.squeeze(-1) if error.shape[-1] == 1 else error.mean(-1) for error in errors]
        return means[0] if len(means) == 1 else sum(means[1:], means[0]) / len(means)

    def pits(
        self, y: Tensor, forecast: Forecast, seed: int = 0, step: int = 0, noise: Noise | None = None
    ) -> Iterator[Tensor]:
        """The training PITs of each pre-rank in turn: closed form, or smooth ranks among weighted draws.

        Parameters
        ----------
        y : Tensor, shape (..., n_cases, n_targets)
            Observations.
        forecast : GaussianMixture, Distribution with rsample, or Ensemble of differentiable members
            Batch shape (..., n_cases).
        seed : int, default 0
            Seed of the draws.
        step : int, default 0
            Step of a loop.
        noise : dict of str to Tensor or SharedNumbers, optional
            As in a call.

        Yields
        ------
        Tensor, shape (..., n_cases, n_projections)
            PIT values, differentiable.
        """
        noise = _checked_noise(noise)
        preranks = listed(self.preranks)
        learns = any(needs_of(item, y.shape[-1]).reference for item in preranks)
        draws = _Draws(forecast, y, self.n_draws, seed, step, noise, learns)
        view: View
        if isinstance(forecast, Ensemble):
            view = PointsView(draws.reference, smooth=True)
        elif isinstance(forecast, GaussianMixture):
            view = TrainingView(forecast, seed, smooth=True, drawn=draws)
        else:
            view = PooledView(forecast, seed, smooth=True, drawn=draws)
        for item in preranks:
            projection = item.given(view)
            if isinstance(projection, LinearProjection) and isinstance(forecast, GaussianMixture):
                yield forecast.pit_along(projection.directions.to(forecast.loc), y)
            else:
                yield smooth_pit(y, draws.ranked, projection, self.rank)


@dataclass(eq=False)
class _Draws:
    """The draws that are ranked and those that pre-ranks learn from, never the same; made when they are asked for."""

    forecast: Forecast
    y: Tensor
    n_draws: int
    seed: int
    step: int
    noise: Noise
    learns: bool
    # a pre-rank that learns without gradient may be the first to ask for draws that others need with theirs
    grad: bool = field(default_factory=torch.is_grad_enabled)

    @property
    def ranked(self) -> Ensemble:
        return self._sets[0]

    @property
    def reference(self) -> Ensemble:
        return self._sets[1]

    @cached_property
    def _sets(self) -> list[Ensemble]:
        forecast, y = self.forecast, self.y
        if isinstance(forecast, Ensemble):
            return [_half_of(forecast, 0), _half_of(forecast, 1)]
        streams = {"draws": RANKED, "reference": LEARNT} if self.learns else {"draws": RANKED}
        if isinstance(forecast, GaussianMixture):
            shape = (y.shape[-2], self.n_draws, y.shape[-1])
            numbers = [
                self.noise[name]
                if name in self.noise
                else normal(key(self.seed, stream, self.step), shape, y.dtype, y.device)
                for stream, name in streams.items()
            ]
            shared = [part for part in numbers if isinstance(part, SharedNumbers)]
            if len(shared) == len(numbers):
                return forecast.draws_from([part.values for part in shared], owner=shared[0].owner)
            own = [part.of_models() if isinstance(part, SharedNumbers) else part for part in numbers]
            return forecast.draws_from([part.expand(*forecast.batch_shape, *shape[-2:]) for part in own])
        with torch.set_grad_enabled(self.grad):
            return [differentiable_draws(forecast, self.n_draws, key(self.seed, self.step), "draws")]

    @property
    def pooled(self) -> Ensemble:
        """The draws that are ranked together with the observation, which stands among them like any other."""
        members = self.ranked.members
        own = self.y[..., None, :].to(members).expand(*members.shape[:-2], 1, -1)
        return Ensemble(torch.cat([own, members], -2))


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingView(DistributionView):
    """A distribution in training: gradients flow through what it answers, and all reference draws are those of the step."""

    drawn: _Draws

    def draws(self, name: str, n_draws: int) -> Ensemble:
        return self.drawn.reference


@dataclass(frozen=True, eq=False, kw_only=True)
class PooledView(TrainingView):
    """A law of which one set of draws is made in a step, because `rsample` costs most of it, as that of a flow does.

    What pre-ranks learn comes from these draws pooled with the observation, as with a bare ensemble: a symmetric function of
    all points, so that under calibration the observation is one among them.
    """

    @property
    def n_points(self) -> int | None:
        """Number of points that the answers come from; None where the forecast itself answers."""
        return None if self._knows_its_covariance else self.drawn.n_draws + 1

    @property
    def covariance(self) -> Tensor:
        """Covariance (..., N or 1, D, D), up to a positive factor per case."""
        if self._knows_its_covariance:
            return super().covariance
        return PointsView(self.drawn.pooled, self.smooth).covariance

    def draws(self, name: str, n_draws: int) -> Ensemble:
        """The points, whatever they are for.

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
        return self.drawn.pooled


def listed(preranks: PreRank | Sequence[PreRank]) -> tuple[PreRank, ...]:
    """One pre-rank or several as a tuple; anything else is refused, names and classes among it."""
    if isinstance(preranks, Sequence) and not isinstance(preranks, str) and not len(preranks):
        raise ValueError("the penalty needs at least one pre-rank")
    return tuple(listed_preranks(preranks))


def preranks_in(penalty: Penalty) -> tuple[PreRank, ...]:
    """The pre-ranks that a penalty calibrates; none for one that does not say."""
    preranks = getattr(penalty, "preranks", ())
    return listed(preranks) if hasattr(preranks, "given") or len(preranks) else ()


def _checked_observations(y: Any, forecast: Forecast) -> Tensor:
    """y as a tensor that fits the forecast; on a GPU its values are not looked at, which would wait for the device."""
    observed = as_observations(y)
    require_fitting(observed, forecast)
    if observed.device.type == "cpu":
        require_observations(observed, "drop those cases, or the penalty would be NaN")
    return observed


def _require_trainable(prerank: PreRank) -> None:
    """Refuse a pre-rank without a gradient, or with something for each case: a loop has its own order of cases."""
    if not getattr(prerank, "trainable", True):
        raise ValueError(
            f"{prerank.name} cannot be trained with: it has no gradient, or belongs to the cases of one data set; train "
            "with Location(), HDR() or EnergyScore() instead, and check with it"
        )


def _require_sound(temperature: float, n_levels: int, exponent: float, n_draws: int) -> None:
    """Refuse settings under which a penalty has no meaning."""
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature={temperature}: the sharpness of a sigmoid is positive and finite")
    if n_levels < 2 or n_draws < 2:
        raise ValueError(f"n_levels={n_levels}, n_draws={n_draws}: at least two of each are needed")
    if not 1 <= exponent < math.inf:
        raise ValueError(
            f"exponent={exponent}: the penalty |level - frequency|^exponent needs an exponent of 1 or more"
        )


def _checked_noise(noise: Any) -> Noise:
    """Random numbers by name; under names that nobody reads they are refused, since others would be used in their place."""
    if noise is None:
        return {}
    if not isinstance(noise, Mapping) or not {RANKED, LEARNT}.issuperset(noise):
        found = list(noise) if isinstance(noise, Mapping) else described(noise)
        raise TypeError(f'noise is {found}; pass numbers by name, noise={{"{RANKED}": ..., "{LEARNT}": ...}}')
    return noise


def _half_of(forecast: Ensemble, which: int) -> Ensemble:
    if torch.is_grad_enabled() and not forecast.members.requires_grad:
        raise TypeError("the members carry no gradient, so the penalty would train nothing; draw them with rsample")
    half = forecast.n_members // 2
    if half < 2:
        raise ValueError(f"{forecast.n_members} members are too few to rank some and learn from others; draw 4 or more")
    part = slice(0, half) if which == 0 else slice(half, None)
    weights = None if forecast.weights is None else forecast.weights[..., part]
    return Ensemble(forecast.members[..., part, :], weights)
