"""A rank histogram of two numbers in the plane."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, TwoSlopeNorm

from prerank.plotting.panels import PlaneHistogram
from prerank.plotting.style import BLUE, INK, ORANGE

DIVERGING: Colormap = LinearSegmentedColormap.from_list("prerank plane", [BLUE, "#FFFFFF", ORANGE])
_DARK = 0.7  # of the way to either colour: text is white from there
_WIDEST = 3.0  # times the expected number: the colours go from a third to this


def plane_panel(ax: Axes, histogram: PlaneHistogram) -> Axes:
    """Cells coloured by how many cases fall into them over how many are expected, with the numbers; bold ones fail.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    histogram : PlaneHistogram
        Observed and expected cases, from `Check.plane`.

    Returns
    -------
    Axes
        The same Axes.
    """
    expected = np.maximum(histogram.expected, 1e-12)
    ratio = np.clip(histogram.observed / expected, 1e-12, None)
    edges = np.linspace(0.0, 1.0, len(ratio) + 1)
    size = np.clip(np.log(ratio) / np.log(_WIDEST), -1.0, 1.0)
    ax.pcolormesh(
        edges, edges, size.T, cmap=DIVERGING, norm=TwoSlopeNorm(0.0, -1.0, 1.0), edgecolors="white", linewidth=1.0
    )
    middle = 0.5 * (edges[1:] + edges[:-1])
    for i, x in enumerate(middle):
        for j, y in enumerate(middle):
            text = f"{histogram.observed[i, j]:.0f}\n({histogram.expected[i, j]:.0f})"
            weight = "bold" if histogram.failed[i, j] else "normal"
            colour = "white" if abs(size[i, j]) > _DARK else INK
            ax.text(
                x, y, text, ha="center", va="center", fontsize=7.0, color=colour, fontweight=weight, linespacing=1.1
            )
    ax.set_aspect("equal")
    ax.set_xlabel(f"rank of {histogram.names[0]}")
    ax.set_ylabel(f"rank of {histogram.names[1]}")
    return ax
