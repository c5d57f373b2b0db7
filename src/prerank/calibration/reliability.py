"""How far PITs are from uniform: reliability curves and the probabilistic calibration error (PCE)."""

from typing import NamedTuple

import torch
from torch import Tensor

from prerank._kernels import SMOOTH_PCE, kernel_for
from prerank._parallel import single_threaded
from prerank.arrays.conversion import accepts_arrays
from prerank.calibration.checks import require_exponent
from prerank.calibration.projected_pits import ProjectedPIT
from prerank.calibration.rank_intervals import add_at, curve_sums
from prerank.inputs.checks import require_case_weights

_MOST = 1 << 19  # PITs whose curve is taken at once, in about 50 MB


class ReliabilityCurve(NamedTuple):
    """A reliability curve: levels, and the share of PITs at or below each.

    Attributes
    ----------
    levels : Tensor, shape (n_levels,)
        The levels, in the precision of the PITs.
    frequency : Tensor, shape (..., n_levels, n_projections)
        Share of PITs at or below each level; of an interval, the part below the level counts.
    """

    levels: Tensor
    frequency: Tensor


def centred_levels(n_levels: int = 100) -> Tensor:
    """The J cell centres (j - 0.5) / J: the default grid, without the two end points that can never be wrong.

    Parameters
    ----------
    n_levels : int, default 100
        Number of levels J, at least one.

    Returns
    -------
    Tensor, shape (n_levels,)
        The levels, in double precision.

    Examples
    --------
    >>> centred_levels(4)
    tensor([0.1250, 0.3750, 0.6250, 0.8750], dtype=torch.float64)
    """
    if n_levels < 1:
        raise ValueError(f"{n_levels} levels: at least one is needed")
    return (torch.arange(n_levels, dtype=torch.float64) + 0.5) / n_levels


def inclusive_levels(n_levels: int = 100) -> Tensor:
    """J equally spaced levels from 0 to 1 inclusive: the grid of the published experiments.

    Parameters
    ----------
    n_levels : int, default 100
        Number of levels J, at least two.

    Returns
    -------
    Tensor, shape (n_levels,)
        The levels, in double precision.
    """
    if n_levels < 2:
        raise ValueError(f"{n_levels} levels: from 0 to 1 inclusive there are at least two")
    # a quotient of whole numbers, so that a level k / M is the same float as an unrandomised rank k / M
    return torch.arange(n_levels, dtype=torch.float64) / (n_levels - 1)


def level_bins(pit: Tensor, levels: Tensor) -> Tensor:
    """Index of the first level at or above each PIT, 0..J; J for a PIT above all levels."""
    return torch.searchsorted(levels.to(pit), pit.contiguous())


