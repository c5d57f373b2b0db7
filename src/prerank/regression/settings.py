"""The settings of the estimator: the paper's by name, what follows the data, and what is refused."""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch

from prerank.training import FitOptions

PAPER: Mapping[str, Any] = {
    "n_components": 5,
    "hidden": (100, 100),
    "learning_rate": 1e-4,
    "batch_size": 256,
    "max_epochs": 5000,
    "patience": 15,
    "n_restarts": 0,
    "floor": 1e-3,
    "anchored": False,
    "common_correlations": False,
    "bound_features": False,
    "dequantise": False,
    "fall_back": False,
    "tail_weight": 0.0,
    "validation_fraction": 0.2,
}
"""The settings of the paper, as far as they are the estimator's: `MixtureRegressor.paper()`."""


def components_for(n_rows: int, n_targets: int) -> int:
    """How many components `n_rows` training rows can teach: 5, or above 16 targets one for every 32 rows a target.

    >>> components_for(400, 14), components_for(1600, 24), components_for(1600, 100), components_for(16_000, 24)
    (5, 2, 1, 5)
    """
    return 5 if n_targets <= 16 else min(5, max(1, n_rows // (32 * n_targets)))


def fit_options(settings: Mapping[str, Any], n_rows: int, n_targets: int) -> FitOptions:
    """Options of a fit to `n_rows` rows, refused with a sentence where they make no sense."""
    if settings["n_components"] is None:
        share = settings["validation_fraction"]
        own = n_rows - int(share * n_rows) if _is_number(share) else n_rows
        settings = {**settings, "n_components": components_for(own, n_targets)}
    for name in ("n_components", "batch_size", "max_epochs", "patience"):
        _require_whole(name, settings[name], 1)
    _require_whole("n_restarts", settings["n_restarts"], 0)
    hidden = settings["hidden"]
    widths = list(hidden) if isinstance(hidden, Sequence | np.ndarray) and not isinstance(hidden, str) else None
    if widths is None or not all(_is_whole(width, 1) for width in widths):
        raise ValueError(f"hidden={hidden!r}: the widths of the hidden layers, such as (100, 100)")
    for name in ("learning_rate", "floor"):
        value = settings[name]
        if not _is_number(value) or not 0 < value < np.inf:
            raise ValueError(f"{name}={value!r}: a positive number is needed")
    share = settings["validation_fraction"]
    if not _is_number(share) or not 0 < share < 1:
        raise ValueError(f"validation_fraction={share!r}: a share between 0 and 1 is needed")
    tail = settings["tail_weight"]
    if not _is_number(tail) or not 0 <= tail < 1:
        raise ValueError(f"tail_weight={tail!r}: the weight of a wide component, such as 0.001; at least 0 and below 1")
    for name in ("anchored", "common_correlations", "bound_features", "dequantise", "fall_back"):
        if not isinstance(settings[name], bool | np.bool_):
            raise ValueError(f"{name}={settings[name]!r}: True or False is needed")
    if settings["common_correlations"] and not settings["anchored"]:
        raise ValueError("common_correlations=True is a kind of anchored network; give anchored=True as well")
    return FitOptions(
        n_components=int(settings["n_components"]),
        hidden=tuple(int(width) for width in widths),
        learning_rate=float(settings["learning_rate"]),
        batch_size=int(settings["batch_size"]),
        max_epochs=int(settings["max_epochs"]),
        patience=int(settings["patience"]),
        n_restarts=int(settings["n_restarts"]),
        floor=float(settings["floor"]),
        anchored=bool(settings["anchored"]),
        common_correlations=bool(settings["common_correlations"]),
        keep_on_interrupt=True,
    )


def require_strengths(settings: Mapping[str, Any]) -> None:
    """Refuse a strength, candidates or a tolerance by which nothing could be chosen."""
    strength, strengths, tolerance = (settings[name] for name in ("strength", "strengths", "tolerance"))
    auto = isinstance(strength, str) and strength == "auto"
    if not auto and not (_is_number(strength) and 0 <= strength < np.inf):
        raise ValueError(f'strength={strength!r}: a number of at least 0, or "auto"')
    listed = isinstance(strengths, Sequence | np.ndarray) and not isinstance(strengths, str) and len(strengths) > 0
    if not listed or not all(_is_number(item) for item in strengths):
        raise ValueError(f"strengths={strengths!r}: the candidates to tune over, such as (0, 0.1, 1, 10)")
    if not _is_number(tolerance) or not 0 <= tolerance < np.inf:
        raise ValueError(f"tolerance={tolerance!r}: by what share the energy score may rise, such as 0.1; at least 0")
    if settings["preranks"] is None and not auto and strength != 0:
        raise ValueError(f"strength={strength} has nothing to weigh; give preranks, such as PCA()")


def require_device(device: torch.device | str | None) -> None:
    """Refuse a device that is not there, before anything is computed."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise ValueError(f'device={str(device)!r} cannot be used here ({first}); device=None or "cpu" can') from error


def _require_whole(name: str, value: Any, least: int) -> None:
    if not _is_whole(value, least):
        raise ValueError(f"{name}={value!r}: a whole number of at least {least} is needed")


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
