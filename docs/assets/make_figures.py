"""The pictures of README and documentation. Run it from the repository's root: python docs/assets/make_figures.py"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from PIL import Image
from scipy import stats

from prerank import Contrast, GaussianMixture, Location, Marginal, Recalibrator, Scale, check
from prerank.calibration import reliability_band
from prerank.diagnosis import compare_over_time
from prerank.forecasts import equally_weighted_draws
from prerank.plotting.diagnosis import histogram_panel
from prerank.plotting.heatmaps import heatmap
from prerank.plotting.recalibration import over_time_figure, recalibration_figure
from prerank.plotting.style import BLUE, GREY, ORANGE, new_figure, quiet_style, save_figure
from prerank.recalibration import recalibrate_over_time
from prerank_paper.benchmark.records import read_results
from prerank_paper.report.calibration_figures import reliability_figure
from prerank_paper.report.figures import story_figure, trained_figure
from prerank_paper.report.findings import overstated
from prerank_paper.report.summaries import EXACT_PROTOCOL, Protocol, baseline, datasets_run, penalised, summarise

HERE = Path(__file__).parent


def right_margins_wrong_jointly() -> None:
    """The README's example: every target is forecast perfectly, their dependence is too weak."""
    rng = np.random.default_rng(1)
    distance = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    y = rng.multivariate_normal(np.zeros(4), 0.8**distance, 500, method="cholesky")
    members = rng.multivariate_normal(np.zeros(4), 0.3**distance, (500, 30), method="cholesky")
    _save(check(y, members).plot(columns=2), "right-margins-wrong-jointly.png")


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
            heights = np.histogram(stats.norm.cdf(observed), edges, density=True)[0]
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
    """The same: what the exact penalty does to a misspecified family."""
    results = read_results(HERE.parents[1] / "results" / "benchmark")
    curves = results.curves.query("dataset == 'births2' and evaluation == 'exact' and training in ('none', 'exact')")
    band = reliability_band(int(datasets_run(results)["n_test"]["births2"]))
    figure = reliability_figure(EXACT_PROTOCOL, "births2", curves, band)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, as in the report
    _save(figure, "benchmark-reliability-births2.png")


def recalibration_of_an_ensemble() -> None:
    """The tutorial's ensemble: four days of a later season, raw members and draws of the corrected forecast."""
    rng = np.random.default_rng(7)
    names, correlation = ("Bergen", "Oslo"), 0.6 + 0.4 * np.eye(3)

    def season(n_days: int) -> tuple[np.ndarray, np.ndarray]:
        weather = 5 * rng.normal(size=(n_days, 1))
        noise = rng.multivariate_normal(np.zeros(3), correlation, (n_days, 11), method="cholesky")
        return weather[:, None] - 0.8 + 0.5 * noise[:, 1:], weather + noise[:, 0]

    recalibrator = Recalibrator([Marginal(), Location(), Scale()]).fit(*season(900))
    later, observed = season(300)
    drawn = equally_weighted_draws(recalibrator.transform(later), 200).members.numpy()
    with quiet_style():
        figure = new_figure(7.2, 2.35)
        for day, ax in enumerate(figure.subplots(1, 4)):
            centre = later[day].mean(0)
            ax.plot(*drawn[day, :, :2].T, ".", ms=4, color=BLUE, alpha=0.35, mec="none", label="corrected, 200 draws")
            ax.plot(*later[day, :, :2].T, "o", ms=3.5, color=GREY, mec="none", label="10 raw members")
            ax.plot(*observed[day, :2], "*", ms=10, color=ORANGE, mec="white", mew=0.5, label="observation")
            ax.set_xlim(centre[0] - 3.2, centre[0] + 4.4)
            ax.set_ylim(centre[1] - 3.2, centre[1] + 4.4)
            ax.set_aspect("equal")
            ax.set_title(f"day {day + 1}")
            ax.set_xlabel(f"{names[0]}, °C")
        figure.axes[0].set_ylabel(f"{names[1]}, °C")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
    _save(figure, "recalibration-ensemble.png")


def recalibration_of_a_shape() -> None:
    """The tutorial's Gaussian forecast of two scenarios: densities of one case, and what the tilt has learnt."""

    def scenarios(n_cases: int, seed: int) -> tuple[GaussianMixture, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        mean = torch.randn(n_cases, 2, generator=generator)
        side = torch.randint(2, (n_cases, 1), generator=generator) * 2.0 - 1.0
        y = mean + 1.2 * side + 0.5 * torch.randn(n_cases, 2, generator=generator)
        tril = torch.linalg.cholesky(1.44 + 0.25 * torch.eye(2)).expand(n_cases, 1, 2, 2)
        return GaussianMixture(torch.zeros(n_cases, 1), mean[:, None], tril), y

    recalibrator = Recalibrator([Marginal(), Location(), Contrast()]).fit(*scenarios(1000, 1))
    _save(recalibration_figure(recalibrator.densities_), "recalibration-pits.png")
    tril = torch.linalg.cholesky(1.44 + 0.25 * torch.eye(2))[None, None]
    before = GaussianMixture(torch.zeros(1, 1), torch.zeros(1, 1, 2), tril)
    centres = torch.tensor([[[-1.2, -1.2], [1.2, 1.2]]])
    truth = GaussianMixture(torch.zeros(1, 2), centres, 0.5 * torch.eye(2).expand(1, 2, 2, 2))
    line = torch.linspace(-3.4, 3.4, 121)
    grid = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1).reshape(-1, 1, 2)
    laws = {"forecast": before, "corrected": recalibrator.transform(before), "truth": truth}
    with quiet_style():
        figure = new_figure(7.0, 2.9)
        for ax, (name, law) in zip(figure.subplots(1, 3, sharey=True), laws.items(), strict=True):
            density = law.log_prob(grid).exp().reshape(121, 121).numpy()
            ax.contourf(line, line, density, levels=np.linspace(0.005, 0.33, 12), cmap="Blues", extend="max")
            ax.set_aspect("equal")
            ax.set_title(name)
            ax.set_xlabel("target 1")
        figure.axes[0].set_ylabel("target 2")
    _save(figure, "recalibration-shape.png")


