"""`prerank-paper datasets`: which datasets there are, where they are now, and what is in them."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from prerank.cli.outputs import require_outputs, require_picture, shown_path
from prerank.cli.refusal import Commands

app = typer.Typer(
    cls=Commands, help="The paper's datasets and those built in: list, fetch, show.", rich_markup_mode="rich"
)

NAME = Annotated[str, typer.Argument(help="a dataset of `prerank-paper datasets`", show_default=False)]
ACCEPT = Annotated[
    bool, typer.Option("--accept-licence", help="I accept the data use agreement of this dataset (the MEPS panels).")
]


@app.callback(invoke_without_command=True)
def datasets(context: typer.Context) -> None:
    """List the datasets: rows, features (L), targets (D), licence, and where each is now."""
    if context.invoked_subcommand is not None:
        return
    from prerank_paper.cli.cards import overview  # pandas loads slowly
    from prerank_paper.datasets.sources import cache_folder

    console = Console()
    console.print(overview())
    console.print(
        "\n[dim]* not the paper's own rows: `prerank-paper datasets show NAME` says how they differ.\n+ not in the paper.\n"
        "`prerank-paper datasets fetch NAME` brings one from upstream to the cache: "
        f"{shown_path(cache_folder())}[/]",
        highlight=False,
    )


@app.command("fetch")
def fetch_command(name: NAME, accept_licence: ACCEPT = False) -> None:
    """Bring a dataset from upstream to the cache, verified; nothing is downloaded twice."""
    from prerank_paper.datasets import fetch  # pandas loads slowly

    path = fetch(name, accept_licence=accept_licence)
    typer.echo(f"{name}: verified, {path.stat().st_size:,} bytes in {path}")


@app.command("show")
def show_command(
    name: NAME,
    accept_licence: ACCEPT = False,
    plot: Annotated[Path | None, typer.Option(help="where to write the pair plot (NAME-targets.png)")] = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="print the card only")] = False,
) -> None:
    """Print a dataset's card and write a pair plot of its targets. Nothing is downloaded: fetch it first."""
    from prerank_paper.cli.cards import card, write_pair_plot  # pandas loads slowly
    from prerank_paper.datasets import load

    picture = plot or Path(f"{name}-targets.png")
    if not no_plot:
        require_picture(picture)
        require_outputs({"--plot": picture}, ())
    table = load(name, accept_licence=accept_licence, download=False)
    console = Console()
    console.print(card(table))
    if not no_plot:
        path = write_pair_plot(table, picture)
        console.print(f"\npair plot of the targets: {shown_path(path)}", highlight=False)
