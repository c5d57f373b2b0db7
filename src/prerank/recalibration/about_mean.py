"""Exactly M members of a law for those who need a file of members: draws about the mean of the law."""

from torch.distributions import Distribution

from prerank._parallel import single_threaded
from prerank._parameters import require_whole
from prerank.arrays.conversion import described
from prerank.forecasts import Ensemble, equally_weighted_draws


@single_threaded()
def members_about_mean(forecast: Distribution, n_draws: int, seed: int = 0) -> Ensemble:
    r"""M members whose mean is that of the forecast: draws, moved there and shrunk a little.

    $$x_j = \mu + \frac{z_j - \bar z}{\sqrt{1 + 1/M}}, \qquad z_1, \dots, z_M \sim F \text{ independent.}$$

    For those who want exactly M members, as many as the raw ensemble had. The energy score of M members as they are is
    better than that of M independent draws, because their mean has no sampling error. Under a Gaussian law ranks of
    an observation among them are exactly uniform for pre-ranks that do not change when all targets are moved alike, and
    for single targets.

    **They are no independent draws.** Each is too near to the mean by $\sqrt{(M-1)/(M+1)}$, so a check rejects a right law
    by the pre-ranks scale and HDR; fair scores of them are too low; never compare them with draws of another forecast.
    For calibration, scores and scenarios use `forecast.ensemble(n)`.

    Parameters
    ----------
    forecast : torch.distributions.Distribution
        Batch shape (n_cases,), event shape (n_targets,), with a mean.
    n_draws : int
        Members per case, at least two.
    seed : int, default 0
        Seed of the draws.

    Returns
    -------
    Ensemble
        Members (n_cases, n_draws, n_targets).

    See Also
    --------
    prerank.forecasts.equally_weighted_draws : independent draws

    Examples
    --------
    >>> import torch
    >>> law = torch.distributions.MultivariateNormal(torch.tensor([[1.0, 2.0]]), torch.eye(2))
    >>> members_about_mean(law, 5).mean.round()
    tensor([[1., 2.]])
    """
    count = require_whole(n_draws, "n_draws", at_least=2)
    if not isinstance(forecast, Distribution):
        raise TypeError(f"members_about_mean takes a distribution to draw from, got {described(forecast)}")
    drawn = equally_weighted_draws(forecast, count, seed, "members about the mean").members
    centred = drawn - drawn.mean(-2, keepdim=True)
    return Ensemble(forecast.mean[..., None, :] + centred / (1 + 1 / count) ** 0.5)
