"""The variogram score: are differences between targets as large as forecast?"""

import math

import torch
from torch import Tensor

from prerank._parallel import single_threaded
from prerank.arrays import as_tensor
from prerank.arrays.conversion import accepts_arrays
from prerank.forecasts import Forecast
from prerank.scores.estimators import Estimator, Fair, Members, over_cases, pair
from prerank.scores.inputs import observations_and_members

_FAIR = Fair()


@single_threaded()
@accepts_arrays("pair_weights", "weights", labelled=("y",))
def variogram_score(
    y: Tensor,
    forecast: Forecast | Tensor,
    exponent: float = 0.5,
    pair_weights: Tensor | None = None,
    estimator: Estimator = _FAIR,
    *,
    weights: Tensor | None = None,
    n_draws: int = 100,
    seed: int = 0,
) -> Tensor:
    r"""Variogram score of each case [1]_.

    $$VS(F, y) = \sum_{i,j} h_{ij} \bigl(|y_i - y_j|^p - E|X_i - X_j|^p\bigr)^2, \qquad X \sim F.$$

    More sensitive to wrong dependence than the energy score. Proper but not strictly: blind to a shift common to all
    targets, and to what does not change the p-th moments of differences. The sum runs over ordered pairs, so each pair
    counts twice. `Paper()` is the usual formula, with the mean of the members for E; `Fair()` subtracts the sampling
    variance of that mean, which makes the score unbiased and comparable between ensembles of different size. Both are
    the same kernel-score estimators as those of `energy_score`.

    Parameters
    ----------
    y : array_like, shape (..., n_cases, n_targets)
        Observations of at least two targets.
    forecast : Ensemble, array_like of shape (..., n_cases, n_members, n_targets), or Distribution
        As in `energy_score`.
    exponent : float, default 0.5
        The exponent p; 1 is the madogram, 2 the variogram.
    pair_weights : array_like, shape (n_targets, n_targets), optional
        Weights $h_{ij} \ge 0$ of pairs of targets; all one by default.
    estimator : Fair, Paper or TwoSets, default Fair()
        How members give the spread.
    weights : array_like, shape (..., n_cases, n_members), optional
        Weights of members that have none yet.
    n_draws : int, default 100
        Equally weighted draws that are scored in the place of a distribution.
    seed : int, default 0
        Seed of these draws.

    Returns
    -------
    Tensor or ndarray, shape (..., n_cases)
        Scores, differentiable (equal targets of a member contribute no gradient); smaller is better.

    Raises
    ------
    ValueError
        For one target, for NaN, infinite or empty input and other shapes, and for one member under `Fair()`.

    See Also
    --------
    energy_score : strictly proper, and less sensitive to dependence

    References
    ----------
    .. [1] Scheuerer, M. and Hamill, T. M. (2015). Variogram-based proper scoring rules for probabilistic forecasts of
       multivariate quantities. Monthly Weather Review 143, 1321-1334.

    Examples
    --------
    >>> from prerank.scores.estimators import Paper
    >>> y, members = torch.tensor([[0.0, 1.0]]), torch.tensor([[[0.0, 1.0], [0.0, 3.0], [0.0, 5.0]]])
    >>> variogram_score(y, members, exponent=1, estimator=Paper())  # 2 (1 - 3)^2
    tensor([8.])
    >>> variogram_score(y, members, exponent=1).round(decimals=4)  # less 2 (variance 4) / (3 members)
    tensor([5.3333])
    """
    y, ensemble = observations_and_members(y, forecast, weights, n_draws, seed)
    targets = y.shape[-1]
    if targets < 2:
        raise ValueError("y has D = 1 target, so there are no pairs to difference; use crps or energy_score")
    if not (math.isfinite(exponent) and exponent > 0):
        raise ValueError(f"exponent={exponent}; a variogram has an exponent above zero: 0.5, 1 or 2")
    symmetric = _symmetric_pair_weights(pair_weights, y)
    pairing = pair(estimator, ensemble)

    def score(y: Tensor, first: Members, second: Members | None, factor: Tensor) -> Tensor:
        total = torch.zeros_like(y[:, 0])
        for lag in range(1, targets):  # one diagonal of pairs at a time: no (n, M, D, D) array
            observed = _differences(y, lag, exponent)
            mean, variance = _moments(first, lag, exponent)
            other_mean, other_variance = (mean, variance) if second is None else _moments(second, lag, exponent)
            # E (V - v)^2 - c/2 E (V - V')^2 with V, V' from the two sets, through means and variances
            spread = variance + other_variance + (mean - other_mean).square()
            kernel = (mean - observed).square() + variance - 0.5 * factor[:, None] * spread
            total = total + kernel @ symmetric.diagonal(lag)
        return total

    return over_cases(score, y, pairing, 2 * pairing.n_members * targets)


def _symmetric_pair_weights(pair_weights: Tensor | None, y: Tensor) -> Tensor:
    """h + h', (D, D): the weight of an unordered pair, since |y_i - y_j| counts in both orders."""
    targets = y.shape[-1]
    if pair_weights is None:
        return y.new_full((targets, targets), 2.0)
    pair_weights = as_tensor(pair_weights, "pair_weights").to(y)
    if pair_weights.shape != (targets, targets):
        raise ValueError(
            f"pair_weights have shape {tuple(pair_weights.shape)}; D = {targets} targets need ({targets}, {targets})"
        )
    if not bool((torch.isfinite(pair_weights) & (pair_weights >= 0)).all()):
        raise ValueError(
            f"pair_weights run from {float(pair_weights.min()):.3g} to {float(pair_weights.max()):.3g}; "
            "the score is proper for finite weights of zero or more"
        )
    return pair_weights + pair_weights.mT


def _moments(members: Members, lag: int, exponent: float) -> tuple[Tensor, Tensor]:
    """Mean and variance over members of the powered differences, (n, D - lag) each."""
    values = _differences(members.points, lag, exponent)
    share = members.share[..., None]
    mean = (share * values).sum(1)
    return mean, (share * (values - mean[:, None, :]).square()).sum(1)


def _differences(values: Tensor, lag: int, exponent: float) -> Tensor:
    """|x_{i + lag} - x_i|^p, (..., D) -> (..., D - lag)."""
    gap = (values[..., lag:] - values[..., :-lag]).abs()
    if exponent >= 1:
        return gap.pow(exponent)
    # the slope of |x|^p is infinite at 0 for p < 1 and would turn gradients into NaN; ties get slope 0 instead
    tied = gap == 0
    return gap.masked_fill(tied, 1.0).pow(exponent).masked_fill(tied, 0.0)
