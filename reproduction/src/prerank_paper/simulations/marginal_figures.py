"""The opening figure: samples and margins that look right, and the projections that show they are not."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from prerank.plotting import new_figure, quiet_style
from prerank_paper.simulations.marginal import MarginalExample
from prerank_paper.simulations.margins import curve_panel, density_panel, point_panel

_EDGES = np.linspace(-3.6, 3.6, 31)
_POINTS = np.linspace(-3.6, 3.6, 200)
_SHOWN = 500  # points of each cloud; more would hide the geometry


def marginal_figure(example: MarginalExample) -> Figure:
    """Two rows: what margins show (densities, PIT curves), and what they hide (contrast, principal components)."""
    y, draws = example.observations.numpy(), example.draws.numpy()
    forecast_correlation = float(example.tests["forecast_correlation"].iloc[0])
    with quiet_style():
        figure = new_figure(7.0, 4.6)
        panels = figure.subplot_mosaic(
            [["points", "y1", "marginal"], ["contrast density", "contrast", "PCA"]], width_ratios=[1, 1, 1]
        )
        point_panel(panels["points"], y[:_SHOWN], draws[:_SHOWN]).set_title("Samples differ,")
        panels["points"].legend(
            loc="lower right", fontsize=7.5, handletextpad=0.1, markerscale=2, frameon=True, edgecolor="none"
        )
        margins = {"observed $y_1$": y[:, 0], "observed $y_2$": y[:, 1]}
        _densities(panels["y1"], margins, 1.0, "each margin agrees,", "$y_1$ and $y_2$")
        _curves(panels["marginal"], example.curves, "marginal", "and so do their PITs;")
        spread = np.sqrt(2 - 2 * forecast_correlation)
        contrast = {"observed": y[:, 0] - y[:, 1]}
        _densities(panels["contrast density"], contrast, spread, "Forecast contrast too wide:", "$y_1 - y_2$")
        _curves(panels["contrast"], example.curves, "contrast", "its PITs show it,")
        _curves(panels["PCA"], example.curves, "PCA", "and so does PCA.")
        return figure


def _densities(ax: Axes, observed: dict[str, np.ndarray], spread: float, title: str, label: str) -> None:
    heights = {name: np.histogram(values, _EDGES, density=True)[0] for name, values in observed.items()}
    density_panel(ax, _EDGES, heights, _POINTS, stats.norm.pdf(_POINTS, scale=spread))
    ax.set_xlabel(label)
    ax.set_title(title)
    ax.legend(loc="upper left", fontsize=7.5, handlelength=1.2, borderaxespad=0.1)


def _curves(ax: Axes, curves: pd.DataFrame, prerank: str, title: str) -> None:
    chosen = curves[curves["prerank"] == prerank]
    table = chosen.pivot_table(index="level", columns="projection", values="frequency", sort=False)
    limits = chosen.drop_duplicates("level")
    named = {str(name): table[name].to_numpy() for name in table.columns}
    curve_panel(ax, table.index.to_numpy(), named, limits["lower"].to_numpy(), limits["upper"].to_numpy())
    ax.set_title(title)
