"""Tests of calibration: is the PCE larger than expected under calibration?"""

from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from prerank._parallel import single_threaded
from prerank.arrays.conversion import accepts_arrays
from prerank.calibration.adjustment import holm
from prerank.calibration.checks import require_exponent, require_whole
from prerank.calibration.evidence import Chunk, Evidence, Plan, shares_of
from prerank.calibration.exchange import Replicates
from prerank.calibration.projected_pits import PreRankPIT, ProjectedPIT, sampled
from prerank.calibration.random_signs import Setting, signs_of
from prerank.calibration.rank_intervals import Intervals
from prerank.calibration.reliability import centred_levels, pce
from prerank.calibration.row_test import FEWEST_SIGNS, FEWEST_STEPS, RowTest, row_of, step_down
from prerank.inputs.checks import require_case_weights

NEARLY_BLIND = 0.20  # power below which a test tells next to nothing


class PCETest(NamedTuple):
    """What `pce_test` found of each pre-rank (a row of projections) and of each projection.

    Attributes
    ----------
    groups : tuple of str
        Names of the pre-ranks.
    statistic : Tensor, shape (..., n_preranks)
        Mean PCE of the projections of each pre-rank.
    expected_pce : Tensor, shape (..., n_preranks)
        What it would be under calibration.
    p_value : Tensor, shape (..., n_preranks)
        Of the test that every projection of the pre-rank is calibrated, whatever the dependence between them.
    adjusted_p_value : Tensor, shape (..., n_preranks)
        Adjusted for all pre-ranks, row by row: a right one is rejected beside wrong ones no more often than promised.
    p_value_error : Tensor, shape (..., n_preranks)
        Monte Carlo standard error of `p_value`.
    maximum_p_value : Tensor, shape (..., n_preranks)
        p-value of the largest standardised deviation of any reliability curve of the pre-rank.
    band_width : Tensor, shape (..., n_preranks)
        Half-width of the 95 % consistency band of those curves, in units of `spread`.
    spread : Tensor, shape (..., n_levels, n_projections)
        Standard deviation of the curves under calibration.
    projection_pce : Tensor, shape (..., n_projections)
        PCE of each projection.
    projection_expected_pce : Tensor, shape (..., n_projections)
        What it would be under calibration.
    projection_p_value : Tensor, shape (..., n_projections)
        p-value of each projection, adjusted for the projections of its pre-rank.
    projection_power : Tensor, shape (..., n_projections)
        Power that a 5 % test of the projection would have at this N against observations picked with a probability linear
        in their rank, from 0.5 to 1.5; NaN where it is not known.
    attainable : Tensor, shape (...,)
        The smallest adjusted p-value that these data and replicates could have given.
    replicates : Tensor, shape (n_replicates, ..., n_preranks)
        Mean PCEs under calibration.
    nulls : tuple of str
        Where the null distribution of each pre-rank comes from: "exact" (it depends on N and M alone), "points" (picking
        among the points of each case) or "signs" (random signs of cases or blocks).
    """

    groups: tuple[str, ...]
    statistic: Tensor
    expected_pce: Tensor
    p_value: Tensor
    adjusted_p_value: Tensor
    p_value_error: Tensor
    maximum_p_value: Tensor
    band_width: Tensor
    spread: Tensor
    projection_pce: Tensor
    projection_expected_pce: Tensor
    projection_p_value: Tensor
    projection_power: Tensor
    attainable: Tensor
    replicates: Tensor
    nulls: tuple[str, ...]


