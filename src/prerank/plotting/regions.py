"""A prediction region of one case: its draws inside and outside, and the observation."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine

from prerank.plotting.style import BLUE, GREY, INK, ORANGE, new_figure, quiet_style


def region_panel(
    points: np.ndarray,
    inside: np.ndarray,
    names: tuple[str, str],
    observation: np.ndarray | None = None,
    grid: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    ax: Axes | None = None,
    title: str = "",
) -> Axes:
    """Draw two targets of a region.

    Parameters
    ----------
    points : ndarray, shape (n_draws, 2)
        Draws of the forecast, two of their targets.
    inside : ndarray of bool, shape (n_draws,)
        Which of them lie in the region.
    names : tuple of str
        What the two targets are called.
    observation : ndarray, shape (2,), optional
        Drawn as a cross.
    grid : tuple of ndarray, optional
        x (a,), y (b,) and log density less threshold (b, a): the edge of a region of two targets.
    ax : matplotlib.axes.Axes, optional
        Where to draw; an axes of a new figure by default.
    title : str, default ""
        Title of the axes.

    Returns
    -------
    matplotlib.axes.Axes
    """
    with quiet_style():
        if ax is None:
            ax = new_figure(4.2, 3.8).subplots()
        ax.scatter(
            points[~inside, 0], points[~inside, 1], s=7, color=GREY, alpha=0.6, linewidths=0, label="draws outside"
        )
        ax.scatter(points[inside, 0], points[inside, 1], s=7, color=BLUE, alpha=0.6, linewidths=0, label="draws inside")
        if grid is not None:
            ax.contour(*grid, levels=[0.0], colors=[INK], linewidths=1.2)
            ax.plot([], [], color=INK, lw=1.2, label="edge")
        if observation is not None:
            ax.plot(*observation[:, None], "X", ms=9, color=ORANGE, mec="white", label="observation")
        ax.set_xlabel(names[0])
        ax.set_ylabel(names[1])
        if title:
            ax.set_title(title)
        if isinstance(ax.figure.get_layout_engine(), ConstrainedLayoutEngine):
            ax.figure.legend(loc="outside lower center", ncols=2, markerscale=2)
        else:
            ax.legend(markerscale=2)
    return ax


def interval_panel(
    x: np.ndarray,
    log_ratio: np.ndarray,
    density: np.ndarray,
    name: str,
    observation: float | None = None,
    ax: Axes | None = None,
    title: str = "",
) -> Axes:
    """Draw a region of a single target: the density, shaded where it reaches the threshold.

    Parameters
    ----------
    x, log_ratio, density : ndarray, shape (n_points,)
        Values of the target, log density less threshold, and density.
    name : str
        What the target is called.
    observation : float, optional
        Drawn as a line.
    ax : matplotlib.axes.Axes, optional
        Where to draw; an axes of a new figure by default.
    title : str, default ""
        Title of the axes.

    Returns
    -------
    matplotlib.axes.Axes
    """
    with quiet_style():
        if ax is None:
            ax = new_figure(4.2, 3.0).subplots()
        ax.plot(x, density, color=BLUE, lw=1.4, label="density")
        ax.fill_between(x, density, where=log_ratio >= 0, color=BLUE, alpha=0.25, linewidth=0, label="region")
        if observation is not None:
            ax.axvline(observation, color=ORANGE, lw=1.6, label="observation")
        ax.set_ylim(bottom=0)
        ax.set_xlabel(name)
        ax.set_ylabel("density")
        if title:
            ax.set_title(title)
        ax.legend()
    return ax
