r"""How the paper's published numbers were made, as values of their own.

The published experiments did not draw from the mixture: for every draw they took one normal draw per component and
averaged them under soft random weights (Gumbel-softmax, temperature 1), in training and in evaluation. Such an average is
too narrow, so that even a perfect forecast looks miscalibrated. Indicators were sigmoids in raw units, levels ran from
0 to 1 inclusive, PCA directions were common to a minibatch, and the test PCE was a mean over minibatches of 256. All
of that is here, to reproduce those tables and for nothing else; `PreRankPenalty` and `projected_pit` are the exact way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.calibration import (
    Learnt,
    PreRank,
    SmoothRank,
    inclusive_levels,
    needs_of,
    pce,
    pce_kde,
    pce_null,
    smooth_pit,
)
from prerank.forecast import Ensemble, Forecast, GaussianMixture
from prerank.kernels import Kernel, kernel_for, register
from prerank.randomness import key, normal
from prerank.training.penalty import Noise, Numbers, Shapes, SharedNumbers, Sizes, listed, require_sound
from prerank.training.softcdf import soft_joint_cdf

_SHARPNESS = 100.0
BATCH = 256
"""Cases of a minibatch, in training and in the published test PCE."""

SOFT_DRAWS = register(
    Kernel(
        "published draws",
        "softly averaged draws of all components",
        fused="prerank.training.softdraws_kernel.soft_draws",
        plain="prerank.training.published.soft_draws",
        most={"targets": 32},
        fewest={"axes": 1},
    )
)


def with_gumbel(noise: Tensor) -> Tensor:
    """Normal numbers (..., D + 1) with the last of each turned into a Gumbel variable, which chooses a component softly."""
    return torch.cat([noise[..., :-1], -torch.log(-torch.special.log_ndtr(noise[..., -1:]))], -1)


def soft_draws(law: GaussianMixture, noise: Numbers) -> Tensor:
    """Softly averaged component draws (..., N, S, D) from `with_gumbel` numbers (..., N, S, C, D + 1).

    These are *not* draws of the mixture.
    """
    if fused := kernel_for(SOFT_DRAWS, law.loc, axes=len(law.batch_shape), targets=law.n_targets):
        return fused(law.loc, law.scale_tril, law.log_weights, *_shared(law, noise))
    numbers = noise.of_models() if isinstance(noise, SharedNumbers) else noise
    share = torch.softmax(law.log_weights[..., None, :] + numbers[..., -1], -1)
    each = law.loc[..., None, :, :] + torch.einsum("...cij,...scj->...sci", law.scale_tril, numbers[..., :-1])
    return (share[..., None] * each).sum(-2)


def _shared(law: GaussianMixture, noise: Numbers) -> tuple[Tensor, Tensor]:
    """Numbers (M, B, S, C, D + 1), and whose of them each model of the law uses."""
    if isinstance(noise, SharedNumbers):
        return noise.values, noise.owner
    values = noise.reshape(-1, *noise.shape[-4:])
    return values, torch.arange(law.batch_shape[:-1].numel(), device=noise.device) % len(values)


SoftNoise = tuple[Numbers | None, Numbers | None]


class SoftDraws(NamedTuple):
    """Soft draws (..., B, S, D) that are ranked, and those that the copula's CDF is made from, if it is asked for."""

    ranked: Tensor
    learnt: Tensor | None

    @staticmethod
    def of(law: GaussianMixture, noise: SoftNoise) -> "SoftDraws":
        assert noise[0] is not None
        return SoftDraws(soft_draws(law, noise[0]), None if noise[1] is None else soft_draws(law, noise[1]))


def published_pit(
    y: Tensor, forecast: GaussianMixture, prerank: PreRank, soft: SoftDraws, case_weights: Tensor | None = None
) -> Tensor:
    """The PIT of the published experiments for one minibatch y (..., B, D): (..., B, K)."""
    projection = prerank.given(PublishedView(forecast, soft, case_weights))
    return smooth_pit(y, Ensemble(soft.ranked), projection, SmoothRank(_SHARPNESS, relative=False))


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


def _pooled_covariance(draws: Tensor, case_weights: Tensor | None) -> Tensor:
    """Covariance (..., D, D) of the draws (..., B, S, D) of all cases together."""
    if case_weights is None:
        case_weights = torch.ones_like(draws[..., 0, 0])
    share = case_weights.to(draws) / (case_weights.to(draws).sum(-1, keepdim=True) * draws.shape[-2])
    mean = (share[..., None] * draws.sum(-2)).sum(-2)
    centred = draws - mean[..., None, None, :]
    # case by case first: one product over all draws at once is a shape that a GPU is slow with
    return (share[..., None, None] * (centred.mT @ centred)).sum(-3)


