"""The `prerank` command. Each command lives in a module of its own and is registered here.

These modules import nothing heavy before a command runs: `prerank --help` needs neither torch nor pandas.
"""

from typing import Annotated

import typer

from prerank import __version__
from prerank.cli.check import check
from prerank.cli.demo import demo
from prerank.cli.joint import joint
from prerank.cli.recalibrate import recalibrate
from prerank.cli.refusal import Commands

app = typer.Typer(
    name="prerank",
    cls=Commands,
    help="Is a joint forecast calibrated, and if not, how?",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)


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
app.command()(joint)
app.command()(demo)


def _of_the_study(name: str) -> None:
    """A command that `prerank-paper` has, whatever its options: the answer is where it is."""

    @app.command(
        name,
        hidden=True,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def elsewhere() -> None:
        raise ValueError(
            f"the command is prerank-paper {name}: the paper's experiments are a package of their own, in the folder "
            "reproduction of the repository"
        )


for command in ("simulate", "benchmark", "report", "datasets"):
    _of_the_study(command)


def main() -> None:
    """Run the command line."""
    app()
