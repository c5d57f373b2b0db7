"""A table of numbers as colours, with the numbers in it where there is room."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize

from prerank.reporting.style import BLUE, INK

# One hue from white to the project's blue: lightness alone carries the number, so every reader sees the order.
_STEPS = ["#FFFFFF", "#BBD8EA", BLUE, "#00324F"]
SEQUENTIAL: Colormap = LinearSegmentedColormap.from_list("prerank", _STEPS).with_extremes(bad="#F3F3F3")


def heatmap(
    ax: Axes,
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    text: Sequence[Sequence[str]] | None = None,
    limits: tuple[float, float] = (0.0, 1.0),
    font_size: float = 8.0,
) -> Axes:
    """Cells coloured by `values` (rows, columns), light to dark over `limits`, grey for NaN, with `text` in them."""
    norm = Normalize(*limits)
    ax.pcolormesh(np.ma.masked_invalid(values), cmap=SEQUENTIAL, norm=norm, edgecolors="white", linewidth=1.0)
    ax.set_xlim(0, len(columns))
    ax.set_ylim(len(rows), 0)
    ax.set_xticks(np.arange(len(columns)) + 0.5, columns)
    ax.set_yticks(np.arange(len(rows)) + 0.5, rows)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    for i, line in enumerate(text or ()):
        for j, entry in enumerate(line):
            dark = np.isfinite(values[i, j]) and norm(values[i, j]) > 0.55
            ax.text(
                j + 0.5, i + 0.5, entry, ha="center", va="center", fontsize=font_size, color="white" if dark else INK
            )
    return ax
