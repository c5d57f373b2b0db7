"""The figure of the demonstration: reliability diagrams with the diagonal subtracted."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from prerank.plotting.style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, new_figure, plain, quiet_style

_COLOURS = (ORANGE, BLUE, PURPLE, GREEN)


class Panel(NamedTuple):
    """One pre-rank: levels and band (J,), and for each forecast its curves (J, K) and its PCE."""

    title: str
    levels: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    curves: Sequence[np.ndarray]
    errors: Sequence[float]


def deviation_panel(ax: Axes, panel: Panel, colours: Sequence[str] = _COLOURS) -> Axes:
    """Observed share minus level for every forecast, with the consistency band around zero."""
    levels = panel.levels
    ax.fill_between(levels, panel.lower - levels, panel.upper - levels, color=PALE, lw=0, zorder=0)
    ax.axhline(0.0, color=INK, lw=0.8, ls=(0, (4, 3)))
    for curve, colour in zip(panel.curves, colours, strict=True):
        ax.plot(levels, curve - levels[:, None], color=colour, lw=1.6 if curve.shape[1] == 1 else 1.1, alpha=0.95)
    ax.set_title(panel.title, pad=16)
    for position, (error, colour) in enumerate(zip(panel.errors, colours, strict=True)):
        ax.annotate(
            f"{error:.3f}",
            (0.0, 1.0),
            (29 * position, 4),
            xycoords="axes fraction",
            textcoords="offset points",
            color=colour,
            fontsize=8.5,
        )
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    furthest = max(float(np.abs(curve - levels[:, None]).max()) for curve in panel.curves)
    limit = 1.1 * max(furthest, float((panel.upper - levels).max()))
    ax.set_ylim(-limit, limit)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5, symmetric=True))
    return ax


def demonstration_figure(panels: Sequence[Panel], names: Sequence[str], notes: Sequence[str], title: str) -> Figure:
    """A panel per pre-rank on two rows, each to its own scale, which the grey band tells; the key comes last."""
    columns = (len(panels) + 2) // 2
    with quiet_style():
        figure = new_figure(2.35 * columns, 5.2)
        axes = list(figure.subplots(2, columns).flat)
        for number, (ax, panel) in enumerate(zip(axes, panels, strict=False)):
            deviation_panel(ax, panel)
            if number % columns == 0:
                ax.set_ylabel("observed share − level")
            if number + columns >= len(panels):
                ax.set_xlabel("level")
        key, *spare = axes[len(panels) :]
        for ax in (key, *spare):
            plain(ax)
        for position, (name, colour, note) in enumerate(zip(names, _COLOURS, notes, strict=True)):
            height = 1.0 - 0.19 * position
            key.text(0.0, height, name, color=colour, weight="bold", va="top", transform=key.transAxes)
            key.text(0.0, height - 0.085, note, color=INK, fontsize=8, va="top", transform=key.transAxes)
        key.text(
            0.0,
            0.22,
            "Numbers above a panel: PCE.\nZero is calibrated; grey is the 95 %\n"
            "consistency band, the same in every\npanel: the scales differ.",
            color=GREY,
            fontsize=8,
            va="top",
            transform=key.transAxes,
        )
        figure.suptitle(title, x=0.01, ha="left", fontsize=10, color=GREY)
    return figure
