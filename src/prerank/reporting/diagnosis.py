"""The figure of a check: for every pre-rank its rank (PIT) histogram and its reliability diagram."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from prerank.reporting.style import BLUE, GREY, INK, ORANGE, PALE, new_figure, quiet_style


def histogram_panel(
    ax: Axes, edges: np.ndarray, heights: np.ndarray, band: tuple[float, float], colour: str = BLUE
) -> Axes:
    """Rank (PIT) histogram as densities (K, bins): bars for the mean over projections, a step line for each of several."""
    ax.axhspan(*band, color=PALE, lw=0, zorder=0)
    ax.bar(
        edges[:-1], heights.mean(0), np.diff(edges), align="edge", color=colour, alpha=0.75, edgecolor="white", lw=0.6
    )
    if len(heights) > 1:
        for row in heights:
            ax.stairs(row, edges, color=INK, lw=0.5, alpha=0.45)
    ax.axhline(1.0, color=INK, lw=0.8, ls=(0, (4, 3)))
    ax.set_xlim(0, 1)
    ax.set_ylim(0, max(2.0, 1.08 * float(heights.max())))
    ax.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    return ax


def reliability_panel(
    ax: Axes, levels: np.ndarray, frequency: np.ndarray, band: np.ndarray, colour: str = BLUE
) -> Axes:
    """Reliability diagram: curves (J, K) against their levels, with the consistency band around the diagonal."""
    ax.fill_between(levels, levels - band, levels + band, color=PALE, lw=0, zorder=0)
    ax.plot([0, 1], [0, 1], color=INK, lw=0.8, ls=(0, (4, 3)))
    width = 1.6 if frequency.shape[1] == 1 else 0.9
    ax.plot(levels, frequency, color=colour, lw=width, alpha=0.9 if frequency.shape[1] == 1 else 0.6)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    ax.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    ax.set_aspect("equal")
    return ax


def diagnosis_figure(panels: Sequence[dict[str, Any]], n_cases: int) -> Figure:
    """Two rows of panels, one column per pre-rank; orange where the adjusted p-value is at most 0.05."""
    with quiet_style():
        figure = new_figure(max(4.0, 1.75 * len(panels)), 4.7)
        axes = figure.subplots(2, len(panels), squeeze=False)
        half = 3.0 * np.sqrt(10 * 0.9 / n_cases)  # three standard errors of one bin: a guide, the curve has the test
        for column, panel in enumerate(panels):
            colour = ORANGE if panel["rejected"] else BLUE
            top, bottom = axes[0, column], axes[1, column]
            histogram_panel(top, panel["edges"], panel["heights"], (max(0.0, 1 - half), 1 + half), colour)
            reliability_panel(bottom, panel["levels"], panel["frequency"], panel["band"], colour)
            top.set_title(panel["title"], color=colour, parse_math=False)
            words = [line for text in (panel["reading"], *panel["caption"]) for line in textwrap.wrap(text, 27)]
            bottom.set_xlabel("\n".join(words), fontsize=7.5, parse_math=False)
            if column:
                bottom.tick_params(labelleft=False)
        axes[0, 0].set_ylabel("PIT density")
        axes[1, 0].set_ylabel("observed share")
        title = (
            f"Rank histograms and reliability diagrams, {n_cases:,} cases: flat and on the diagonal is calibrated. "
            "Grey: ±3 standard errors of a bin (top), 95 % consistency band (bottom)"
        )
        lines = textwrap.wrap(title, int(14 * figure.get_figwidth()))
        figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=10, color=GREY)
    return figure
