"""What pre-ranks saw in the published experiments, and the PITs that followed from it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from prerank.calibration import SmoothRank, smooth_pit
from prerank.forecasts import Ensemble, GaussianMixture
from prerank.preranks import Learnt, PreRank
from prerank_paper.published.softcdf import soft_joint_cdf
from prerank_paper.published.softdraws import SoftDraws

_SHARPNESS = 100.0  # of all sigmoids, in the units of what they compare
PUBLISHED_RANK = SmoothRank(_SHARPNESS, relative=False)


def published_pit(
    y: Tensor,
    forecast: GaussianMixture,
    prerank: PreRank,
    soft: SoftDraws,
    case_weights: Tensor | None = None,
    rank: SmoothRank = PUBLISHED_RANK,
) -> Tensor:
    """The PIT of the published experiments for one minibatch y (..., B, D): (..., B, K)."""
    projection = prerank.given(PublishedView(forecast, soft, case_weights))
    return smooth_pit(y, Ensemble(soft.ranked), projection, rank)


@dataclass(frozen=True, eq=False)
class PublishedView:
    """What pre-ranks saw in the published experiments: a minibatch of soft draws, and the density of the mixture.

    The covariance is that of all draws of the minibatch together, so that directions are common to its cases. Cases of
    weight zero only fill up the last minibatch of an epoch: the covariance does not see them.
    """

    forecast: GaussianMixture
    soft: SoftDraws
    case_weights: Tensor | None = None

    @property
    def n_targets(self) -> int:
        return self.forecast.n_targets

    @property
    def dtype(self) -> torch.dtype:
        return self.forecast.loc.dtype

    @property
    def device(self) -> torch.device:
        return self.forecast.loc.device

    @property
    def n_points(self) -> None:
        return None

    @property
    def covariance(self) -> Tensor:
        return _pooled_covariance(self.soft.ranked, self.case_weights)[..., None, :, :]

    def log_density(self) -> Learnt:
        return Learnt(self.forecast.log_density, "log density", "log density of the mixture")

    def joint_cdf(self, n_draws: int) -> Learnt:
        reference = self.draws("", n_draws).members
        return Learnt(lambda points: soft_joint_cdf(points, reference, _SHARPNESS), "joint CDF", "of soft draws")

    def draws(self, name: str, n_draws: int) -> Ensemble:
        assert self.soft.learnt is not None
        return Ensemble(self.soft.learnt)

    def uniform(self, name: str, n_cases: int, count: int) -> Tensor:
        raise NotImplementedError("no pre-rank of the published experiments had random numbers of its own")


def _pooled_covariance(draws: Tensor, case_weights: Tensor | None) -> Tensor:
    """Covariance (..., D, D) of the draws (..., B, S, D) of all cases together."""
    if case_weights is None:
        case_weights = torch.ones_like(draws[..., 0, 0])
    share = case_weights.to(draws) / (case_weights.to(draws).sum(-1, keepdim=True) * draws.shape[-2])
    mean = (share[..., None] * draws.sum(-2)).sum(-2)
    centred = draws - mean[..., None, None, :]
    # case by case first: one product over all draws at once is a shape that a GPU is slow with
    return (share[..., None, None] * (centred.mT @ centred)).sum(-3)
