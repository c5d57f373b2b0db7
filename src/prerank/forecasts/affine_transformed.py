"""A distribution whose targets are moved and stretched about a centre."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from prerank._wording import shape_in_words
from prerank.forecasts.batching import CaseByCase, case_by_case, select_cases
from prerank.forecasts.ensemble import Ensemble
from prerank.forecasts.sampling import equally_weighted_draws
from prerank.forecasts.support import inside_support


class Moved(Distribution):
    r"""The law of $c + a + s (Y - c)$ with Y from `base`: centre c (N, D), shift a (D,), positive scale s (D,).

    What `Affine` makes of a distribution that is no `GaussianMixture`.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012 - torch's protocol
    has_rsample = False

    def __init__(self, base: Distribution, centre: Tensor, shift: Tensor, scale: Tensor) -> None:
        self.base, self.centre = base, centre
        self.shift, self.scale = shift.to(centre), scale.to(centre)
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)

    def __repr__(self) -> str:
        base = self.base.law if isinstance(self.base, CaseByCase) else self.base
        return f"Moved({type(base).__name__}, {shape_in_words((), case=self.batch_shape[-1], target=self.event_shape[-1])})"

    def select(self, cases: Tensor | slice) -> "Moved":
        """The same forecast for some of its cases."""
        return Moved(select_cases(self.base, cases), self.centre[cases], self.shift, self.scale)

    def case_by_case(self) -> "Moved":
        """The same forecast, its draws of a case independent of the cases beside it where the base can be cut."""
        return Moved(case_by_case(self.base), self.centre, self.shift, self.scale)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.real_vector

    def _forth(self, points: Tensor, centre: Tensor) -> Tensor:
        return centre + self.shift + self.scale * (points - centre)

    @property
    def mean(self) -> Tensor:
        return self._forth(self.base.mean, self.centre)

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * self.base.variance

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._forth(self.base.sample(torch.Size(sample_shape)), self.centre)

    def ensemble(
        self, n_draws: int, seed: int = 0, stream: str = "members", case_ids: Tensor | None = None
    ) -> Ensemble:
        """The base's equally weighted draws, moved."""
        drawn = equally_weighted_draws(self.base, n_draws, seed, stream, case_ids)
        return Ensemble(self._forth(drawn.members, self.centre[..., None, :]))

    def log_prob(self, value: Tensor) -> Tensor:
        back = (value - self.centre - self.shift) / self.scale + self.centre
        inside = inside_support(back, self.base)
        if inside is None:
            return self.base.log_prob(back) - self.scale.log().sum()
        safe = torch.where(inside[..., None], back, self.centre.expand_as(back))
        found = self.base.log_prob(safe) - self.scale.log().sum()
        return torch.where(inside, found, -torch.inf)
