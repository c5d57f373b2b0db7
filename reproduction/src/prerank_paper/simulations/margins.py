"""Panels that compare forecast and observations in the plane: points, densities and PIT curves."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from prerank.plotting.style import BLUE, GREEN, INK, ORANGE, PALE


def point_panel(ax: Axes, observations: np.ndarray, draws: np.ndarray) -> Axes:
    """Observations and draws of the forecast (points, 2), on equal axes."""
    style = {"s": 6, "alpha": 0.55, "lw": 0}
    ax.scatter(*draws.T, color=BLUE, label="forecast", **style)  # type: ignore[arg-type]
    ax.scatter(*observations.T, color=ORANGE, label="observed", **style)  # type: ignore[arg-type]
    ax.set_xlim(-3.6, 3.6)
    ax.set_ylim(-3.6, 3.6)
    ax.set_aspect("equal")
    ax.set_xticks([-2, 0, 2])
    ax.set_yticks([-2, 0, 2])
    ax.set_xlabel("$y_1$")
    ax.set_ylabel("$y_2$", rotation=0, labelpad=8)
    return ax


def density_panel(
    ax: Axes, edges: np.ndarray, observed: Mapping[str, np.ndarray], points: np.ndarray, forecast: np.ndarray
) -> Axes:
    """Histograms of observations by name, as densities (the first filled), and the forecast's density as a curve."""
    for position, (name, heights) in enumerate(observed.items()):
        if position == 0:
            ax.stairs(heights, edges, fill=True, color=ORANGE, alpha=0.45, lw=0, label=name)
        else:
            ax.stairs(heights, edges, color=INK, lw=0.8, label=name)
    ax.plot(points, forecast, color=BLUE, lw=1.4, label="forecast")
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(0, 1.3 * max(heights.max() for heights in observed.values()))  # room for the key
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    return ax


def curve_panel(
    ax: Axes, levels: np.ndarray, curves: Mapping[str, np.ndarray], lower: np.ndarray, upper: np.ndarray
) -> Axes:
    """PIT curves by name over the simultaneous consistency band; the diagonal is calibration."""
    ax.fill_between(levels, lower, upper, color=PALE, lw=0, zorder=0)
    ax.plot([0, 1], [0, 1], color=INK, lw=0.7, ls=(0, (4, 3)))
    for (name, frequency), colour, dash in zip(curves.items(), (GREEN, INK), ("-", (0, (5, 1.5))), strict=False):
        ax.plot(levels, frequency, color=colour, lw=1.3, ls=dash, label=name)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_aspect("equal")
    ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.set_xlabel("PIT level")
    ax.legend(loc="upper left", fontsize=7.5, handlelength=1.6, borderaxespad=0.1)
    return ax
