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
    """A distribution whose targets are moved and stretched about a centre: $c + a + s (Y - c)$.

    What `Affine` makes of a distribution that is no `GaussianMixture`.

    Parameters
    ----------
    base : torch.distributions.Distribution
        The distribution of Y, batch shape (n_cases,), event shape (n_targets,).
    centre : Tensor, shape (n_cases, n_targets)
        The centre c.
    shift : Tensor, shape (n_targets,)
        The shift a.
    scale : Tensor, shape (n_targets,)
        The factor s, positive.

    See Also
    --------
    Affine : the step of recalibration that learns shift and scale
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
        """The same forecast for some of its cases.

        Parameters
        ----------
        cases : Tensor or slice
            Positions of the cases.

        Returns
        -------
        Moved
            The forecast of these cases.
        """
        return Moved(select_cases(self.base, cases), self.centre[cases], self.shift, self.scale)

    def case_by_case(self) -> "Moved":
        """The same forecast, with draws of a case that are independent of other cases where its parts can be cut into
        cases.

        Returns
        -------
        Moved
            The forecast.
        """
        return Moved(case_by_case(self.base), self.centre, self.shift, self.scale)

    @property
    def support(self) -> constraints.Constraint:
        """All vectors of real numbers."""
        return constraints.real_vector

    def _forth(self, points: Tensor, centre: Tensor) -> Tensor:
        return centre + self.shift + self.scale * (points - centre)

    @property
    def mean(self) -> Tensor:
        """Mean, (N, D)."""
        return self._forth(self.base.mean, self.centre)

    @property
    def variance(self) -> Tensor:
        """Variance of each target, (N, D)."""
        return self.scale.square() * self.base.variance

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Equally weighted draws from torch's global generator, as torch has it.

        Parameters
        ----------
        sample_shape : torch.Size or tuple of int, default ()
            Axes of draws, which come first.

        Returns
        -------
        Tensor, shape (*sample_shape, ..., n_cases, n_targets)
            Draws, without gradient.
        """
        return self._forth(self.base.sample(torch.Size(sample_shape)), self.centre)

    def ensemble(
        self, n_draws: int, seed: int = 0, stream: str = "members", case_ids: Tensor | None = None
    ) -> Ensemble:
        """Equally weighted draws; those of a case depend on (seed, stream, its identifier) where the parts allow it.

        Parameters
        ----------
        n_draws : int
            Members per case.
        seed : int, default 0
            Seed of the draws.
        stream : str, default 'members'
            What the draws are for; another name gives independent draws.
        case_ids : Tensor, shape (n_cases,), optional
            Identifiers of the cases; positions by default.

        Returns
        -------
        Ensemble
            Members (n_cases, n_draws, n_targets).
        """
        drawn = equally_weighted_draws(self.base, n_draws, seed, stream, case_ids)
        return Ensemble(self._forth(drawn.members, self.centre[..., None, :]))

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of one point per case, as torch has it.

        Parameters
        ----------
        value : Tensor, shape (..., n_cases, n_targets)
            Points.

        Returns
        -------
        Tensor, shape (..., n_cases)
            Log densities; minus infinity outside the support.
        """
        back = (value - self.centre - self.shift) / self.scale + self.centre
        inside = inside_support(back, self.base)
        if inside is None:
            return self.base.log_prob(back) - self.scale.log().sum()
        safe = torch.where(inside[..., None], back, self.centre.expand_as(back))
        found = self.base.log_prob(safe) - self.scale.log().sum()
        return torch.where(inside, found, -torch.inf)
