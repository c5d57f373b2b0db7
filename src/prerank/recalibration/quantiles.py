r"""Univariate laws on the scale of normal scores, where tails do not vanish in rounding.

The normal score of y under a CDF F is $\Phi^{-1}(F(y))$: a PIT on the scale of a standard normal variable. A PIT of a
forecast that is far too narrow is 0 or 1 up to rounding; its normal score is -20 or 30, and can be worked with.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from scipy.special import ndtri_exp
from torch import Tensor
from torch.distributions import MultivariateNormal

from prerank.arrays import as_tensor
from prerank.arrays.conversion import described
from prerank.forecasts import GaussianMixture
from prerank.forecasts.mixture import normal_as_mixture

_STEPS = 200  # bisection alone would need about 60; Newton's method needs about 6


class Components(NamedTuple):
    """Univariate Gaussian mixtures: log weights, means and standard deviations (..., C) of their components."""

    log_weights: Tensor
    loc: Tensor
    scale: Tensor

    def log_tails(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """log F(y) and log (1 - F(y)) of values (...)."""
        standardised = (y[..., None] - self.loc) / self.scale
        below = torch.logsumexp(self.log_weights + torch.special.log_ndtr(standardised), -1)
        above = torch.logsumexp(self.log_weights + torch.special.log_ndtr(-standardised), -1)
        return below, above

    def log_density(self, y: Tensor) -> Tensor:
        """Log density at values (...), without the constant log(2 pi) / 2."""
        standardised = (y[..., None] - self.loc) / self.scale
        return torch.logsumexp(self.log_weights - self.scale.log() - 0.5 * standardised.square(), -1)


def margins(forecast: GaussianMixture) -> Components:
    """The law of each target, components (N, D, C), in double precision."""
    loc = forecast.loc.double().mT
    scale = forecast.scale_tril.double().square().sum(-1).sqrt().mT
    return Components(forecast.log_weights.double()[:, None, :].expand_as(loc), loc, scale)


def normal_scores(y: Tensor, law: Components) -> Tensor:
    r"""$\Phi^{-1}(F(y))$ of values (...), exact far into both tails.

    >>> law = Components(torch.zeros(1).double(), torch.zeros(1).double(), torch.ones(1).double())
    >>> normal_scores(torch.tensor([-30.0, 0.5, 30.0]).double(), law)
    tensor([-30.0000,   0.5000,  30.0000], dtype=torch.float64)
    """
    below, above = law.log_tails(y)
    tail = torch.minimum(below, above)
    score = torch.as_tensor(ndtri_exp(tail.cpu().numpy())).to(tail)
    return torch.where(below < above, score, -score)


def from_normal_scores(scores: Tensor, law: Components) -> Tensor:
    """The values (...) that have these normal scores: Newton's method between the quantiles of the components."""
    ends = law.loc + law.scale * scores[..., None]
    low, high = ends.amin(-1), ends.amax(-1)
    y = (law.log_weights.exp() * ends).sum(-1).clamp(low, high)
    negative = scores < 0
    wanted = torch.special.log_ndtr(-scores.abs())
    resolution = 4 * torch.finfo(y.dtype).eps * torch.maximum(low.abs(), high.abs())
    for _ in range(_STEPS):
        below, above = law.log_tails(y)
        # the logarithm of the smaller tail, as a function that rises with y
        excess = torch.where(negative, below - wanted, wanted - above)
        slope = (law.log_density(y) - torch.where(negative, below, above)).exp() * 0.3989422804014327
        low, high = torch.where(excess < 0, y, low), torch.where(excess < 0, high, y)
        step = y - excess / slope
        following = torch.where((step > low) & (step < high), step, low + (high - low) / 2)
        following = torch.where(excess == 0, y, following)
        if bool(((following - y).abs() <= resolution).all()):
            return following
        y = following
    return y


def checked_levels(levels: Any) -> Tensor:
    """Levels of quantiles (J,) in double precision, each between 0 and 1.

    >>> checked_levels([0.05, 0.5])
    tensor([0.0500, 0.5000], dtype=torch.float64)
    """
    said = "a list of probabilities between 0 and 1, such as (0.05, 0.5, 0.95)"
    try:
        wanted = as_tensor(levels, "levels").double()
    except (TypeError, ValueError):
        raise TypeError(f"levels={levels!r}: {said}") from None
    if wanted.ndim != 1 or not len(wanted) or not bool(((wanted > 0) & (wanted < 1)).all()):
        raise ValueError(f"levels={levels!r}: {said}")
    return wanted


def marginal_quantiles(forecast: GaussianMixture | MultivariateNormal, levels: Any) -> Tensor:
    """Quantiles (N, J, D) of the single targets of a mixture at levels (J,), exact, in double precision.

    Parameters
    ----------
    forecast : GaussianMixture or MultivariateNormal
        The forecast, of batch shape (n_cases,) and event shape (n_targets,).
    levels : array_like, shape (n_levels,)
        Probabilities between 0 and 1.

    Returns
    -------
    Tensor, shape (n_cases, n_levels, n_targets)
        Quantiles.

    Raises
    ------
    TypeError
        If the forecast is of another kind, or of several models.
    ValueError
        If a level is not between 0 and 1.

    Examples
    --------
    >>> law = GaussianMixture(torch.zeros(1, 1), torch.tensor([[[0.0, 5.0]]]), torch.eye(2)[None, None])
    >>> marginal_quantiles(law, torch.tensor([0.5, 0.975]))
    tensor([[[0.0000, 5.0000],
             [1.9600, 6.9600]]], dtype=torch.float64)
    """
    wanted, forecast = checked_levels(levels), normal_as_mixture(forecast)
    if not isinstance(forecast, GaussianMixture) or len(forecast.batch_shape) != 1:
        raise TypeError(
            f"quantiles in closed form are those of a GaussianMixture of several cases, and the forecast is "
            f"{described(forecast)}; take them of its draws, or use prerank.regression.predict_quantiles"
        )
    law = margins(forecast)
    scores = torch.special.ndtri(wanted.to(law.loc))[:, None, None, None].expand(-1, *law.loc.shape[:2], -1)
    return from_normal_scores(scores.squeeze(-1), Components(*(part[None] for part in law))).movedim(0, -2)


@dataclass(frozen=True, eq=False)
class QuantileMap:
    """A rising map from the quantiles that were expected (n,) to those that were observed (n, K), linear in between.

    Beyond the first and the last it goes on with slope one.

    >>> map_ = QuantileMap(torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([[-2.0], [0.0], [3.0]]))
    >>> map_(torch.tensor([[-2.0], [-0.5], [0.5], [2.0]]))[:, 0]
    tensor([-3.0000, -1.0000,  1.5000,  4.0000])
    """

    expected: Tensor
    observed: Tensor

    def __call__(self, values: Tensor) -> Tensor:
        """Map values (..., K), one map for each of the last axis."""
        n_knots = len(self.expected)
        inside = values.clamp(self.expected[0], self.expected[-1])
        upper = torch.searchsorted(self.expected, inside.contiguous()).clamp(1, n_knots - 1)
        column = torch.arange(values.shape[-1], device=values.device)
        left, right = self.observed[upper - 1, column], self.observed[upper, column]
        start, stop = self.expected[upper - 1], self.expected[upper]
        return left + (inside - start) / (stop - start) * (right - left) + (values - inside)


def plotting_levels(n: int, like: Tensor) -> Tensor:
    """Levels k / (n + 1) of the order statistics of n values, in double precision."""
    return torch.arange(1, n + 1, dtype=torch.float64, device=like.device) / (n + 1)
