"""Tests of calibration: is the PCE larger than expected under calibration?"""

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from prerank.calibration.blindness import projection_power
from prerank.calibration.curvetable import tables_of
from prerank.calibration.errors import centred_levels, checked_weights, pce
from prerank.calibration.exchange import Points, Replicates, exchanged, points_of, spread_of
from prerank.calibration.inputs import require_power, require_whole
from prerank.calibration.intervals import Intervals
from prerank.calibration.null import REPLICATES, pce_null
from prerank.calibration.projectedpit import PreRankPIT, ProjectedPIT
from prerank.forecast import accepts_arrays
from prerank.randomness import bits_of_steps, case_keys

_STEPS = 1 << 20  # in which ties between groups are broken


class PCETest(NamedTuple):
    """One entry per pre-rank (group of projections), (..., G) each; the statistic is the mean PCE of its projections.

    `null_level` is the PCE expected under calibration. `corrected_p_value` is adjusted for testing all groups (min-p over
    the same replicates); the smallest one is the p-value of the whole. `p_value_error` is the Monte Carlo standard error of
    `p_value`, which comes from the replicates. `maximum_p_value` is that of the largest standardised deviation of any
    reliability curve of the group, and `band_width` the half-width of the 95 % consistency band of those curves, in units
    of `spread` (..., J, K), their standard deviation under calibration.

    Of each projection, (..., K): `projection_pce`, its `expected` value under calibration, `projection_p_value` (adjusted
    for the projections of its pre-rank), and `projection_power`, the power that a 5 % test of it would have at this N
    against observations picked with a probability linear in their rank, from 0.5 to 1.5 (NaN where it is not known).
    `attainable` (...) is the smallest adjusted p-value that these data and replicates could have given, and `replicates`
    (B, ..., G) are the statistics of the replicates.
    """

    groups: tuple[str, ...]
    statistic: Tensor
    null_level: Tensor
    p_value: Tensor
    corrected_p_value: Tensor
    p_value_error: Tensor
    maximum_p_value: Tensor
    band_width: Tensor
    spread: Tensor
    projection_pce: Tensor
    expected: Tensor
    projection_p_value: Tensor
    projection_power: Tensor
    attainable: Tensor
    replicates: Tensor


@accepts_arrays("pit", "levels", "blocks", "case_weights")
def pce_test(
    pit: ProjectedPIT | Tensor,
    n_levels: int = 100,
    power: float = 1,
    levels: Tensor | None = None,
    n_replicates: int = 999,
    seed: int = 0,
    blocks: Tensor | None = None,
    case_weights: Tensor | None = None,
) -> PCETest:
    r"""Test of calibration by the PCE, for one pre-rank or several.

    For a single projection without ties the null distribution depends on the numbers of cases and members alone, so any
    tensor of PITs (..., N, 1) will do. For several projections, and where ranks tie, it comes from exchanging the
    observation with a member (`exchange_replicates`): pass `projected_pit(..., exchangeable=True)`.
    p = (1 + #{null >= observed}) / (B + 1).
    `blocks` (N,) exchanges all cases of a block with the same member, for dependent cases.

    >>> calibrated = torch.rand(400, 1, generator=torch.Generator().manual_seed(1))
    >>> bool(pce_test(calibrated).p_value > 0.05), bool(pce_test(calibrated**2).p_value < 0.01)
    (True, True)
    """
    if isinstance(pit, Tensor):
        pit = ProjectedPIT.of_values(pit)
    power = require_power(power)
    n_replicates, seed = require_whole(n_replicates, "n_replicates"), require_whole(seed, "seed", at_least=None)
    pce(pit, case_weights=case_weights)  # refuses what is not a PIT or a weight
    if case_weights is not None:
        case_weights = checked_weights(case_weights, pit.n_cases).to(pit.device)
    grid = (centred_levels(n_levels) if levels is None else levels).double().to(pit.device)
    independent = blocks is None and pit.pick is None
    if not pit.has_points:
        _refuse_unknown_null(pit, laws_of(pit, independent), blocks)
    points = points_of(pit, grid, case_weights)
    spread = spread_of(points, pit)
    observed = points.observed(power, spread)
    if pit.has_points:
        null = exchanged(points, pit, n_replicates, power, seed, blocks, spread)
    else:
        null = _uniform(points, pit.parts[0], n_replicates, power, seed, spread)
    observed, null = (Replicates(*(x.reshape(-1, *pit.lead, x.shape[-1]) for x in y)) for y in (observed, null))
    laws = laws_of(pit, independent and case_weights is None)
    tilt = projection_power(pit, blocks, case_weights)
    return compared(pit, observed, null, grid, spread.reshape(*pit.lead, *spread.shape[1:]), power, laws, tilt)


