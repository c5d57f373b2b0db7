"""Figures and tables. Plots take an Axes and numbers, return the Axes, and compute nothing."""

from typing import TYPE_CHECKING

from prerank._lazy import public_names

if TYPE_CHECKING:
    from prerank.plotting.diagnosis import diagnosis_figure
    from prerank.plotting.style import new_figure, quiet_style, save_figure
    from prerank.plotting.tables import render, terminal_table

_HOMES = {
    "diagnosis_figure": "diagnosis",
    "new_figure": "style",
    "quiet_style": "style",
    "render": "tables",
    "save_figure": "style",
    "terminal_table": "tables",
}
__all__ = list(_HOMES)
__getattr__, __dir__ = public_names("prerank.plotting", _HOMES)
