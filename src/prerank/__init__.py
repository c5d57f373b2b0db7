"""Is a joint forecast calibrated, and if not, how? Calibration through pre-ranks.

The names below are imported from their layers when they are first used, so that `import prerank` and the command line
start at once and nobody pays for plotting who does not plot.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prerank.calibration import *  # noqa: F403
    from prerank.diagnosis import Check, check, check_pits
    from prerank.estimator import MixtureRegressor
    from prerank.forecast import Ensemble, GaussianMixture, as_ensemble
    from prerank.training import PreRankPenalty

__version__ = "0.1.0"

# Where each public name lives; the pre-ranks, PITs, errors and tests are all the public names of `prerank.calibration`.
_HOMES = {
    "Check": "diagnosis",
    "Ensemble": "forecast",
    "GaussianMixture": "forecast",
    "MixtureRegressor": "estimator",
    "PreRankPenalty": "training",
    "as_ensemble": "forecast",
    "check": "diagnosis",
    "check_pits": "diagnosis",
}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [*_HOMES, *import_module("prerank.calibration").__all__]
    if name.startswith("_"):
        raise AttributeError(f"module 'prerank' has no attribute {name!r}")
    layer = import_module(f"prerank.{_HOMES.get(name, 'calibration')}")
    if name not in layer.__all__:
        raise AttributeError(f"module 'prerank' has no attribute {name!r}")
    value = getattr(layer, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__getattr__("__all__")])
