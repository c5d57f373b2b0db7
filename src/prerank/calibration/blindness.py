r"""Where a test sees next to nothing: how much power it has against a plain tilt of the ranks.

The tilt: of the points of a case, the one with the highest rank is picked as the observation three times as often as the
one with the lowest, linearly between (0.5 to 1.5 times the equal probability; tied points share their mean). It moves the
mean of the midpoints of the rank intervals by their variance v among the points of a case, times (M + 1) / M, and that
mean has standard deviation $\sqrt{v / N}$. So a 5 % test that looks at the mean has the power of a normal test at
$\sqrt{N v}\, (M + 1) / M$ standard deviations; the PCE's is close to it. Ties shrink v, and so do few members.
"""

from typing import NamedTuple

import torch
from scipy import stats
from torch import Tensor

from prerank.calibration.intervals import Intervals
from prerank.calibration.projectedpit import PreRankPIT, ProjectedPIT, sampled

NEARLY_BLIND = 0.20


def projection_power(pit: ProjectedPIT, blocks: Tensor | None = None, case_weights: Tensor | None = None) -> Tensor:
    """Approximate power of a 5 % test of each projection against ranks tilted from 0.5 to 1.5, (..., K)."""
    if not pit.has_points:
        columns = [_without_points(part, pit, blocks is not None or case_weights is not None) for part in pit.parts]
        return power_at(torch.cat(columns, -1))
    if case_weights is not None:
        case_weights = case_weights.double().to(pit.device) / case_weights.double().mean()
    if blocks is not None:
        labels = torch.unique(blocks.to(pit.device), return_inverse=True)[1]
        return power_at(block_tilts(pit, labels, int(labels.max()) + 1, case_weights).distance())
    if case_weights is not None:
        return power_at(tilts(pit, case_weights).distance())
    return power_of_sample(pit.select(sampled(pit.n_cases)), pit.n_cases)


def power_of_sample(sample: ProjectedPIT, n_cases: int) -> Tensor:
    """The same for `n_cases` independent cases, of which these are an even sample."""
    return power_at(tilts(sample).distance() * (n_cases / sample.n_cases) ** 0.5)


def power_at(distance: Tensor) -> Tensor:
    """The power of a normal test at 5 % where the mean is so many standard deviations away."""
    limit = float(stats.norm.ppf(0.975))
    return torch.special.ndtr(-distance - limit) + torch.special.ndtr(distance - limit)


def _without_points(part: PreRankPIT, pit: ProjectedPIT, dependent_or_weighted: bool) -> Tensor:
    if not (bool(part.law_is_known.all()) and pit.pick is None and not dependent_or_weighted):
        return torch.full(part.tied.shape, torch.nan, dtype=torch.float64, device=part.tied.device)
    width = 0.0 if part.n_members is None else 1.0 / (part.n_members + 1)
    of_ranks = (1 - width**2) / 12
    return torch.full_like(part.tied, (pit.n_cases * of_ranks) ** 0.5 / (1 - width))


class Tilts(NamedTuple):
    """By how much the tilt moves the sum of midpoints, and their variance, (..., K) each: both add up over cases."""

    moved: Tensor
    variance: Tensor

    def joined(self, more: "Tilts") -> "Tilts":
        """Those of two sets of cases together."""
        return Tilts(self.moved + more.moved, self.variance + more.variance)

    def distance(self) -> Tensor:
        """How many standard deviations that is."""
        return torch.where(self.variance > 0, self.moved / self.variance.sqrt(), 0.0)


def tilts(pit: ProjectedPIT, weights: Tensor | None = None) -> Tilts:
    """What independent cases add; `weights` (N,) have mean one over all cases."""
    chance = _chance(pit)
    tilt = _tilt(chance)
    moved, spread = [], []
    for part in pit.parts:
        variance = (chance[..., None] * _centred(part).square()).sum(-2)  # (..., N, K)
        own = 1.0 if weights is None else weights[:, None]
        moved.append((own * tilt * variance).sum(-2))
        spread.append((variance if weights is None else own * own * variance).sum(-2))
    return Tilts(torch.cat(moved, -1), torch.cat(spread, -1))


class BlockTilts(NamedTuple):
    """Midpoints of members summed over the cases of a block, (..., blocks, P, K), picked by their mean rank in it.

    `chance` (..., blocks, P) are the probabilities of the members, `sizes` the numbers of cases. `n_blocks` is the number of
    all blocks, of which these are an even sample.
    """

    sums: Tensor
    chance: Tensor
    sizes: Tensor
    n_blocks: int

    def joined(self, more: "BlockTilts") -> "BlockTilts":
        """Those of two sets of cases together."""
        chance = torch.where((self.sizes > 0)[:, None], self.chance, more.chance)
        return BlockTilts(self.sums + more.sums, chance, self.sizes + more.sizes, self.n_blocks)

    def distance(self) -> Tensor:
        """By how many standard deviations the tilt moves the mean, (..., K)."""
        variance = (self.chance[..., None] * self.sums.square()).sum(-2)  # of the sum over a block, (..., blocks, K)
        moved = (_tilt(self.chance) * variance / self.sizes[:, None]).sum(-2)
        noise = variance.sum(-2).sqrt()
        return torch.where(noise > 0, moved / noise, 0.0) * (self.n_blocks / len(self.sizes)) ** 0.5


def block_tilts(
    pit: ProjectedPIT, labels: Tensor, n_blocks: int, weights: Tensor | None = None, n_points: int | None = None
) -> BlockTilts:
    """What some cases add to the sums of blocks 0..n_blocks - 1; `n_points` are the most that any case has."""
    step = sampled(n_blocks).step
    kept = (labels % step == 0).nonzero()[:, 0]
    some, own = pit.select(kept), labels[kept].div(step, rounding_mode="floor")
    count = len(range(0, n_blocks, step))
    chance = _chance(some)
    n_points = chance.shape[-1] if n_points is None else n_points
    lead = pit.lead
    sums = chance.new_zeros(*lead, count, n_points, len(pit.names))
    chances = chance.new_zeros(*lead, count, n_points)
    start = 0
    for part in some.parts:
        centred = _centred(part)
        if weights is not None:
            centred = centred * weights[kept][:, None, None]
        columns = slice(start, start + len(part.names))
        sums[..., : centred.shape[-2], columns].index_add_(-3, own, centred)
        start = columns.stop
    chances[..., own, : chance.shape[-1]] = chance  # the same in all cases of a block
    sizes = torch.bincount(own, minlength=count).double()
    return BlockTilts(sums, chances, sizes, n_blocks)


def _centred(part: PreRankPIT) -> Tensor:
    """Midpoints of the intervals of all points, less a half: (..., N, P, K)."""
    points = part.points
    assert isinstance(points, Intervals)
    lower, upper = points.bounds()
    return 0.5 * (lower.double() + upper.double()) - 0.5


def _chance(pit: ProjectedPIT) -> Tensor:
    """The probability of each point, (..., N, P)."""
    points = pit.parts[0].points
    assert points is not None
    shape = points.lower.shape[:-1]
    if pit.pick is None:
        return torch.full(shape, 1.0 / shape[-1], dtype=torch.float64, device=pit.device)
    return pit.pick.double().expand(shape)


def _tilt(chance: Tensor) -> Tensor:
    """(M + 1) / M, (..., 1); with unequal weights M + 1 is the effective number of points."""
    effective = 1.0 / chance.square().sum(-1)[..., None]
    return effective / (effective - 1.0).clamp_min(1.0)
