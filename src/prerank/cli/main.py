"""The `prerank` command. Each command lives in a module of its own and is registered here."""

import typer

from prerank.cli import datasets
from prerank.cli.benchmark import benchmark
from prerank.cli.demo import demo
from prerank.cli.report import report
from prerank.cli.simulate import simulate

app = typer.Typer(
    name="prerank",
    help="Is a joint forecast calibrated, and if not, how?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)


app.add_typer(datasets.app, name="datasets")


@app.callback()
def root() -> None:
    """Is a joint forecast calibrated, and if not, how?"""


app.command()(demo)
app.command()(simulate)
app.command()(benchmark)
app.command()(report)


def main() -> None:
    """Run the command line."""
    app()
