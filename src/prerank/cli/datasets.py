"""`prerank datasets`: which datasets there are, where they are now, and what is in them."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from prerank.data import BUILTIN, PAPER_DATASETS, PAPER_SPLIT, DataError, Table, fetch, load, pair_counts
from prerank.data.catalogue import Dataset
from prerank.data.loading import extra_datasets
from prerank.data.mirror import MirrorEntry
from prerank.data.sources import Cached, CleanedHere, Location, RawHere, cache_folder, locate

app = typer.Typer(help="The paper's datasets and those built in: list, fetch, show.", rich_markup_mode="rich")

NAME = Annotated[str, typer.Argument(help="a dataset of `prerank datasets`", show_default=False)]
ACCEPT = Annotated[
    bool, typer.Option("--accept-licence", help="I accept the data use agreement of this dataset (the MEPS panels).")
]


@app.callback(invoke_without_command=True)
def datasets(context: typer.Context) -> None:
    """List the datasets: rows, features (L), targets (D), licence, and where each is now."""
    if context.invoked_subcommand is not None:
        return
    try:
        places = [(dataset, locate(dataset)) for dataset in PAPER_DATASETS]
        extras = extra_datasets()
    except DataError as error:
        raise _refusal(error) from None
    grid = Grid(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    grid.add_column("dataset", no_wrap=True)
    for column in ("rows", "L", "D"):
        grid.add_column(column, justify="right", no_wrap=True)
    grid.add_column("where", no_wrap=True)
    grid.add_column("licence")
    for dataset, location in places:
        grid.add_row(*_row(dataset, location))
    grid.add_section()
    for name, recipe in BUILTIN.items():
        table = recipe.table()
        shape = (f"{table.n_cases:,}", str(table.n_features), str(table.n_targets))
        grid.add_row(name, *shape, "[green]built in[/]", escape(table.card.licence))
    for entry in extras:
        grid.add_row(escape(entry.name), *_shape(entry), "[green]PRERANK_DATA[/] [yellow]+[/]", escape(entry.licence))
    console = Console()
    console.print(grid)
    console.print(
        "\n[dim]* not the paper's own rows: `prerank datasets show NAME` says how they differ.\n+ not in the paper.\n"
        "`prerank datasets fetch NAME` brings one from upstream to the cache: "
        f"{escape(str(cache_folder()))}[/]",
        highlight=False,
    )


@app.command("fetch")
def fetch_command(name: NAME, accept_licence: ACCEPT = False) -> None:
    """Bring a dataset from upstream to the cache, verified; nothing is downloaded twice."""
    try:
        path = fetch(name, accept_licence=accept_licence)
    except DataError as error:
        raise _refusal(error) from None
    typer.echo(f"{name}: verified, {path.stat().st_size:,} bytes in {path}")


@app.command("show")
def show_command(
    name: NAME,
    accept_licence: ACCEPT = False,
    plot: Annotated[Path | None, typer.Option(help="where to write the pair plot (NAME-targets.png)")] = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="print the card only")] = False,
) -> None:
    """Print a dataset's card and write a pair plot of its targets. Nothing is downloaded: fetch it first."""
    try:
        table = load(name, accept_licence=accept_licence, download=False)
    except DataError as error:
        raise _refusal(error) from None
    console = Console()
    console.print(_card(table))
    if not no_plot:
        path = _write_pair_plot(table, plot or Path(f"{name}-targets.png"))
        console.print(f"\npair plot of the targets: {escape(str(path))}", highlight=False)


def _row(dataset: Dataset, location: Location) -> tuple[str, ...]:
    rows = f"{'~' if dataset.n_rows_inferred else ''}{dataset.n_rows:,}"
    shape = (rows, str(dataset.n_features), str(dataset.n_targets))
    where = "[dim]upstream[/]"
    if isinstance(location, CleanedHere):
        shape = _shape(location.entry)
        exact = location.entry.status.startswith("exact")
        where = "[green]PRERANK_DATA[/]" if exact else "[green]PRERANK_DATA[/] [yellow]*[/]"
    elif isinstance(location, RawHere):
        where = "[green]PRERANK_DATA, raw[/]"
    elif isinstance(location, Cached):
        where = "[green]cache[/]"
    return (dataset.name, *shape, where, escape(dataset.licence))


def _shape(entry: MirrorEntry) -> tuple[str, str, str]:
    return f"{entry.n_rows:,}", str(entry.n_features), str(entry.n_targets)


def _card(table: Table) -> Grid:
    card, sizes = table.card, PAPER_SPLIT.sizes(table.n_cases)
    grid = Grid(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    in_paper = "" if card.rows_in_paper in (None, table.n_cases) else f" (the paper has {card.rows_in_paper:,})"
    parts = ", ".join(f"{size:,} {part}" for part, size in zip(sizes._fields, sizes, strict=True))
    lines = [
        ("dataset", f"[bold]{escape(card.name)}[/]" + (f": {escape(card.summary)}" if card.summary else "")),
        ("rows", f"{table.n_cases:,}{in_paper}"),
        ("split", parts),
        ("features", f"{table.n_features}: {_names(table.x_names)}"),
        ("targets", f"{table.n_targets}: {_names(table.y_names)}"),
        ("status", escape(card.status) if card.is_exact else f"[yellow]{escape(card.status)}[/]"),
        ("from", escape(card.origin)),
        ("licence", escape(card.licence)),
        *(("cleaning", escape(line)) for line in card.cleaning),
        *(("note", escape(line)) for line in card.notes),
    ]
    for label, text in lines:
        grid.add_row(label, text)
    return grid


def _names(names: tuple[str, ...], most: int = 16) -> str:
    return escape(", ".join(names[:most]) + (f", ... ({len(names) - most} more)" if len(names) > most else ""))


def _write_pair_plot(table: Table, path: Path) -> Path:
    from prerank.reporting.pairplot import pair_plot
    from prerank.reporting.style import new_figure, quiet_style

    counts = pair_counts(table)
    shown = len(counts.names)
    some = f"the first {shown} of {table.n_targets} targets" if shown < table.n_targets else f"{shown} targets"
    with quiet_style():
        side = max(4.2, 1.5 * shown)
        figure = pair_plot(new_figure(side, side), counts, f"{table.card.name}: {some}, {table.n_cases:,} rows")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=160)
    return path


def _refusal(error: DataError) -> typer.Exit:
    Console(stderr=True).print(f"[red]{escape(str(error))}[/]", highlight=False, soft_wrap=True)
    return typer.Exit(1)
