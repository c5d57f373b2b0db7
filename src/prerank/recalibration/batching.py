"""A forecast a few cases at a time, where it can be cut."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from prerank._chunks import chunks
from prerank._parallel import in_threads
from prerank._progress import shown_if_slow
from prerank.forecasts import GaussianMixture, can_be_cut, select_cases

_Result = TypeVar("_Result")


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


def over_parts(
    function: Callable[[slice, Distribution], _Result],
    forecast: Distribution,
    values_per_case: int,
    device: torch.device,
    *,
    spread: bool = True,
) -> list[_Result]:
    """`function(cases, forecast of these cases)` of a few cases at a time, in threads where they may be."""
    slices = some_cases(forecast, values_per_case, device)
    spread = spread and may_be_spread(forecast, device)
    return _in_parts(lambda cases: function(cases, select(forecast, cases)), slices, spread)


def _in_parts(function: Callable[[slice], _Result], slices: list[slice], spread: bool) -> list[_Result]:
    """Results of all parts, which a progress bar counts where there are several."""
    if len(slices) < 2:
        return in_threads(function, slices, spread=spread)
    results: list[_Result] = []
    with shown_if_slow("", "parts of the cases") as tell:

        def take(_: slice, result: _Result) -> None:
            results.append(result)
            tell(len(results), len(slices))

        in_threads(function, slices, take, spread=spread)
    return results


def may_be_spread(forecast: Distribution, device: torch.device) -> bool:
    """Whether several threads may ask a forecast at a time: a mixture, or one that is tilted, and not on a GPU."""
    return device.type == "cpu" and isinstance(getattr(forecast, "root", forecast), GaussianMixture)


def over_drawn(
    function: Callable[[slice, Distribution, Tensor], _Result], forecast: Distribution, n_draws: int
) -> list[_Result]:
    """`function(cases, forecast, case_ids)` of a few cases of a mixture at a time, tilted or not, with so many draws."""
    ids = torch.arange(forecast.batch_shape[-1])
    slices: list[slice]
    if isinstance(forecast, GaussianMixture):
        device, values = forecast.loc.device, n_draws * forecast.n_targets * forecast.n_components
        slices, spread = some_cases(forecast, values, device), may_be_spread(forecast, device)
    elif hasattr(forecast, "slices_to_draw"):
        slices = forecast.slices_to_draw(n_draws)
        device, spread = torch.device("cpu"), bool(forecast.may_be_spread)  # type: ignore[attr-defined]
    else:
        return [function(slice(None), forecast, ids)]
    return _in_parts(lambda cases: function(cases, select(forecast, cases), ids[cases].to(device)), slices, spread)
