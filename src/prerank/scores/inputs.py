"""What enters a score: observations and members that fit each other and contain numbers only."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank.forecast import Ensemble, as_tensor, equally_weighted_draws, require_vector_distribution
from prerank.forecast.fills import SMALLEST_FILL, refuse_fill_values
from prerank.forecast.layout import Inputs, observations_and_forecast


def observations_and_members(
    y: Any, forecast: Any, weights: Any = None, n_draws: int = 100, seed: int = 0
) -> tuple[Tensor, Ensemble]:
    """Observations (..., N, D) and an ensemble (..., N, M, D) of one dtype, checked.

    `forecast` is an `Ensemble`, an array of members, or a distribution, of which `n_draws` equally weighted draws
    are taken. `weights` go with members that have none yet. Cases and targets are aligned where both sides label them.
    """
    inputs = _aligned(y, forecast)
    y = inputs.y
    ensemble = _ensemble(inputs, weights, n_draws, seed)
    check_members(ensemble, "the forecast")
    check_observations(y)
    check_shapes(y, tuple(ensemble.members.shape))
    dtype = torch.promote_types(y.dtype, ensemble.members.dtype)
    return y.to(dtype), as_dtype(ensemble, dtype)


def _aligned(y: Any, forecast: Any) -> Inputs:
    try:
        return observations_and_forecast(y, forecast)
    except ValueError as error:
        if "axes=" in str(error):
            error.add_note("A score takes no axes: pass it prerank.forecast.as_ensemble(members, axes=...) instead.")
        raise


def _ensemble(inputs: Inputs, weights: Any, n_draws: int, seed: int) -> Ensemble:
    forecast = inputs.forecast
    if isinstance(forecast, Distribution):
        if weights is not None:
            raise ValueError(f"weights= go with members; the draws of a {type(forecast).__name__} weigh the same")
        require_vector_distribution(forecast, inputs.y.shape[-2])
        return equally_weighted_draws(forecast, n_draws, seed)
    if weights is None:
        return forecast
    if forecast.weights is not None:
        raise ValueError("the Ensemble carries weights already; pass them there or as weights=, not both")
    given = as_tensor(weights, "weights")
    if inputs.order is not None and given.ndim == 2:  # they stand in the order of the forecast as it came
        given = given[inputs.order]
    return Ensemble(forecast.members, given)


def as_dtype(ensemble: Ensemble, dtype: torch.dtype) -> Ensemble:
    """The members and weights in another floating type, the reference (no score needs it) left behind."""
    weights = None if ensemble.weights is None else ensemble.weights.to(dtype)
    return Ensemble(ensemble.members.to(dtype), weights)


def check_observations(y: Tensor) -> None:
    if y.numel() == 0:
        raise ValueError(f"y has shape {tuple(y.shape)}: nothing to score; pass at least one case and one target")
    _refuse_non_finite(y, "y", "(case, target)", "drop those cases from y and from the forecast")


def check_members(ensemble: Ensemble, what: str) -> None:
    """Refuse empty ensembles, values that are no numbers, and weights that are no weights."""
    members, weights = ensemble.members, ensemble.weights
    if members.numel() == 0:
        raise ValueError(
            f"{what} has shape {tuple(members.shape)} (cases, members, targets): nothing to score; "
            "pass at least one of each"
        )
    remedy = "drop those cases, or give a missing member weight 0 and any finite values"
    _refuse_non_finite(members, what, "(case, member, target)", remedy)
    if weights is None:
        return
    _refuse_non_finite(weights, f"the weights of {what}", "(case, member)", "a member left out has weight 0")
    if bool((weights < 0).any()):
        raise ValueError(
            f"{int((weights < 0).sum())} weights of {what} are negative (the smallest is {float(weights.min()):.3g}); "
            "weights are shares of the forecast's probability: pass zero or more"
        )
    empty = weights.sum(-1) == 0
    if bool(empty.any()):
        raise ValueError(
            f"all weights of {what} are zero in {int(empty.sum())} of {empty.numel()} cases; drop those cases"
        )


def check_shapes(y: Tensor, members: tuple[int, ...], what: str = "the forecast") -> None:
    """Refuse members for other cases or targets than y's; leading axes need only broadcast."""
    if (members[-3], members[-1]) != tuple(y.shape[-2:]):
        raise ValueError(
            f"{what} is for {members[-3]} cases and {members[-1]} targets (members {members}), "
            f"y for {y.shape[-2]} cases and {y.shape[-1]} targets (y {tuple(y.shape)}); both must be the same"
        )
    try:
        torch.broadcast_shapes(y.shape[:-2], members[:-3])
    except RuntimeError:
        raise ValueError(
            f"the leading axes {members[:-3]} of {what} and {tuple(y.shape[:-2])} of y do not broadcast; "
            "give both the same, or leave them out of one"
        ) from None


def _refuse_non_finite(values: Tensor, what: str, axes: str, remedy: str) -> None:
    # one sum instead of a mask as large as the input: NaN, infinity and fill values survive it. A moderate sum settles
    # the matter; any other is looked at closely.
    values = values.detach()
    total = float(values.sum())
    if abs(total) < SMALLEST_FILL:
        return
    refuse_fill_values(values, what)
    bad = ~torch.isfinite(values)
    if bool(bad.any()):
        first = tuple(int(i) for i in bad.nonzero()[0])
        raise ValueError(
            f"{int(bad.sum())} of {bad.numel()} values of {what} are NaN or infinite, "
            f"the first at index {first} (..., {axes[1:-1]}); {remedy}"
        )