def compared(
    pit: ProjectedPIT,
    observed: Replicates,
    null: Replicates,
    grid: Tensor,
    spread: Tensor,
    power: float,
    laws: list[Tensor],
    tilt: Tensor,
) -> PCETest:
    """The test, from the statistics of the data (1, ..., K) and of the replicates (B, ..., K).

    `laws` say for each pre-rank which projections have a null that is known better than replicates tell.
    """
    sizes = [len(part.names) for part in pit.parts]
    n_replicates = len(null.pce)
    statistic, replicates = _group_means(observed.pce, sizes), _group_means(null.pce, sizes)
    together = torch.cat([statistic, replicates])
    p_values = exceedance(together)
    strength = resolved(p_values, together)
    smallest = strength.amin(-1, keepdim=True)  # of every replicate, its smallest p-value over the groups
    corrected = (smallest <= strength[:1]).double().mean(0)
    attainable = (smallest <= smallest.amin(0, keepdim=True)).double().mean(0)[..., 0]
    p_value, null_level, expected = p_values[0].clone(), replicates.mean(0), null.pce.mean(0)
    error = (p_value * (1 - p_value) / n_replicates).sqrt()
    for g, part in enumerate(pit.parts):
        if not laws[g].all():
            continue
        law = pce_null(
            pit.n_cases, power=power, levels=grid.cpu(), n_members=part.n_members, unrandomised=part.unrandomised
        )
        expected[..., sum(sizes[:g]) : sum(sizes[: g + 1])] = null_level[..., g] = law.mean
        if sizes[g] == 1:
            p = torch.as_tensor(law.p_value(statistic[0, ..., g].cpu().numpy())).to(p_value)
            p_value[..., g], error[..., g] = p, (p * (1 - p) / REPLICATES).sqrt()
    maxima = torch.cat([_group_maxima(observed.maximum, sizes), _group_maxima(null.maximum, sizes)])
    return PCETest(
        tuple(part.prerank for part in pit.parts),
        statistic[0],
        null_level,
        p_value,
        torch.maximum(corrected, p_value),  # a correction never helps, also where the two were simulated apart
        error,
        exceedance(maxima)[0],
        maxima[1:].sort(0).values[math.ceil(0.95 * n_replicates) - 1],
        spread,
        observed.pce[0],
        expected,
        _within_groups(torch.cat([observed.pce, null.pce]), sizes),
        tilt,
        attainable,
        replicates,
    )


def laws_of(pit: ProjectedPIT, independent: bool) -> list[Tensor]:
    """For each projection whether calibrated PITs are independent with a law that depends on M alone: (K,) per pre-rank."""
    return [part.law_is_known & independent for part in pit.parts]


def _refuse_unknown_null(pit: ProjectedPIT, known: list[Tensor], blocks: Tensor | None) -> None:
    count = len(pit.names)
    if count > 1 or blocks is not None:
        raise ValueError(
            f"{count} projections (or blocks) need PITs of exchangeable points: projections depend "
            "on each other: compute them with projected_pit(..., exchangeable=True), or test one projection at a time"
        )
    if not known[0].all():
        raise ValueError(
            "ranks have no known law where they tie or carry weights: compute the PITs with "
            "projected_pit(..., exchangeable=True)"
        )


