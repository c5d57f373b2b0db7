"""A confidence interval for the population PCE that is valid at zero."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from prerank._chunks import chunks
from prerank._parallel import single_threaded
from prerank.arrays.conversion import accepts_arrays
from prerank.calibration.exchange import points_of
from prerank.calibration.null import block_sums, pce_null
from prerank.calibration.projected_pits import ProjectedPIT
from prerank.calibration.reliability import centred_levels, reliability_curve
from prerank.randomness import bits_of_steps, case_keys

MANY_CASES = 100_000  # from here on sets of cases are resampled: their sums cost one pass, and say the same
_SETS = 4096
FEWEST_BLOCKS = 20  # of fewer independent blocks tests are approximate, and an interval would hold too rarely


class PCEInterval(NamedTuple):
    """Estimate and limits of the mean PCE over the projections.

    Attributes
    ----------
    estimate : float
        The PCE.
    low : float
        Lower limit.
    high : float
        Upper limit.
    """

    estimate: float
    low: float
    high: float


@single_threaded()
@accepts_arrays("pit", "null", "blocks")
def pce_interval(
    pit: ProjectedPIT | Tensor,
    coverage: float = 0.95,
    n_levels: int = 100,
    levels: Tensor | None = None,
    null: Tensor | None = None,
    n_replicates: int = 999,
    seed: int = 0,
    blocks: Tensor | None = None,
) -> PCEInterval:
    r"""Confidence interval for the PCE (exponent 1, mean over K projections) that infinitely many cases would show.

    PCE is a mean absolute distance, so $|\widehat{PCE} - PCE| \le \frac1J \sum_j |\hat F(\alpha_j) - F(\alpha_j)|$. The
    interval is the estimate plus and minus a quantile of the right-hand side, the larger of its bootstrap quantile
    (F as observed) and its null quantile (F uniform), and is cut at zero. It therefore covers at least as often as
    stated, also where the population PCE is zero, at which the usual bootstrap interval fails. Of more than 100,000 cases,
    4,096 sets are resampled.

    Parameters
    ----------
    pit : ProjectedPIT or array_like of shape (n_cases, n_projections)
        PITs.
    coverage : float, default 0.95
        How often the interval is to hold the population PCE, at least.
    n_levels : int, default 100
        Levels are the cell centres (j - 0.5) / n_levels.
    levels : array_like, shape (n_levels,), optional
        Levels of your own.
    null : array_like, shape (n_replicates,), optional
        Replicates of the mean PCE under calibration (`pce_test(...).replicates`): needed for several projections, for ranks
        that tie or carry weights, and for blocks.
    n_replicates : int, default 999
        Replicates of the bootstrap.
    seed : int, default 0
        Of the bootstrap.
    blocks : array_like, shape (n_cases,), optional
        Labels of dependent cases, which are then drawn together; with fewer than 20 blocks the limits are NaN.

    Returns
    -------
    PCEInterval
        Estimate and limits.

    Examples
    --------
    >>> interval = pce_interval(torch.linspace(0.001, 0.999, 500)[:, None])
    >>> interval.low
    0.0
    """
    shape = (*pit.lead, pit.n_cases, len(pit.names)) if isinstance(pit, ProjectedPIT) else tuple(pit.shape)
    if len(shape) != 2:
        raise ValueError(f"pce_interval takes PITs of shape (N, K), got {shape}")
    if not isinstance(pit, ProjectedPIT):
        pit = ProjectedPIT.of_values(pit)
    if not 0 < coverage < 1:
        raise ValueError(f"coverage={coverage}: a probability between 0 and 1, such as 0.95")
    grid = centred_levels(n_levels) if levels is None else levels
    null = None if null is None else null.reshape(-1, 1)
    limits = pce_intervals(pit, null, blocks, coverage, grid, n_replicates, seed, pooled=True)
    return PCEInterval(*(float(limit.reshape(())) for limit in limits))


@single_threaded()
def pce_intervals(
    pit: ProjectedPIT,
    null: Tensor | None,
    blocks: Tensor | None = None,
    coverage: float = 0.95,
    levels: Tensor | None = None,
    n_replicates: int = 999,
    seed: int = 0,
    *,
    pooled: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """`pce_interval` of G pre-ranks and several models, PITs (..., N, K): estimate, low and high, (..., G) each.

    `null` (B, ..., G) holds their replicates, None: no pre-rank needs them. With `pooled` all projections are one pre-rank.
    All share their bootstrap samples, so the interval of one does not depend on the others.
    """
    grid = (centred_levels() if levels is None else levels).double().to(pit.device)
    curve = reliability_curve(pit, levels=grid).frequency.double()
    sizes = [len(pit.names)] if pooled else [len(part.names) for part in pit.parts]
    estimate = torch.stack([own.mean((-2, -1)) for own in (grid[:, None] - curve).abs().split(sizes, -1)], -1)
    if blocks is not None and len(blocks.unique()) < FEWEST_BLOCKS:
        blank = torch.full_like(estimate, torch.nan)
        return estimate, blank, blank
    distances, n_units = _bootstrap(pit, grid, curve, n_replicates, seed, blocks)
    margins = [own.mean(-1).quantile(coverage, dim=0) for own in distances.split(sizes, -1)]
    margin = torch.stack(margins, -1) * _inflation(coverage, n_units)
    if null is not None:
        margin = torch.maximum(margin, null.double().quantile(coverage, dim=0, interpolation="higher").to(margin))
    elif blocks is None and pit.pick is None:
        least = [_known_quantile(pit, g, grid, coverage) if size == 1 else 0.0 for g, size in enumerate(sizes)]
        margin = torch.maximum(margin, margin.new_tensor(least))
    return estimate, (estimate - margin).clamp_min(0.0), (estimate + margin).clamp_max(1.0)


def _known_quantile(pit: ProjectedPIT, g: int, levels: Tensor, coverage: float) -> float:
    """The quantile of a calibrated projection's PCE, from N and M alone."""
    return float(pce_null(pit.n_cases, levels=levels.cpu(), n_members=pit.parts[g].n_members).quantile(coverage))


