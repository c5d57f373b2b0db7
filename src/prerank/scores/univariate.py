"""The CRPS of every projection of a forecast: univariate, so sorting replaces pairs."""

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank._parallel import single_threaded
from prerank.arrays import as_tensor
from prerank.arrays.conversion import accepts_arrays
from prerank.forecasts import Ensemble
from prerank.inputs.layout import refuse_swapped
from prerank.preranks.rank_counts import ascending
from prerank.scores.estimators import Estimator, Fair, Members, over_cases, pair
from prerank.scores.inputs import observations_and_members

_FAIR = Fair()


@single_threaded()
@accepts_arrays("weights", labelled=("y",))
def crps(
    y: Tensor, forecast: Tensor | Ensemble, estimator: Estimator = _FAIR, *, weights: Tensor | None = None
) -> Tensor:
    r"""Continuous ranked probability score of each projection of each case.

    $$CRPS(F, y) = E|X - y| - \tfrac12 E|X - X'|, \qquad E|X - X'| = \int 2 F (1 - F).$$

    The energy score of a scalar, in $O(M \log M)$: the integral is a sum over the gaps between sorted members. Pass
    the values of a pre-rank to score a forecast in that respect alone, or targets and members themselves for the
    CRPS of every marginal. Proper for the projection; says nothing about what the projection does not see.

    Parameters
    ----------
    y : array_like, shape (..., n_cases, n_projections)
        Projected observations.
    forecast : Ensemble or array_like, shape (..., n_cases, n_members, n_projections)
        Projected members.
    estimator : Fair, Paper or TwoSets, default Fair()
        How members give the spread.
    weights : array_like, shape (..., n_cases, n_members), optional
        Weights of members that have none yet.

    Returns
    -------
    Tensor or ndarray, shape (..., n_cases, n_projections)
        Scores, differentiable (a subgradient at ties); smaller is better.

    Raises
    ------
    ValueError
        For NaN, infinite or empty input and other shapes, and for one member under `Fair()`.

    See Also
    --------
    energy_score : the same for all targets together

    Examples
    --------
    >>> crps(torch.tensor([[0.0]]), torch.tensor([[[1.0], [3.0]]]))  # 2 - 2/2
    tensor([[1.]])
    """
    if isinstance(forecast, Distribution):
        raise TypeError(
            f"crps takes the projected members (..., N, M, K), not a {type(forecast).__name__}; project the members "
            "of prerank.forecasts.equally_weighted_draws(forecast, n_draws)"
        )
    refuse_swapped(y, forecast)
    if not isinstance(forecast, Ensemble):
        # projections come in the project's own layout: unlike raw members, K = M leaves nothing to guess
        forecast = Ensemble(as_tensor(forecast, "the forecast"))
    y, ensemble = observations_and_members(y, forecast, weights)
    pairing = pair(estimator, ensemble)
    # a handful of arrays as large as the members: sorted values, order, two cumulative weights, gaps
    return over_cases(_crps, y, pairing, 5 * pairing.n_members * y.shape[-1])


def _crps(y: Tensor, first: Members, second: Members | None, factor: Tensor) -> Tensor:
    error = (first.share[..., None] * (first.points - y[:, None, :]).abs()).sum(1)
    if second is None:
        spread = _mean_difference(first.points, first.share, first.share)
    else:
        spread = _mean_difference(
            torch.cat([first.points, second.points], 1),
            torch.cat([first.share, torch.zeros_like(second.share)], 1),
            torch.cat([torch.zeros_like(first.share), second.share], 1),
        )
    return error - 0.5 * factor[:, None] * spread


def _mean_difference(points: Tensor, left: Tensor, right: Tensor) -> Tensor:
    r"""$E|A - B| = \int F_A (1 - F_B) + F_B (1 - F_A)$ of two laws on common points (n, M, K): (n, K).

    `left` and `right` (n, M) are the shares of the points in either distribution.
    """
    # stable, so that the subgradient of tied members is the same on every device
    columns = points.mT.contiguous()
    if points.requires_grad:
        ordered, order = columns.sort(stable=True)
    else:
        order = ascending(columns).order
        ordered = columns.gather(-1, order)
    below_left, below_right = (
        share[:, None, :].expand_as(order).gather(-1, order).cumsum(-1) for share in (left, right)
    )
    below_left, below_right = below_left[..., :-1], below_right[..., :-1]
    between = below_left * (1 - below_right) + below_right * (1 - below_left)
    return (ordered.diff() * between).sum(-1)
