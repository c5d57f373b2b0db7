"""A tilted forecast as a check sees it: everything that pre-ranks ask comes from one pool of draws of each case."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from prerank.forecasts import Ensemble
from prerank.preranks import View
from prerank.preranks.exchangeable_points import spread_matrix
from prerank.preranks.view import DistributionView, Learnt
from prerank.randomness import case_keys, uniform
from prerank.recalibration.tilted import Tilted, even_steps, picked, taken


@dataclass(frozen=True, eq=False)
class PoolView(DistributionView):
    """A view of a tilted forecast that knows points (N, H, D) of its root with the exponent (N, H) of the tilt there.

    `unit` (D,) divides the targets: points are asked about, and answered, in these units.
    """

    points: Tensor = field(kw_only=True)
    exponent: Tensor = field(kw_only=True)
    unit: Tensor | None = field(default=None, kw_only=True)

    @property
    def covariance(self) -> Tensor:
        return spread_matrix(self._mine(self.points), torch.softmax(self.exponent, -1))

    def log_density(self) -> Learnt:
        normaliser = torch.logsumexp(self.exponent, -1, keepdim=True)
        learnt = super().log_density()

        def function(points: Tensor) -> Tensor:
            own = points if self.unit is None else points * self.unit.to(points)
            assert isinstance(self.forecast, Tilted)
            return self.forecast.log_unnormalised(own) - normaliser

        return Learnt(function, learnt.name, learnt.note)

    def draws(self, name: str, n_draws: int) -> Ensemble:
        """Draws at even steps through the points, keyed by their name."""
        ids = torch.arange(len(self.points)) if self.case_ids is None else self.case_ids
        keys = case_keys(self.seed, ids.to(self.points.device), "even steps", name)
        pick = picked(torch.softmax(self.exponent, -1), even_steps(uniform(keys, (1,)), n_draws))
        return Ensemble(self._mine(taken(self.points, pick)))

    def _mine(self, points: Tensor) -> Tensor:
        return points if self.unit is None else points / self.unit.to(points)


class InUnits(Distribution):
    """A tilted forecast whose targets are divided by numbers (D,), for a check of targets of unlike size."""

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012 - torch's protocol
    has_rsample = False

    def __init__(self, law: Tilted, unit: Tensor) -> None:
        self.law, self.unit = law, unit
        super().__init__(law.batch_shape, law.event_shape, validate_args=False)

    def __repr__(self) -> str:
        return repr(self.law)

    @property
    def support(self) -> Any:
        return constraints.real_vector

    def select(self, cases: Tensor | slice) -> "InUnits":
        """The same forecast for some of its cases."""
        return InUnits(self.law.select(cases), self.unit)

    def in_units(self, units: Tensor) -> "InUnits":
        """The same forecast with each target divided by another number (D,)."""
        return InUnits(self.law, self.unit * units.to(self.unit))

    def ensemble(
        self, n_draws: int, seed: int = 0, stream: str = "members", case_ids: Tensor | None = None
    ) -> Ensemble:
        """Equally weighted draws (N, M, D), as those of the law."""
        drawn = self.law.ensemble(n_draws, seed, stream, case_ids).members
        return Ensemble(drawn / self.unit.to(drawn))

    @property
    def may_be_spread(self) -> bool:
        """Whether several threads may work on parts of it at a time."""
        return self.law.may_be_spread

    def slices_to_rank(self, n_draws: int) -> list[slice]:
        """Chunks of cases for `draws_and_view` of so many draws."""
        return self.law.slices_to_rank(n_draws)

    def draws_and_view(self, y: Tensor, n_draws: int, seed: int, case_ids: Tensor) -> tuple[Ensemble, View]:
        """As the law's, in these units."""
        return self.law.draws_and_view(y, n_draws, seed, case_ids, self.unit)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of `value` (*sample, N, D)."""
        return self.law.log_prob(value * self.unit.to(value)) + self.unit.log().sum()
