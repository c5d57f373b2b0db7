"""The figures of the simulation studies, from their records: pixels are decided in `reporting`, numbers elsewhere."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from prerank.plotting import new_figure, quiet_style
from prerank.plotting.heatmaps import heatmap
from prerank.plotting.histograms import HistogramPanel, histogram_grid
from prerank.plotting.style import INK
from prerank_paper.simulations.power import cases_needed
from prerank_paper.simulations.scenarios import (
    ANISOTROPY,
    FLIP,
    MEANS,
    RANGES,
    SCRAMBLE,
    STRUCTURE,
    VARIANCES,
    WELL_SPECIFIED,
    Form,
)
from prerank_paper.simulations.simulation import SimulationResult, histogram_band

PAGE_WIDTH = 7.0  # inches
_CUT = 3.0  # multiples of the uniform height, above which bars are cut
_IN_PAPER = {
    "simulation-1": {WELL_SPECIFIED, *MEANS, *VARIANCES, *RANGES, SCRAMBLE, STRUCTURE},
    "simulation-2": {WELL_SPECIFIED, MEANS[0], VARIANCES[0], RANGES[0], ANISOTROPY, FLIP, STRUCTURE},
}
"""The mistakes whose histograms the paper shows."""
_SHORT = {"PCA, known law": "PCA,\nknown law", "random directions": "random\ndirections"}


def simulation_figure(
    result: SimulationResult, protocol: str, title: str, preranks: Sequence[str] | None = None
) -> Figure:
    """Grid of projected PIT histograms of one protocol, scenarios by pre-ranks (all of them, or those named)."""
    tests = result.tests[result.tests["protocol"] == protocol].set_index(["scenario", "prerank"])
    counts = (
        result.histograms[result.histograms["protocol"] == protocol].set_index(["scenario", "prerank"]).sort_index()
    )
    scenarios = list(tests.index.unique("scenario"))
    columns = list(preranks or tests.index.unique("prerank"))
    n_cases, n_members = int(tests["n_cases"].iloc[0]), int(tests["n_members"].iloc[0])
    panels = [
        [_panel(counts.loc[(scenario, prerank)], tests.loc[(scenario, prerank)]) for prerank in columns]
        for scenario in scenarios
    ]
    first = tests.groupby(level="scenario", sort=False).first()
    labels = [name if _shown_in_paper(first.loc[name]) else f"{name} †" for name in scenarios]
    with quiet_style():
        figure = new_figure(PAGE_WIDTH, 1.1 + 0.5 * len(scenarios))
        sizes = f"{n_cases:,} cases, {n_members} members; several projections are a line each"
        subtitle = f"{title}, {protocol}\n{sizes}\n† not in the paper; triangles: cut at {_CUT:g} times uniform"
        histogram_grid(figure, panels, labels, columns, subtitle)
        for ax, panel in zip(figure.axes, (panel for row in panels for panel in row), strict=True):
            _mark_cuts(ax, panel)
        return figure


def _shown_in_paper(test: pd.Series) -> bool:
    return test["form"] == Form.PAPER.value and test["error"] in _IN_PAPER.get(test["simulation"], {test["error"]})


def _mark_cuts(ax: Axes, panel: HistogramPanel) -> None:
    """A triangle on every bin that is higher than the panel."""
    (cut,) = (panel.heights.max(0) > _CUT).nonzero()
    centres = (cut + 0.5) / panel.heights.shape[1]
    ax.plot(centres, [_CUT] * len(cut), "^", color=INK, ms=2.4, mew=0, clip_on=False)


def _panel(counts: pd.DataFrame, test: pd.Series) -> HistogramPanel:
    cells = counts.sort_values(["projection", "bin"])["count"].to_numpy()
    heights = cells.reshape(int(test["n_projections"]), -1).astype(float)
    n_bins = heights.shape[1]
    band = histogram_band(int(test["n_cases"]), n_bins, len(heights))
    return HistogramPanel(heights * n_bins / int(test["n_cases"]), band, bool(test["p_value"] <= 0.05))


def needed_figure(power: pd.DataFrame, title: str, wanted: float = 0.8) -> Figure:
    """Heat map of the smallest N that finds a mistake four times in five: the darker, the fewer cases are needed."""
    needed = cases_needed(power, wanted)
    sizes = sorted(power["n_cases"].unique())
    darkness = (math.log(sizes[-1]) - np.log(needed.to_numpy())) / max(math.log(sizes[-1] / sizes[0]), 1e-9)
    text = [["–" if math.isnan(n) else f"{int(n):,}" for n in row] for row in needed.to_numpy()]
    with quiet_style():
        figure = new_figure(PAGE_WIDTH, 1.3 + 0.27 * len(needed))
        ax = figure.subplots()
        columns = [_SHORT.get(name, name) for name in needed.columns]
        heatmap(ax, 0.12 + 0.88 * darkness, list(needed.index), columns, text)
        ax.xaxis.tick_top()
        ax.tick_params(axis="both", labelsize=7.5, pad=1)
        question = f"Cases needed to find a mistake {wanted:.0%} of the time"
        figure.suptitle(f"{title}\n{question}", x=0.01, ha="left", fontsize=10.5, fontweight="bold")
        return figure


def power_figure(power: pd.DataFrame, title: str) -> Figure:
    """Rejection rates: a heat map for each pre-rank, scenarios by N."""
    preranks = list(power["prerank"].drop_duplicates())
    scenarios = list(power["scenario"].drop_duplicates())
    sizes = sorted(power["n_cases"].unique())
    table = power.set_index(["prerank", "scenario", "n_cases"])["rejection_rate"]
    n_rows = math.ceil(len(preranks) / 3)
    with quiet_style():
        figure = new_figure(PAGE_WIDTH, 0.9 + n_rows * (0.65 + 0.155 * len(scenarios)))
        axes = figure.subplots(n_rows, 3, squeeze=False, sharey=True)
        for ax, prerank in zip(axes.flat, preranks, strict=False):
            values = np.array([[table[prerank, scenario, n] for n in sizes] for scenario in scenarios])
            heatmap(ax, values, scenarios, [_short_count(n) for n in sizes])
            ax.set_title(prerank)
            ax.tick_params(axis="both", labelsize=7.5)
            ax.tick_params(axis="x", rotation=90, pad=1)
        for ax in list(axes.flat)[len(preranks) :]:
            ax.set_visible(False)
        for ax in axes[-1]:
            ax.set_xlabel("cases")
        bar = figure.colorbar(
            axes[0, 0].collections[0], ax=axes, location="bottom", fraction=0.025, aspect=50, pad=0.01
        )
        bar.set_label("rejection rate of the 5 % test")
        bar.outline.set_visible(False)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
        return figure


def _short_count(n: int) -> str:
    return f"{n / 1000:g}k" if n >= 1000 else str(n)
