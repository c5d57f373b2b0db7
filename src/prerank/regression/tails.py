"""Add a wide component to a forecast, which bounds what one surprising row can cost."""

import math

import torch

from prerank.forecasts import GaussianMixture

WIDTH = 3.0
"""How many times as wide as the reference the wide component is."""


def with_tail(forecast: GaussianMixture, reference: GaussianMixture, weight: float) -> GaussianMixture:
    """The forecast with one component more, of that weight: independent targets, `WIDTH` times as wide as the reference.

    The log-likelihood of a case falls by at most -log(1 - weight), and a case far from the forecast costs what it costs
    the wide component and -log(weight).

    >>> narrow = GaussianMixture(torch.zeros(1, 1), torch.zeros(1, 1, 1), torch.full((1, 1, 1, 1), 0.01))
    >>> wide = GaussianMixture(torch.zeros(1, 1), torch.zeros(1, 1, 1), torch.ones(1, 1, 1, 1))
    >>> far = torch.ones(1, 1)
    >>> narrow.log_prob(far).round(), with_tail(narrow, wide, 1e-3).log_prob(far).round()
    (tensor([-4996.]), tensor([-9.]))
    """
    spread = reference.scale_tril.square().sum(-1).sqrt()  # of each target: along a correlation it would be narrow
    own = forecast.log_weights + math.log1p(-weight)
    return GaussianMixture(
        torch.cat([own, torch.full_like(own[..., :1], math.log(weight))], -1),
        torch.cat([forecast.loc, reference.loc], -2),
        torch.cat([forecast.scale_tril, WIDTH * torch.diag_embed(spread)], -3),
    )
