"""Many small rank histograms side by side: scenarios in rows, pre-ranks in columns."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from prerank.plotting.style import BLUE, GREY, INK, ORANGE, PALE


class HistogramPanel(NamedTuple):
    """One small histogram: heights (projections, bins) as multiples of the uniform height, the band, the verdict."""

    heights: np.ndarray
    band: tuple[float, float]
    rejected: bool


def small_histogram(ax: Axes, panel: HistogramPanel, top: float = 3.0) -> Axes:
    """A rank histogram of a few square centimetres: bars for one projection, a line for each of several.

    Orange where the test rejects, blue where it does not; the pale band is the consistency band. Heights above `top` are
    cut.
    """
    colour = ORANGE if panel.rejected else BLUE
    n_projections, n_bins = panel.heights.shape
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    if n_projections == 1:
        ax.stairs(panel.heights[0], edges, fill=True, color=colour, alpha=0.85, lw=0)
        ax.axhspan(*panel.band, color=GREY, alpha=0.35, lw=0)
    else:
        ax.axhspan(*panel.band, color=PALE, lw=0, zorder=0)
        for heights in panel.heights:
            ax.stairs(heights, edges, color=colour, lw=0.55, alpha=0.75, baseline=None)
    ax.axhline(1.0, color=INK, lw=0.5, ls=(0, (3, 2)))
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(0.0, top)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    return ax


def histogram_grid(
    figure: Figure,
    panels: Sequence[Sequence[HistogramPanel]],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
) -> Figure:
    """Small histograms on an empty figure, with labels (broken after commas) and a key."""
    # axes are not shared: their limits are the same anyway, and a change of one would visit the hundred others
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for i, row in enumerate(panels):
        for j, panel in enumerate(row):
            ax = small_histogram(axes[i, j], panel)
            if i == 0:
                ax.set_title(columns[j], loc="center", fontsize=8.5, fontweight="normal")
            if j == 0:
                ax.set_ylabel(
                    rows[i].replace(", ", ",\n"), rotation=0, ha="right", va="center", fontsize=8.5, labelpad=6
                )
    for ax in axes[-1]:
        ax.set_xticks([0.0, 1.0], ["0", "1"])
        ax.tick_params(length=2, pad=2)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    key = [
        Patch(color=ORANGE, alpha=0.85, lw=0, label="test rejects at 5 %"),
        Patch(color=BLUE, alpha=0.85, lw=0, label="does not reject"),
        Patch(color=GREY, alpha=0.35, lw=0, label="95 % consistency band, all bins"),
        Line2D([], [], color=INK, lw=0.6, ls=(0, (3, 2)), label="uniform"),
    ]
    figure.legend(handles=key, loc="outside lower center", ncols=4, handlelength=1.4, columnspacing=1.4, fontsize=8)
    # a hundred axes are slow to lay out; once is enough for every format they are saved in
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure
