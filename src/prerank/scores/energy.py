"""The energy score: how far the members lie from the observation, less how far they lie from each other."""

import torch
from torch import Tensor

from prerank._chunks import ELEMENTS
from prerank._parallel import single_threaded
from prerank.arrays.conversion import accepts_arrays
from prerank.forecasts import Forecast
from prerank.scores.estimators import Estimator, Fair, Members, over_cases, pair
from prerank.scores.inputs import observations_and_members

_FAIR = Fair()


@single_threaded()
@accepts_arrays("weights", labelled=("y",))
def energy_score(
    y: Tensor,
    forecast: Forecast | Tensor,
    estimator: Estimator = _FAIR,
    *,
    weights: Tensor | None = None,
    n_draws: int = 100,
    seed: int = 0,
) -> Tensor:
    r"""Energy score of each case, the multivariate CRPS [1]_.

    $$ES(F, y) = E\|X - y\| - \tfrac12 E\|X - X'\|, \qquad X, X' \sim F \text{ independent.}$$

    Strictly proper: the true distribution has the smallest expected score. Use it to rank joint forecasts or as a
    training loss (differentiable in members and weights; where two points coincide their distance contributes no
    gradient, never NaN). Targets in large units dominate it, so divide by their spreads first. Wrong dependence moves
    it little: see `variogram_score`.

    Parameters
    ----------
    y : array_like, shape (..., n_cases, n_targets)
        Observations.
    forecast : Ensemble, array_like of shape (..., n_cases, n_members, n_targets), or Distribution
        Of a distribution with batch shape (..., n_cases) draws are scored, without gradient; train on
        `Ensemble(forecast.rsample(...))` or `GaussianMixture.draw`. Leading axes broadcast.
    estimator : Fair, Paper or TwoSets, default Fair()
        How members give the spread, the second term.
    weights : array_like, shape (..., n_cases, n_members), optional
        Weights of members that have none yet; they need not sum to one.
    n_draws : int, default 100
        Equally weighted draws that are scored in the place of a distribution.
    seed : int, default 0
        Seed of these draws.

    Returns
    -------
    Tensor or ndarray, shape (..., n_cases)
        Scores in the unit of `y`; smaller is better.

    Raises
    ------
    ValueError
        For NaN, infinite or empty input and other shapes, and for one member under `Fair()`.

    See Also
    --------
    variogram_score : looks at dependence
    crps : each projection by itself
    nll : for forecasts with a density

    References
    ----------
    .. [1] Gneiting, T. and Raftery, A. E. (2007). Strictly proper scoring rules, prediction, and estimation. Journal of the
       American Statistical Association 102, 359-378.

    Examples
    --------
    >>> from prerank.scores.estimators import Paper
    >>> y, members = torch.zeros(1, 2), torch.tensor([[[3.0, 4.0], [0.0, 0.0], [0.0, 0.0]]])
    >>> energy_score(y, members)  # 5/3 - (1/2) 20/6
    tensor([0.])
    >>> energy_score(y, members, Paper())  # 5/3 - (1/2) 20/9
    tensor([0.5556])
    """
    y, ensemble = observations_and_members(y, forecast, weights, n_draws, seed)
    pairing = pair(estimator, ensemble)
    return over_cases(_energy, y, pairing, pairing.n_pairs)


def _energy(y: Tensor, first: Members, second: Members | None, factor: Tensor) -> Tensor:
    error = _mean_distance(first, Members(y[:, None, :], torch.ones_like(y[:, :1])))
    return error - 0.5 * factor * _mean_distance(first, first if second is None else second)


def _mean_distance(a: Members, b: Members) -> Tensor:
    """Mean Euclidean distance between two sets of points, (n,)."""
    rows = max(1, ELEMENTS // b.points.shape[-2])  # for ensembles whose pairs fill a chunk in a single case
    total = torch.zeros_like(a.share[:, 0])
    for points, share in zip(a.points.split(rows, 1), a.share.split(rows, 1), strict=True):
        distance = _distances(points, b.points)
        total = total + (share * (distance @ b.share[..., None])[..., 0]).sum(-1)
    return total


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances (n, M, R) between points (n, M, D) and (n, R, D), from differences.

    Not from |a|^2 + |b|^2 - 2ab: that takes a third of the time, but near-duplicates would lose their digits.
    """
    if a.is_cuda and not (torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)):
        # cdist gives every pair a block of threads of its own there, which for few targets is hundreds of times slower
        total = (a[:, :, None, 0] - b[:, None, :, 0]).square_()
        for d in range(1, a.shape[-1]):
            difference = a[:, :, None, d] - b[:, None, :, d]
            total.addcmul_(difference, difference)
        return total.sqrt_()
    # cdist defines the gradient of a zero distance as zero
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