def _checked(pit: ProjectedPIT | Tensor, case_weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Lower and upper ends of the PITs, (..., N, K) each, and weights of the cases, (N,)."""
    lower, upper = (pit.lower, pit.upper) if isinstance(pit, ProjectedPIT) else (pit, pit)
    if lower.ndim < 2:
        raise ValueError(f"PITs have axes (cases, projections), got shape {tuple(lower.shape)}; use pit[:, None]")
    if lower.shape[-2] == 0:
        raise ValueError("there are no PITs: at least one case is needed")
    inside = (lower >= 0) & (upper <= 1)
    if not inside.all():
        bad = int((~inside).sum())
        raise ValueError(f"{bad} of {lower.numel()} PITs are NaN or outside [0, 1]; a PIT is a probability")
    if case_weights is None:
        return lower, upper, torch.ones(lower.shape[-2], dtype=torch.float64, device=lower.device)
    return (
        lower,
        upper,
        require_case_weights(case_weights, "case_weights", (lower.shape[-2],)).to(lower.device, torch.float64),
    )


def _checked_levels(n_levels: int, levels: Tensor | None) -> Tensor:
    if levels is None:
        return centred_levels(n_levels)
    if levels.ndim != 1 or len(levels) == 0 or not (levels.diff() >= 0).all() or levels.min() < 0 or levels.max() > 1:
        raise ValueError("levels are probabilities in ascending order, one axis, at least one: see centred_levels()")
    return levels


@single_threaded()
@accepts_arrays("pit", "levels", "case_weights")
def reliability_curve(
    pit: ProjectedPIT | Tensor, n_levels: int = 100, levels: Tensor | None = None, case_weights: Tensor | None = None
) -> ReliabilityCurve:
    """Empirical CDF of the PITs (..., N, K) at the levels (eq. 1): the diagonal is calibration.

    A rank is an interval; its share below the level counts, the mean over all ways of breaking its ties.

    Parameters
    ----------
    pit : ProjectedPIT or array_like of shape (..., n_cases, n_projections)
        PITs.
    n_levels : int, default 100
        Levels are the cell centres (j - 0.5) / n_levels.
    levels : array_like, shape (n_levels,), optional
        Levels of your own, probabilities in ascending order.
    case_weights : array_like, shape (n_cases,), optional
        Weights of the cases, which need not sum to one; None means equal.

    Returns
    -------
    ReliabilityCurve
        Levels, and frequencies of shape (..., n_levels, n_projections).

    Raises
    ------
    ValueError
        If a PIT is NaN or outside [0, 1], there is no case, or levels or weights are invalid.

    Examples
    --------
    >>> reliability_curve(torch.tensor([[0.1], [0.9]]), n_levels=2).frequency.squeeze()
    tensor([0.5000, 0.5000])
    """
    if isinstance(pit, ProjectedPIT) and pit.n_cases > _MOST // len(pit.names):
        return _curve_in_chunks(pit, _checked_levels(n_levels, levels), case_weights)
    lower, upper, weights = _checked(pit, case_weights)
    levels = _checked_levels(n_levels, levels).to(lower)
    if isinstance(pit, ProjectedPIT) and not pit.are_values:
        sums = curve_sums(lower, upper, levels.double(), weights.expand(lower.shape[:-1]))
        return ReliabilityCurve(levels, (sums / weights.sum()).clamp(0.0, 1.0).to(lower))
    bins = level_bins(lower, levels)
    # counted in double precision and divided once: a sum of a million float32 shares would lose its digits
    counts = torch.zeros(*lower.shape[:-2], len(levels) + 1, lower.shape[-1], dtype=torch.float64, device=lower.device)
    add_at(counts, bins, weights[:, None].expand(lower.shape).contiguous())
    return ReliabilityCurve(levels, (counts[..., :-1, :].cumsum(-2) / weights.sum()).clamp_max(1.0).to(lower))


def _curve_in_chunks(pit: ProjectedPIT, levels: Tensor, case_weights: Tensor | None) -> ReliabilityCurve:
    """The curve of many cases, whose ends as fractions would be large, a part of them at a time."""
    weights = None if case_weights is None else require_case_weights(case_weights, "case_weights", (pit.n_cases,))
    total, size = 0.0, max(1, _MOST // len(pit.names))
    frequency: Tensor | float = 0.0
    for start in range(0, pit.n_cases, size):
        cases = slice(start, min(start + size, pit.n_cases))
        own = None if weights is None else weights[cases]
        share = float(cases.stop - cases.start) if own is None else float(own.double().sum())
        if share > 0:
            curve = reliability_curve(pit.select(cases), levels=levels, case_weights=own)
            frequency, total = frequency + share * curve.frequency.double(), total + share
    assert isinstance(frequency, Tensor)
    return ReliabilityCurve(curve.levels, (frequency / total).clamp(0.0, 1.0).to(curve.frequency))


@single_threaded()
@accepts_arrays("pit", "levels", "case_weights")
def pce(
    pit: ProjectedPIT | Tensor,
    n_levels: int = 100,
    exponent: float = 1,
    levels: Tensor | None = None,
    case_weights: Tensor | None = None,
) -> Tensor:
    r"""Probabilistic calibration error of each projection (eq. 2): (..., N, K) -> (..., K).

    Mean over levels of $|\alpha_j - \hat F_Z(\alpha_j)|^p$. Zero for uniform PITs, 1/4 for a point mass at 1/2 or for
    all mass on the two ends. Finite samples never reach zero: see `pce_null`. Ranks among few members come closer to
    zero than continuous PITs do, so PCEs of ensembles of different size are read relative to their own expectation.

    Parameters
    ----------
    pit : ProjectedPIT or array_like of shape (..., n_cases, n_projections)
        PITs.
    n_levels : int, default 100
        Levels are the cell centres (j - 0.5) / n_levels.
    exponent : float, default 1
        Deviations are averaged to this power; positive.
    levels : array_like, shape (n_levels,), optional
        Levels of your own, probabilities in ascending order.
    case_weights : array_like, shape (n_cases,), optional
        Weights of the cases, which need not sum to one; None means equal.

    Returns
    -------
    Tensor or ndarray, shape (..., n_projections)
        Errors, at least zero.

    Raises
    ------
    ValueError
        If a PIT is NaN or outside [0, 1], there is no case, or levels or weights are invalid.

    Examples
    --------
    >>> pce(torch.full((1000, 1), 0.5))
    tensor([0.2500])
    """
    curve = reliability_curve(pit, n_levels, levels, case_weights)
    return (curve.levels[:, None] - curve.frequency).abs().pow(require_exponent(exponent)).mean(-2)


@single_threaded()
@accepts_arrays("pit", "levels", "case_weights")
def pce_kde(
    pit: Tensor,
    temperature: float = 100.0,
    n_levels: int = 100,
    exponent: float = 1,
    levels: Tensor | None = None,
    case_weights: Tensor | None = None,
) -> Tensor:
    r"""Differentiable PCE (eq. 8): the indicator becomes a sigmoid.

    $\Phi(\alpha) = \frac1N \sum_i \sigma(\tau(\alpha - Z_i))$ takes the place of the share of PITs; it tends to
    that share, and the error to `pce`, as the temperature grows. (..., N, K) -> (..., K).

    Parameters
    ----------
    pit : array_like, shape (..., n_cases, n_projections)
        PITs that are numbers, such as those of `smooth_pit`.
    temperature : float, default 100
        How steep the sigmoid is.
    n_levels : int, default 100
        Levels are the cell centres (j - 0.5) / n_levels.
    exponent : float, default 1
        Deviations are averaged to this power; positive.
    levels : array_like, shape (n_levels,), optional
        Levels of your own.
    case_weights : array_like, shape (n_cases,) or (..., n_cases), optional
        Weights of the cases, which need not sum to one; None means equal.

    Returns
    -------
    Tensor or ndarray, shape (..., n_projections)
        Errors, with gradients with respect to the PITs.

    Examples
    --------
    >>> z = torch.linspace(0.001, 0.9, 50, dtype=torch.float64)[:, None]
    >>> torch.allclose(pce_kde(z, temperature=1e6), pce(z), atol=1e-6)
    True
    """
    levels = (centred_levels(n_levels) if levels is None else levels).to(pit)
    if fused := kernel_for(SMOOTH_PCE, pit, levels, fixed=(levels, case_weights)):
        return fused(pit, case_weights, levels, temperature, exponent)
    distance = (levels - _smooth_cdf(pit, case_weights, levels, temperature)).abs()
    return (distance if exponent == 1 else distance.pow(exponent)).mean(-1)


def _smooth_cdf(pit: Tensor, case_weights: Tensor | None, levels: Tensor, temperature: float) -> Tensor:
    """Weighted means of sigmoids over the cases, (..., K, J)."""
    smooth = torch.sigmoid(temperature * (levels[:, None] - pit.mT[..., None, :]))  # (..., K, J, N)
    if case_weights is None:
        return smooth.mean(-1)
    share = (case_weights / case_weights.sum(-1, keepdim=True)).to(pit)
    return (smooth @ share[..., None, :, None])[..., 0]
