"""Figures of the benchmark by dataset: the PCE under calibration beside the observed one, and reliability diagrams."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from prerank.calibration import Band
from prerank.plotting import new_figure, quiet_style
from prerank.plotting.style import BLUE, GREY, INK, ORANGE, PALE
from prerank_paper.benchmark.plan import NONE, PRERANKS
from prerank_paper.protocols import AS_PUBLISHED, EXACT
from prerank_paper.report.figures import heading
from prerank_paper.report.published_null import CalibratedRange
from prerank_paper.report.summaries import Protocol

RELIABILITY_DATASETS = ("births2", "air", "blogdata", "house", "households")
"""The datasets whose reliability the paper shows."""


def null_figure(
    protocol: Protocol,
    seeds: pd.DataFrame,
    expected: Mapping[str, float],
    ranges: Mapping[tuple[str, str], CalibratedRange],
) -> Figure:
    """Observed over expected PCE of every baseline, on one scale, with the range that chance gives a calibrated forecast.

    `seeds` are the rows of `summaries.baseline`, `expected` PCEs by dataset, `ranges` by dataset and pre-rank. A mean over
    several projections has a range between that of independent projections (dark) and of identical ones (pale).
    """
    datasets = list(expected)
    place = {name: position for position, name in enumerate(datasets)}
    with quiet_style():
        figure = new_figure(11.5, 1.7 + 0.27 * len(datasets))
        axes = figure.subplots(1, len(PRERANKS), sharex=True, sharey=True)
        for ax, prerank in zip(axes, PRERANKS, strict=True):
            for dataset in datasets:
                _null_range(ax, place[dataset], ranges[dataset, prerank])
            own = seeds[seeds["prerank"] == prerank]
            means = own["dataset"].map(dict(expected)).astype(float)
            y = own["dataset"].map(place).to_numpy(dtype=float)
            ax.plot(own["value"] / means, y, "|", color=ORANGE, ms=7, mew=1.1, zorder=3)
            ratio = (own["value"] / means).groupby(own["dataset"]).mean()
            marker = "D" if protocol.evaluation == AS_PUBLISHED else "o"
            ax.plot(ratio, ratio.index.map(place), marker, color=ORANGE, mec=INK, mew=0.5, ms=4.5, zorder=4)
            for missing in [name for name in datasets if name not in set(own["dataset"])]:
                same = prerank == "dependency" and protocol.evaluation == EXACT
                ax.text(1.0, place[missing], "= scale" if same else "none", fontsize=7, va="center", ha="center")
            ax.set_title(prerank)
            ax.tick_params(axis="y", length=0)
            ax.set_xscale("log")
            ax.set_xticks([0.5, 1, 2, 5, 10, 20], ["½", "1", "2", "5", "10", "20"])
            ax.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
            ax.grid(axis="x", color=PALE, lw=0.6)
            ax.set_axisbelow(True)
        axes[0].set_yticks(range(len(datasets)), datasets)
        axes[0].set_ylim(len(datasets) - 0.4, -0.6)
        axes[len(axes) // 2].set_xlabel("PCE over the PCE expected under calibration")
        handles = [
            Patch(color=GREY, alpha=0.75, lw=0, label="95 % range of a calibrated forecast"),
            Patch(color=GREY, alpha=0.3, lw=0, label="the same if all projections agreed"),
            Line2D([], [], color=ORANGE, marker=marker, mec=INK, ls="", ms=5, label="baseline, mean over seeds"),
            Line2D([], [], color=ORANGE, ls="", marker="|", ms=9, label="each seed"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        how = "whole test set, exact PITs" if protocol.evaluation == EXACT else "as published, mean over batches of 256"
        heading(figure, "Is the baseline's PCE more than chance?", f"{how}; to the right of the grey it is")
        return figure


def _null_range(ax: Axes, place: int, calibrated: CalibratedRange) -> None:
    for (low, high), alpha in ((calibrated.single, 0.3), (calibrated.mean, 0.75)):
        ax.barh(place, high - low, 0.8, left=low, color=GREY, alpha=alpha, lw=0)


def reliability_figure(protocol: Protocol, dataset: str, curves: pd.DataFrame, band: Band) -> Figure:
    """How far observed shares are from the level, before and after: median and range over seeds and projections.

    `curves` are the dataset's records of this evaluation, baselines and models of this training. Top: by pre-rank. Bottom,
    where they were kept: the margins of the model that was trained for that pre-rank.
    """
    n_rows = 2 if has_margins(curves) else 1
    with quiet_style():
        figure = new_figure(1.62 * len(PRERANKS) + 0.4, 1.35 + 1.75 * n_rows)
        axes = figure.subplots(n_rows, len(PRERANKS), sharex=True, sharey=True, squeeze=False)
        for ax, prerank in zip(axes[0], PRERANKS, strict=True):
            _deviations(ax, curves[curves["prerank"] == prerank], prerank, band, protocol)
            ax.set_title(prerank)
        if n_rows == 2:
            marginal = curves[curves["prerank"] == "marginal"]
            for ax, prerank in zip(axes[1], PRERANKS, strict=True):
                _deviations(ax, marginal, prerank, band, protocol)
        for row, words in zip(axes, ("own pre-rank", "margins of that model"), strict=False):
            row[0].set_ylabel(f"{words}\nobserved − level")
        axes[-1, len(PRERANKS) // 2].set_xlabel("level")
        shown = curves["frequency"] - curves["level"]
        limit = 1.08 * max(0.04, float(shown.abs().max()))
        axes[0, 0].set_ylim(-limit, limit)
        handles = [
            Line2D([], [], color=ORANGE, lw=1.4, ls=_dashes(protocol), label="before: no penalty"),
            Line2D([], [], color=BLUE, lw=1.4, ls=_dashes(protocol), label="after: strength 10 on that pre-rank"),
            Patch(color=GREY, alpha=0.35, lw=0, label="95 % consistency band of one test set"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        how = "exactly" if protocol.evaluation == EXACT else "as published"
        heading(
            figure,
            f"Reliability of {dataset}, trained and evaluated {how}",
            "Deviation from the diagonal: median and range (shade) over seeds and projections. Calibrated: in the grey",
        )
        return figure


def has_margins(curves: pd.DataFrame) -> bool:
    """Whether the margins of models that were trained for another pre-rank were kept."""
    return bool(((curves["prerank"] == "marginal") & ~curves["penalty"].isin([NONE, "marginal"])).any())


def _dashes(protocol: Protocol) -> str | tuple[int, tuple[int, int]]:
    return (0, (4, 2)) if protocol.evaluation == AS_PUBLISHED else "-"


def _deviations(ax: Axes, curves: pd.DataFrame, penalty: str, band: Band, protocol: Protocol) -> None:
    levels = band.levels.numpy()
    ax.fill_between(levels, band.lower.numpy() - levels, band.upper.numpy() - levels, color=GREY, alpha=0.35, lw=0)
    ax.axhline(0.0, color=GREY, lw=0.8, zorder=1)
    found: Sequence[str] = [name for name in (NONE, penalty) if (curves["penalty"] == name).any()]
    for name in found:
        colour = ORANGE if name == NONE else BLUE
        shown = curves[curves["penalty"] == name]
        by_level = (shown["frequency"] - shown["level"]).groupby(shown["level"])
        low, middle, high = by_level.min(), by_level.median(), by_level.max()
        ax.fill_between(low.index, low, high, color=colour, alpha=0.22, lw=0)
        ax.plot(middle.index, middle, color=colour, lw=1.4, ls=_dashes(protocol))
    if not found:
        same = penalty == "dependency" and protocol.evaluation == EXACT
        ax.text(0.5, 0.0, "= scale" if same else "no model", ha="center", va="bottom", fontsize=8, color=INK)
    ax.set_xlim(0.0, 1.0)
    ax.set_xticks([0.0, 0.5, 1.0], ["0", "½", "1"])
    ax.tick_params(labelbottom=True)
