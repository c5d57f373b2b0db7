"""The figure of a check: for every pre-rank its rank (PIT) histogram and its reliability diagram, on common axes.

Sizes are in inches and every block of panels has its place, so that text keeps its size: five inches are a column of a page
or the width of a phone.
"""

import textwrap
from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from prerank.plotting.panels import (
    PreRankPanel,
    ProjectionPanel,
    departures,
    fitting_names,
    highest_density,
    ratio,
    widest_deviation,
)
from prerank.plotting.style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, QUIET, new_figure, quiet_style
from prerank.plotting.tables import p_text

ROWS = 100  # projections that a strip can show

# Inside the band pale, outside from purple (too few) to green (too many): told apart by all readers, and in grey.
_STEPS = [(0.0, "#7B2D64"), (1 / 3, PURPLE), (1 / 3, "#EEF0F2"), (2 / 3, "#EEF0F2"), (2 / 3, GREEN), (1.0, "#00513B")]
OUTSIDE: Colormap = LinearSegmentedColormap.from_list("outside", _STEPS)

_WIDTH, _LEFT, _PANEL, _BETWEEN = 5.0, 1.05, 1.62, 0.56
_TALL, _ROW, _LINE, _GAP = 0.95, 0.13, 0.165, 0.5
_NAME = 17  # signs of a row's name


def histogram_panel(
    ax: Axes,
    edges: np.ndarray,
    heights: np.ndarray,
    band: tuple[float, float],
    colour: str = BLUE,
    top: float | None = None,
) -> Axes:
    """Rank (PIT) histogram of one projection over its consistency band.

    Bars above `top` are cut, with their height written above them.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    edges : ndarray, shape (n_bins + 1,)
        Edges of the bins.
    heights : ndarray, shape (n_bins,)
        Densities.
    band : tuple of float
        Lower and upper edge of the band.
    colour : str, default BLUE
        Colour of the bars.
    top : float, optional
        Upper end of the axis; high enough for all bars if None.

    Returns
    -------
    matplotlib.axes.Axes
        The same Axes.
    """
    top = max(2.0, 1.08 * float(heights.max())) if top is None else top
    ax.axhspan(*band, color=PALE, lw=0, zorder=0)
    for edge in band:  # over the bars, which hide the lower half of the band
        ax.axhline(edge, color=INK, lw=0.5, alpha=0.55)
    ax.bar(edges[:-1], np.minimum(heights, top), np.diff(edges), align="edge", color=colour, edgecolor="white", lw=0.6)
    ax.axhline(1.0, color=INK, lw=0.8, ls=(0, (4, 3)))
    for k in np.flatnonzero(heights > top):
        middle = 0.5 * (edges[k] + edges[k + 1])
        ax.annotate(
            f"{heights[k]:.1f}", (middle, top), (0, 1), textcoords="offset points", ha="center", fontsize=6.5, color=INK
        )
    ax.set_xlim(0, 1)
    ax.set_ylim(0, top)
    ax.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    return ax


def reliability_panel(
    ax: Axes, levels: np.ndarray, deviation: np.ndarray, half_width: np.ndarray, colour: str = BLUE, shown: int = 0
) -> Axes:
    """Reliability diagram without its diagonal: observed share minus level, over the consistency band.

    The curve `shown` is drawn in colour, others thin and grey.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Where to draw.
    levels : ndarray, shape (n_levels,)
        Levels.
    deviation : ndarray, shape (n_levels, n_projections)
        Observed share minus level.
    half_width : ndarray, shape (n_levels,)
        Half the width of the band.
    colour : str, default BLUE
        Colour of the curve.
    shown : int, default 0
        The projection that is drawn in colour.

    Returns
    -------
    matplotlib.axes.Axes
        The same Axes.
    """
    ax.fill_between(levels, -half_width, half_width, color=PALE, lw=0, zorder=0)
    ax.axhline(0.0, color=INK, lw=0.8, ls=(0, (4, 3)))
    others = np.delete(deviation, shown, axis=1)
    if others.shape[1]:
        ax.plot(levels, others, color=GREY, lw=0.6, alpha=0.8)
    ax.plot(levels, deviation[:, shown], color=colour, lw=1.6)
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    ax.yaxis.set_major_locator(MaxNLocator(4, symmetric=True))
    return ax


