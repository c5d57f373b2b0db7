r"""Ranks are intervals: what a PIT is when an observation is ranked among finitely many points.

An observation with b of M members below it and t tied with it could have any PIT in [b, b + t + 1] / (M + 1), and under
calibration a uniform number in that interval is exactly uniform. Drawing that number would make every result depend on
the draw, so it is never drawn: a case with interval [l, u] adds the mean over the draw,
$c(\alpha) = \min(\max((\alpha - l) / (u - l), 0), 1)$, to the reliability curve at level $\alpha$. A PIT that is a
number has l = u and adds a step.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals [lower, upper] / unit of PITs, (..., N, K) of observations or (..., N, P, K) of all points of a case.

    Ranks are kept as the whole numbers they are, with `unit` M + 1, one for all cases or one per case (N,); weighted
    ranks and PITs in closed form are fractions, with `unit` 1. `upper` is `lower` itself where PITs are numbers.
    """

    lower: Tensor
    upper: Tensor
    unit: int | Tensor = 1

    @property
    def are_values(self) -> bool:
        """Whether every interval is a number."""
        return self.upper is self.lower

    def bounds(self) -> tuple[Tensor, Tensor]:
        """Lower and upper ends as fractions."""
        if isinstance(self.unit, int) and self.unit == 1:
            return self.lower, self.upper
        unit: float | Tensor = float(self.unit) if isinstance(self.unit, int) else self._unit_of_cases()
        lower = self.lower.double() / unit
        return lower, lower if self.are_values else self.upper.double() / unit

    def _unit_of_cases(self) -> Tensor:
        assert isinstance(self.unit, Tensor)
        return self.unit.double().reshape(-1, *(1,) * (self.lower.ndim - 1))

    def select(self, cases: Tensor | slice, axis: int) -> "Intervals":
        """Some of the cases, which lie along `axis` (counted from the end)."""
        index = (..., cases, *(slice(None),) * (-axis - 1))
        lower = self.lower[index]
        unit = self.unit[cases] if isinstance(self.unit, Tensor) else self.unit
        return Intervals(lower, lower if self.are_values else self.upper[index], unit)

    def in_sets(self, n_sets: int, axis: int) -> "Intervals":
        """Cases, which lie along `axis` (counted from the end), cut into sets of equal size: (N, ...) -> (S, N / S, ...)."""
        if isinstance(self.unit, Tensor):
            raise ValueError("cases with different numbers of members cannot be cut into sets")
        lower = self.lower.unflatten(axis, (n_sets, -1))
        return Intervals(lower, lower if self.are_values else self.upper.reshape(lower.shape), self.unit)


def steps(intervals_lower: Tensor, intervals_upper: Tensor, levels: Tensor) -> Tensor:
    """Contributions (n, J) to the reliability curve of intervals (n,) at levels (J,), in double precision."""
    lower, upper = intervals_lower.double()[:, None], intervals_upper.double()[:, None]
    width = upper - lower
    share = ((levels - lower) / width).clamp(0.0, 1.0)
    return torch.where(width > 0, share, (levels >= lower).double())


def curve_sums(lower: Tensor, upper: Tensor, levels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Sums of the contributions of N cases to the curve: intervals (..., N, K), levels (J,) -> (..., J, K).

    Between the first level above its lower end and the last below its upper end a contribution rises linearly, so four
    numbers per interval describe it at all levels: where it enters, where it leaves, and its slope between the two.
    """
    lower, upper = lower.double(), upper.double()
    n_levels = len(levels)
    step = torch.diff(levels, prepend=levels.new_zeros(1))
    first = torch.searchsorted(levels, lower.contiguous())
    last = torch.searchsorted(levels, upper.contiguous())
    slope = torch.where(last > first, 1.0 / (upper - lower), 0.0)
    enters = (levels[first.clamp_max(n_levels - 1)] - lower) * slope
    leaves = torch.where(last > first, (upper - levels[last - 1]) * slope, 1.0)
    between = torch.where(last > first + 1, slope, 0.0)
    if weights is not None:
        own = weights.to(lower)[..., None]
        enters, leaves, between = enters * own, leaves * own, between * own
    shape = (*lower.shape[:-2], n_levels + 2, lower.shape[-1])
    rise, slopes = lower.new_zeros(shape), lower.new_zeros(shape)
    for sums, places, values in (
        (rise, first, enters), (rise, last, leaves), (slopes, first + 1, between), (slopes, last, -between)
    ):  # fmt: skip
        add_at(sums, places, values)
    rise, slopes = rise[..., :n_levels, :], slopes[..., :n_levels, :]
    return (rise + step[:, None] * slopes.cumsum(-2)).cumsum(-2)


def add_at(sums: Tensor, places: Tensor, values: Tensor) -> None:
    """Add values (..., N, K) to sums (..., J, K) at places 0..J - 1 of the same shape as the values, in place.

    A GPU's atomic additions come in another order every time, and round accordingly; there the values of a place are
    sorted and added in the order of the cases.
    """
    if sums.device.type == "cpu":
        sums.scatter_add_(-2, places, values)
    else:
        add_in_order(sums, places, values)


def add_in_order(sums: Tensor, places: Tensor, values: Tensor) -> None:
    """`add_at` by sorting. Sums must be contiguous."""
    n_places, n_projections = sums.shape[-2:]
    sets = torch.arange(sums[..., 0, 0].numel(), device=sums.device).reshape(*sums.shape[:-2], 1, 1)
    cells = (sets * n_places + places) * n_projections + torch.arange(n_projections, device=sums.device)
    sums.view(-1).index_put_((cells.flatten(),), values.flatten(), accumulate=True)
