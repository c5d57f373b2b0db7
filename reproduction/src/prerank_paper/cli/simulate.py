"""`prerank-paper simulate`: the simulation studies, quick by default, at full size with --full."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from prerank.cli.outputs import results_folder, shown_path
from prerank_paper.cli.device import device_called


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
    from prerank_paper.cli.simulations import (  # torch is slow
        marginal_study,
        power_study,
        simulation_called,
        simulation_study,
    )

    console = Console()
    with results_folder(out):
        place = device_called(device)
        if study is Study.MARGINAL:
            files = marginal_study(out, cases or 1000, seed)
        elif study is Study.POWER:
            files = power_study(out, cases, members, seed, place, full, console)
        else:
            simulation, size = simulation_called(study), cases or (10_000 if full else 2_000)
            files = simulation_study(out, simulation, size, members, seed, place, console)
    for file in files:
        console.print(f"[dim]wrote[/] {shown_path(file)}", highlight=False, soft_wrap=True)
