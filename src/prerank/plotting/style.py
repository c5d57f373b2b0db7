"""One visual language for every figure: colours for colour-blind readers, quiet axes, no pyplot state."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from prerank._writing import whole_file

# Okabe and Ito's palette: the forecast, the observation, a comparison, and a muted grey for consistency bands.
BLUE, ORANGE, GREEN, PURPLE, SKY, RED = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#B2182B"
INK, QUIET, GREY, PALE = "#222222", "#5A5A5A", "#8A8A8A", "#E3E6EA"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, "#E69F00", INK)

_RC = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=CYCLE),
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "none",
    "figure.dpi": 100,
}


@contextmanager
def quiet_style() -> Iterator[None]:
    """The project's look, for the duration of a block; the caller's settings come back afterwards.

    Yields
    ------
    None
        Nothing: figures made inside the block have the look.
    """
    with mpl.rc_context(_RC):  # type: ignore[arg-type]
        yield


def new_figure(width: float, height: float) -> Figure:
    """A figure of its own, outside pyplot's list of open figures. Use it inside `quiet_style()`.

    Parameters
    ----------
    width : float
        Width in inches.
    height : float
        Height in inches.

    Returns
    -------
    matplotlib.figure.Figure
        An empty figure.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain(ax: Axes) -> Axes:
    """Take ticks and frame away from an axis that carries only text or a picture."""
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)
    return ax


def save_figure(figure: Figure, path: Path | str, formats: tuple[str, ...] = ("png", "svg")) -> list[Path]:
    """Write a figure in several formats beside each other, each file whole.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        What is written.
    path : str or path-like
        The files' name without suffix.
    formats : tuple of str, default ('png', 'svg')
        Suffixes of the files.

    Returns
    -------
    list of pathlib.Path
        The files.

    Raises
    ------
    ValueError
        If `path` is a folder.
    """
    stem = Path(path)
    if not stem.name or (
        len(formats) > 1 and stem.is_dir()
    ):  # with one format, june.png may stand beside a folder june
        raise ValueError(f"{stem} is a folder; give the name of a figure in it, such as {stem / 'figure.png'}")
    files = []
    for suffix in formats:
        file = stem.with_name(f"{stem.name}.{suffix}")
        with whole_file(file) as partial:
            figure.savefig(partial, format=suffix, dpi=160, metadata={"Date": None} if suffix == "svg" else None)
        files.append(file)
    return files


def save_named(figure: Figure, path: Path | str) -> list[Path]:
    """Write a figure in the format of its suffix, or as PNG and SVG where it has none."""
    target = Path(path)
    suffix = target.suffix.lstrip(".")
    return save_figure(figure, target.with_suffix("") if suffix else target, (suffix,) if suffix else ("png", "svg"))