@single_threaded()
@accepts_arrays("pit", "levels", "blocks", "case_weights")
def pce_test(
    pit: ProjectedPIT | Tensor,
    n_levels: int = 100,
    exponent: float = 1,
    levels: Tensor | None = None,
    n_replicates: int = 999,
    seed: int = 0,
    blocks: Tensor | None = None,
    case_weights: Tensor | None = None,
    n_groups: int = 1,
) -> PCETest:
    r"""Test of calibration by the PCE, for one pre-rank or several.

    One projection: the exact null distribution, which depends on the numbers of cases and members alone; where ranks tie,
    or members or cases have weights, it comes from picking among the points of each case, so pass
    `projected_pit(..., exchangeable=True)`. Several projections of one pre-rank: random signs of whole cases, which keep
    the dependence between projections that is observed, and the smallest p-value of three statistics: the mean and the
    maximum of their PCEs, each over its expected value, and the PCE of their mean curve. With fewer than ten cases each
    projection is tested exactly, with Bonferroni's factor.
    p = (1 + #{null >= observed}) / (B + 1). p-values are adjusted for several pre-ranks in steps, with the same signs.

    Parameters
    ----------
    pit : ProjectedPIT or array_like of shape (..., n_cases, n_projections)
        PITs; of an array all columns are one pre-rank.
    n_levels : int, default 100
        Levels are the cell centres (j - 0.5) / n_levels.
    exponent : float, default 1
        Deviations are averaged to this power.
    levels : array_like, shape (n_levels,), optional
        Levels of your own.
    n_replicates : int, default 999
        Replicates B.
    seed : int, default 0
        Of the signs and of the points that are picked.
    blocks : array_like, shape (n_cases,), optional
        Labels of dependent cases, which share a sign.
    case_weights : array_like, shape (n_cases,), optional
        Weights of the cases.
    n_groups : int, default 1
        Groups of cases that p-values are to be adjusted for too: small ones come from as many more replicates as that
        needs.

    Returns
    -------
    PCETest
        Errors, p-values and replicates of every pre-rank.

    Examples
    --------
    >>> calibrated = torch.rand(400, 1, generator=torch.Generator().manual_seed(1))
    >>> bool(pce_test(calibrated).p_value > 0.05), bool(pce_test(calibrated**2).p_value < 0.01)
    (True, True)
    """
    if isinstance(pit, Tensor):
        pit = ProjectedPIT.of_values(pit)
    exponent = require_exponent(exponent)
    n_replicates, seed = require_whole(n_replicates, "n_replicates"), require_whole(seed, "seed", at_least=None)
    pce(pit, case_weights=case_weights)  # refuses what is not a PIT or a weight
    shares = None
    if case_weights is not None:
        shares = shares_of(require_case_weights(case_weights, "case_weights", (pit.n_cases,)).to(pit.device))
    labels = None if blocks is None else _numbered(blocks, pit)
    grid = (centred_levels(n_levels) if levels is None else levels).double().to(pit.device)
    plan = Plan.of(pit.n_cases, grid, seed, labels, shares, n_replicates, exponent, n_groups)
    return pce_test_of(Chunk(plan, pit, torch.arange(pit.n_cases, device=pit.device), labels, shares))


def _numbered(blocks: Tensor, pit: ProjectedPIT) -> Tensor:
    """Numbers 0, 1, ... of the blocks of the cases, (N,)."""
    if blocks.shape != (pit.n_cases,):
        raise ValueError(f"blocks have shape {tuple(blocks.shape)}; one label per case is ({pit.n_cases},)")
    return torch.unique(blocks.to(pit.device), return_inverse=True)[1]


def pce_test_of(evidence: Evidence) -> PCETest:
    """The test of cases in memory, or of the sums over chunks of them."""
    plan, pit = evidence.plan, evidence.pit
    setting, n_replicates, exponent = plan.setting, plan.n_replicates, plan.exponent
    signs = signs_of(pit, evidence.sums, setting, evidence.spread)

    def picked(columns: slice, part: PreRankPIT, count: int) -> Replicates | None:
        return evidence.picked(part, signs.spread[..., columns], count)

    ends = list(accumulate(len(part.names) for part in pit.parts))
    weighted = setting.weighted or pit.pick is not None
    # neither a single projection nor those of few cases are compared with signs
    unsigned = setting.n_blocks is None and (len(pit.names) == 1 or setting.is_small(FEWEST_SIGNS))
    unsigned = unsigned and all(part.points is not None or bool(part.law_is_known.all()) for part in pit.parts)

    def rows(count: int) -> list[RowTest]:
        by_signs = signs.statistics(0 if unsigned else count, exponent)
        return [
            row_of(part, slice(end - len(part.names), end), signs, by_signs, picked, setting, weighted, count, exponent)
            for part, end in zip(pit.parts, ends, strict=True)
        ]

    first = rows(n_replicates)
    found = _together(first, setting)
    factor = len(first) if setting.is_small(FEWEST_STEPS) else 1  # Holm's method multiplies
    enough = plan.n_enough(factor)
    if enough > n_replicates:
        small = found["adjusted_p_value"].amin(-1) <= 10 / (n_replicates + 1)
        # what more replicates could have given, had a p-value asked for them; several that tie can do no more
        alone = found["attainable"] * (n_replicates + 1) < 1.5 * factor
        found["attainable"] = torch.where(alone, factor / (enough + 1), found["attainable"])
        if small.any():
            finer = _together(rows(enough), setting)
            found = {
                name: torch.where(small.reshape(-1, *(1,) * (own.ndim - 1)), finer[name], own)
                for name, own in found.items()
            }
    replicates = torch.stack([row.replicates for row in first], -1)
    return PCETest(
        groups=tuple(part.prerank for part in pit.parts),
        nulls=tuple(row.null for row in first),
        replicates=replicates.reshape(n_replicates, *pit.lead, len(first)),
        spread=signs.spread.reshape(*pit.lead, *signs.spread.shape[1:]),
        projection_power=projection_power(pit, setting.n_effective, signs.excess_variance(setting)),
        **{name: value.reshape((*pit.lead, *value.shape[1:])) for name, value in found.items()},
    )