def strip_panel(ax: Axes, departures: np.ndarray, shown: int | None = None) -> Axes:
    """A row of cells per projection (K, cells), coloured by the departure in half-widths of the consistency band.

    Up to one half-width is inside the band. Errors of opposite sign stay apart: nothing is averaged over projections.
    """
    ax.pcolormesh(
        np.linspace(0.0, 1.0, departures.shape[1] + 1),
        np.arange(len(departures) + 1),
        np.clip(departures, -3.0, 3.0),
        cmap=OUTSIDE,
        norm=Normalize(-3.0, 3.0),
        edgecolors="white" if departures.shape[1] <= 20 else "none",
        linewidth=0.5,
        rasterized=departures.shape[1] > 20,
    )
    for line in range(1, len(departures)):
        ax.axhline(line, color="white", lw=0.6)
    if shown is not None:
        ax.plot([-0.02], [shown + 0.5], marker=5, ms=3.5, color=INK, clip_on=False)
    ax.set_xlim(0, 1)
    ax.set_ylim(len(departures), 0)
    ax.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)
    return ax


def diagnosis_figure(panels: Sequence[PreRankPanel], size: str, columns: int = 1) -> Figure:
    """The figure of a check: a block per pre-rank.

    The histogram and the coloured curve are those of the projection with the largest error. Below them stand all
    projections, a row of cells each. Every histogram has the same axis, and so has every reliability diagram.

    Parameters
    ----------
    panels : sequence of PreRankPanel
        What is drawn, as `Check.panels` computes it.
    size : str
        How many cases there are, in words.
    columns : int, default 1
        Columns of blocks, each five inches wide.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    ValueError
        If there are fewer blocks than columns.
    """
    if not 1 <= columns <= max(1, len(panels)):
        raise ValueError(f"columns is {columns}; give a whole number from 1 to {len(panels)}, the number of pre-ranks")
    top = highest_density(one for panel in panels for one in panel.projections)
    limit = widest_deviation(one for panel in panels for one in panel.projections)
    stacks = _stacks(panels, columns)
    under = textwrap.wrap(
        f"{size}. Flat histograms, and curves at zero, are calibrated; what leaves the grey band is evidence of an error. "
        "Axes are common to all.",
        int(18.5 * columns * _WIDTH),
    )
    key = (1.22 if any(len(panel.projections) > 1 for panel in panels) else 0.92) + 0.125 * len(under)
    tall = key + max(sum(_height(panel) for panel in stack) for stack in stacks)
    with quiet_style():
        figure = new_figure(columns * _WIDTH, tall)
        figure.set_layout_engine("none")
        _key(figure, panels, under, tall)
        for column, stack in enumerate(stacks):
            below = tall - key
            for panel in stack:
                _block(figure, panel, column * _WIDTH, below, tall, top, limit)
                below -= _height(panel)
    return figure


def _stacks(panels: Sequence[PreRankPanel], columns: int) -> list[list[PreRankPanel]]:
    """Neighbours in one column, cut so that the tallest column is as short as possible."""
    cuts = min(
        combinations(range(1, len(panels)), columns - 1),
        key=lambda cuts: max(sum(map(_height, stack)) for stack in _cut(panels, cuts)),
    )
    return _cut(panels, cuts)


def _cut(panels: Sequence[PreRankPanel], cuts: tuple[int, ...]) -> list[list[PreRankPanel]]:
    return [list(panels[start:stop]) for start, stop in pairwise((0, *cuts, len(panels)))]


def _rows(panel: PreRankPanel) -> list[int]:
    """The projections that have a row: all, or those with the largest errors in their own order."""
    sizes = [ratio(one.pce, one.expected_pce) for one in panel.projections]
    return sorted(np.argsort(sizes, kind="stable")[::-1][:ROWS].tolist()) if len(sizes) > 1 else []


def _words(panel: PreRankPanel) -> list[str]:
    """What to see: the sentence of a pre-rank that fails, or else its reading."""
    return textwrap.wrap(panel.sentence or panel.reading, 78, max_lines=4, placeholder=" …")


def _height(panel: PreRankPanel) -> float:
    rows = len(_rows(panel))
    return 0.24 + _LINE * (1 + len(_words(panel))) + 0.04 + _TALL + (0.08 + _ROW * rows if rows else 0.0) + _GAP


