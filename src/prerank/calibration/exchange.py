"""Replicates of the PCE under calibration, made by exchanging the observation with a member.

Under calibration the observation and the members of a case are exchangeable, so any of them could have been the
observation. Each replicate picks one point per case at random and takes all its PITs along: the dependence between
projections and between pre-ranks is kept, and nothing is assumed.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from prerank.calibration.errors import level_bins
from prerank.calibration.pit import ProjectedPIT
from prerank.forecast.chunks import chunks
from prerank.randomness import torch_generator


class Replicates(NamedTuple):
    """Per replicate and projection: the PCE and the largest standardised deviation, (B, ..., K) each."""

    pce: Tensor
    maximum: Tensor


def exchange_replicates(
    pit: ProjectedPIT,
    levels: Tensor,
    n_replicates: int = 999,
    power: float = 1,
    seed: int = 0,
    blocks: Tensor | None = None,
    case_weights: Tensor | None = None,
) -> Replicates:
    """PCEs of `n_replicates` data sets in which another point of each case plays the observation.

    `blocks` (N,) are labels 0, 1, ...: all cases of a block pick the same member, which keeps dependence between cases
    where members run through them (the days of a season, say). Draws from a distribution do not.
    """
    if pit.points is None:
        raise ValueError("no exchangeable points: compute the PITs with projected_pit(..., exchangeable=True)")
    *lead, n_cases, n_points, n_projections = pit.points.shape
    points = pit.points.reshape(-1, n_cases, n_points, n_projections)
    if blocks is not None and pit.pick is not None:
        raise ValueError("blocks= exchanges whole members, whose weights differ from case to case here; leave one out")
    if blocks is not None and blocks.shape != (n_cases,):
        raise ValueError(f"blocks have shape {tuple(blocks.shape)}; one label per case is ({n_cases},)")
    bins = small_bins(points.reshape(-1, n_projections), levels)
    pick = None if pit.pick is None else pit.pick.expand(*lead, n_cases, n_points).reshape(-1, n_cases, n_points)
    generator = torch_generator(seed, "exchange", device=points.device)
    first_row = torch.arange(len(points) * n_cases, device=points.device).reshape(len(points), n_cases) * n_points

    def rows(count: int) -> Tensor:
        return first_row + _choose(count, len(points), n_cases, n_points, pick, blocks, generator)

    flat = replicate(bins, rows, n_replicates, levels, power, len(points), n_cases, case_weights)
    return Replicates(*(part.reshape(n_replicates, *lead, n_projections) for part in flat))


def small_bins(points: Tensor, levels: Tensor) -> Tensor:
    """`level_bins` of PITs (rows, K) in the smallest type that holds them: a test gathers them a thousand times."""
    bins = torch.empty(points.shape, dtype=torch.uint8 if len(levels) < 256 else torch.int32, device=points.device)
    for rows in chunks(len(points), points.shape[-1], points.device):
        bins[rows] = level_bins(points[rows], levels).to(bins.dtype)
    return bins


def replicate(
    bins: Tensor,
    rows: Callable[[int], Tensor],
    n_replicates: int,
    levels: Tensor,
    power: float,
    n_sets: int,
    n_cases: int,
    case_weights: Tensor | None = None,
    centre: Tensor | None = None,
) -> Replicates:
    """PCE and largest deviation of data sets made of rows of `bins` (rows, K): the engine of nulls and bootstraps.

    `rows(b)` gives b x sets x cases row numbers. `centre` ((sets,) J, K) is the curve that deviations are measured
    from; None is the diagonal.
    """
    n_levels, n_projections = len(levels), bins.shape[-1]
    grid = levels.to(torch.float64).to(bins.device)
    target = grid[:, None] if centre is None else centre.to(grid)
    spread = (grid * (1 - grid) / n_cases).sqrt()[:, None].clamp_min(1e-300)
    inside = ((grid > 0) & (grid < 1))[:, None]
    weights = None
    if case_weights is not None:
        weights = (case_weights / case_weights.sum()).double().to(bins.device)
    errors, maxima = [], []
    cells = n_projections * (n_levels + 1)
    column = torch.arange(n_projections, device=bins.device) * (n_levels + 1)
    for part in chunks(n_replicates, n_sets * n_cases * n_projections, bins.device):
        count = part.stop - part.start
        size = count * n_sets * cells
        # one row of bins per chosen case, moved so that every (replicate, set, projection) has cells of its own
        small = torch.int32 if size < 1 << 31 else torch.int64
        sets = torch.arange(count * n_sets, device=bins.device)[:, None, None] * cells
        chosen = bins.index_select(0, rows(count).flatten()).to(small).reshape(count * n_sets, n_cases, n_projections)
        chosen += (sets + column).to(small)
        if weights is None:
            counts = torch.bincount(chosen.flatten(), minlength=size).double() / n_cases
        else:
            counts = torch.bincount(chosen.flatten(), weights[:, None].expand(chosen.shape).flatten(), size)
        frequency = counts.reshape(count, n_sets, n_projections, n_levels + 1)[..., :-1].cumsum(-1).mT
        deviation = (frequency - target).abs_()
        errors.append(deviation.pow(power).mean(-2))
        maxima.append((deviation / spread * inside).amax(-2))
    return Replicates(torch.cat(errors), torch.cat(maxima))


def _choose(
    count: int,
    n_sets: int,
    n_cases: int,
    n_points: int,
    pick: Tensor | None,
    blocks: Tensor | None,
    generator: torch.Generator,
) -> Tensor:
    """Point numbers (count, sets or 1, cases): at random, by their probability, or the same for a whole block.

    Sets (several models, say) share their choices, so that the test of one does not depend on who is tested with it.
    """
    device = generator.device
    if blocks is not None:
        labels = blocks.to(device)
        n_blocks = int(labels.max()) + 1
        choice = torch.randint(n_points, (count, 1, n_blocks), generator=generator, device=device)
        return choice[..., labels]
    if pick is None:
        return torch.randint(n_points, (count, 1, n_cases), generator=generator, device=device)
    uniform = torch.rand(n_sets, n_cases, count, generator=generator, device=device, dtype=torch.float64)
    cumulative = pick.double().cumsum(-1)
    return torch.searchsorted(cumulative, uniform * cumulative[..., -1:]).clamp_max(n_points - 1).movedim(-1, 0)
