"""Targets with atoms, values that occur again and again: counts, or amounts that are often zero.

Ranks know what to do with ties, densities do not: the likelihood of a density has no bound where an observation is repeated.
"""

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.forecasts import Forecast

MANY_TIES = 0.1  # share of cases from which on a target is said to have atoms


def has_atoms(forecast: Forecast) -> bool:
    """Whether a distribution says of itself that it is discrete.

    >>> from torch.distributions import Independent, Poisson
    >>> has_atoms(Independent(Poisson(torch.ones(5, 2)), 1))
    True
    """
    if not isinstance(forecast, Distribution):
        return False
    try:
        return bool(forecast.support is not None and forecast.support.is_discrete)
    except NotImplementedError:
        return False


def tied_shares(y: Tensor) -> Tensor:
    """The share of cases (D,) whose value of a target is that of another case, too.

    >>> tied_shares(torch.tensor([[0.0, 1.0], [0.0, 2.0], [3.0, 4.0], [0.0, 5.0]]))
    tensor([0.7500, 0.0000], dtype=torch.float64)
    """
    shares = [(torch.unique(column, return_inverse=True, return_counts=True)) for column in y.unbind(-1)]
    return torch.stack([(counts[place] > 1).double().mean() for _, place, counts in shares])


def in_words(shares: Tensor) -> str | None:
    """What is to be said of targets with atoms, if there are any."""
    tied = [(d + 1, share) for d, share in enumerate(shares.tolist()) if share >= MANY_TIES]
    if not tied:
        return None
    said = ", ".join(f"{d} ({share:.0%})" for d, share in tied[:6]) + (", ..." if len(tied) > 6 else "")
    return (
        f"observations of {'target' if len(tied) == 1 else 'targets'} {said} repeat others: log densities say little of "
        "them, ranks and scores are right"
    )
