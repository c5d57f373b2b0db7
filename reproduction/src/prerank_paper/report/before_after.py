"""Before and after the penalty, over datasets: PCE as it was and is, scores by how much they changed."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from prerank.plotting import new_figure, quiet_style
from prerank.plotting.style import BLUE, GREY, INK, ORANGE
from prerank_paper.benchmark.plan import PRERANKS
from prerank_paper.report.figures import hatch_of, heading
from prerank_paper.report.summaries import Protocol

_ENOUGH_FOR_A_BOX = 5
_DASHES = (0, (4, 2))


def before_after_figure(
    protocol: Protocol, before: pd.DataFrame, after: pd.DataFrame, price: pd.DataFrame, expected: float, strength: str
) -> Figure:
    """PCE before and after by pre-rank (cells of `summarise`), and the cost in NLL and energy score (of `findings.price`).

    A box needs five datasets; fewer are dots alone. What lies far outside the boxes is drawn at the edge and counted.
    """
    with quiet_style():
        figure = new_figure(10.5, 3.9)
        axes = figure.subplots(1, 3)
        for place, name in enumerate(PRERANKS):
            _box(axes[0], _values(before, name), place - 0.2, 0.34, ORANGE, protocol)
            _box(axes[0], _values(after, name), place + 0.2, 0.34, BLUE, protocol)
        axes[0].axhline(expected, color=GREY, lw=0.9, ls=_DASHES, zorder=0)
        axes[0].set_ylim(0.0, 1.06 * max(before["value"].max(), after["value"].max()))
        axes[0].set_title("PCE")
        for ax, column, title, scale in (
            (axes[1], "nll", "change of NLL, nats", 1.0),
            (axes[2], "energy_score", "change of energy score, %", 100.0),
        ):
            _price_panel(ax, price, column, scale, protocol)
            ax.set_title(title)
        counts = {name: len(_values(after, name)) for name in PRERANKS}
        labels = [name if counts[name] == max(counts.values()) else f"{name} ({counts[name]})" for name in PRERANKS]
        for ax in axes:
            ax.set_xticks(range(len(PRERANKS)), labels, rotation=40, ha="right", rotation_mode="anchor")
            ax.tick_params(axis="x", length=0)
            ax.set_xlim(-0.6, len(PRERANKS) - 0.4)
        hatch = hatch_of(protocol)
        handles = [
            Patch(facecolor=ORANGE, alpha=0.55, hatch=hatch, edgecolor=INK, label="before: no penalty"),
            Patch(facecolor=BLUE, alpha=0.55, hatch=hatch, edgecolor=INK, label=f"after: {strength}, own pre-rank"),
            Line2D([], [], color=GREY, lw=0.9, ls=_DASHES, label="expected under calibration (mean); no change"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        how = "exactly" if hatch is None else "as published"
        heading(
            figure,
            f"Before and after the penalty at {strength}, trained and evaluated {how}",
            f"A dot is one of {max(counts.values())} datasets (in brackets where there are fewer); scores: the median seed, "
            "above zero is worse; triangles: so many beyond the axis",
        )
        return figure


def _values(cells: pd.DataFrame, prerank: str, column: str = "value") -> np.ndarray:
    return cells.loc[cells["prerank"] == prerank, column].dropna().to_numpy(dtype=float)


def _price_panel(ax: Axes, price: pd.DataFrame, column: str, scale: float, protocol: Protocol) -> None:
    """Changes by pre-rank; the axis holds the middle of them, and says what lies beyond."""
    everything = scale * price[column].dropna()
    low, high = _middle(everything)
    for place, name in enumerate(PRERANKS):
        values = scale * _values(price, name, column)
        inside = values[(values >= low) & (values <= high)]
        _box(ax, inside, place, 0.5, BLUE, protocol)
        for edge, beyond, mark in ((high, values > high, "^"), (low, values < low, "v")):
            if beyond.any():
                ax.plot([place], [edge], mark, color=BLUE, ms=5, mec=INK, mew=0.4, clip_on=False, zorder=4)
                ax.annotate(
                    f"{beyond.sum()}", (place, edge), (4, 0), textcoords="offset points", fontsize=7.5, va="center"
                )
    ax.axhline(0.0, color=GREY, lw=0.9, ls=_DASHES, zorder=0)
    ax.set_ylim(low, high)


def _middle(values: pd.Series) -> tuple[float, float]:
    """Limits that hold the boxes and their neighbourhood: three interquartile ranges around them, or all values."""
    lower, upper = float(values.quantile(0.25)), float(values.quantile(0.75))
    reach = 3 * max(upper - lower, 1e-9)
    low, high = max(lower - reach, float(values.min())), min(upper + reach, float(values.max()))
    margin = 0.06 * max(high - low, 1e-9)
    return min(low, 0.0) - margin, max(high, 0.0) + margin


def _box(ax: Axes, values: np.ndarray, place: float, width: float, colour: str, protocol: Protocol) -> None:
    if len(values) >= _ENOUGH_FOR_A_BOX:
        ax.boxplot(
            [values],
            positions=[place],
            widths=width,
            patch_artist=True,
            showfliers=False,
            manage_ticks=False,
            boxprops={"facecolor": colour, "alpha": 0.55, "linewidth": 0.7, "hatch": hatch_of(protocol)},
            medianprops={"color": INK, "linewidth": 1.3},
            whiskerprops={"color": INK, "linewidth": 0.7},
            capprops={"color": INK, "linewidth": 0.7},
        )
    spread = np.linspace(-0.25, 0.25, len(values)) * width if len(values) > 1 else np.zeros(len(values))
    ax.scatter(place + spread, values, s=9, color=colour, edgecolors=INK, lw=0.4, zorder=3)
