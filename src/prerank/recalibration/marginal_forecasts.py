"""Forecasts of every target by itself: quantiles at levels, or a distribution per case and target."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.arrays import as_tensor
from prerank.arrays.conversion import described
from prerank.recalibration.quantiles import checked_levels


class Margins(Protocol):
    """A forecast of every target by itself, of N cases and D targets."""

    @property
    def shape(self) -> tuple[int, int]:
        """How many cases and targets there are."""

    def levels_of(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities (N, D) below observations y (N, D), and up to them: the same two where there is no jump."""

    def values(self, probabilities: Tensor) -> Tensor:
        """Values (N, P, D) that are exceeded with one minus these probabilities (N, P, D)."""


@dataclass(frozen=True, eq=False)
class QuantileMargins:
    r"""Quantiles of every target, such as those of a forecast hub or of quantile regressors.

    Between two levels the quantile function is linear in the normal score $\Phi^{-1}$ of the level, and beyond the outermost
    levels it goes on as between the last two: the tails of a Gaussian that has these two quantiles. Nothing but `lower` and
    `upper` says where a target ends. Equal quantiles are an atom, such as a share of days without rain. Quantiles that
    cross are put in order (Chernozhukov, Fernández-Val and Galichon 2010).

    Parameters
    ----------
    quantiles : array_like, shape (n_cases, n_levels, n_targets)
        The quantiles, in the units of the observations.
    levels : array_like, shape (n_levels,)
        Their levels between 0 and 1, rising, at least two.
    lower, upper : float, optional
        Values that no target can pass, such as 0 for counts; what the tails put beyond them is put there.

    Raises
    ------
    ValueError
        If shapes do not fit, levels do not rise, or a quantile is missing or infinite.

    References
    ----------
    Chernozhukov, Fernández-Val and Galichon (2010): Quantile and probability curves without crossing. Econometrica 78,
    1093-1125.

    Examples
    --------
    >>> rain = QuantileMargins([[[0.0], [0.0], [6.0]]], [0.25, 0.5, 0.75], lower=0)
    >>> rain.values(torch.tensor([[[0.3], [0.75], [0.9]]]).double())[0, :, 0]
    tensor([ 0.0000,  6.0000, 11.4002], dtype=torch.float64)
    """

    quantiles: Any
    levels: Any
    lower: float | None = None
    upper: float | None = None

    def __post_init__(self) -> None:
        values, levels = as_tensor(self.quantiles, "quantiles").double(), checked_levels(self.levels)
        if values.ndim != 3 or values.shape[1] != len(levels) or 0 in values.shape:
            hint = "; put the axis of levels second" if values.ndim == 3 and len(levels) in values.shape else ""
            raise ValueError(
                f"quantiles have shape {tuple(values.shape)} for {len(levels)} levels; expected (cases, {len(levels)} "
                f"levels, targets){hint}"
            )
        if len(levels) < 2 or not bool((levels.diff() > 0).all()):
            raise ValueError(f"levels={levels.tolist()}: at least two, each above the one before")
        if not bool(values.isfinite().all()):
            raise ValueError(
                f"{int((~values.isfinite()).sum())} of {values.numel()} quantiles are missing or infinite; leave out "
                "such cases"
            )
        if self.lower is not None and self.upper is not None and not self.lower < self.upper:
            raise ValueError(f"lower={self.lower} is not below upper={self.upper}")
        object.__setattr__(self, "quantiles", self._bounded(values.sort(1).values))
        object.__setattr__(self, "levels", levels.to(values.device))

    @property
    def shape(self) -> tuple[int, int]:
        """How many cases and targets there are."""
        return len(self.quantiles), self.quantiles.shape[2]

    def _bounded(self, values: Tensor) -> Tensor:
        if self.lower is None and self.upper is None:
            return values
        return values.clamp(self.lower, self.upper)

    def values(self, probabilities: Tensor) -> Tensor:
        """Values (N, P, D) that are exceeded with one minus these probabilities (N, P, D).

        Parameters
        ----------
        probabilities : Tensor, shape (n_cases, n_points, n_targets)
            Levels between 0 and 1, several for each case and target.

        Returns
        -------
        Tensor, shape (n_cases, n_points, n_targets)
            The quantiles at these levels, in double precision.
        """
        scores = torch.special.ndtri(self.levels)
        wanted = torch.special.ndtri(probabilities.to(self.levels)).contiguous()
        above = torch.searchsorted(scores, wanted).clamp(1, len(scores) - 1)
        left, right = self.quantiles.gather(1, above - 1), self.quantiles.gather(1, above)
        share = (wanted - scores[above - 1]) / (scores[above] - scores[above - 1])
        return self._bounded(torch.where(right == left, left, left + share * (right - left)))

    def levels_of(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities (N, D) below observations y (N, D), and up to them: the same two where there is no jump.

        Parameters
        ----------
        y : Tensor, shape (n_cases, n_targets)
            Observations.

        Returns
        -------
        below : Tensor, shape (n_cases, n_targets)
            Probabilities of smaller values.
        up_to : Tensor, shape (n_cases, n_targets)
            Probabilities of values that are no larger.
        """
        known, y = (
            self.quantiles.movedim(1, 2).contiguous(),
            y.to(self.levels)[..., None].contiguous(),
        )  # (N, D, L), (N, D, 1)
        scores, n_levels = torch.special.ndtri(self.levels), len(self.levels)
        first, after = (torch.searchsorted(known, y, right=right) for right in (False, True))
        upper = first.clamp(1, n_levels - 1)
        left, right = known.gather(-1, upper - 1), known.gather(-1, upper)
        width = torch.where(right > left, right - left, 1.0)
        share = torch.where(right > left, (y - left) / width, torch.where(y > right, torch.inf, -torch.inf))
        smooth = torch.special.ndtr(scores[upper - 1] + share * (scores[upper] - scores[upper - 1]))
        hit = after > first  # quantiles that are the observation: from the level of the first to that of the last
        below = torch.where(hit, self.levels[first.clamp_max(n_levels - 1)], smooth)
        up_to = torch.where(hit, self.levels[(after - 1).clamp_min(0)], smooth)
        # tails beyond equal outermost quantiles are that value
        below = torch.where((y == known[..., :1]) & (known[..., :1] == known[..., 1:2]), 0.0, below)
        up_to = torch.where((y == known[..., -1:]) & (known[..., -1:] == known[..., -2:-1]), 1.0, up_to)
        if self.lower is not None:
            below = torch.where(y <= self.lower, 0.0, below)
        if self.upper is not None:
            up_to = torch.where(y >= self.upper, 1.0, up_to)
        return below[..., 0], up_to[..., 0]


@dataclass(frozen=True, eq=False)
class DistributionMargins:
    """A univariate distribution per case and target: of torch, with `cdf` and `icdf`, or of SciPy, with `cdf` and `ppf`.

    Parameters
    ----------
    distribution : Distribution or object
        A torch distribution of batch shape (n_cases, n_targets), or a frozen distribution of SciPy whose parameters have, or
        broadcast to, that shape. A discrete one of SciPy has jumps at whole numbers.

    Raises
    ------
    TypeError
        If it has no quantile function.
    ValueError
        If it is no distribution per case and target.

    Examples
    --------
    >>> law = DistributionMargins(torch.distributions.Normal(torch.zeros(5, 2), torch.ones(2)))
    >>> law.shape, law.levels_of(torch.zeros(5, 2))[0][0]
    ((5, 2), tensor([0.5000, 0.5000], dtype=torch.float64))
    """

    distribution: Any

    def __post_init__(self) -> None:
        law = self.distribution
        if not hasattr(law, "cdf") or not (hasattr(law, "icdf") or hasattr(law, "ppf")):
            raise TypeError(
                f"{described(law)} has no cdf and quantile function; give a torch distribution, a frozen one of SciPy, or "
                "QuantileMargins(quantiles, levels)"
            )
        if isinstance(law, Distribution):
            if len(law.batch_shape) != 2 or law.event_shape:
                raise ValueError(
                    f"the distribution has batch shape {tuple(law.batch_shape)} and event shape {tuple(law.event_shape)}; "
                    "a distribution per case and target has (cases, targets) and ()"
                )
            if law.support is not None and law.support.is_discrete:
                raise TypeError(f"{described(law)} is discrete and has no quantile function; use that of SciPy")
            try:
                law.icdf(torch.full((1, 1), 0.5))
            except NotImplementedError:
                raise TypeError(
                    f"{described(law)} has no quantile function in torch; use that of SciPy, or QuantileMargins"
                ) from None
        elif len(self.shape) != 2:
            raise ValueError(
                f"its parameters have shape {self.shape}; give a distribution per case and target, (cases, targets)"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """How many cases and targets there are."""
        law = self.distribution
        found = law.batch_shape if isinstance(law, Distribution) else np.shape(law.ppf(0.5))
        return tuple(found)

    def values(self, probabilities: Tensor) -> Tensor:
        """Values (N, P, D) that are exceeded with one minus these probabilities (N, P, D).

        Parameters
        ----------
        probabilities : Tensor, shape (n_cases, n_points, n_targets)
            Levels between 0 and 1, several for each case and target.

        Returns
        -------
        Tensor, shape (n_cases, n_points, n_targets)
            The quantiles at these levels, in double precision.
        """
        by_draw, law = probabilities.movedim(1, 0), self.distribution
        if isinstance(law, Distribution):
            return law.icdf(by_draw).double().movedim(0, 1)
        return torch.as_tensor(law.ppf(by_draw.cpu().numpy())).double().movedim(0, 1)

    def levels_of(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities (N, D) below observations y (N, D), and up to them: the same two where there is no jump.

        Parameters
        ----------
        y : Tensor, shape (n_cases, n_targets)
            Observations.

        Returns
        -------
        below : Tensor, shape (n_cases, n_targets)
            Probabilities of smaller values.
        up_to : Tensor, shape (n_cases, n_targets)
            Probabilities of values that are no larger.
        """
        law = self.distribution
        if isinstance(law, Distribution):
            found = law.cdf(y).double()
            return found, found
        values = y.cpu().numpy()
        up_to = torch.as_tensor(law.cdf(values)).double()
        jump = (
            torch.as_tensor(law.dist.pmf(values, *law.args, **law.kwds)).double() if hasattr(law.dist, "pmf") else 0.0
        )
        return up_to - jump, up_to


def as_margins(margins: Any) -> Margins:
    """Margins as they are, or those of a distribution of torch or SciPy."""
    if isinstance(margins, QuantileMargins | DistributionMargins) or hasattr(margins, "levels_of"):
        return margins
    if isinstance(margins, np.ndarray | Tensor | list):
        raise TypeError(f"{described(margins)} has no levels; give QuantileMargins(quantiles, levels)")
    return DistributionMargins(margins)
