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
from prerank.calibration.power import projection_power
from prerank.calibration.projected_pits import PreRankPIT, ProjectedPIT
from prerank.calibration.random_signs import Setting, signs_of
from prerank.calibration.reliability import centred_levels, pce
from prerank.calibration.row_test import FEWEST_SIGNS, FEWEST_STEPS, RowTest, row_of, step_down
from prerank.inputs.checks import require_case_weights


class PCETest(NamedTuple):
    """One entry per pre-rank (a row of projections), (..., G) each; `statistic` is the mean PCE of its projections.

    `expected_pce` is what it would be under calibration. `p_value` tests that every projection of the pre-rank is
    calibrated, whatever the dependence between them, and `adjusted_p_value` is adjusted for all G pre-ranks, row by row:
    a right one is rejected beside wrong ones no more often than promised. `p_value_error` is the Monte Carlo standard error
    of `p_value`. `maximum_p_value` is that of the largest standardised deviation of any reliability curve of the pre-rank,
    and `band_width` the half-width of the 95 % consistency band of those curves, in units of `spread` (..., J, K), their
    standard deviation under calibration.

    Of each projection, (..., K): `projection_pce`, `projection_expected_pce`, `projection_p_value` (adjusted for the
    projections of its pre-rank), and `projection_power`, the power that a 5 % test of it would have at this N
    against observations picked with a probability linear in their rank, from 0.5 to 1.5 (NaN where it is not known).
    `attainable` (...) is the smallest adjusted p-value that these data and replicates could have given, and `replicates`
    (B, ..., G) are mean PCEs under calibration. `nulls` says for each pre-rank where its null distribution comes from:
    "exact" (it depends on N and M alone), "points" (picking among the points of each case) or "signs" (random signs of
    cases or blocks).
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
    p = (1 + #{null >= observed}) / (B + 1).
    `blocks` (N,) are labels of dependent cases, which share a sign. p-values are adjusted for several pre-ranks in steps,
    with the same signs. If they are to be adjusted for `n_groups` groups of cases too, small ones come from as many more
    replicates as that needs.

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
    """p-value of the Kolmogorov-Smirnov test of uniformity for each projection, (N, K) -> (K,), for comparison."""
    columns = pit.detach().cpu().double().numpy().T
    from scipy import stats  # loads slowly

    return torch.tensor(np.array([stats.kstest(column, "uniform").pvalue for column in columns]))


@single_threaded()
@accepts_arrays("pit")
def chi_square_test(pit: Tensor, n_bins: int = 10) -> Tensor:
    """p-value of the chi-square test on `n_bins` equal bins for each projection, (N, K) -> (K,), for comparison."""
    columns = pit.detach().cpu().double().numpy().T
    counts = [np.histogram(column, bins=n_bins, range=(0.0, 1.0))[0] for column in columns]
    from scipy import stats  # loads slowly

    return torch.tensor(np.array([stats.chisquare(count).pvalue for count in counts]))
