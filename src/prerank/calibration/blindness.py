r"""Where a test sees next to nothing: how much power it has against a plain tilt of the ranks.

The tilt: of the points of a case, the one with the highest rank is picked as the observation three times as often as the
one with the lowest, linearly between (0.5 to 1.5 times the equal probability; tied points share their mean). It moves the
mean of the midpoints of the rank intervals by their variance v among the points of a case, times (M + 1) / M, and that
mean has standard deviation $\sqrt{v / N}$. So a 5 % test that looks at the mean has the power of a normal test at
$\sqrt{N v}\, (M + 1) / M$ standard deviations; the PCE's is close to it. Ties shrink v, and so do few members.
"""

import torch
from scipy import stats
from torch import Tensor

from prerank.calibration.projectedpit import PreRankPIT, ProjectedPIT

NEARLY_BLIND = 0.20
_CASES = 1000  # enough for the mean variance; blocks need all


def projection_power(pit: ProjectedPIT, blocks: Tensor | None = None, case_weights: Tensor | None = None) -> Tensor:
    """Approximate power of a 5 % test of each projection against ranks tilted from 0.5 to 1.5, (..., K)."""
    columns = [_of_part(part, pit, blocks, case_weights) for part in pit.parts]
    distance = torch.cat(columns, -1)
    limit = float(stats.norm.ppf(0.975))
    below, above = torch.special.ndtr(-distance - limit), torch.special.ndtr(distance - limit)
    return below + above


def _of_part(part: PreRankPIT, pit: ProjectedPIT, blocks: Tensor | None, case_weights: Tensor | None) -> Tensor:
    """By how many standard deviations the tilt moves the mean, (..., K)."""
    if part.points is None:
        if not (bool(part.law_is_known.all()) and pit.pick is None and blocks is None and case_weights is None):
            return torch.full(part.tied.shape, torch.nan, dtype=torch.float64, device=part.tied.device)
        width = 0.0 if part.n_members is None else 1.0 / (part.n_members + 1)
        of_ranks = (1 - width**2) / 12
        return torch.full_like(part.tied, (pit.n_cases * of_ranks) ** 0.5 / (1 - width))
    kept: slice | Tensor = slice(None)
    share = 1.0
    if blocks is None and case_weights is None and pit.n_cases > _CASES:
        kept = torch.linspace(0, pit.n_cases - 1, _CASES, device=pit.device).long()
        share = pit.n_cases / _CASES
    points = part.points.select(kept, -3)
    lower, upper = points.bounds()
    centred = 0.5 * (lower.double() + upper.double()) - 0.5  # (..., N, P, K)
    n_points = centred.shape[-2]
    chance = torch.full(centred.shape[:-1], 1.0 / n_points, dtype=torch.float64, device=pit.device)
    if pit.pick is not None:
        chance = pit.pick[..., kept, :].double().expand(chance.shape)
    # (M + 1) / M; with unequal weights M + 1 is the effective number of points
    effective = 1.0 / chance.square().sum(-1)[..., None]
    tilt = effective / (effective - 1.0).clamp_min(1.0)
    weights = torch.ones(centred.shape[-3], dtype=torch.float64, device=pit.device)
    if case_weights is not None:
        weights = case_weights.double().to(pit.device) / case_weights.double().mean()
    if blocks is not None:
        labels = torch.unique(blocks.to(pit.device), return_inverse=True)[1]
        return _of_blocks(centred * weights[:, None, None], chance, tilt, labels)
    variance = (chance[..., None] * centred.square()).sum(-2)  # (..., N, K)
    moved = (weights[:, None] * tilt * variance).sum(-2)
    noise = (weights.square()[:, None] * variance).sum(-2).sqrt()
    return torch.where(noise > 0, moved / noise, 0.0) * share**0.5


def _of_blocks(centred: Tensor, chance: Tensor, tilt: Tensor, labels: Tensor) -> Tensor:
    """The same where whole members are exchanged through a block, and picked by their mean rank in it."""
    n_blocks = int(labels.max()) + 1
    sizes = torch.bincount(labels).double()
    shape = (*centred.shape[:-3], n_blocks, *centred.shape[-2:])
    sums = centred.new_zeros(shape).index_add_(-3, labels, centred)
    first = torch.zeros(n_blocks, dtype=torch.long, device=labels.device).scatter_(
        0, labels, torch.arange(len(labels), device=labels.device)
    )
    variance = (chance[..., first, :, None] * sums.square()).sum(-2)  # of the sum over a block, (..., blocks, K)
    moved = (tilt[..., first, :] * variance / sizes[:, None]).sum(-2)
    noise = variance.sum(-2).sqrt()
    return torch.where(noise > 0, moved / noise, 0.0)
