"""A table of numbers as colours, with the numbers in it where there is room."""

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from prerank.plotting.panels import CrossedHeat, GroupHeat, fitting_names
from prerank.plotting.style import BLUE, INK, QUIET, new_figure, quiet_style

_MOST_ROWS = 150
_DARKEST = 10.0  # PCE over expected

# One hue from nearly white to the project's blue: lightness alone carries the number, so every reader sees the order.
_STEPS = ["#F2F7FA", "#BBD8EA", BLUE, "#00324F"]  # the lightest is no white: a cell of zero is seen on paper
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


def group_figure(heat: GroupHeat, verdict: str) -> Figure:
    """A row per group and a column per pre-rank: PCE over expected, a mark where it fails, the smallest p-values on top."""
    chosen = heat.order[:_MOST_ROWS]
    ratios, failed = heat.ratios[chosen], heat.failed[chosen]
    rows = fitting_names([heat.groups[g] for g in chosen], 40)
    left, tall = 0.35 + 0.062 * max(map(len, rows)), 0.22 * len(rows)
    right = 0.45 if len(heat.preranks) > 3 else 0.1  # for the last slanted name
    width = max(5.0, left + 0.62 * len(heat.preranks) + right)
    lines = textwrap.wrap(verdict, int(15 * width), max_lines=4, placeholder=" …")
    slanted = len(heat.preranks) > 3
    head = (1.15 if slanted else 0.85) + 0.16 * len(lines)
    with quiet_style():
        figure = new_figure(width, head + tall + 0.15)
        figure.set_layout_engine("none")
        whole = figure.get_figheight()
        ax = figure.add_axes((left / width, 0.15 / whole, 1 - (left + right) / width, tall / whole))
        text = [[_cell(*cell) for cell in zip(*row, strict=True)] for row in zip(ratios, failed, strict=True)]
        shade = np.log(np.clip(ratios, 1.0, _DARKEST)) / np.log(_DARKEST)
        heatmap(ax, shade, rows, fitting_names(heat.preranks, 12), text, font_size=7.5)
        ax.xaxis.tick_top()
        ax.tick_params(axis="x", labelrotation=30 if slanted else 0, labelsize=8)
        for label in (*ax.get_xticklabels(), *ax.get_yticklabels()):
            label.set_parse_math(False)
        for label in ax.get_xticklabels():
            label.set_horizontalalignment("left" if slanted else "center")
        figure.text(0.1 / width, 1 - 0.1 / whole, "Where it fails", va="top", fontsize=11, weight="bold", color=INK)
        note = "PCE over the PCE expected under calibration; ▲ fails (adjusted p ≤ 0.05)"
        if len(chosen) < len(heat.groups):
            note += f"; the {len(chosen)} of {len(heat.groups):,} groups with the smallest p"
        under = "\n".join([*lines, note])
        figure.text(0.1 / width, 1 - 0.33 / whole, under, va="top", fontsize=8, color=QUIET, parse_math=False)
    return figure


def crossed_figure(heat: CrossedHeat, verdict: str) -> Figure:
    """A table of two labels: the largest PCE over expected of each group, a mark where the group fails."""
    rows, columns = fitting_names(heat.rows, 40), fitting_names(heat.columns, 24)
    left, upper = 0.5 + 0.065 * max(map(len, rows)), 0.3 + 0.05 * max(map(len, columns))
    tall, wide = 0.22 * len(rows), 0.5 * len(columns)
    width = max(5.0, left + wide + 0.4)
    lines = textwrap.wrap(verdict, int(15 * width), max_lines=4, placeholder=" …")
    note = "Largest PCE of a pre-rank over the PCE expected under calibration; ▲ fails (adjusted p ≤ 0.05)"
    lines += textwrap.wrap(note, int(15 * width))
    head = 0.45 + 0.16 * len(lines) + upper
    with quiet_style():
        figure = new_figure(width, head + tall + 0.15)
        figure.set_layout_engine("none")
        whole = figure.get_figheight()
        ax = figure.add_axes((left / width, 0.15 / whole, wide / width, tall / whole))
        text = [[_cell(*cell) for cell in zip(*row, strict=True)] for row in zip(heat.ratios, heat.failed, strict=True)]
        shade = np.log(np.clip(heat.ratios, 1.0, _DARKEST)) / np.log(_DARKEST)
        heatmap(ax, shade, rows, columns, text, font_size=7.5)
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        ax.set_xlabel(heat.titles[1], parse_math=False)
        ax.set_ylabel(heat.titles[0], parse_math=False)
        ax.tick_params(axis="x", labelrotation=45, labelsize=8)
        for label in (*ax.get_xticklabels(), *ax.get_yticklabels()):
            label.set_parse_math(False)
        for label in ax.get_xticklabels():
            label.set_horizontalalignment("left")
        figure.text(0.1 / width, 1 - 0.1 / whole, "Where it fails", va="top", fontsize=11, weight="bold", color=INK)
        figure.text(
            0.1 / width, 1 - 0.33 / whole, "\n".join(lines), va="top", fontsize=8, color=QUIET, parse_math=False
        )
    return figure


def _cell(value: float, failed: bool) -> str:
    return ("–" if not np.isfinite(value) else f"{value:.1f}") + (" ▲" if failed else "")