def _block(
    figure: Figure, panel: PreRankPanel, left: float, upper: float, tall: float, top: float, limit: float
) -> None:
    """The panels of one pre-rank in an area of five inches by `_height`, whose upper left corner is given in inches."""
    width = figure.get_figwidth()

    def axes(x: float, y: float, height: float) -> Axes:
        return figure.add_axes((x / width, (y - height) / tall, _PANEL / width, height / tall))

    def text(x: float, y: float, words: str, **style: object) -> None:
        figure.text(x / width, y / tall, words, va="top", parse_math=False, **style)  # type: ignore[arg-type]

    colour = ORANGE if panel.failed else BLUE
    worst = panel.projections[panel.worst]
    first, second = left + _LEFT, left + _LEFT + _PANEL + _BETWEEN
    times = ratio(panel.pce, panel.expected_pce)
    text(left + 0.1, upper, fitting_names([panel.name], 24)[0], color=colour, weight="bold", fontsize=10)
    numbers = f"PCE {panel.pce:.3f}, {times:.1f} × expected; adjusted p {p_text(panel.adjusted_p_value)}"
    text(second + _PANEL, upper - 0.02, numbers, fontsize=7.5, color=QUIET, ha="right")
    upper -= 0.2
    for words in _words(panel):
        text(left + 0.1, upper, words, fontsize=8.5, color=INK)
        upper -= _LINE
    upper -= 0.04
    text(first, upper, _drawn(panel), fontsize=7, color=QUIET)
    text(second, upper, "observed share − level", fontsize=7, color=QUIET)
    upper -= _LINE
    histogram, curve = axes(first, upper, _TALL), axes(second, upper, _TALL)
    edges = np.linspace(0.0, 1.0, len(worst.heights) + 1)
    histogram_panel(histogram, edges, worst.heights, panel.band, colour, top)
    deviations = np.stack([one.deviation for one in panel.projections], 1)
    reliability_panel(curve, panel.levels, deviations, worst.half_width, colour, panel.worst)
    curve.set_ylim(-limit, limit)
    rows = _rows(panel)
    if not rows:
        _titles(histogram, curve)
        return
    chosen = [panel.projections[k] for k in rows]
    upper -= _TALL + 0.08
    for ax in (histogram, curve):
        ax.tick_params(labelbottom=False)
    strip = strip_panel(
        axes(first, upper, _ROW * len(rows)),
        _bins(chosen, panel.band),
        rows.index(panel.worst),
    )
    strip.set_yticks(
        np.arange(len(rows)) + 0.5,
        fitting_names([one.name for one in chosen], _NAME),
        fontsize=6.5,
        parse_math=False,
    )
    strip.tick_params(axis="y", length=0, pad=6)
    _titles(strip, strip_panel(axes(second, upper, _ROW * len(rows)), _curves(chosen)))


def _titles(left: Axes, right: Axes) -> None:
    """What the horizontal axes are."""
    left.set_xlabel("place of the outcome", fontsize=7, color=QUIET, labelpad=1)
    right.set_xlabel("level", fontsize=7, color=QUIET, labelpad=1)


def _bins(chosen: Sequence[ProjectionPanel], band: tuple[float, float]) -> np.ndarray:
    return np.stack([departures(one.heights, band) for one in chosen])


def _curves(chosen: Sequence[ProjectionPanel]) -> np.ndarray:
    return np.stack([one.deviation / np.maximum(one.half_width, 1e-12) for one in chosen])


def _drawn(panel: PreRankPanel) -> str:
    count = len(panel.projections)
    bars = f", {len(panel.projections[0].heights)} ranks" if panel.by_rank else ""
    if count == 1:
        return f"rank histogram{bars}"
    worst = fitting_names([one.name for one in panel.projections], 14)[panel.worst]
    return f"{worst}, worst of {count}" + (f" (rows: {ROWS})" if count > ROWS else "")


def _key(figure: Figure, panels: Sequence[PreRankPanel], under: Sequence[str], tall: float) -> None:
    """What the figure shows and what its colours mean."""
    width = figure.get_figwidth()
    title = "Rank histograms and reliability diagrams"
    figure.text(0.1 / width, 1 - 0.1 / tall, title, va="top", fontsize=11, weight="bold", color=INK)
    figure.text(0.1 / width, 1 - 0.32 / tall, "\n".join(under), va="top", fontsize=7.5, color=QUIET, parse_math=False)
    rows = [
        Patch(color=PURPLE, lw=0, label="row: below the band"),
        Patch(color="#EEF0F2", lw=0, label="row: inside"),
        Patch(color=GREEN, lw=0, label="row: above"),
        Line2D([], [], color=GREY, lw=0.9, label="other projections"),
    ]
    entries: list[Patch | Line2D] = [
        Patch(color=ORANGE, lw=0, label="miscalibrated (adjusted p ≤ 0.05)"),
        Patch(color=BLUE, lw=0, label="no evidence of it"),
        Patch(color=PALE, lw=0, label="95 % consistency band"),
        Line2D([], [], color=INK, lw=0.8, ls=(0, (4, 3)), label="calibrated"),
        *(rows if any(len(panel.projections) > 1 for panel in panels) else ()),
    ]
    figure.legend(
        handles=entries,
        loc="upper left",
        bbox_to_anchor=(0.1 / width, 1 - (0.4 + 0.125 * len(under)) / tall),
        ncols=2,
        fontsize=7.5,
        handlelength=1.4,
        handleheight=0.8,
        labelspacing=0.35,
        columnspacing=1.6,
        borderpad=0.0,
        borderaxespad=0.0,
    )
