"""PITs of any points under a forecast itself: the coordinates along which it is tilted."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.forecasts import Ensemble, GaussianMixture, can_be_cut, equally_weighted_draws
from prerank.preranks import DistributionView, LinearProjection, PreRank, Projection
from prerank.preranks.custom import call_only_ours
from prerank.recalibration.batching import select

_LEARNT_FROM = 250


@dataclass(frozen=True, eq=False)
class _Frugal(DistributionView):
    """A view with few reference draws: a tilt asks for the joint CDF at hundreds of points per case.

    A forecast that keeps a pool of its own answers from its first half alone: the draws of a fit come from the second.
    """

    @property
    def covariance(self) -> Tensor:
        if hasattr(self.forecast, "reference_covariance"):
            return self.forecast.reference_covariance
        return super().covariance

    def draws(self, name: str, n_draws: int) -> Ensemble:
        return reference_draws(self.forecast, min(n_draws, _LEARNT_FROM), self.seed, name, self.case_ids)


def reference_draws(
    forecast: Distribution, n_draws: int, seed: int, stream: str, case_ids: Tensor | None = None
) -> Ensemble:
    """Draws to learn PITs from; a forecast that keeps a pool of its own is not asked to make another for each name."""
    if hasattr(forecast, "reference_draws"):
        return forecast.reference_draws(n_draws, stream)
    return equally_weighted_draws(forecast, n_draws, seed, stream, case_ids)


@dataclass(frozen=True)
class OldPITs:
    """How PITs under a forecast are computed: closed form where there is one, else the rank among `n_reference` draws.

    A deterministic function of the point for each case, given the seed and the case's identifier: the observation and the
    draws go through the same one. Points that tie with reference draws, as those of a forecast with atoms do, have the
    middle of their interval: a randomised rank would be no function of the point, and with the middle a tilt gives every
    atom one weight. The likelihood of the tilt compares observations with draws, so the middles need not be uniform.
    """

    preranks: tuple[PreRank, ...]
    n_reference: int
    seed: int

    def __call__(self, forecast: Distribution, points: Tensor, case_ids: Tensor) -> Tensor:
        """PITs of points (N, P, D): (N, P, K)."""
        return self.learnt(forecast, case_ids)(points)

    def learnt(self, forecast: Distribution, case_ids: Tensor) -> "LearntPITs":
        """What the PITs of any points take from the forecast: projections, and their values at the reference draws."""
        view = _Frugal(forecast, self.seed, case_ids)
        reference, parts = None, []
        for item in self.preranks:
            projection = item.given(view)
            if isinstance(projection, LinearProjection) and isinstance(forecast, GaussianMixture):
                parts.append(_Along(projection, forecast))
                continue
            if reference is None:
                reference = reference_draws(
                    forecast, self.n_reference, self.seed, "reference of the tilt", case_ids
                ).members
            parts.append(_Along(projection, None, *_sorted(projection(reference))))
        return LearntPITs(tuple(parts))

    @property
    def may_be_spread(self) -> bool:
        """Whether several threads may compute them at a time."""
        return call_only_ours(self.preranks)

    def names(self, forecast: Distribution) -> dict[str, tuple[str, ...]]:
        """The projections of each pre-rank by name."""
        one = select(forecast, slice(0, 1)) if can_be_cut(forecast) else forecast
        view = _Frugal(one, self.seed, torch.arange(one.batch_shape[-1]))
        return {item.name: tuple(item.given(view).names) for item in self.preranks}


class _Along(NamedTuple):
    """A projection and the law of its values: that of a mixture, or else reference values (N, K, R) in order.

    `unknown` (N, K) says where a reference value is NaN.
    """

    projection: Projection
    law: GaussianMixture | None
    ordered: Tensor | None = None
    unknown: Tensor | None = None

    def pits(self, points: Tensor) -> Tensor:
        values = self.projection(points)
        if self.law is not None:
            assert isinstance(self.projection, LinearProjection)
            return self.law.cdf_along(self.projection.directions.to(self.law.loc), values)
        assert self.ordered is not None
        assert self.unknown is not None
        return _mid_ranks(values, self.ordered, self.unknown).to(points)


class LearntPITs(NamedTuple):
    """PITs of points as a function that has taken from the forecast what it needs."""

    parts: tuple[_Along, ...]

    def __call__(self, points: Tensor) -> Tensor:
        """PITs of points (N, P, D): (N, P, K)."""
        found = torch.cat([part.pits(points) for part in self.parts], -1)
        if bool(found.isnan().any()):
            raise ValueError(
                f"PITs are NaN for {int(found.isnan().any(-1).sum())} of {found[..., 0].numel()} points; "
                "a pre-rank must be a number for every point"
            )
        return found


def _sorted(reference: Tensor) -> tuple[Tensor, Tensor]:
    """Reference values (N, R, K) in order, (N, K, R), and where one of them is NaN."""
    return reference.mT.contiguous().sort(-1).values, reference.isnan().any(-2)


def _mid_ranks(values: Tensor, ordered: Tensor, unknown: Tensor) -> Tensor:
    """(below + (ties + 1) / 2) / (R + 1) of values (N, P, K) among ordered reference values (N, K, R)."""
    wanted = values.mT.contiguous().to(ordered)
    below = torch.searchsorted(ordered, wanted)
    tied = ordered.gather(-1, below.clamp_max(ordered.shape[-1] - 1)) == wanted
    # a search takes as long as all the rest, and only joint CDFs and forecasts with atoms have ties
    columns = tied.any(-1).any(0).nonzero()[:, 0]
    through = below
    if len(columns):
        through = below.clone()
        some = (part[:, columns].contiguous() for part in (ordered, wanted))
        through[:, columns] = torch.searchsorted(*some, right=True)
    found = ((below + through + 1) / (2.0 * (ordered.shape[-1] + 1))).mT
    return found.masked_fill(values.isnan() | unknown[:, None, :], torch.nan)
