"""Observations that a distribution calls impossible."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution


def inside_support(y: Tensor, forecast: Distribution) -> Tensor | None:
    """Whether values (..., N, D) are possible, (..., N); None where the support is unknown or cannot be asked."""
    try:
        inside = forecast.support.check(y)  # type: ignore[union-attr]
    except (AttributeError, RuntimeError):  # a NotImplementedError is one of the latter
        return None
    return inside if inside.ndim < y.ndim else inside.all(-1)


def has_bounds_within(forecast: Distribution, centre: Tensor, reach: Tensor) -> bool:
    """Whether values that lie so far (N, D) from a centre (N, D) in one target are impossible in any case.

    >>> from torch.distributions import Independent, LogNormal, Normal
    >>> zero, one = torch.zeros(4, 2), torch.ones(4, 2)
    >>> [has_bounds_within(Independent(kind(zero, one), 1), one, 20 * one) for kind in (Normal, LogNormal)]
    [False, True]
    """
    for d in range(centre.shape[-1]):
        step = torch.zeros_like(centre)
        step[..., d] = reach[..., d]
        for point in (centre - step, centre + step):
            inside = inside_support(point, forecast)
            if inside is None:
                return False
            if not bool(inside.all()):
                return True
    return False


def refuse_outside_support(
    y: Tensor, forecast: Any, remedy: str = "pass draws as an Ensemble, or leave HDR() out"
) -> None:
    """Refuse observations (N, D) that a distribution calls impossible: they have no density, so no density rank."""
    if not isinstance(forecast, Distribution):
        return
    inside = inside_support(y, forecast)
    if inside is None or bool(inside.all()):
        return
    outside = ~inside.reshape(-1)
    first = int(outside.nonzero()[0])
    there = y.expand(*inside.shape, y.shape[-1]).reshape(-1, y.shape[-1])[first]
    found = ", ".join(f"{value:.6g}" for value in there.tolist()[:5])
    raise ValueError(
        f"y lies outside the support of the {_forecast_name(forecast)} forecast in {int(outside.sum())} of "
        f"{outside.numel()} cases, the first at case {first} ({found}), so it has no density there; {remedy}"
    )


def _forecast_name(forecast: Distribution) -> str:
    inner = getattr(forecast, "base_dist", None)
    return type(inner if type(forecast).__name__ == "Independent" and inner is not None else forecast).__name__
