"""A forecast a few cases at a time, where it can be cut."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.chunks import chunks
from prerank.forecast import GaussianMixture, can_be_cut, select_cases


def select(forecast: Distribution, cases: slice | Tensor) -> Distribution:
    """Some cases of a forecast that can be cut; a slice of everything of any."""
    if isinstance(cases, slice) and cases == slice(None):
        return forecast
    return select_cases(forecast, cases)


def some_cases(forecast: Distribution, values_per_case: int, device: torch.device) -> list[slice]:
    """Chunks of cases whose temporaries stay small; one for all where a forecast cannot be cut."""
    if not can_be_cut(forecast):
        return [slice(None)]
    return chunks(forecast.batch_shape[-1], values_per_case, device)


def in_parts(forecast: Distribution, n_draws: int) -> Iterator[tuple[slice, Distribution, Tensor]]:
    """A few cases of a mixture at a time, with their numbers; any other distribution whole."""
    ids = torch.arange(forecast.batch_shape[-1])
    if not isinstance(forecast, GaussianMixture):
        yield slice(None), forecast, ids
        return
    device = forecast.loc.device
    for cases in some_cases(forecast, n_draws * forecast.n_targets * forecast.n_components, device):
        yield cases, select(forecast, cases), ids[cases].to(device)
