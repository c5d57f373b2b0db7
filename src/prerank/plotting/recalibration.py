"""What a recalibration found and did: densities of old PITs, and calibration and scores over time."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from prerank.plotting.style import BLUE, GREY, ORANGE, new_figure, quiet_style


def recalibration_figure(densities: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """A panel for each pre-rank, from densities (K, bins) of its old PITs: observed, and under the corrected forecast.

    Both flat: there was nothing to correct. Both the same and not flat: the correction took up what was observed. Takes
    `Recalibrator.densities_`.
    """
    if not densities:
        raise ValueError("there are no densities to draw; a Recalibrator has them after a Tilt() step")
    columns = min(4, len(densities))
    rows = -(-len(densities) // columns)
    highest = max(float(part.max()) for pair in densities.values() for part in pair)
    with quiet_style():
        figure = new_figure(2.4 * columns, 1.9 * rows + 0.5)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for ax, (name, (observed, corrected)) in zip(axes, densities.items(), strict=False):
            old_pit_panel(ax, observed, corrected, min(6.0, 1.05 * max(1.5, highest)))
            ax.set_title(name)
        for ax in axes[len(densities) :]:
            ax.set_visible(False)
        for ax in axes[max(0, len(densities) - columns) : len(densities)]:
            ax.set_xlabel("PIT under the old forecast")
        key = [
            Line2D([], [], color=ORANGE, lw=1.4, label="observed"),
            Line2D([], [], color=BLUE, lw=1.4, label="under the corrected forecast"),
        ]
        figure.legend(handles=key, loc="outside upper right", ncols=2)
    return figure


def old_pit_panel(ax: Axes, observed: np.ndarray, corrected: np.ndarray, top: float) -> Axes:
    """Densities (K, bins) of one pre-rank's projections, thin lines where there are several."""
    edges = np.linspace(0.0, 1.0, observed.shape[1] + 1)
    width = 1.4 if len(observed) == 1 else 0.7
    ax.axhline(1.0, color=GREY, lw=0.6, ls=(0, (3, 2)))
    for colour, rows in ((ORANGE, observed), (BLUE, corrected)):
        for heights in rows:
            ax.stairs(heights, edges, color=colour, lw=width, alpha=0.85, baseline=None)
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(0.0, top)
    ax.set_xticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
    return ax


def over_time_figure(table: Mapping[str, Any], unit: str = "", names: tuple[str, str] = ("before", "after")) -> Figure:
    """Energy scores and calibration before and after a correction, period by period.

    The dashed line is what is expected of a calibrated forecast.

    Parameters
    ----------
    table : Mapping of str to sequence
        What `prerank.diagnosis.compare_over_time` returns.
    unit : str, optional
        Unit of the targets.
    names : tuple of str, default ("before", "after")
        What the two forecasts are called.

    Returns
    -------
    matplotlib.figure.Figure
        Two panels: energy score, and PCE over expected.
    """
    first, place = [_short(label) for label in table["first"]], np.arange(len(table["first"]))
    with quiet_style():
        figure = new_figure(6.4, 4.2)
        upper, lower = figure.subplots(2, 1, sharex=True)
        for ax, name in ((upper, "energy score"), (lower, "PCE over expected")):
            for when, called, colour, mark in (("before", names[0], GREY, "o"), ("after", names[1], BLUE, "s")):
                values = np.asarray(table[f"{name} {when}"])
                ax.plot(place, values, color=colour, lw=1.3, marker=mark, ms=3.5, label=called)
            ax.set_ylabel(f"{name}, {unit}" if unit and ax is upper else name)
            ax.set_ylim(bottom=0.0)
        lower.axhline(1.0, color=GREY, lw=0.6, ls=(0, (3, 2)))
        step = -(-len(place) // 8)
        lower.set_xticks(place[::step], first[::step])
        lower.set_xlabel("first time of the period")
        figure.legend(*upper.get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def _short(label: Any) -> str:
    """A time as a tick shows it: a date without its midnight."""
    return str(label).removesuffix(" 00:00:00")
