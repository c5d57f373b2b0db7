"""The penalty that the published models were trained with."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from prerank.arrays import as_observations
from prerank.calibration import SmoothRank, pce_kde
from prerank.forecasts import Forecast, GaussianMixture
from prerank.preranks import PreRank
from prerank.training import ForecastSizes, Numbers, PreRankPenalty, Stream, declares_capture
from prerank_paper.published.softdraws import SoftDraws, keyed_noise, soft_streams
from prerank_paper.published.view import PUBLISHED_RANK, published_pit


@dataclass(frozen=True)
class PublishedPenalty:
    """The penalty as the published models were trained with it; several pre-ranks are averaged."""

    preranks: PreRank | tuple[PreRank, ...]
    temperature: float = 100.0
    n_levels: int = 100
    exponent: float = 1
    n_draws: int = 100
    rank: SmoothRank = PUBLISHED_RANK

    def __post_init__(self) -> None:
        # what is refused there makes no sense here either
        exact = PreRankPenalty(self.preranks, self.temperature, self.n_levels, self.exponent, self.n_draws)
        object.__setattr__(self, "preranks", exact.preranks)

    @property
    def _listed(self) -> tuple[PreRank, ...]:
        return cast(tuple[PreRank, ...], self.preranks)

    @property
    def name(self) -> str:
        return " + ".join(item.name for item in self._listed) + " (as published)"

    @property
    def capturable(self) -> bool:
        """Whether all pre-ranks declare that they can be replayed as a CUDA graph."""
        return all(declares_capture(item, "given") for item in self._listed)

    def parts(self) -> list["PublishedPenalty"]:
        """A penalty for each pre-rank: this one is their mean."""
        return [replace(self, preranks=item) for item in self._listed]

    def streams(self, sizes: ForecastSizes, n_cases: int) -> dict[str, Stream]:
        """Numbers of the soft draws to rank, and of those that the copula learns from."""
        return soft_streams(self._listed, sizes, n_cases, self.n_draws)

    def __call__(
        self,
        y: Tensor,
        forecast: Forecast,
        seed: int = 0,
        step: int = 0,
        case_weights: Tensor | None = None,
        noise: Mapping[str, Numbers] | None = None,
    ) -> Tensor:
        """Penalty of forecasts for a minibatch y (..., B, D): (...,)."""
        y = as_observations(y)
        if not isinstance(forecast, GaussianMixture):
            raise TypeError(f"the published penalty is for a GaussianMixture, not a {type(forecast).__name__}")
        if noise is None:
            noise = keyed_noise(self.streams(forecast, y.shape[-2]), y, seed, step)
        levels = torch.linspace(0.0, 1.0, self.n_levels, dtype=y.dtype, device=y.device)
        soft = SoftDraws.of(forecast, noise)
        errors = []
        for item in self._listed:
            pit = published_pit(y, forecast, item, soft, case_weights, self.rank)
            error = pce_kde(pit, self.temperature, exponent=self.exponent, levels=levels, case_weights=case_weights)
            errors.append(error.mean(-1))
        return torch.stack(errors).mean(0)
