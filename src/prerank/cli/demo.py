"""`prerank demo`: the main job on data made on the spot, so that it runs anywhere and the truth is known."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from prerank.cli.outputs import results_folder, shown_path

LEVEL = 0.05

if TYPE_CHECKING:
    from prerank._demonstration import Evaluated
    from prerank.diagnosis import Check


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("prerank-demo"),
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0)] = 0,
    n_train: Annotated[int, typer.Option("--rows", help="Rows to train on.", min=50)] = 3000,
    n_test: Annotated[int, typer.Option("--fresh", help="Held-out rows to evaluate on.", min=50)] = 2000,
) -> None:
    """Train plainly, with a penalty and calibrated where the truth is known: tables here, a figure on disk."""
    with results_folder(out):
        _demonstrate(out, seed, n_train, n_test)


def _demonstrate(out: Path, seed: int, n_train: int, n_test: int) -> None:
    from prerank._demonstration import PENALISED, STRENGTHS, demonstrate, demonstration_picture
    from prerank._parallel import single_threaded
    from prerank.plotting import save_figure, terminal_table

    console = Console()
    console.print(
        "[bold]Two targets whose true distribution is known.[/bold] It has two modes, and its spread moves with\n"
        "the features. The model is one Gaussian: misspecified, but it can be better calibrated.\n"
        f"{n_train:,} rows to train on, {n_test:,} held-out ones to evaluate on.\n"
    )
    with single_threaded():
        shown = demonstrate(n_train, n_test, seed, verbose=console.is_terminal)
    scores = [[item.name, f"{item.energy_score:.3f}", f"{item.nll:.3f}"] for item in shown.forecasts]
    console.print(terminal_table(("forecast", "energy score", "NLL"), scores), "")
    console.print(terminal_table(*_errors(shown.forecasts), title="[bold]PCE[/bold] of each; *: miscalibrated"), "")
    tried = ", ".join(f"{strength:g}" for strength in STRENGTHS)
    console.print(
        "expected: the PCE expected under calibration with so many cases. *: the p-value, adjusted\n"
        f"for testing every pre-rank, is at most 0.05. Strength {shown.strength:g} of {tried} was chosen on\n"
        f"validation rows for the penalty on {', '.join(item.name for item in PENALISED)}.\n",
        highlight=False,
    )
    for item, style in zip(shown.forecasts, ("dark_orange", "blue", "magenta", "green"), strict=True):
        console.print(f"[{style}]{item.name}[/{style}]: {_summary(item.check)}", highlight=False)
    price, gain = (
        100 * (item.energy_score / shown.plain.energy_score - 1) for item in (shown.penalised, shown.calibrated)
    )
    console.print(
        f"\nEnergy score against plain: {price:+.1f} % with the penalty, {gain:+.1f} % calibrated.", highlight=False
    )
    for file in save_figure(demonstration_picture(shown), out / "demonstration"):
        console.print(f"figure: {shown_path(file)}", highlight=False, soft_wrap=True)


def _errors(forecasts: Sequence["Evaluated"]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the table of PCEs: a row per pre-rank, a column per forecast; it fits 80 characters."""
    rows = []
    for name, oracle in forecasts[-1].check.table.iterrows():
        row = [str(name), f"{oracle['expected PCE']:.3f}"]
        for item in forecasts:
            own = item.check.table.loc[str(name)].to_dict()
            row.append(f"{'* ' if own['adjusted p-value'] <= LEVEL else ''}{own['PCE']:.3f}")
        rows.append(row)
    return ["pre-rank", "expected", *(item.name for item in forecasts)], rows


def _summary(result: "Check") -> str:
    """Under which pre-ranks a forecast is miscalibrated, in a sentence."""
    from prerank.plotting.tables import p_text

    against = [str(name) for name, row in result.table.iterrows() if row["adjusted p-value"] <= LEVEL]
    if not against:
        return f"no evidence against calibration (smallest adjusted p-value {p_text(result.p_value)})"
    return f"miscalibrated under {', '.join(against)}"
