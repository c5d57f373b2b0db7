"""Figures of the benchmark over all cells. They take cell statistics and draw; before is orange, after is blue.

What was evaluated as published is hatched, so that the two protocols differ in print as well.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from prerank.plotting import new_figure, quiet_style
from prerank.plotting.style import BLUE, CYCLE, GREY, INK, ORANGE, PALE
from prerank_paper.benchmark.plan import PRERANKS
from prerank_paper.protocols import AS_PUBLISHED
from prerank_paper.report.summaries import CELL, Protocol

MARKERS = dict(zip(PRERANKS, ("o", "s", "^", "D", "v", "P", "X"), strict=True))
_ALONG_THE_DIAGONAL: dict[str, Any] = {"rotation": 45, "rotation_mode": "anchor", "transform_rotates_text": True}
COLOURS = dict(zip(PRERANKS, CYCLE, strict=True))


def hatch_of(protocol: Protocol) -> str | None:
    """The hatching of bars and boxes of a protocol."""
    return "//////" if protocol.evaluation == AS_PUBLISHED else None


def heading(figure: Figure, title: str, subtitle: str) -> None:
    """A bold title and a plain line under it, to the left."""
    figure.suptitle(f"{title}\n", x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    figure.text(0.01, 0.985 - 0.19 / figure.get_figheight(), subtitle, fontsize=8.5, ha="left", va="top")


def reference_figure(protocol: Protocol, cells: pd.DataFrame, datasets: Sequence[str]) -> Figure:
    """Baseline PCE of every dataset beside that expected under calibration, a panel for each pre-rank."""
    with quiet_style():
        figure = new_figure(11.5, 1.5 + 0.25 * len(datasets))
        axes = figure.subplots(1, len(PRERANKS), sharey=True, sharex=True)
        place = {name: position for position, name in enumerate(datasets)}
        for ax, prerank in zip(axes, PRERANKS, strict=True):
            own = cells[cells["prerank"] == prerank]
            y = own["dataset"].map(place).to_numpy(dtype=float)
            ax.barh(
                y - 0.2, own["value"], 0.4, color=ORANGE, alpha=0.8, hatch=hatch_of(protocol), edgecolor="white", lw=0
            )
            ax.errorbar(own["value"], y - 0.2, xerr=own["standard_error"].fillna(0.0), fmt="none", color=INK, lw=0.8)
            ax.barh(y + 0.2, own["expected_pce"], 0.4, color=GREY)
            for missing in [name for name in datasets if name not in set(own["dataset"])]:
                ax.text(
                    0.004,
                    place[missing],
                    "= scale" if prerank == "dependency" else "none",
                    fontsize=7,
                    va="center",
                    color=GREY,
                )
            ax.set_title(prerank)
            ax.tick_params(axis="y", length=0)
            ax.set_xlabel("PCE")
        axes[0].set_yticks(range(len(datasets)), datasets)
        axes[0].set_ylim(len(datasets) - 0.4, -0.6)
        axes[0].set_xlim(left=0.0)
        handles = [
            Patch(
                facecolor=ORANGE,
                alpha=0.8,
                hatch=hatch_of(protocol),
                edgecolor="white",
                label="baseline, ± standard error over seeds",
            ),
            Patch(color=GREY, label="expected under calibration with as many test cases"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
        how = "whole test set, exact PITs" if hatch_of(protocol) is None else "as published, per batch of 256"
        heading(figure, "Baseline PCE, and PCE expected under calibration", how)
        return figure


def story_figure(cells: pd.DataFrame) -> Figure:
    """Baseline PCE evaluated exactly against as published; `cells` come from `findings.overstated`.

    Filled marks are miscalibrated by the exact test. Crosses are the PCEs expected under calibration, by dataset.
    """
    with quiet_style():
        figure = new_figure(7.6, 5.4)
        ax = figure.subplots()
        _both_evaluations(ax, cells)
        handles = [
            Line2D([], [], ls="", marker=MARKERS[name], color=COLOURS[name], ms=6, label=name) for name in PRERANKS
        ]
        handles += [
            Line2D([], [], ls="", marker="o", mfc=INK, mec=INK, ms=6, label="exact test rejects (5 %)"),
            Line2D([], [], ls="", marker="o", mfc="white", mec=INK, ms=6, label="it does not"),
            Line2D(
                [], [], ls="", marker="+", color=GREY, ms=8, mew=1.4, label="expected under\ncalibration, by dataset"
            ),
        ]
        figure.legend(handles=handles, loc="outside right center")
        called, above = int(cells["called_miscalibrated"].sum()), int(cells["above_null"].sum())
        heading(
            figure,
            "Exact versus as-published evaluation of the same models",
            f"Above the 95 % quantile under calibration: {called} of {len(cells)} baseline cells as published, "
            f"{above} exactly",
        )
        return figure


def _both_evaluations(ax: Axes, cells: pd.DataFrame) -> None:
    """A mark per cell on logarithmic axes, the diagonal, and what is expected under calibration."""
    nulls = cells.drop_duplicates("dataset")
    low = 0.7 * min(cells["exact"].min(), cells["exact_null"].min())
    high = 1.5 * max(cells["published"].max(), cells["exact"].max())
    ax.plot([low, high], [low, high], color=GREY, lw=0.9, zorder=0)
    least = float(cells["published_null"].min())
    ax.text(0.5 * high, 0.53 * high, "equal", color=GREY, fontsize=8, **_ALONG_THE_DIAGONAL)
    ax.axhspan(low, least, color=PALE, lw=0, zorder=0)
    ax.text(
        0.97 * high,
        0.96 * least,
        "less than expected under calibration",
        color=GREY,
        fontsize=8,
        ha="right",
        va="top",
    )
    ax.scatter(nulls["exact_null"], nulls["published_null"], marker="+", s=60, color=GREY, lw=1.4, zorder=2)
    for prerank in PRERANKS:
        own = cells[cells["prerank"] == prerank]
        faces = [COLOURS[prerank] if wrong else "white" for wrong in own["is_miscalibrated"]]
        ax.scatter(
            own["exact"],
            own["published"],
            marker=MARKERS[prerank],
            s=34,
            c=faces,
            edgecolors=COLOURS[prerank],
            lw=1.1,
            zorder=3,
        )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(0.75 * least, high)
    _plain_numbers(ax)
    ax.set_xlabel("PCE, exact: whole test set")
    ax.set_ylabel("PCE, as published: per batch of 256")


def trained_figure(before: pd.DataFrame, exactly: pd.DataFrame, published: pd.DataFrame) -> Figure:
    """Exact PCE of every cell before and after a penalty, trained exactly (left) and as published (right).

    Cells come from `summaries.summarise`. Above the line a model is less calibrated than its baseline.
    """
    with quiet_style():
        figure = new_figure(8.6, 4.6)
        axes = figure.subplots(1, 2, sharex=True, sharey=True)
        titles = {"Exact penalty": exactly, "Published penalty": published}
        joined = {title: before.merge(after, on=CELL, suffixes=("", "_after")) for title, after in titles.items()}
        values = pd.concat([part[name] for part in joined.values() for name in ("value", "value_after")])
        low, high = 0.8 * values.min(), 1.25 * values.max()
        for ax, (title, cells) in zip(axes, joined.items(), strict=True):
            rises = int((cells["corrected_after"] > cells["corrected"]).sum())
            falls = int((cells["corrected_after"] < cells["corrected"]).sum())
            ax.fill_between([low, high], [low, high], high, color=ORANGE, alpha=0.08, lw=0, zorder=0)
            ax.plot([low, high], [low, high], color=GREY, lw=0.9, zorder=1)
            for prerank in PRERANKS:
                own = cells[cells["prerank"] == prerank]
                look: dict[str, Any] = {"marker": MARKERS[prerank], "color": COLOURS[prerank], "lw": 0.4}
                ax.scatter(own["value"], own["value_after"], s=30, alpha=0.9, edgecolors="white", zorder=3, **look)
            ax.text(0.04, 0.96, f"worse: {rises} of {len(cells)}", transform=ax.transAxes, va="top", color=ORANGE)
            ax.text(0.96, 0.04, f"better: {falls}", transform=ax.transAxes, ha="right", color=BLUE)
            ax.set_title(title)
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlim(low, high)
            ax.set_ylim(low, high)
            ax.set_aspect("equal")
            _plain_numbers(ax)
            ax.set_xlabel("PCE before: no penalty")
        axes[0].set_ylabel("PCE after: strength 10")
        handles = [
            Line2D([], [], ls="", marker=MARKERS[name], color=COLOURS[name], ms=6, label=name)
            for name in PRERANKS
        ]  # fmt: skip
        figure.legend(handles=handles, loc="outside right center")
        heading(
            figure,
            "What a penalty does to calibration, evaluated exactly",
            "A mark is one dataset and pre-rank (own penalty), a mean over seeds; shaded: worse (counts: bias-corrected)",
        )
        return figure


def _plain_numbers(ax: Axes) -> None:
    """Plain decimal numbers on both logarithmic axes."""
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    ax.grid(color=PALE, lw=0.6)
    ax.set_axisbelow(True)


_SHAPES = ("o", "s", "^", "D", "v")


def time_figure(minutes: pd.DataFrame, training: str) -> Figure:
    """Training time of one model by pre-rank with 100 and 1,000 draws; the authors' times, where known, are open.

    Datasets that the authors timed have a shape each, all others are dots.
    """
    own = minutes[minutes["training"] == training]
    draws, names = sorted(own["n_draws"].unique()), list(own["dataset"].drop_duplicates())
    compared = [name for name in names if own.loc[own["dataset"] == name, "authors_minutes"].notna().any()]
    shapes = dict(zip(compared, _SHAPES, strict=False))
    shift = dict(zip(names, np.linspace(-0.27, 0.27, len(names)) if len(names) > 1 else [0.0], strict=True))
    with quiet_style():
        figure = new_figure(8.6, 3.9)
        axes = figure.subplots(1, len(draws), sharey=True, squeeze=False)[0]
        for ax, n_draws in zip(axes, draws, strict=True):
            for place, prerank in enumerate(PRERANKS):
                for row in own[(own["n_draws"] == n_draws) & (own["prerank"] == prerank)].to_dict("records"):
                    x, ours, theirs = place + shift[row["dataset"]], row["minutes"], row["authors_minutes"]
                    shape = shapes.get(row["dataset"])
                    if shape is None:
                        ax.scatter(x, ours, s=7, color=BLUE, alpha=0.5, lw=0, zorder=2)
                    else:
                        ax.scatter(x, ours, s=24, marker=shape, color=BLUE, zorder=3)
                    if np.isfinite(theirs):
                        ax.plot([x, x], [ours, theirs], color=GREY, lw=0.7, zorder=1)
                        ax.scatter(x, theirs, s=26, marker=shape, facecolors="white", edgecolors=INK, lw=0.9, zorder=3)
            ax.set_xticks(range(len(PRERANKS)), PRERANKS, rotation=40, ha="right", rotation_mode="anchor")
            ax.set_xlim(-0.6, len(PRERANKS) - 0.4)
            ax.set_title(f"S = {n_draws:,} draws")
            ax.grid(axis="y", color=PALE, lw=0.6)
        axes[0].set_yscale("log")
        axes[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes[0].set_ylabel("minutes per model")
        handles = [Line2D([], [], ls="", marker=m, color=BLUE, ms=5, label=name) for name, m in shapes.items()]
        if len(names) > len(shapes):
            label = f"{len(names) - len(shapes)} other datasets" if shapes else "a dataset"
            handles.append(Line2D([], [], ls="", marker=".", color=BLUE, alpha=0.5, mew=0, ms=5, label=label))
        if shapes:
            label = "open: the authors,\none model at a time,\ntheir GPU"
            handles.append(Line2D([], [], ls="", marker="o", mfc="white", mec=INK, ms=5, label=label))
        figure.legend(handles=handles, loc="outside right center")
        heading(
            figure,
            f"Training time, {'exact' if training != AS_PUBLISHED else 'as-published'} penalty",
            "Here: time of a fleet's step divided by its models, times the model's own steps to its early stop",
        )
        return figure
