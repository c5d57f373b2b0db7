"""Figures and tables. Plots take an Axes and numbers, return the Axes, and compute nothing."""

from typing import TYPE_CHECKING

from prerank.lazy import public_names

if TYPE_CHECKING:
    from prerank.reporting.demonstration import Panel, demonstration_figure
    from prerank.reporting.diagnosis import diagnosis_figure
    from prerank.reporting.heatmaps import group_figure, heatmap
    from prerank.reporting.histograms import HistogramPanel, histogram_grid
    from prerank.reporting.margins import curve_panel, density_panel, point_panel
    from prerank.reporting.page import report_page, write_page
    from prerank.reporting.pairplot import pair_plot
    from prerank.reporting.panels import (
        GroupHeat,
        PreRankPanel,
        ProjectionPanel,
        highest_density,
        ratio,
        widest_deviation,
    )
    from prerank.reporting.recalibration import recalibration_figure
    from prerank.reporting.style import (
        BLUE,
        CYCLE,
        GREY,
        INK,
        ORANGE,
        PALE,
        new_figure,
        quiet_style,
        save_figure,
        save_named,
    )
    from prerank.reporting.tables import p_text, render, terminal_table

_HOMES = {
    "BLUE": "style",
    "CYCLE": "style",
    "GREY": "style",
    "GroupHeat": "panels",
    "HistogramPanel": "histograms",
    "INK": "style",
    "ORANGE": "style",
    "PALE": "style",
    "Panel": "demonstration",
    "PreRankPanel": "panels",
    "ProjectionPanel": "panels",
    "curve_panel": "margins",
    "demonstration_figure": "demonstration",
    "density_panel": "margins",
    "diagnosis_figure": "diagnosis",
    "group_figure": "heatmaps",
    "heatmap": "heatmaps",
    "highest_density": "panels",
    "histogram_grid": "histograms",
    "new_figure": "style",
    "p_text": "tables",
    "pair_plot": "pairplot",
    "point_panel": "margins",
    "quiet_style": "style",
    "ratio": "panels",
    "recalibration_figure": "recalibration",
    "render": "tables",
    "report_page": "page",
    "save_figure": "style",
    "save_named": "style",
    "terminal_table": "tables",
    "widest_deviation": "panels",
    "write_page": "page",
}
__getattr__, __dir__ = public_names("prerank.reporting", _HOMES)
