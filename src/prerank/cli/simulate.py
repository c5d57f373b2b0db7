"""`prerank simulate`: the simulation studies, quick by default, at full size with --full."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from prerank.cli.device import device_called
from prerank.reporting.style import save_figure
from prerank.studies.claims import PAPER_CLAIMS, claims_markdown, judge
from prerank.studies.figures import needed_figure, power_figure, simulation_figure
from prerank.studies.marginal import run_marginal
from prerank.studies.marginal_figure import marginal_figure
from prerank.studies.power import FULL, QUICK, cases_needed, run_power
from prerank.studies.recommend import recommendations, sentences
from prerank.studies.scenarios import Simulation, gaussian_field, gaussian_vector
from prerank.studies.simulation import AS_PUBLISHED, EXACT, run_simulation
from prerank.studies.tables import require_folder, write_table

Report = Callable[[int, int], None]


class Study(StrEnum):
    """The studies, by the names that the command line knows."""

    FIRST = "1"
    SECOND = "2"
    POWER = "power"
    MARGINAL = "marginal"


def simulate(
    study: Annotated[
        Study,
        typer.Argument(help="1: Gaussian vector; 2: random field; power: cases needed; marginal: opening figure."),
    ],
    cases: Annotated[
        int | None, typer.Option(min=1, help="Cases (of each scenario) [2,000; 10,000 with --full].")
    ] = None,
    members: Annotated[int, typer.Option(min=2, help="Members of an ensemble.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for figures (PNG, SVG) and records (CSV, Parquet).")] = Path(
        "prerank-simulations"
    ),
    full: Annotated[
        bool, typer.Option("--full", help="The size of the published tables: minutes, not seconds.")
    ] = False,
    device: Annotated[str, typer.Option(help="Where to compute, such as cpu or cuda.")] = "cpu",
) -> None:
    """Which pre-rank sees which mistake: the paper's simulations, their power, and its opening figure."""
    console = Console()
    try:
        require_folder(out)
        place = device_called(device)
        if study is Study.MARGINAL:
            files = _marginal(out, cases or 1000, seed)
        elif study is Study.POWER:
            files = _power(out, cases, members, seed, place, full, console)
        else:
            simulation = gaussian_vector() if study is Study.FIRST else gaussian_field()
            files = _simulation(out, simulation, cases or (10_000 if full else 2_000), members, seed, place, console)
    except ValueError as error:
        Console(stderr=True).print(f"[red]{escape(str(error))}[/]", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    for file in files:
        console.print(f"[dim]wrote[/] {file}", highlight=False, soft_wrap=True)


def _simulation(
    out: Path, simulation: Simulation, cases: int, members: int, seed: int, device: torch.device, console: Console
) -> list[Path]:
    with _progress(simulation.title, console) as report:
        result = run_simulation(simulation, cases, members, seed, device=device, on_progress=report)
    name, title = simulation.name, simulation.title
    figures = {
        f"{name}-exact": simulation_figure(result, EXACT, title),
        f"{name}-as-published": simulation_figure(result, AS_PUBLISHED, title),
        f"{name}-extract": simulation_figure(result, EXACT, title, ["location", "marginal", "PCA"]),
    }
    tables = {name: result.tests, f"{name}-histograms": result.histograms}
    return _write(out, figures, tables)


def _power(
    out: Path, cases: int | None, members: int, seed: int, device: torch.device, full: bool, console: Console
) -> list[Path]:
    design = FULL if full else QUICK
    if cases is not None:
        sizes = tuple(size for size in design.sizes if size <= cases)
        if not sizes:
            raise ValueError(f"{cases} cases of each scenario are fewer than one repetition of {min(design.sizes)}")
        design = design._replace(n_cases=cases, sizes=sizes)
    figures: dict[str, Figure] = {}
    parts = []
    for simulation in (gaussian_vector(), gaussian_field()):
        with _progress(f"Power, {simulation.title}", console) as report:
            part = run_power(simulation, design, members, seed, device, report)
        parts.append(part)
        figures[f"power-{simulation.name}"] = power_figure(part, simulation.title)
        figures[f"cases-needed-{simulation.name}"] = needed_figure(part, simulation.title)
    power = pd.concat(parts, ignore_index=True)
    judged, advice = judge(PAPER_CLAIMS, power), recommendations(power)
    needed = {
        f"cases-needed-{name}": cases_needed(part).reset_index()
        for name, part in power.groupby("simulation", sort=False)
    }
    files = _write(out, figures, {"power": power, "claims": judged, "recommendations": advice} | needed)
    markdown = out / "claims.md"
    markdown.write_text(claims_markdown(judged), encoding="utf-8")
    for sentence in sentences(advice):
        console.print(sentence, highlight=False)
    return [*files, markdown]


def _marginal(out: Path, cases: int, seed: int) -> list[Path]:
    example = run_marginal(cases, seed=seed)
    tables = {"marginal-tests": example.tests, "marginal-curves": example.curves}
    return _write(out, {"marginal": marginal_figure(example)}, tables)


def _write(out: Path, figures: dict[str, Figure], tables: dict[str, pd.DataFrame]) -> list[Path]:
    files = [file for name, figure in figures.items() for file in save_figure(figure, out / name)]
    return files + [file for name, table in tables.items() for file in write_table(table, out / name)]


@contextmanager
def _progress(title: str, console: Console) -> Iterator[Report]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
