"""What a PIT is never computed from: everything that would end in a wrong number or an obscure error."""

import math
import numbers
from typing import Any

from torch import Tensor

from prerank._parameters import require_whole
from prerank.forecasts import Ensemble, Forecast
from prerank.inputs.checks import (
    require_case_weights,
    require_fitting,
    require_observations,
    require_sound,
)

__all__ = [
    "refuse_bad_input",
    "require_exponent",
    "require_how",
    "require_whole",
]


def refuse_bad_input(y: Tensor, forecast: Forecast, observation_weights: Tensor | None) -> None:
    """Everything that would otherwise end in a wrong number or an obscure error, said with numbers."""
    require_fitting(y, forecast, follows=True)
    require_observations(y, "drop them, or call check(), which drops missing observations and says how many")
    require_sound(forecast, "drop them, or call check(), which leaves missing members out of their case")
    if observation_weights is None:
        return
    if not isinstance(forecast, Ensemble) or forecast.weights is None:
        raise ValueError("observation_weights go with member weights; give the Ensemble weights too")
    require_case_weights(observation_weights, "observation_weights", forecast.weights.shape[:-1], some=False)


def require_exponent(exponent: Any) -> float:
    """The exponent of a PCE, |level - frequency|^exponent: positive and finite."""
    if isinstance(exponent, bool) or not isinstance(exponent, numbers.Real):
        raise TypeError(f"exponent={exponent!r}: a positive number, 1 or 2 as a rule")
    if not (math.isfinite(exponent) and float(exponent) > 0):
        raise ValueError(
            f"exponent={exponent}: the error |level - frequency|^exponent needs a positive, finite exponent; say 1 or 2"
        )
    return exponent  # type: ignore[return-value]


def require_how(how: Any, ways: tuple[type, ...]) -> None:
    """Refuse what is no way to compute a PIT; `ways` are the classes whose values are."""
    if how is None or isinstance(how, ways):
        return
    if isinstance(how, type):
        raise TypeError(f"how: {how.__name__} is a class; pass {how.__name__}()")
    names = [f"{way.__name__}()" for way in ways]
    raise TypeError(
        f"how={how!r} is no way to compute a PIT; pass {', '.join(names[:-1])} or {names[-1]}, or leave it out"
    )
