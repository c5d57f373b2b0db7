"""Datasets as the command line shows them: the list, a card, and a pair plot of the targets."""

from pathlib import Path

from rich.markup import escape
from rich.table import Table as Grid

from prerank.datasets import Table
from prerank.plotting import new_figure, quiet_style, save_figure
from prerank_paper.datasets import Dataset
from prerank_paper.datasets.builtin import BUILTIN
from prerank_paper.datasets.catalogue import PAPER_DATASETS
from prerank_paper.datasets.loading import extra_datasets
from prerank_paper.datasets.mirror import MirrorEntry
from prerank_paper.datasets.pair_plot import pair_plot
from prerank_paper.datasets.pairs import pair_counts
from prerank_paper.datasets.sources import Cached, CleanedHere, DatasetSource, RawHere, locate
from prerank_paper.datasets.splitting import PAPER_SPLIT


def overview() -> Grid:
    """A row per dataset: rows, features, targets, where it is now, licence."""
    places = [(dataset, locate(dataset)) for dataset in PAPER_DATASETS]
    extras = extra_datasets()
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
    return grid


def _row(dataset: Dataset, location: DatasetSource) -> tuple[str, ...]:
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


def card(table: Table) -> Grid:
    """Everything that is known about a dataset."""
    about, sizes = table.card, PAPER_SPLIT.sizes(table.n_cases)
    grid = Grid(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    in_paper = "" if about.rows_in_paper in (None, table.n_cases) else f" (the paper has {about.rows_in_paper:,})"
    parts = ", ".join(f"{size:,} {part}" for part, size in zip(sizes._fields, sizes, strict=True))
    lines = [
        ("dataset", f"[bold]{escape(about.name)}[/]" + (f": {escape(about.summary)}" if about.summary else "")),
        ("rows", f"{table.n_cases:,}{in_paper}"),
        ("split", parts),
        ("features", f"{table.n_features}: {_names(table.x_names)}"),
        ("targets", f"{table.n_targets}: {_names(table.y_names)}"),
        ("status", escape(about.status) if about.is_exact else f"[yellow]{escape(about.status)}[/]"),
        ("from", escape(about.origin)),
        ("licence", escape(about.licence)),
        *(("cleaning", escape(line)) for line in about.cleaning),
        *(("note", escape(line)) for line in about.notes),
    ]
    for label, text in lines:
        grid.add_row(label, text)
    return grid


def _names(names: tuple[str, ...], most: int = 16) -> str:
    return escape(", ".join(names[:most]) + (f", ... ({len(names) - most} more)" if len(names) > most else ""))


def write_pair_plot(table: Table, path: Path) -> Path:
    """The targets against each other, written to `path`, as PNG unless its suffix says otherwise."""
    counts = pair_counts(table)
    shown = len(counts.names)
    some = f"the first {shown} of {table.n_targets} targets" if shown < table.n_targets else f"{shown} targets"
    with quiet_style():
        side = max(4.2, 1.5 * shown)
        figure = pair_plot(new_figure(side, side), counts, f"{table.card.name}: {some}, {table.n_cases:,} rows")
        stem = path.with_suffix("") if path.suffix else path
        return save_figure(figure, stem, (path.suffix.removeprefix(".") or "png",))[0]