def _inflation(coverage: float, n_units: int) -> float:
    """Few units: their spread is estimated with n - 1, and not exactly."""
    from scipy.special import ndtri, stdtrit  # loads slowly

    student = stdtrit(max(1, n_units - 1), 0.5 + coverage / 2) / ndtri(0.5 + coverage / 2)
    return float(math.sqrt(n_units / max(1, n_units - 1)) * student)


def _bootstrap(
    pit: ProjectedPIT, grid: Tensor, curve: Tensor, n_replicates: int, seed: int, blocks: Tensor | None
) -> tuple[Tensor, int]:
    """Distances (B, ..., K) of bootstrapped curves from the observed one, and how many units were resampled.

    Of very many cases, sets that are dealt by the cases' names are resampled in their place: independent cases make
    independent sets, and 4,096 of them know a variance to 2 %.
    """
    if blocks is None and pit.n_cases > MANY_CASES:
        blocks = case_keys(seed, pit.case_ids, "bootstrap of sets") & (_SETS - 1)
    if blocks is not None:
        sums, sizes = block_sums(pit, grid, blocks)
        n_blocks = len(sizes)
        keys = case_keys(seed, torch.arange(n_blocks, device=grid.device), "bootstrap of blocks")
        found = []
        for some in chunks(n_replicates, 8 * n_blocks, grid.device):
            chosen = (bits_of_steps(keys, some.start, some.stop) * n_blocks >> 31).T
            counts = torch.zeros(chosen.shape, dtype=torch.float64, device=grid.device)
            counts.scatter_add_(1, chosen, torch.ones_like(counts))
            resampled = (counts @ sums.flatten(1)).reshape(-1, *curve.shape)
            total = (counts @ sizes).reshape(-1, *(1,) * curve.ndim)
            found.append((resampled / total - curve).abs().mean(-2))
        return torch.cat(found), n_blocks
    points = points_of(pit, grid, observed_only=True)
    # in the order of their names, so that the order in which cases are given changes nothing
    order = pit.case_ids.argsort()
    first_row = points.first_rows()
    keys = case_keys(seed, torch.arange(pit.n_cases, device=grid.device), "bootstrap")

    def rows(start: int, stop: int) -> Tensor:
        chosen = order[(bits_of_steps(keys, start, stop) * pit.n_cases) >> 31]
        return first_row[:, :1] + chosen.T[:, None, :]

    centre = curve.reshape(points.n_sets, *curve.shape[-2:])
    distances = points.replicates(rows, n_replicates, 1, None, centre).pce
    return distances.reshape(n_replicates, *pit.lead, distances.shape[-1]), pit.n_cases
