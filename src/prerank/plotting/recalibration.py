"""What a recalibration found: densities of old PITs, of the observations and under the corrected forecast."""

from collections.abc import Mapping

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