def _uniform(
    points: Points, part: PreRankPIT, n_replicates: int, power: float, seed: int, spread: Tensor
) -> Replicates:
    """Replicates of one projection whose law is known: uniform PITs, or ranks that are all equally probable."""
    device = points.levels.device
    steps = (1 << 18) if part.n_members is None else part.n_members + 1
    place = torch.arange(steps, device=device)
    if part.n_members is None:
        values = (place.double() + 0.5) / steps
        intervals = Intervals(values[:, None], values[:, None])
    elif part.unrandomised:
        values = place.double() / part.n_members
        intervals = Intervals(values[:, None], values[:, None])
    else:
        intervals = Intervals(place[:, None], place[:, None] + 1, steps)
    table = points._replace(tables=tables_of(intervals, points.levels))
    keys = case_keys(seed, torch.arange(points.n_cases, device=device), "uniform")

    def rows(start: int, stop: int) -> Tensor:
        chosen = (bits_of_steps(keys, start, stop) * steps) >> 31
        return chosen.T[:, None, :].expand(-1, points.n_sets, -1)

    return table.replicates(rows, n_replicates, power, spread)


def _group_means(values: Tensor, sizes: list[int]) -> Tensor:
    return torch.stack([part.mean(-1) for part in values.split(sizes, -1)], -1)


def _group_maxima(values: Tensor, sizes: list[int]) -> Tensor:
    return torch.stack([part.amax(-1) for part in values.split(sizes, -1)], -1)


def _within_groups(together: Tensor, sizes: list[int]) -> Tensor:
    """p-values of projections, adjusted for those of their own pre-rank: (B + 1, ..., K) -> (..., K)."""
    found = []
    for part in together.split(sizes, -1):
        strength = resolved(exceedance(part), part)
        smallest = strength.amin(-1, keepdim=True)
        found.append((smallest <= strength[:1]).double().mean(0))
    return torch.cat(found, -1)


def exceedance(together: Tensor) -> Tensor:
    """For each of B + 1 rows the share of rows at or above it, ties within rounding counted: (B + 1, ...) -> same."""
    columns = together.flatten(1).T.contiguous()
    ordered = columns.sort(-1).values
    first = torch.searchsorted(ordered, columns * (1 - 1e-9))
    share = (columns.shape[-1] - first).double() / columns.shape[-1]
    return share.T.reshape(together.shape)


def resolved(p_values: Tensor, together: Tensor) -> Tensor:
    """p-values in units of 1 / (B + 1), ties among groups broken by how far the statistic lies from its mean.

    G groups have G rows with the smallest p-value that B replicates allow. Left tied, they would share an adjusted
    p-value of up to G / (B + 1), and no test over many groups could ever reject. The tie-break treats all rows alike,
    so the test stays exact.
    """
    spread = together.std(0, correction=0, keepdim=True)
    score = (together - together.mean(0, keepdim=True)) / torch.where(spread > 0, spread, 1.0)
    between_zero_and_one = 0.5 * (1 + score / (1 + score.abs()))
    # rounded, so that equal statistics stay equal whatever the order of their sums
    return (p_values * len(together)).round() - (between_zero_and_one * _STEPS).round() / (_STEPS + 1)


@accepts_arrays("pit")
def ks_test(pit: Tensor) -> Tensor:
    """p-value of the Kolmogorov-Smirnov test of uniformity for each projection, (N, K) -> (K,), for comparison."""
    columns = pit.detach().cpu().double().numpy().T
    return torch.tensor(np.array([stats.kstest(column, "uniform").pvalue for column in columns]))


@accepts_arrays("pit")
def chi_square_test(pit: Tensor, n_bins: int = 10) -> Tensor:
    """p-value of the chi-square test on `n_bins` equal bins for each projection, (N, K) -> (K,), for comparison."""
    columns = pit.detach().cpu().double().numpy().T
    counts = [np.histogram(column, bins=n_bins, range=(0.0, 1.0))[0] for column in columns]
    return torch.tensor(np.array([stats.chisquare(count).pvalue for count in counts]))