@dataclass(frozen=True)
class PublishedPenalty:
    """The penalty as the published models were trained with it; several pre-ranks are averaged."""

    preranks: PreRank | tuple[PreRank, ...]
    temperature: float = 100.0
    n_levels: int = 100
    power: float = 1
    n_draws: int = 100

    def __post_init__(self) -> None:
        object.__setattr__(self, "preranks", listed(self.preranks))
        require_sound(self.temperature, self.n_levels, self.power, self.n_draws)

    @property
    def name(self) -> str:
        return " + ".join(item.name for item in listed(self.preranks)) + " (as published)"

    def noise_shapes(self, forecast: Sizes, n_cases: int) -> Shapes:
        """Shapes of the normal numbers that an evaluation uses; it takes them through `with_gumbel`."""
        shape = (n_cases, self.n_draws, forecast.n_components, forecast.n_targets + 1)
        learnt = any(needs_of(item, forecast.n_targets).reference for item in listed(self.preranks))
        return (shape, shape if learnt else None)

    def __call__(
        self,
        y: Tensor,
        forecast: Forecast,
        seed: int = 0,
        step: int = 0,
        case_weights: Tensor | None = None,
        noise: SoftNoise = (None, None),
    ) -> Tensor:
        """Penalty of forecasts for a minibatch y (..., B, D): (...,)."""
        if not isinstance(forecast, GaussianMixture):
            raise TypeError(f"the published penalty is for a GaussianMixture, not a {type(forecast).__name__}")
        if noise[0] is None:
            noise = _keyed_noise(self.noise_shapes(forecast, y.shape[-2]), y, seed, step)
        levels = torch.linspace(0.0, 1.0, self.n_levels, dtype=y.dtype, device=y.device)
        soft = SoftDraws.of(forecast, noise)
        errors = []
        for item in listed(self.preranks):
            pit = published_pit(y, forecast, item, soft, case_weights)
            error = pce_kde(pit, self.temperature, power=self.power, levels=levels, case_weights=case_weights)
            errors.append(error.mean(-1))
        return torch.stack(errors).mean(0)


def published_pce(
    y: Tensor, forecast: GaussianMixture, preranks: Sequence[PreRank], n_draws: int = 100, seed: int = 0
) -> Tensor:
    """Test PCE as published: per minibatch of 256 in order, averaged over them and over projections, (..., pre-ranks)."""
    totals = [
        torch.stack([pce(pit, levels=inclusive_levels()).mean(-1) for pit in pits], -1)
        for pits in published_pits(y, forecast, preranks, n_draws, seed)
    ]
    return torch.stack(totals).mean(0)


def published_pits(
    y: Tensor, forecast: GaussianMixture, preranks: Sequence[PreRank], n_draws: int = 100, seed: int = 0
) -> Iterator[list[Tensor]]:
    """The published test PITs, minibatch by minibatch of 256: one tensor (..., B, K) per pre-rank."""
    n_cases = y.shape[-2]
    for number, start in enumerate(range(0, n_cases, BATCH)):
        cases = slice(start, min(start + BATCH, n_cases))
        law, observed = forecast.select(cases), y[..., cases, :]
        shape = (observed.shape[-2], n_draws, law.n_components, law.n_targets + 1)
        learnt = any(needs_of(item, law.n_targets).reference for item in preranks)
        noise = _keyed_noise((shape, shape if learnt else None), observed, seed, number)
        with torch.no_grad():
            soft = SoftDraws.of(law, noise)
            yield [published_pit(observed, law, item, soft).clamp(0.0, 1.0) for item in preranks]


def published_null_level(n_cases: int) -> float:
    """What `published_pce` gives a forecast whose PITs are exactly uniform: a mean over batches of 256 and a small last."""
    sizes = batch_sizes(n_cases)
    return sum(pce_null(size, levels=inclusive_levels()).mean for size in sizes) / len(sizes)


def batch_sizes(n_cases: int) -> list[int]:
    """Cases of each minibatch: 256, and a smaller last one."""
    return [min(BATCH, n_cases - start) for start in range(0, n_cases, BATCH)]


def _keyed_noise(shapes: Shapes, like: Tensor, seed: int, step: int) -> Noise:
    ranked, learnt = (
        None
        if shape is None
        else with_gumbel(normal(key(seed, "published", stream, step), shape, like.dtype, like.device))
        for stream, shape in zip(("ranked", "learnt"), shapes, strict=True)
    )
    return ranked, learnt
