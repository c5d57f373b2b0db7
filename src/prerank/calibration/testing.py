"""Tests of calibration: is the PCE larger than chance makes it?"""

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from prerank.calibration.errors import centred_levels, level_bins, pce
from prerank.calibration.exchange import Replicates, exchange_replicates, replicate, small_bins
from prerank.calibration.null import pce_null
from prerank.calibration.pit import ProjectedPIT
from prerank.forecast import accepts_arrays
from prerank.randomness import torch_generator


class PCETest(NamedTuple):
    """One entry per pre-rank (group of projections), (..., G) each; the statistic is the mean PCE of its projections.

    `null_level` is the expected statistic of a calibrated forecast. `corrected_p_value` accounts for all groups
    together (min-p over the same replicates); the smallest one is the p-value of the whole. `maximum_p_value` is that
    of the largest standardised deviation of any reliability curve of the group, and `band_width` the half-width of the
    95 % band for those curves in units of sqrt(alpha (1 - alpha) / N).
    """

    groups: tuple[str, ...]
    statistic: Tensor
    null_level: Tensor
    p_value: Tensor
    corrected_p_value: Tensor
    maximum_p_value: Tensor
    band_width: Tensor
    replicates: Tensor


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

    For a single projection the null distribution depends on the number of cases alone (and on M for unrandomised
    ranks), so any tensor of PITs (..., N, 1) will do. For several projections it comes from exchanging the observation
    with a member (`exchange_replicates`): pass `projected_pit(..., exchangeable=True)`.
    p = (1 + #{null >= observed}) / (B + 1).
    `blocks` (N,) exchanges all cases of a block with the same member, for dependent cases.

    >>> calibrated = torch.rand(400, 1, generator=torch.Generator().manual_seed(1))
    >>> bool(pce_test(calibrated).p_value > 0.05), bool(pce_test(calibrated**2).p_value < 0.01)
    (True, True)
    """
    if isinstance(pit, Tensor):
        groups = ("pit",) if pit.shape[-1] == 1 else tuple(f"pit {k + 1}" for k in range(pit.shape[-1]))
        pit = ProjectedPIT(pit, groups, ("pit",) * pit.shape[-1], "given", True, torch.zeros(pit.shape[-1]))
    grid = (centred_levels(n_levels) if levels is None else levels).double().to(pit.values.device)
    names = tuple(dict.fromkeys(pit.groups))
    member_of = torch.tensor([names.index(group) for group in pit.groups], device=grid.device)
    if pit.points is None and (pit.values.shape[-1] > 1 or blocks is not None):
        raise ValueError(
            f"{pit.values.shape[-1]} projections (or blocks) need PITs of exchangeable points: projections depend "
            "on each other: compute them with projected_pit(..., exchangeable=True), or test one projection at a time"
        )
    known_law = _law_is_known(pit, blocks)
    if pit.points is None and not known_law.all():
        raise ValueError(
            "unrandomised or weighted ranks have no known law where they tie or carry weights: compute the PITs with "
            "projected_pit(..., exchangeable=True), or use RandomisedRank()"
        )
    observed, null = _observed_and_null(pit, grid, n_replicates, power, seed, blocks, case_weights)
    statistic, replicates = (
        _group_mean(observed.pce, member_of, len(names)),
        _group_mean(null.pce, member_of, len(names)),
    )
    together = torch.cat([statistic, replicates])
    p_values = _exceedance(together)
    strength = _resolved(p_values, together)
    smallest = strength.amin(-1, keepdim=True)  # of every replicate, its smallest p-value over the groups
    corrected = (smallest <= strength[:1]).double().mean(0)
    p_value, null_level = p_values[0].clone(), replicates.mean(0)
    for g in range(len(names)):  # the null of a single projection is known better than a thousand replicates tell
        own = member_of == g
        if int(own.sum()) == 1 and case_weights is None and known_law[own].all():
            known = pce_null(pit.values.shape[-2], power=power, levels=grid, n_members=pit.n_members)
            p_value[..., g] = torch.as_tensor(known.p_value(statistic[0, ..., g].cpu().numpy())).to(p_value)
            null_level[..., g] = known.mean
    maxima = torch.cat(
        [_group_max(observed.maximum, member_of, len(names)), _group_max(null.maximum, member_of, len(names))]
    )
    return PCETest(
        names,
        statistic[0],
        null_level,
        p_value,
        torch.maximum(corrected, p_value),  # a correction never helps, also where the two were simulated apart
        _exceedance(maxima)[0],
        maxima[1:].sort(0).values[math.ceil(0.95 * n_replicates) - 1],
        replicates,
    )


def _law_is_known(pit: ProjectedPIT, blocks: Tensor | None) -> Tensor:
    """For each projection whether calibrated PITs are independent and uniform, or uniform on k / M: (K,)."""
    known = torch.full(pit.values.shape[-1:], blocks is None and pit.pick is None, device=pit.values.device)
    if pit.n_members is not None:  # ties push unrandomised ranks up
        known &= (pit.tied.reshape(-1, len(known)) == 0).all(0).to(known.device)
    return known


def _observed_and_null(
    pit: ProjectedPIT,
    grid: Tensor,
    n_replicates: int,
    power: float,
    seed: int,
    blocks: Tensor | None,
    case_weights: Tensor | None,
) -> tuple[Replicates, Replicates]:
    """The observed statistics (1, ..., K), by the same arithmetic as the replicates (B, ..., K): ties are ties."""
    pce(pit.values, levels=grid, case_weights=case_weights)  # refuses what is not a PIT or a weight
    *lead, n_cases, n_projections = pit.values.shape
    bins = level_bins(pit.values.reshape(-1, n_projections), grid)
    n_sets = len(bins) // n_cases
    own = torch.arange(len(bins), device=bins.device).reshape(1, n_sets, n_cases)
    flat = replicate(bins, lambda count: own, 1, grid, power, n_sets, n_cases, case_weights)
    observed = Replicates(*(part.reshape(1, *lead, n_projections) for part in flat))
    if pit.points is not None:
        labels = None if blocks is None else torch.unique(blocks.to(bins.device), return_inverse=True)[1]
        return observed, exchange_replicates(pit, grid, n_replicates, power, seed, labels, case_weights)
    # one projection: calibrated PITs are uniform, or uniform on k/M for unrandomised ranks
    generator = torch_generator(seed, "uniform", device=bins.device)
    steps = 1 << 18 if pit.n_members is None else pit.n_members + 1
    offset = 0.5 if pit.n_members is None else 0.0
    scale = float(1 << 18) if pit.n_members is None else max(1, pit.n_members)
    values = (torch.arange(steps, device=bins.device, dtype=torch.float64) + offset) / scale
    table = small_bins(values[:, None], grid)
    flat = replicate(
        table,
        lambda count: torch.randint(steps, (count, 1, n_cases), generator=generator, device=bins.device).expand(
            count, n_sets, n_cases
        ),
        n_replicates,
        grid,
        power,
        n_sets,
        n_cases,
        case_weights,
    )
    return observed, Replicates(*(part.reshape(n_replicates, *lead, 1) for part in flat))


def _group_mean(values: Tensor, member_of: Tensor, n_groups: int) -> Tensor:
    return torch.stack([values[..., member_of == g].mean(-1) for g in range(n_groups)], -1)


def _group_max(values: Tensor, member_of: Tensor, n_groups: int) -> Tensor:
    return torch.stack([values[..., member_of == g].amax(-1) for g in range(n_groups)], -1)


def _exceedance(together: Tensor) -> Tensor:
    """For each of B + 1 rows the share of rows at or above it, ties within rounding counted: (B + 1, ...) -> same."""
    columns = together.flatten(1).T.contiguous()
    ordered = columns.sort(-1).values
    first = torch.searchsorted(ordered, columns * (1 - 1e-9))
    share = (columns.shape[-1] - first).double() / columns.shape[-1]
    return share.T.reshape(together.shape)


def _resolved(p_values: Tensor, together: Tensor) -> Tensor:
    """p-values in units of 1 / (B + 1), ties among groups broken by how far the statistic lies from its mean.

    G groups have G rows with the smallest p-value that B replicates allow. Left tied, they would share a corrected
    p-value of up to G / (B + 1), and no test over many groups could ever reject. The tie-break treats all rows alike,
    so the test stays exact.
    """
    spread = together.std(0, correction=0, keepdim=True)
    score = (together - together.mean(0, keepdim=True)) / torch.where(spread > 0, spread, 1.0)
    between_zero_and_one = 0.5 * (1 + score / (1 + score.abs()))
    # rounded, so that equal statistics stay equal whatever the order of their sums
    return (p_values * len(together)).round() - (between_zero_and_one * (1 << 20)).round() / ((1 << 20) + 1)


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
