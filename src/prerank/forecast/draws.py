"""Equally weighted draws of any forecast, in the project's layout."""

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.forecast.ensemble import Ensemble
from prerank.forecast.mixture import GaussianMixture
from prerank.randomness import key

Forecast = Ensemble | Distribution


def require_vector_distribution(law: Distribution) -> None:
    """Refuse a distribution over scalars: its cases and targets cannot be told apart."""
    if len(law.event_shape) != 1:
        raise ValueError(
            f"the distribution has event shape {tuple(law.event_shape)} and batch shape {tuple(law.batch_shape)}; "
            "a joint forecast has event shape (D,) and batch shape (..., N): "
            "wrap independent targets as torch.distributions.Independent(law, 1)"
        )
    if not law.batch_shape:
        raise ValueError("the distribution has no axis of cases; give it batch shape (1,) with law.expand((1,))")


def equally_weighted_draws(
    law: Distribution, n_members: int, seed: int = 0, stream: str = "members", case_ids: Tensor | None = None
) -> Ensemble:
    """M equally weighted draws (..., N, M, D) of a distribution; the global generator is left as it was.

    Draws of a `GaussianMixture` depend on (seed, stream, case) alone; those of another distribution come from its own
    `sample` under a forked generator, so they also depend on how many cases are drawn together.
    """
    if isinstance(law, GaussianMixture):
        return law.ensemble(n_members, seed, stream, case_ids)
    require_vector_distribution(law)
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(key(seed, stream) & ((1 << 63) - 1))
        drawn = law.sample(torch.Size((n_members,)))
    return Ensemble(drawn.movedim(0, -2))
