"""The `prerank-paper` command. Each command lives in a module of its own and is registered here.

These modules import nothing heavy before a command runs: `prerank-paper --help` needs neither torch nor pandas.
"""

from typing import Annotated

import typer

from prerank.cli.refusal import Commands
from prerank_paper import __version__
from prerank_paper.cli import datasets
from prerank_paper.cli.benchmark import benchmark
from prerank_paper.cli.report import report
from prerank_paper.cli.simulate import simulate

app = typer.Typer(
    name="prerank-paper",
    cls=Commands,
    help="The experiments of the paper on pre-rank regularisation.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)
app.add_typer(datasets.app, name="datasets")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"prerank-paper {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """The experiments of the paper on pre-rank regularisation."""


app.command()(simulate)
app.command()(benchmark)
app.command()(report)


def main() -> None:
    """Run the command line."""
    app()
