"""PITs of any points under a forecast itself: the coordinates along which it is tilted."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.forecasts import Ensemble, GaussianMixture, can_be_cut, equally_weighted_draws
from prerank.preranks import DistributionView, LinearProjection, PreRank
from prerank.preranks.custom import call_only_ours
from prerank.recalibration.batching import select

_LEARNT_FROM = 250


@dataclass(frozen=True, eq=False)
class _Frugal(DistributionView):
    """A view with few reference draws: a tilt asks for the joint CDF at hundreds of points per case."""

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
        view = _Frugal(forecast, self.seed, case_ids)
        reference = None
        parts = []
        for item in self.preranks:
            projection = item.given(view)
            values = projection(points)
            if isinstance(projection, LinearProjection) and isinstance(forecast, GaussianMixture):
                parts.append(forecast.cdf_along(projection.directions.to(forecast.loc), values))
                continue
            if reference is None:
                reference = reference_draws(
                    forecast, self.n_reference, self.seed, "reference of the tilt", case_ids
                ).members
            parts.append(_mid_ranks(values, projection(reference)).to(points))
        found = torch.cat(parts, -1)
        if bool(found.isnan().any()):
            raise ValueError(
                f"PITs are NaN for {int(found.isnan().any(-1).sum())} of {found[..., 0].numel()} points; "
                "a pre-rank must be a number for every point"
            )
        return found

    @property
    def may_be_spread(self) -> bool:
        """Whether several threads may compute them at a time."""
        return call_only_ours(self.preranks)

    def names(self, forecast: Distribution) -> dict[str, tuple[str, ...]]:
        """The projections of each pre-rank by name."""
        one = select(forecast, slice(0, 1)) if can_be_cut(forecast) else forecast
        view = _Frugal(one, self.seed, torch.arange(one.batch_shape[-1]))
        return {item.name: tuple(item.given(view).names) for item in self.preranks}


def _mid_ranks(values: Tensor, reference: Tensor) -> Tensor:
    """(below + (ties + 1) / 2) / (R + 1) of values (N, P, K) among reference values (N, R, K)."""
    ordered = reference.mT.contiguous().sort(-1).values
    wanted = values.mT.contiguous().to(ordered)
    below = torch.searchsorted(ordered, wanted)
    tied = ordered.gather(-1, below.clamp_max(ordered.shape[-1] - 1)) == wanted
    # a search takes as long as all the rest, and draws of a density hardly ever tie
    through = torch.searchsorted(ordered, wanted, right=True) if bool(tied.any()) else below
    found = ((below + through + 1) / (2.0 * (ordered.shape[-1] + 1))).mT
    return found.masked_fill(values.isnan() | reference.isnan().any(-2, keepdim=True), torch.nan)
