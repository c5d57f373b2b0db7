"""What a step of a recalibration is: a value that learns on held-out cases, and what it becomes."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.arrays.conversion import described
from prerank.forecasts import Ensemble, Forecast, GaussianMixture, equally_weighted_draws
from prerank.preranks import PreRank
from prerank.recalibration.features import Features
from prerank.recalibration.folds import Folds, mean_and_error

NOT_SAVED = {"saved": False}  # of a fitted step's field for what belongs to the cases that were learnt from
FOR_MOMENTS = 1000  # draws of a distribution that does not know its mean or variance


class HeldOut(NamedTuple):
    """Observations (N, D) that the forecast was not fitted on, weights (N,) with mean one, folds, pre-ranks and a seed.

    Attributes
    ----------
    y : Tensor, shape (n_cases, n_targets)
        The observations.
    weights : Tensor, shape (n_cases,)
        How much each case counts, one on average.
    folds : Folds
        The fold and the block of every case.
    preranks : sequence of PreRank
        What a tilt looks along, and an ensemble is tested by.
    seed : int
        Seed of everything random.
    features : Features, optional
        Those of the cases, if there are any.
    ordered_targets : bool, default False
        Whether targets are in an order, such as leads.
    """

    y: Tensor
    weights: Tensor
    folds: Folds
    preranks: Sequence[PreRank]
    seed: int
    features: Features | None = None
    ordered_targets: bool = False

    def gain(self, values: Tensor) -> tuple[float, float]:
        """Weighted mean and standard error of a value per case.

        Parameters
        ----------
        values : Tensor, shape (n_cases,)
            A number for each case, such as what its score gains.

        Returns
        -------
        mean : float
            The weighted mean.
        error : float
            Its standard error, cases of a block counted as one.
        """
        return mean_and_error(values, self.weights, self.folds.block)

    def within(self, f: int) -> "HeldOut":
        """What a fit without fold f learns from, with folds of its own: fold f then judges what those have chosen.

        Parameters
        ----------
        f : int
            The fold to leave out, counted from 0.

        Returns
        -------
        HeldOut
            The other cases, their weights one on average again.
        """
        kept = self.folds.without[f]
        weights = self.weights[kept]
        features = (
            None if self.features is None else Features.of(self.features.raw[kept], int(kept.sum()), self.y.device)
        )
        return self._replace(
            y=self.y[kept], weights=weights / weights.mean(), folds=self.folds.within(f), features=features
        )


class Fitted(Protocol):
    """A step that has learnt: it transforms forecasts and says what it does. A frozen dataclass, so that it can be saved.

    It may also have `out_of_fold`, the corrected forecast of the cases that were learnt from, each by a fit without
    its fold: the next step then learns from that, and not from cases that the step before has seen.
    """

    @property
    def changed(self) -> bool:
        """Whether it changes a forecast."""

    def transform(self, forecast: Forecast) -> Forecast:
        """Correct a forecast.

        Parameters
        ----------
        forecast : Ensemble or Distribution
            The forecast, of a kind that the step has learnt from.

        Returns
        -------
        Ensemble or Distribution
            The corrected forecast of the same cases.
        """

    def summary(self) -> str:
        """What was changed, in words.

        Returns
        -------
        str
            A sentence or two.
        """


def in_place(parts: Sequence[GaussianMixture], folds: Folds) -> GaussianMixture:
    """Mixtures of the cases of one fold after another, in the order of the cases.

    The last component of a part with fewer than others is split into equal ones.
    """
    order, count = folds.fold.argsort(stable=True).argsort(stable=True), max(part.n_components for part in parts)
    rows, locs, trils = [], [], []
    for part in parts:
        more = count - part.n_components
        place = torch.arange(count, device=order.device).clamp_max(part.n_components - 1)
        split = torch.where(place == part.n_components - 1, math.log(more + 1), 0.0)
        rows.append(part.log_weights[:, place] - split.to(part.logits))
        locs.append(part.loc[:, place])
        trils.append(part.scale_tril)
    if all(tril.stride(1) == 0 for tril in trils):  # one for all components of a case
        tril = torch.cat([tril[:, :1] for tril in trils])[order].expand(-1, count, -1, -1)
    else:
        tril = torch.cat(
            [each[:, torch.arange(count, device=order.device).clamp_max(each.shape[1] - 1)] for each in trils]
        )[order]
    return GaussianMixture(torch.cat(rows)[order], torch.cat(locs)[order], tril)


class Step(Protocol):
    """A value with options that learns from a forecast of held-out cases."""

    def fit(self, forecast: Forecast, held_out: HeldOut) -> Fitted:
        """Learn from a forecast of held-out cases and their observations.

        Parameters
        ----------
        forecast : Ensemble or Distribution
            The forecast of the held-out cases, or what earlier steps have made of it.
        held_out : HeldOut
            Observations, weights and folds.

        Returns
        -------
        Fitted
            What was learnt.
        """


def require_ensemble(forecast: Forecast, step: str) -> Ensemble:
    """The forecast of a step that is for members alone; a distribution is refused."""
    if not isinstance(forecast, Ensemble):
        raise TypeError(
            f"{step}() is for the members of an Ensemble, and the forecast is {described(forecast)}, which has draws of "
            "its own; use Affine() instead"
        )
    return forecast


def moments(forecast: Forecast, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (N, D), variance (N, D) and number of points (N, 1) that they come from, of any forecast.

    The variance is without bias, as if the points were independent draws. A distribution that does not know its moments, or
    has none, is drawn from.
    """
    if isinstance(forecast, Distribution):
        try:
            mean, variance = forecast.mean, forecast.variance
            if bool(mean.isfinite().all()) and bool(variance.isfinite().all()):
                return mean, variance, torch.full_like(mean[..., :1], torch.inf)
        except (NotImplementedError, AttributeError):
            pass
        forecast = equally_weighted_draws(forecast, FOR_MOMENTS, seed, "moments for recalibration")
    share, mean, size = forecast.probabilities[..., None], forecast.mean, forecast.effective_size[..., None]
    biased = (share * (forecast.members - mean[..., None, :]).square()).sum(-2)
    return mean, biased * size / (size - 1).clamp_min(1e-9), size


def has_moments(forecast: Forecast) -> bool:
    """Whether mean and variance are finite, as far as the forecast says; one that says nothing may have them."""
    if not isinstance(forecast, Distribution):
        return True
    try:
        return bool(forecast.mean.isfinite().all()) and bool(forecast.variance.isfinite().all())
    except (NotImplementedError, AttributeError):
        return True


def require_spread(forecast: Ensemble, who: str) -> None:
    """Refuse an ensemble that has no spread to work with."""
    if forecast.n_members < 2:
        raise ValueError(
            f"{who} needs at least 2 members per case to know the spread, got 1; pass an ensemble of several"
        )
    flat = (forecast.members == forecast.members[..., :1, :]).all((0, 1))
    if bool(flat.any()):
        d = int(flat.nonzero()[0])
        raise ValueError(
            f"all members of target {d + 1} agree in every case, so {who} has no spread to change; drop it"
        )
