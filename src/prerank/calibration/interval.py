"""A confidence interval for the population PCE that is valid at zero."""

from typing import NamedTuple

import torch
from torch import Tensor

from prerank.calibration.errors import centred_levels, level_bins, reliability_curve
from prerank.calibration.exchange import replicate
from prerank.calibration.null import pce_null
from prerank.forecast import accepts_arrays
from prerank.randomness import torch_generator


class PCEInterval(NamedTuple):
    """Estimate and limits of the mean PCE over the projections."""

    estimate: float
    low: float
    high: float


@accepts_arrays("pit", "null")
def pce_interval(
    pit: Tensor,
    coverage: float = 0.95,
    n_levels: int = 100,
    levels: Tensor | None = None,
    null: Tensor | None = None,
    n_replicates: int = 999,
    seed: int = 0,
) -> PCEInterval:
    r"""Confidence interval for the PCE (power 1, mean over K projections) that infinitely many cases would show.

    PCE is a mean absolute distance, so $|\widehat{PCE} - PCE| \le \frac1J \sum_j |\hat F(\alpha_j) - F(\alpha_j)|$. The
    interval is the estimate plus and minus a quantile of the right-hand side, the larger of its bootstrap quantile
    (F as observed) and its null quantile (F uniform), and is cut at zero. It therefore covers at least as often as
    stated, also where the population PCE is zero, at which the usual bootstrap interval fails. PITs are (N, K);
    `null` holds replicates of the mean PCE under calibration for K > 1 (from `pce_test`), K = 1 needs none.

    >>> interval = pce_interval(torch.linspace(0.001, 0.999, 500)[:, None])
    >>> interval.low
    0.0
    """
    if pit.ndim != 2:
        raise ValueError(f"pce_interval takes PITs of shape (N, K), got {tuple(pit.shape)}")
    if not 0 < coverage < 1:
        raise ValueError(f"coverage={coverage}: a probability between 0 and 1, such as 0.95")
    grid = (centred_levels(n_levels) if levels is None else levels).double()
    several = pce_intervals(pit[None], coverage, grid, None if null is None else null[:, None], n_replicates, seed)
    return PCEInterval(*(float(limit[0]) for limit in several))


def pce_intervals(
    pit: Tensor, coverage: float, grid: Tensor, null: Tensor | None, n_replicates: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """`pce_interval` of several models at once, PITs (E, N, K), null (B, E) or None: estimate, low and high, (E,) each.

    They share their bootstrap samples, so the interval of one does not depend on the others.
    """
    n_models, n_cases, n_projections = pit.shape
    curve = reliability_curve(pit.double(), levels=grid)
    estimate = (curve.levels[:, None] - curve.frequency).abs().mean((-2, -1))
    bins = level_bins(pit.flatten(0, 1), grid)
    generator = torch_generator(seed, "bootstrap", device=pit.device)
    first_row = torch.arange(n_models, device=pit.device)[:, None] * n_cases
    bootstrap = replicate(
        bins,
        lambda count: first_row + torch.randint(n_cases, (count, 1, n_cases), generator=generator, device=pit.device),
        n_replicates,
        grid,
        1,
        n_models,
        n_cases,
        centre=curve.frequency,
    ).pce.mean(-1)
    margin = bootstrap.quantile(coverage, dim=0)
    if null is not None:
        margin = torch.maximum(margin, null.double().quantile(coverage, dim=0).to(margin))
    elif n_projections == 1:
        margin = margin.clamp_min(pce_null(n_cases, levels=grid).quantile(coverage))
    return estimate, (estimate - margin).clamp_min(0.0), (estimate + margin).clamp_max(1.0)