def _together(rows: list[RowTest], setting: Setting) -> dict[str, Tensor]:
    """The tests of all pre-ranks side by side, with p-values adjusted for their number: (S, G), (S, K) and (S,)."""

    def stacked(values: Iterable[Tensor]) -> Tensor:
        return torch.stack(list(values), -1)

    p_value, strengths = stacked(row.p_value for row in rows), stacked(row.strength for row in rows)
    attainable = stacked(row.attainable for row in rows).amin(-1)
    if len(rows) == 1:
        adjusted = p_value
    elif setting.is_small(FEWEST_STEPS):
        adjusted, attainable = holm(p_value), (len(rows) * attainable).clamp_max(1.0)
    else:
        adjusted, attainable = step_down(strengths, p_value), attainable.clamp_min(1.0 / len(strengths))
    return {
        "statistic": stacked(row.errors.mean(-1) for row in rows),
        "expected_pce": stacked(row.expected_pce.mean(-1) for row in rows),
        "p_value": p_value,
        "adjusted_p_value": adjusted,
        "p_value_error": stacked(row.error_of_p for row in rows),
        "maximum_p_value": stacked(row.maximum_p_value for row in rows),
        "band_width": stacked(row.band_width for row in rows),
        "projection_pce": torch.cat([row.errors for row in rows], -1),
        "projection_expected_pce": torch.cat([row.expected_pce for row in rows], -1),
        "projection_p_value": torch.cat([row.projection_p_value for row in rows], -1),
        "attainable": attainable,
    }


@single_threaded()
@accepts_arrays("pit")
def ks_test(pit: Tensor) -> Tensor:
    """p-value of the Kolmogorov-Smirnov test of uniformity for each projection, for comparison.

    Parameters
    ----------
    pit : array_like, shape (n_cases, n_projections)
        PITs.

    Returns
    -------
    Tensor or ndarray, shape (n_projections,)
        p-values.
    """
    columns = pit.detach().cpu().double().numpy().T
    from scipy import stats  # loads slowly

    return torch.tensor(np.array([stats.kstest(column, "uniform").pvalue for column in columns]))


@single_threaded()
@accepts_arrays("pit")
def chi_square_test(pit: Tensor, n_bins: int = 10) -> Tensor:
    """p-value of the chi-square test of uniformity for each projection, for comparison.

    Parameters
    ----------
    pit : array_like, shape (n_cases, n_projections)
        PITs.
    n_bins : int, default 10
        Bins of equal width.

    Returns
    -------
    Tensor or ndarray, shape (n_projections,)
        p-values.
    """
    columns = pit.detach().cpu().double().numpy().T
    counts = [np.histogram(column, bins=n_bins, range=(0.0, 1.0))[0] for column in columns]
    from scipy import stats  # loads slowly

    return torch.tensor(np.array([stats.chisquare(count).pvalue for count in counts]))


def projection_power(pit: ProjectedPIT, n_effective: float, excess: Tensor | None = None) -> Tensor:
    r"""Approximate power of a 5 % test of each projection against ranks tilted from 0.5 to 1.5, (..., K).

    The tilt: of the points of a case, the one with the highest rank is picked as the observation three times as often as
    the one with the lowest, linearly between (tied points share their mean). It moves the mean of the midpoints of the rank
    intervals by their variance v among the points of a case, times (M + 1) / M, and that mean has standard deviation
    $\sqrt{v / N}$. So a 5 % test that looks at the mean has the power of a normal test at $\sqrt{N v}\, (M + 1) / M$
    standard deviations; the PCE's is close to it. Ties shrink v, and so do few members.

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
