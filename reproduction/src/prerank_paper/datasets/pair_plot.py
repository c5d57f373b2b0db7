"""The pair plot of a table's targets: each alone on the diagonal, every two below it, their rank correlation above."""

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from prerank.plotting.style import BLUE, GREY, INK, ORANGE, PALE, plain
from prerank_paper.datasets.pairs import PairCounts

_DENSITY = LinearSegmentedColormap.from_list("density", ["#F2F6FA", "#9CC5E3", BLUE, "#00304D"])


def pair_plot(figure: Figure, counts: PairCounts, title: str = "") -> Figure:
    """Draw the counts of every target and pair of targets on an empty figure.

    Empty cells stay white; darker cells hold more rows (square-root scale, or a dense centre would hide the rest).
    """
    size = len(counts.names)
    axes = figure.subplots(size, size, squeeze=False)
    for i in range(size):
        for j in range(size):
            if i == j:
                _single(axes[i, j], counts, i)
            elif i > j:
                _pair(axes[i, j], counts, i, j)
            else:
                _correlation(axes[i, j], float(counts.correlations[i, j]))
            _label(axes[i, j], counts, i, j)
    figure.align_ylabels(axes[:, 0])
    figure.align_xlabels(axes[-1, :])
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold", color=INK)
    return figure


def _single(ax: Axes, counts: PairCounts, i: int) -> None:
    ax.stairs(counts.singles[i], counts.edges[i], fill=True, color=PALE)
    ax.stairs(counts.singles[i], counts.edges[i], color=BLUE, linewidth=1.2)
    ax.set_xlim(counts.edges[i][0], counts.edges[i][-1])
    ax.set_ylim(bottom=0)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)


def _pair(ax: Axes, counts: PairCounts, i: int, j: int) -> None:
    cells = counts.pairs[i, j].T  # drawn with target i upwards
    ax.pcolormesh(
        counts.edges[j],
        counts.edges[i],
        [[value or float("nan") for value in row] for row in cells],
        cmap=_DENSITY,
        norm=PowerNorm(0.5, vmin=0, vmax=max(float(cells.max()), 1.0)),
        rasterized=True,
    )


def _correlation(ax: Axes, value: float) -> None:
    plain(ax)
    colour = GREY if abs(value) < 0.1 else BLUE if value > 0 else ORANGE
    shown = f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")
    ax.text(0.5, 0.5, shown, transform=ax.transAxes, ha="center", va="center", color=colour, fontsize=12)


def _label(ax: Axes, counts: PairCounts, i: int, j: int) -> None:
    last = len(counts.names) - 1
    if i < j:
        if i == 0 and j == last:
            ax.set_title("rank correlation", loc="right", fontsize=8, color=GREY, fontweight="normal")
        return
    ax.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(_short))
    if i == last:
        ax.set_xlabel(_broken(counts.names[j]))
    else:
        ax.tick_params(labelbottom=False)
    if i != j:
        ax.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
        ax.yaxis.set_major_formatter(FuncFormatter(_short))
        if j > 0:
            ax.tick_params(labelleft=False)
    if j == 0:
        ax.set_ylabel(_broken(counts.names[i]))


def _short(value: float, _position: int | None = None) -> str:
    """A tick label of few characters: 15,000 is 15k."""
    factor, unit = 1.0, ""
    if abs(value) >= 1e4:
        factor, unit = (1e9, "G") if abs(value) >= 1e9 else (1e6, "M") if abs(value) >= 1e6 else (1e3, "k")
    return f"{value / factor:g}{unit}".replace("-", "\N{MINUS SIGN}")


def _broken(name: str, width: int = 14) -> str:
    """A long name on several lines, broken after an underscore or a blank where it has one."""
    lines = [""]
    for word in name.replace("_", "_ ").split():
        joined = lines[-1] + ("" if lines[-1].endswith("_") or not lines[-1] else " ") + word
        if lines[-1] and len(joined) > width:
            lines.append(word)
        else:
            lines[-1] = joined
    return "\n".join(lines)
