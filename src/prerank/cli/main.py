"""The `prerank` command. Each command lives in a module of its own and is registered here.

These modules import nothing heavy before a command runs: `prerank --help` needs neither torch nor pandas.
"""

from typing import Annotated

import typer

from prerank import __version__
from prerank.cli import datasets
from prerank_paper.cli.benchmark import benchmark
from prerank.cli.check import check
from prerank.cli.demo import demo
from prerank.cli.recalibrate import recalibrate
from prerank.cli.refusal import Commands
from prerank_paper.cli.report import report
from prerank_paper.cli.simulate import simulate

app = typer.Typer(
    name="prerank",
    cls=Commands,
    help="Is a joint forecast calibrated, and if not, how?",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)


app.add_typer(datasets.app, name="datasets")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"prerank {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Is a joint forecast calibrated, and if not, how?"""


app.command()(check)
app.command()(recalibrate)
app.command()(demo)
app.command()(simulate)
app.command()(benchmark)
app.command()(report)


def main() -> None:
    """Run the command line."""
    app()
