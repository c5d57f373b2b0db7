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

from prerank.reporting import BLUE, CYCLE, GREY, INK, ORANGE, PALE, new_figure, quiet_style
from prerank.studies.benchmark.plan import NONE, PRERANKS
from prerank.studies.benchmark.summaries import Protocol
from prerank.studies.protocols import AS_PUBLISHED

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


def before_after_figure(
    protocol: Protocol, before: dict[str, pd.DataFrame], after: dict[str, pd.DataFrame], expected: float
) -> Figure:
    """Box plots over datasets of PCE, NLL and energy score by pre-rank; `before` and `after` are cells by metric."""
    with quiet_style():
        figure = new_figure(10.5, 3.7)
        axes = figure.subplots(1, 3)
        pairs = [("pce", "PCE"), ("nll", "NLL"), ("energy score", "energy score")]
        for ax, (metric, label) in zip(axes, pairs, strict=True):
            own_baseline = metric == "pce"
            columns = PRERANKS if own_baseline else (NONE, *PRERANKS)
            width = 0.34 if own_baseline else 0.5
            for place, name in enumerate(columns):
                left, right = (place - 0.2, place + 0.2) if own_baseline else (place, place)
                _box(ax, before[metric], name, left, width, ORANGE, protocol)
                _box(ax, after[metric], name, right, width, BLUE, protocol)
            ax.set_xticks(range(len(columns)), columns, rotation=40, ha="right", rotation_mode="anchor")
            ax.set_title(label)
            ax.tick_params(axis="x", length=0)
        axes[0].axhline(expected, color=GREY, lw=0.9, ls=(0, (4, 2)), zorder=0)
        wide = _widen(axes[1], pd.concat([before["nll"]["value"], after["nll"]["value"]]))
        for ax, metric in ((axes[0], "pce"), (axes[2], "energy score")):
            ax.set_ylim(0.0, 1.06 * max(before[metric]["value"].max(), after[metric]["value"].max()))
        hatch = hatch_of(protocol)
        handles = [
            Patch(facecolor=ORANGE, alpha=0.55, hatch=hatch, edgecolor=INK, label="before: no penalty"),
            Patch(facecolor=BLUE, alpha=0.55, hatch=hatch, edgecolor=INK, label="after: strength 10, own pre-rank"),
            Line2D(
                [], [], color=GREY, lw=0.9, ls=(0, (4, 2)), label="PCE expected under calibration (mean over datasets)"
            ),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        n_datasets = before["pce"]["dataset"].nunique()
        how = "exactly" if hatch is None else "as published"
        heading(
            figure,
            f"Before and after the penalty, trained and evaluated {how}",
            f"Boxes over datasets (dots, {n_datasets} in all), each a mean over seeds{wide}",
        )
        return figure


def _widen(ax: Axes, values: pd.Series) -> str:
    """Make room for values of several orders of magnitude, negative ones too; what to say about it."""
    if values.abs().max() <= 10:
        return ""
    ax.set_yscale("symlog", linthresh=2.0)
    ax.set_yticks([-20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20, 50, 100, 1e3, 1e4, 1e6, 1e9])
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    ax.set_ylim(min(1.3 * values.min(), -0.3), 1.3 * values.max())
    return "; NLL on a scale that is linear up to ±2"


def _box(
    ax: Axes, cells: pd.DataFrame, prerank: str, place: float, width: float, colour: str, protocol: Protocol
) -> None:
    values = cells.loc[cells["prerank"] == prerank, "value"].to_numpy()
    if not len(values):
        return
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
    spread = np.linspace(-0.25, 0.25, len(values)) * width if len(values) > 1 else np.zeros(1)
    ax.scatter(place + spread, values, s=9, color=colour, edgecolors=INK, lw=0.4, zorder=3)


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
            ax.barh(y + 0.2, own["null_level"], 0.4, color=GREY)
            for missing in set(datasets) - set(own["dataset"]):
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
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        ax.set_xlabel("PCE, exact: whole test set")
        ax.set_ylabel("PCE, as published: per batch of 256")
        ax.grid(color=PALE, lw=0.6)
        ax.set_axisbelow(True)
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
        called, wrong = int(cells["called_miscalibrated"].sum()), int(cells["is_miscalibrated"].sum())
        heading(
            figure,
            "Exact versus as-published evaluation of the same models",
            f"Of {len(cells)} baseline cells the published evaluation calls {called} miscalibrated, the exact test {wrong}",
        )
        return figure


def time_figure(minutes: pd.DataFrame, training: str) -> Figure:
    """Training time of one model by pre-rank with 100 and 1,000 draws; the authors' times as open diamonds."""
    own = minutes[minutes["training"] == training]
    draws = sorted(own["n_draws"].unique())
    with quiet_style():
        figure = new_figure(8.0, 3.9)
        axes = figure.subplots(1, len(draws), sharey=True, squeeze=False)[0]
        for ax, n_draws in zip(axes, draws, strict=True):
            part = own[own["n_draws"] == n_draws]
            for place, prerank in enumerate(PRERANKS):
                cell = part[part["prerank"] == prerank].sort_values("minutes")
                spread = np.linspace(-0.22, 0.22, len(cell)) if len(cell) > 1 else np.zeros(len(cell))
                ax.scatter(place + spread, cell["minutes"], s=22, color=BLUE, zorder=3)
                ax.scatter(
                    place + spread,
                    cell["authors_minutes"],
                    s=30,
                    marker="D",
                    facecolors="white",
                    edgecolors=INK,
                    zorder=3,
                )
                for x, ours, theirs in zip(place + spread, cell["minutes"], cell["authors_minutes"], strict=True):
                    if np.isfinite(theirs):
                        ax.plot([x, x], [ours, theirs], color=GREY, lw=0.7, zorder=1)
            ax.set_xticks(range(len(PRERANKS)), PRERANKS, rotation=40, ha="right", rotation_mode="anchor")
            ax.set_xlim(-0.6, len(PRERANKS) - 0.4)
            ax.set_title(f"S = {n_draws:,} draws")
            ax.grid(axis="y", color=PALE, lw=0.6)
        axes[0].set_yscale("log")
        axes[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes[0].set_ylabel("minutes per model")
        names = list(own["dataset"].drop_duplicates())
        which = f" ({', '.join(names)})" if len(names) <= 4 else ""
        handles = [
            Line2D([], [], ls="", marker="o", color=BLUE, ms=5, label=f"here, one dot per dataset{which}"),
            Line2D(
                [],
                [],
                ls="",
                marker="D",
                mfc="white",
                mec=INK,
                ms=5,
                label="the authors: one model on their GPU, same dataset",
            ),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
        heading(
            figure,
            f"Training time, {'exact' if training != AS_PUBLISHED else 'as-published'} penalty",
            "Here: time of a fleet's step divided by its models, times the model's own steps to its early stop",
        )
        return figure
