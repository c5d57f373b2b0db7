"""Figures of the benchmark by dataset: null distributions with the observed PCE, and reliability diagrams."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from prerank.calibration import Band, PCENull
from prerank.reporting import BLUE, GREY, INK, ORANGE, new_figure, quiet_style
from prerank.studies.benchmark.figures import heading
from prerank.studies.benchmark.plan import NONE, PRERANKS
from prerank.studies.benchmark.summaries import Protocol
from prerank.studies.protocols import AS_PUBLISHED, EXACT

RELIABILITY_DATASETS = ("births2", "air", "blogdata", "house", "households")
"""The datasets whose reliability the paper shows."""

_COLUMNS = 6


def null_figure(protocol: Protocol, prerank: str, seeds: pd.DataFrame, nulls: Mapping[str, PCENull]) -> Figure:
    """The null distribution of the PCE of every dataset, with the baseline's: a line for the mean, a tick for each seed.

    `seeds` are the rows of one pre-rank from `summaries.baseline`.
    """
    with quiet_style():
        n_rows = math.ceil(len(nulls) / _COLUMNS)
        n_columns = min(_COLUMNS, len(nulls))
        figure = new_figure(max(5.2, 0.4 + 1.75 * n_columns), 1.25 + 1.35 * n_rows)
        axes = figure.subplots(n_rows, n_columns, squeeze=False)
        for ax, (dataset, null) in zip(axes.flat, nulls.items(), strict=False):
            values = seeds.loc[seeds["dataset"] == dataset, "value"].dropna().to_numpy()
            ax.stairs(*np.histogram(null.sample, bins=60), fill=True, color=GREY, alpha=0.75, lw=0)
            ax.set_title(dataset)
            ax.set_yticks([])
            ax.spines["left"].set_visible(False)
            top = max(null.quantile(0.9995), float(values.max()) if len(values) else 0.0)
            ax.set_xlim(0.0, 1.08 * top)
            ax.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            if len(values):
                ax.plot(values, np.zeros(len(values)), "|", color=ORANGE, ms=9, mew=1.0, clip_on=False)
                ax.axvline(float(values.mean()), color=ORANGE, lw=1.5, ls=_dashes(protocol))
            else:
                same = prerank == "dependency" and protocol.evaluation == EXACT
                ax.text(
                    0.97,
                    0.9,
                    "= scale" if same else "no model",
                    transform=ax.transAxes,
                    ha="right",
                    va="top",
                    fontsize=8,
                )
        for ax in list(axes.flat)[len(nulls) :]:
            ax.set_visible(False)
        handles = [
            Patch(color=GREY, alpha=0.75, lw=0, label="PCE under calibration (null distribution)"),
            Line2D([], [], color=ORANGE, lw=1.5, ls=_dashes(protocol), label="baseline, mean over seeds"),
            Line2D([], [], color=ORANGE, ls="", marker="|", ms=9, label="each seed"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        how = "whole test set, exact PITs" if protocol.evaluation == EXACT else "as published, mean over batches of 256"
        heading(
            figure,
            f"PCE of {prerank}: under calibration, and of the baseline",
            f"{how}; the null is that of one projection",
        )
        return figure


def reliability_figure(
    protocol: Protocol, dataset: str, curves: pd.DataFrame, band: Band, margins: Sequence[str]
) -> Figure:
    """Reliability diagrams before and after: by pre-rank (top row), by margin (bottom row), with consistency bands.

    `curves` are the dataset's records of this evaluation, baselines and models of this training. A line is one
    projection, averaged over seeds; the band is for the test set of a single seed.
    """
    mean = curves.groupby(["penalty", "prerank", "projection", "level"], sort=False)["frequency"].mean().reset_index()
    n_columns = max(len(PRERANKS), len(margins))
    with quiet_style():
        figure = new_figure(1.55 * n_columns + 0.4, 4.6)
        axes = figure.subplots(2, n_columns, sharex=True, sharey=True)
        for ax in axes.flat:
            ax.set_visible(False)
        for ax, prerank in zip(axes[0], PRERANKS, strict=False):
            _reliability(ax, mean[mean["prerank"] == prerank], prerank, band, protocol)
            ax.set_title(prerank)
        marginal = mean[mean["prerank"] == "marginal"]
        for number, (ax, name) in enumerate(zip(axes[1], margins, strict=False), start=1):
            _reliability(ax, marginal[marginal["projection"] == number], "marginal", band, protocol)
            ax.set_title(name)
        axes[0, 0].set_ylabel("observed share")
        axes[1, 0].set_ylabel("observed share")
        dashes = _dashes(protocol)
        handles = [
            Line2D([], [], color=ORANGE, lw=1.4, ls=dashes, label="before: no penalty"),
            Line2D(
                [], [], color=BLUE, lw=1.4, ls=dashes, label="after: strength 10 on that pre-rank (bottom: on marginal)"
            ),
            Patch(color=GREY, alpha=0.35, lw=0, label="95 % consistency band, one test set"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        how = "exactly" if protocol.evaluation == EXACT else "as published"
        heading(
            figure,
            f"Reliability diagrams of {dataset}, trained and evaluated {how}",
            "Top: by pre-rank. Bottom: by target. A line is one projection, averaged over seeds; x: level of the forecast",
        )
        return figure


def _dashes(protocol: Protocol) -> str | tuple[int, tuple[int, int]]:
    return (0, (4, 2)) if protocol.evaluation == AS_PUBLISHED else "-"


def _reliability(ax: Axes, curves: pd.DataFrame, penalty: str, band: Band, protocol: Protocol) -> None:
    ax.set_visible(True)
    ax.fill_between(band.levels.numpy(), band.lower.numpy(), band.upper.numpy(), color=GREY, alpha=0.35, lw=0)
    for name, colour in ((NONE, ORANGE), (penalty, BLUE)):
        for _, line in curves[curves["penalty"] == name].groupby("projection"):
            ax.plot(line["level"], line["frequency"], color=colour, lw=1.1, alpha=0.85, ls=_dashes(protocol))
    if curves.empty:
        same = penalty == "dependency" and protocol.evaluation == EXACT
        ax.text(0.5, 0.2, "= scale" if same else "no model", ha="center", fontsize=8, color=INK)
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(0.0, 1.0)
    ax.set_xticks([0.0, 0.5, 1.0], ["0", "½", "1"])
    ax.set_yticks([0.0, 0.5, 1.0], ["0", "½", "1"])
    ax.set_aspect("equal")
    ax.tick_params(labelbottom=True)