def recalibration_over_time() -> None:
    """The guide's model that gets colder year by year: fitted once, and as time goes on."""
    rng = np.random.default_rng(7)
    days = np.arange("2021-01-01", "2024-01-01", dtype="datetime64[D]")
    weather = 5 * rng.normal(size=(len(days), 1))
    noise = rng.multivariate_normal(np.zeros(3), 0.6 + 0.4 * np.eye(3), (len(days), 11), method="cholesky")
    members, y = weather[:, None] - 0.8 + 0.5 * noise[:, 1:], weather + noise[:, 0]
    y = y + np.linspace(0, 2, len(days))[:, None]
    recalibrator = Recalibrator([Marginal(), Location(), Scale()])
    issued = recalibrate_over_time(
        y, members, days, recalibrator=recalibrator, every=60, delay=2, window=180, first=365
    )
    once = recalibrator.fit(members[:363], y[:363]).transform(members[issued.cases])
    times = days[issued.cases]
    table = compare_over_time(y[issued.cases], once, issued.ensemble(), times, recalibrator.preranks, n_periods=8)
    _save(over_time_figure(table, "°C", ("fitted once", "fitted again")), "recalibration-over-time.png")


def bare_ensembles() -> None:
    """The committed record of the temperature ensemble: a dot for the mean over splits, a line over all of them."""
    record = pd.read_csv(HERE.parents[1] / "results" / "recalibration" / "ensembles.csv")
    record = record[record["data"] == "temperature"]
    names = ["marginal", "location", "scale", "dependency", "PCA", "HDR", "copula"]
    colours = {"raw": GREY, "affine": "#56B4E9", "ECC": "#009E73", "dressing, M draws": BLUE, "dressing + tilt": ORANGE}
    with quiet_style():
        figure = new_figure(7.0, 2.7)
        ax = figure.subplots()
        for place, (method, colour) in enumerate(colours.items()):
            ratios = record[record["method"] == method][[f"{name} ratio" for name in names]].to_numpy()
            x = np.arange(len(names)) + 0.14 * (place - 2)
            ax.vlines(x, ratios.min(0), ratios.max(0), color=colour, lw=1.2, alpha=0.6)
            ax.plot(x, ratios.mean(0), "o", ms=4, color=colour, label=method)
        ax.axhline(1.0, color=GREY, lw=0.6, ls=(0, (3, 2)))
        ax.set_yscale("log")
        ax.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
        ax.set_xticks(range(len(names)), names)
        ax.set_ylabel("PCE / expected PCE")
        figure.legend(loc="outside upper right", ncols=5)
    _save(figure, "recalibration-bare-ensembles.png")


def power_of_field_preranks() -> None:
    """Which pre-rank sees which mistake: rejection rates in the scenarios of the paper's simulations, of 100 cases."""
    table = pd.read_csv(HERE.parents[1] / "results" / "field" / "power.csv")
    table = table[table["scenario"] != "well specified"]
    with quiet_style():
        figure = new_figure(9.4, 5.6)
        for ax, (name, rows) in zip(figure.subplots(1, 2), table.groupby("simulation"), strict=True):
            rates = rows.pivot_table(index="pre-rank", columns="scenario", values="rejected", sort=False)
            text = [[f"{100 * rate:.0f}" for rate in line] for line in rates.to_numpy()]
            heatmap(ax, rates.to_numpy(), list(rates.index), list(rates.columns), text, font_size=6.5)
            ax.set_xticks(ax.get_xticks(), rates.columns, rotation=40, ha="right")
            ax.tick_params(labelsize=7)
            ax.set_title({"simulation-1": "10 targets in a row", "simulation-2": "5 x 5 grid"}[str(name)])
    _save(figure, "field-power.png")


def _save(figure: Figure, name: str) -> None:
    file = save_figure(figure, HERE / Path(name).stem, ("png",))[0]
    _compress(file)


def _compress(file: Path) -> None:
    # a palette is plenty for bars and lines, and a third of the bytes; rare colours must not be merged with others
    image = Image.open(file).convert("RGB")
    image.quantize(200, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{file.name}: {file.stat().st_size // 1024} KB")


def growth_of_a_check() -> None:
    """Drawn by the benchmark, from its record."""
    script = HERE.parents[1] / "benchmarks" / "growth.py"
    subprocess.run(
        [sys.executable, str(script), "--figure", str(HERE / "growth.png")], check=True, stdout=subprocess.DEVNULL
    )


if __name__ == "__main__":
    growth_of_a_check()
    power_of_field_preranks()
    right_margins_wrong_jointly()
    shapes()
    exact_versus_as_published()
    trained_as_published()
    reliability_of_births2()
    recalibration_of_an_ensemble()
    recalibration_of_a_shape()
    recalibration_over_time()
    bare_ensembles()
