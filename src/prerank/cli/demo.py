"""`prerank demo`: the main job on data made on the spot, so that it runs anywhere and the truth is known."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from prerank.diagnosis import check
from prerank.forecast import Ensemble, GaussianMixture
from prerank.reporting.tables import terminal_table


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("prerank-demo"),
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
) -> None:
    """Check a true forecast and a wrong one with every pre-rank: a table here, a figure on disk."""
    console = Console()
    truth, wrong = _truth_and_its_independent_copy(500, 5)
    y = truth.ensemble(1, seed, "observations").members[:, 0]
    console.print(
        "500 cases, 5 correlated targets. Both forecasts have the right mean and spread for each target;\n"
        "one of them believes that the targets are independent.\n"
    )
    for name, law in (("true", truth), ("independent", wrong)):
        members: Ensemble = law.ensemble(30, seed, name)
        result = check(y, members, seed=seed)
        console.print(
            terminal_table(
                result.columns,
                result.rows(),
                title=f"[bold]The {name} forecast[/bold], 30 members",
            )
        )
        style = "green" if result.calibrated else "dark_orange"
        console.print(f"[{style}]{result.verdict}[/{style}]\n")
        file = out / f"{name}.png"
        result.plot(file)
        console.print(f"figure: {file}\n")


def _truth_and_its_independent_copy(n_cases: int, n_targets: int) -> tuple[GaussianMixture, GaussianMixture]:
    """A Gaussian law whose targets are correlated, and one with the same margins whose targets are not."""
    index = torch.arange(n_targets, dtype=torch.float64)
    covariance = 0.8 ** (index[:, None] - index[None, :]).abs()
    loc = torch.linspace(-2, 2, n_cases, dtype=torch.float64)[:, None, None].expand(n_cases, 1, n_targets)
    logits = torch.zeros(n_cases, 1, dtype=torch.float64)
    factor = torch.linalg.cholesky(covariance).expand(n_cases, 1, n_targets, n_targets)
    return (
        GaussianMixture(logits, loc, factor),
        GaussianMixture(logits, loc, torch.eye(n_targets, dtype=torch.float64).expand_as(factor)),
    )
