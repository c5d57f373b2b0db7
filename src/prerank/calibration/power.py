r"""Where a test sees next to nothing: how much power it has against a plain tilt of the ranks.

The tilt: of the points of a case, the one with the highest rank is picked as the observation three times as often as the
one with the lowest, linearly between (0.5 to 1.5 times the equal probability; tied points share their mean). It moves the
mean of the midpoints of the rank intervals by their variance v among the points of a case, times (M + 1) / M, and that
mean has standard deviation $\sqrt{v / N}$. So a 5 % test that looks at the mean has the power of a normal test at
$\sqrt{N v}\, (M + 1) / M$ standard deviations; the PCE's is close to it. Ties shrink v, and so do few members.
"""

import torch
from torch import Tensor

from prerank.calibration.projected_pits import PreRankPIT, ProjectedPIT, sampled
from prerank.calibration.rank_intervals import Intervals

NEARLY_BLIND = 0.20


def projection_power(pit: ProjectedPIT, n_effective: float, excess: Tensor | None = None) -> Tensor:
    """Approximate power of a 5 % test of each projection against ranks tilted from 0.5 to 1.5, (..., K).

    `n_effective` is the number of cases, or that of equally weighted ones that know as much; `excess` (S, K), with
    blocks, is N times the variance of the mean PIT. NaN where neither points nor the law of the ranks are known.
    """
    found, start = [], 0
    for part in pit.parts:
        columns = slice(start, start + len(part.names))
        start = columns.stop
        tilt = _tilt_of(part, pit)
        if tilt is None:
            found.append(torch.full(part.tied.shape, torch.nan, dtype=torch.float64, device=part.tied.device))
            continue
        moved, variance = tilt
        noise = variance if excess is None else excess[:, columns].reshape(*pit.lead, -1)
        found.append(_power_at(torch.where(noise > 0, moved * (n_effective / noise).sqrt(), 0.0)))
    return torch.cat(found, -1)


def _power_at(distance: Tensor) -> Tensor:
    """The power of a normal test at 5 % where the mean is so many standard deviations away."""
    from scipy.special import ndtri  # loads slowly

    limit = float(ndtri(0.975))
    return torch.special.ndtr(-distance - limit) + torch.special.ndtr(distance - limit)


def _tilt_of(part: PreRankPIT, pit: ProjectedPIT) -> tuple[Tensor, Tensor] | None:
    """By how much the tilt moves the mean midpoint, and the midpoint's variance in a case, (..., K) each."""
    points = part.some_points()
    if points is None:
        if not bool(part.law_is_known.all()) or pit.pick is not None:
            return None
        width = 0.0 if part.n_members is None else 1.0 / (part.n_members + 1)
        variance = torch.full_like(part.tied, (1 - width**2) / 12)
        return variance / (1 - width), variance
    chance = _chance(points, pit)
    lower, upper = points.bounds()
    centred = 0.5 * (lower.double() + upper.double()) - 0.5
    variance = (chance[..., None] * centred.square()).sum(-2)  # (..., n, K)
    # (M + 1) / M; with unequal weights M + 1 is the effective number of points
    effective = 1.0 / chance.square().sum(-1)[..., None]
    return (effective / (effective - 1.0).clamp_min(1.0) * variance).mean(-2), variance.mean(-2)


def _chance(points: Intervals, pit: ProjectedPIT) -> Tensor:
    """The probability of each point, (..., n, P); a point that a case lacks has an interval without a length."""
    shape = points.lower.shape[:-1]
    if pit.pick is None and not isinstance(points.unit, int):
        there = (points.upper > points.lower).any(-1).double()
        return there / there.sum(-1, keepdim=True)
    if pit.pick is None:
        return torch.full(shape, 1.0 / shape[-1], dtype=torch.float64, device=pit.device)
    some = pit.pick if pit.pick.shape[-2] == shape[-2] else pit.pick[..., sampled(pit.n_cases), :]
    return some.double().expand(shape)
