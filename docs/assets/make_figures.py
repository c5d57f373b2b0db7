"""The pictures of README and documentation. Run it from the repository's root: python docs/assets/make_figures.py"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from scipy import stats

from prerank import check
from prerank.reporting.diagnosis import histogram_panel
from prerank.reporting.style import BLUE, ORANGE, new_figure, quiet_style, save_figure
from prerank.studies.benchmark.figures import story_figure, trained_figure
from prerank.studies.benchmark.findings import overstated
from prerank.studies.benchmark.records import read_results
from prerank.studies.benchmark.summaries import EXACT_PROTOCOL, Protocol, baseline, penalised, summarise

HERE = Path(__file__).parent


def right_margins_wrong_jointly() -> None:
    """The README's example: every target is forecast perfectly, their dependence is too weak."""
    rng = np.random.default_rng(1)
    distance = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    y = rng.multivariate_normal(np.zeros(4), 0.8**distance, 500, method="cholesky")
    members = rng.multivariate_normal(np.zeros(4), 0.3**distance, (500, 30), method="cholesky")
    _save(check(y, members).plot(), "right-margins-wrong-jointly.png")


def shapes() -> None:
    """What the words mean: PITs of a standard normal forecast when the observations follow another distribution."""
    z = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    observations = {
        "flat": z,
        "biased high": z - 0.35,
        "biased low": z + 0.35,
        "under-dispersed": 1.35 * z,
        "over-dispersed": 0.6 * z,
        "heavy upper tail": np.where(z > 1.0, 2.0 * z - 1.0, z),
    }
    edges = np.linspace(0, 1, 16)
    with quiet_style():
        figure = new_figure(7.0, 1.75)
        for ax, (words, observed) in zip(
            figure.subplots(1, len(observations), sharey=True), observations.items(), strict=True
        ):
            heights = np.histogram(stats.norm.cdf(observed), edges, density=True)[0][None]
            histogram_panel(ax, edges, heights, (0.9, 1.1), BLUE if words == "flat" else ORANGE)
            ax.set_ylim(0, 2.6)
            ax.set_title(words, fontsize=7.5)
        figure.axes[0].set_ylabel("PIT density")
    _save(figure, "shapes.png")


def exact_versus_as_published() -> None:
    """The committed results of the benchmark: baseline PCE of every cell, exactly and as published."""
    results = read_results(HERE.parents[1] / "results" / "benchmark")
    _save(story_figure(overstated(results)), "benchmark-exact-versus-as-published.png")


def trained_as_published() -> None:
    """The same: exact PCE before and after either penalty."""
    results = read_results(HERE.parents[1] / "results" / "benchmark")
    before = summarise(baseline(results, EXACT_PROTOCOL))
    after = [summarise(penalised(results, Protocol(training, "exact"))) for training in ("exact", "as published")]
    _save(trained_figure(before, *after), "benchmark-trained-as-published.png")


def reliability_of_births2() -> None:
    """From the committed report of the benchmark: what the exact penalty does to a misspecified family."""
    report = HERE.parents[1] / "results" / "benchmark" / "report" / "figures"
    _compress(report / "exact" / "reliability-births2.png", HERE / "benchmark-reliability-births2.png")


def _save(figure: Figure, name: str) -> None:
    file = save_figure(figure, HERE / Path(name).stem, ("png",))[0]
    _compress(file, file)


def _compress(source: Path, file: Path) -> None:
    # 64 colours are plenty for bars and lines, and a third of the bytes
    Image.open(source).convert("RGB").quantize(64, method=Image.Quantize.MEDIANCUT).save(file, optimize=True)
    print(f"{file.name}: {file.stat().st_size // 1024} KB")


if __name__ == "__main__":
    right_margins_wrong_jointly()
    shapes()
    exact_versus_as_published()
    trained_as_published()
    reliability_of_births2()
