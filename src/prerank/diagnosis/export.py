"""A check as an xarray dataset: its tables and its reliability diagrams, by names."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from prerank.calibration import centred_levels, reliability_curve

if TYPE_CHECKING:
    from prerank.diagnosis.groups import GroupedCheck
    from prerank.diagnosis.result import Check


def as_dataset(result: "Check") -> Any:
    """The columns of the table along "prerank", those of the projections along "projection", curves along "level" too."""
    xarray = _xarray()
    table, projections = result.table.rename_axis("prerank"), result.projections
    levels = centred_levels()
    weights = None if result.case_weights is None else result.case_weights.to(result.pit.device)
    curve = reliability_curve(result.pit, levels=levels.to(result.pit.device), case_weights=weights).frequency
    variables: dict[str, Any] = {_key(name): ("prerank", _plain(column)) for name, column in table.items()}
    variables |= {f"projection_{_key(name)}": ("projection", _plain(column)) for name, column in projections.items()}
    variables["reliability"] = (("level", "projection"), curve.cpu().double().numpy())
    if result.test is not None:
        variables["spread"] = (("level", "projection"), result.test.spread.cpu().double().numpy())
    coordinates = {
        "prerank": list(table.index),
        "projection": [f"{prerank}: {name}" for prerank, name in projections.index],
        "prerank_of_projection": ("projection", [prerank for prerank, _ in projections.index]),
        "level": levels.numpy(),
    }
    about = {"verdict": result.verdict, "notes": list(result.notes), "cases": result.n_cases}
    return xarray.Dataset(variables, coordinates, attrs=about)


def as_grouped_dataset(result: "GroupedCheck") -> Any:
    """The datasets of the groups along a dimension "group", with the p-values that are adjusted for the groups too."""
    from prerank.diagnosis.groups import group_text  # which itself exports

    xarray = _xarray()
    parts = [as_dataset(one) for one in result.checks.values()]
    names = pd.Index(
        [group_text(name, result.factors) if result.factors else name for name in result.checks], name="group"
    )
    together = xarray.concat(parts, dim=names, combine_attrs="drop", join="outer")
    for name, column in result.table.items():
        together[f"group_{_key(name)}"] = ("group", _plain(column))
    return together.assign_attrs(verdict=result.verdict, notes=list(result.notes))


def _xarray() -> Any:
    try:
        import xarray
    except ImportError:
        raise ImportError("to_xarray() needs xarray; install it with: pip install xarray") from None
    return xarray


def _key(name: Any) -> str:
    """A column's name as a variable's: adjusted_p_value."""
    return str(name).lower().replace(" ", "_").replace("-", "_")


def _plain(column: pd.Series) -> np.ndarray:
    return np.array([str(item) for item in column]) if column.dtype.kind not in "fiub" else column.to_numpy()
