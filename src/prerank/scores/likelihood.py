"""The negative log-likelihood, for forecasts that have a density."""

import numpy as np
from torch import Tensor
from torch.distributions import Distribution

from prerank._parallel import single_threaded
from prerank.arrays import as_observations
from prerank.arrays.conversion import accepts_arrays, described
from prerank.forecasts import Ensemble
from prerank.forecasts.support import refuse_outside_support
from prerank.inputs import Cases


@single_threaded()
@accepts_arrays(labelled=("y",))
def nll(y: Tensor, forecast: Distribution) -> Tensor:
    r"""Negative log-likelihood of each case, $-\log f(y)$: the logarithmic score.

    Strictly proper and local: only the density at the observation counts, so a single case far in a tail can decide a
    mean. In nats, and it changes by $\log c$ per target when units are multiplied by c: compare forecasts of the same
    targets only. An ensemble has no density; use `energy_score` there.

    Parameters
    ----------
    y : array_like, shape (..., n_cases, n_targets)
        Observations.
    forecast : torch.distributions.Distribution
        A distribution with `log_prob`, batch shape (..., n_cases) and event shape (n_targets,).

    Returns
    -------
    Tensor or ndarray, shape (..., n_cases)
        Scores in nats, differentiable in the distribution's parameters.

    Raises
    ------
    ValueError
        If `y` has NaN or infinite values, is empty, or lies outside the support.
    TypeError
        If `forecast` has no density.

    See Also
    --------
    energy_score : for ensembles, which have no density

    Examples
    --------
    >>> import torch
    >>> forecast = torch.distributions.MultivariateNormal(torch.zeros(3, 2), torch.eye(2))
    >>> nll(torch.zeros(3, 2), forecast)  # log(2 pi)
    tensor([1.8379, 1.8379, 1.8379])
    """
    if isinstance(y, Distribution | Ensemble):
        as_observations(y)  # says that the two are swapped
    if not isinstance(forecast, Distribution):
        raise TypeError(
            f"{described(forecast)} has no density; nll needs a torch distribution, energy_score takes members"
        )
    y = Cases.of(y, forecast).require_complete().observed()
    refuse_outside_support(y, forecast, "score its draws with energy_score instead")
    return -forecast.log_prob(y.expand(np.broadcast_shapes(y.shape, forecast.batch_shape + forecast.event_shape)))
