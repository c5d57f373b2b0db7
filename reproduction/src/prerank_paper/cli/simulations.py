"""The simulation studies as the command line runs them: with a progress bar, figures and records into a folder."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import torch
from matplotlib.figure import Figure
from rich.console import Console

from prerank._progress import bar_of
from prerank._writing import whole_file
from prerank.plotting import save_figure
from prerank_paper.protocols import AS_PUBLISHED, EXACT
from prerank_paper.simulations.claims import PAPER_CLAIMS, claims_markdown, judge_claims
from prerank_paper.simulations.figures import needed_figure, power_figure, simulation_figure
from prerank_paper.simulations.marginal import run_marginal
from prerank_paper.simulations.marginal_figures import marginal_figure
from prerank_paper.simulations.power import FULL_POWER, QUICK_POWER, cases_needed, run_power
from prerank_paper.simulations.recommendations import recommendation_sentences, recommendations
from prerank_paper.simulations.scenarios import Simulation, gaussian_field, gaussian_vector
from prerank_paper.simulations.simulation import run_simulation

Report = Callable[[int, int], None]


def simulation_called(name: str) -> Simulation:
    """The paper's simulation of that number."""
    return gaussian_vector() if name == "1" else gaussian_field()


def simulation_study(
    out: Path, simulation: Simulation, cases: int, members: int, seed: int, device: torch.device, console: Console
) -> list[Path]:
    """Which pre-rank sees which mistake: scenario by pre-rank, exactly and as published; the files written."""
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


def power_study(
    out: Path, cases: int | None, members: int, seed: int, device: torch.device, full: bool, console: Console
) -> list[Path]:
    """How many cases each pre-rank needs; prints the advice, returns the files written."""
    design = FULL_POWER if full else QUICK_POWER
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
    judged, advice = judge_claims(PAPER_CLAIMS, power), recommendations(power)
    needed = {
        f"cases-needed-{name}": cases_needed(part).reset_index()
        for name, part in power.groupby("simulation", sort=False)
    }
    files = _write(out, figures, {"power": power, "claims": judged, "recommendations": advice} | needed)
    markdown = out / "claims.md"
    with whole_file(markdown) as partial:
        partial.write_text(claims_markdown(judged), encoding="utf-8")
    for sentence in recommendation_sentences(advice):
        console.print(sentence, highlight=False)
    return [*files, markdown]


def marginal_study(out: Path, cases: int, seed: int) -> list[Path]:
    """The opening figure and its numbers; the files written."""
    example = run_marginal(cases, seed=seed)
    tables = {"marginal-tests": example.tests, "marginal-curves": example.curves}
    return _write(out, {"marginal": marginal_figure(example)}, tables)


def _write(out: Path, figures: dict[str, Figure], tables: dict[str, pd.DataFrame]) -> list[Path]:
    files = [file for name, figure in figures.items() for file in save_figure(figure, out / name)]
    return files + [file for name, table in tables.items() for file in _write_table(table, out / name)]


def _write_table(table: pd.DataFrame, stem: Path) -> list[Path]:
    """Write a table beside its figure as `stem`.csv and `stem`.parquet and return the files."""
    csv, parquet = stem.with_name(f"{stem.name}.csv"), stem.with_name(f"{stem.name}.parquet")
    with whole_file(csv) as partial:
        table.to_csv(partial, index=False, float_format="%.6g")
    with whole_file(parquet) as partial:
        table.to_parquet(partial, index=False)
    return [csv, parquet]


@contextmanager
def _progress(title: str, console: Console) -> Iterator[Report]:
    with bar_of("", console=console) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
