"""Densities and joint CDFs of a set of points, for forecasts that are samples and nothing else."""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from prerank._kernels import BANDWIDTHS, kernel_for
from prerank._reproducible_math import blocks, log_sum_exp, total
from prerank.preranks.rank_counts import ascending, runs
from prerank.preranks.rounding import power_of_two_above

_IN_CACHE = 1 << 20  # bytes of a temporary that is passed over several times: about what a core has to itself
_TILE = 64  # points on either side of a block of pairs
_BITS = 64  # of a whole number, one for each point


def _by_case(points: Tensor, centres: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """All with one axis of cases, (n, P, D), (n, R, D) and (n, R), whatever leading axes they had."""
    lead = np.broadcast_shapes(points.shape[:-2], centres.shape[:-2])
    points = points.expand(*lead, *points.shape[-2:]).reshape(-1, *points.shape[-2:])
    centres = centres.expand(*lead, *centres.shape[-2:]).reshape(-1, *centres.shape[-2:])
    if weights is not None:
        weights = (weights / weights.sum(-1, keepdim=True)).expand(*lead, weights.shape[-1]).flatten(0, -2)
    return points, centres, weights


def bandwidths(centres: Tensor, weights: Tensor | None = None) -> Tensor:
    """Scott's rule per target, s_d R^(-1/(D+4)), (..., N, 1, D); a target on which all centres agree is given 1.

    A symmetric function of the centres up to rounding, and to the last digit if they come in canonical order: pooled with
    the observation, it treats the observation like a member. With weights (..., N, R) the spread is weighted and R is the
    effective number of centres.
    """
    n_centres, n_targets = centres.shape[-2:]
    if weights is not None and (
        fused := kernel_for(BANDWIDTHS, centres, weights, fixed=(centres, weights), targets=n_targets)
    ):
        return fused(centres, weights)
    # from the first centre, so that centres that agree have no spread, and in a unit whose squares do not overflow
    deviation = centres - centres[..., :1, :]
    unit = power_of_two_above(deviation.abs().amax(-2, keepdim=True))
    deviation = deviation / unit
    if weights is None:
        share = torch.full_like(deviation[..., :1], 1.0 / n_centres)
        shrink: Tensor | float = n_centres ** (-1.0 / (n_targets + 4))
    else:
        share = (weights / weights.sum(-1, keepdim=True))[..., None]
        shrink = (1.0 / total(share.square(), -2)[..., None, :]) ** (-1.0 / (n_targets + 4))
    mean = total(share * deviation, -2)[..., None, :]
    spread = total(share * (deviation - mean).square(), -2)[..., None, :].sqrt() * unit
    return torch.where(spread > 0, spread, 1.0) * shrink


def log_kernel_density(points: Tensor, centres: Tensor, weights: Tensor | None = None) -> Tensor:
    """Gaussian kernel log density of centres (..., N, R, D) at points (..., N, P, D), (..., N, P), up to a constant.

    The bandwidths are `bandwidths(centres)`. A point that is one of the centres counts itself, which adds the same
    amount for every centre and changes no rank. Computed in double precision, a few points at a time.
    """
    shape, dtype = points.shape[:-1], points.dtype
    if points is centres and weights is None and points.device.type == "cpu" and not points.requires_grad:
        return _log_pooled_density(points.flatten(0, -3)).reshape(shape).to(dtype)
    points, centres = points.double(), centres.double()
    weights = None if weights is None else weights.double()
    bandwidth, origin = bandwidths(centres, weights), centres[..., :1, :]
    points, centres, weights = _by_case((points - origin) / bandwidth, (centres - origin) / bandwidth, weights)
    log_weights = None if weights is None else weights.log()[:, :, None]
    if torch.is_grad_enabled() and (points.requires_grad or centres.requires_grad):
        return torch.logsumexp(_exponents(points, centres, log_weights), 1).reshape(shape).to(dtype)
    result = torch.empty(points.shape[:-1], dtype=dtype, device=points.device)
    for cases, some in blocks(points.shape[0], points.shape[1], centres.shape[1], 8, points.device):
        given = points[cases, some], centres[cases], None if log_weights is None else log_weights[cases]
        found = total(_exponents(*given).exp_(), 1, overwrite=True).log()
        far = found < -500.0  # where exponentials vanish, the highest has to be taken out first
        if far.any():
            found = torch.where(far, log_sum_exp(_exponents(*given), 1), found)
        result[cases, some] = found
    return result.reshape(shape)


def _exponents(points: Tensor, centres: Tensor, log_weights: Tensor | None) -> Tensor:
    """-|point - centre|^2 / 2 plus the logarithm of the centre's weight, (n, R, P)."""
    # the exact mode: a matrix product would round equal points differently and break their ties
    distance = torch.cdist(centres, points, compute_mode="donot_use_mm_for_euclid_dist")
    exponent = -0.5 * distance.square() if distance.requires_grad else distance.square_().mul_(-0.5)
    return exponent if log_weights is None else exponent + log_weights


def _log_pooled_density(points: Tensor) -> Tensor:
    """Log density of points (n, P, D) at these points, (n, P), in double precision.

    Every pair is taken once. Exponents come from one matrix product: the squared distance of two points is the sum of
    their squared lengths less twice their product. Lengths are bounded, since the points themselves set the bandwidths:
    in these units their squares sum to D P^(1 + 2/(D+4)), so that little cancels. A point counts itself, so that no sum
    vanishes.
    """
    n_cases, n_points, n_targets = points.shape
    sums = torch.zeros(n_cases, n_points, dtype=torch.float64)
    n_tiles = -(-n_points // _TILE)
    ends = [n_points * t // n_tiles for t in range(n_tiles + 1)]
    tiles = [slice(start, stop) for start, stop in pairwise(ends)]
    for cases in _in_cache(n_cases, n_points * n_targets):
        some = points[cases].double()
        some = (some - some[:, :1]) / bandwidths(some)
        some -= total(some, 1)[:, None] / n_points
        half = some.square().sum(-1, keepdim=True) * -0.5
        ones = torch.ones_like(half)
        left, right = torch.cat([some, half, ones], -1), torch.cat([some, ones, half], -1)
        for few in _in_cache(len(some), max(tile.stop - tile.start for tile in tiles) ** 2):
            own = sums[cases][few]
            for a, rows in enumerate(tiles):
                for columns in tiles[a:]:
                    pairs = torch.bmm(left[few, rows], right[few, columns].mT)
                    if columns == rows:
                        pairs.diagonal(dim1=1, dim2=2).zero_()
                    own[:, rows] += pairs.exp_().sum(-1)
                    if columns != rows:
                        own[:, columns] += total(pairs, 1, overwrite=True)
    return sums.log_()


def _in_cache(n_cases: int, numbers_per_case: int) -> list[slice]:
    """Slices of cases with so few numbers that all that is made of them stays in the cache of one core."""
    size = max(1, _IN_CACHE // (8 * numbers_per_case))
    return [slice(start, min(start + size, n_cases)) for start in range(0, n_cases, size)]


def joint_cdf(points: Tensor, centres: Tensor, weights: Tensor | None = None) -> Tensor:
    """Share of centres (..., N, R, D) that are <= the point in every target, at points (..., N, P, D): (..., N, P)."""
    shape = points.shape[:-1]
    if points is centres and weights is None and points.device.type == "cpu":
        return _pooled_joint_cdf(points.flatten(0, -3)).reshape(shape)
    points, centres, weights = _by_case(points, centres, weights)
    result = torch.empty(points.shape[:-1], dtype=points.dtype, device=points.device)
    if torch.equal(points.float().to(points), points) and torch.equal(centres.float().to(centres), centres):
        points, centres = (
            points.float(),
            centres.float(),
        )  # nothing is lost, and half the memory passes through the cache
    for cases, some in blocks(
        points.shape[0], points.shape[1], 2 * centres.shape[1], points.element_size(), points.device
    ):
        p, c = points[cases, some].movedim(-1, 0).contiguous(), centres[cases].movedim(-1, 0).contiguous()
        # the largest excess of a centre over a point: its sign is exact, and faster to find than D comparisons
        excess = c[0][:, :, None] - p[0][:, None, :]
        step = torch.empty_like(excess)
        for d in range(1, len(p)):
            torch.maximum(excess, torch.sub(c[d][:, :, None], p[d][:, None, :], out=step), out=excess)
        below = excess <= 0
        if weights is None:
            result[cases, some] = below.sum(1, dtype=torch.int32).to(result.dtype) / centres.shape[1]
        else:
            result[cases, some] = total(below * weights[cases][:, :, None], 1, overwrite=True).to(result.dtype)
    return result.reshape(shape)


def _pooled_joint_cdf(points: Tensor) -> Tensor:
    """Share of points (n, P, D) that are <= each of them in every target, (n, P).

    For every point and target a set of bits says which points are <= there: in the order of the target these sets grow by
    one point at a time. The points that are <= in every target are what the sets have in common.
    """
    n_cases, n_points, n_targets = points.shape
    count = torch.zeros(n_cases, n_points, dtype=torch.long)
    for cases in _in_cache(n_cases, n_points * n_targets):
        order, rises = ascending(points[cases].mT)
        last = None if rises is None else runs(rises, n_points, points.device)[1] - 1
        sets = torch.empty_like(order)
        for first in range(0, n_points, _BITS):
            # a shift by less than 0 or more than 63 places leaves nothing
            upto = torch.bitwise_left_shift(1, order - first if first else order).cumsum(-1)
            sets.scatter_(-1, order, upto if last is None else upto.gather(-1, last))
            common = sets[:, 0].clone()
            for d in range(1, n_targets):
                common &= sets[:, d]
            count[cases] += _number_of_bits(common)
    return count.to(points.dtype) / n_points


def _number_of_bits(words: Tensor) -> Tensor:
    """How many of the 64 bits of whole numbers are set, by sums of neighbouring groups of bits."""
    words = words - ((words >> 1) & 0x5555555555555555)
    words = (words & 0x3333333333333333) + ((words >> 2) & 0x3333333333333333)
    words = (words + (words >> 4)) & 0x0F0F0F0F0F0F0F0F
    for bits in (8, 16, 32):
        words = words + (words >> bits)
    return words & 127
