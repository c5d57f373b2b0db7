"""Tables for a terminal, a log or a notebook."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.table import Table

_NUMBERS = set("0123456789.<- –%=*")


def p_text(value: float) -> str:
    """A p-value with three decimals, or that it is smaller than they can show."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def terminal_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> "Table":
    """A rich table: columns of numbers to the right, words to the left.

    Parameters
    ----------
    columns : sequence of str
        Headings.
    rows : sequence of sequence of str
        Cells.
    title : str, optional
        What stands above it.

    Returns
    -------
    rich.table.Table
        What a console prints.
    """
    from rich.table import Table  # loads slowly

    table = Table(
        title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0)
    )
    for position, column in enumerate(columns):
        cells = [row[position] for row in rows]
        numeric = bool(cells) and all(set(cell) <= _NUMBERS for cell in cells)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=numeric)
    for row in rows:
        table.add_row(*row)
    return table


def bullets(sentences: Iterable[str]) -> list[str]:
    """Sentences as the lines of a list."""
    return [f"- {sentence}" for sentence in sentences]


def render(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    stream: TextIO,
    notes: Sequence[str] = (),
    width: int = 110,
    head: Sequence[str] = (),
) -> None:
    """Write a table as plain text, with lines above and below it.

    Parameters
    ----------
    columns : sequence of str
        Headings.
    rows : sequence of sequence of str
        Cells.
    stream : file object
        Where the text goes.
    notes : sequence of str, default ()
        Lines below the table.
    width : int, default 110
        Characters in a line.
    head : sequence of str, default ()
        Lines above the table.

    Examples
    --------
    >>> import sys
    >>> render(["pre-rank", "PCE"], [["scale", "0.01"]], sys.stdout)
    pre-rank   PCE
    scale     0.01
    """
    from rich.console import Console  # loads slowly

    console = Console(
        file=stream,
        width=width,
        no_color=True,
        highlight=False,
        emoji=False,
        markup=False,
        force_jupyter=False,  # in a notebook the text would be shown as HTML, and the stream stay empty
    )
    for line in head:
        hanging = "  " if line.startswith("- ") else ""
        console.print(textwrap.fill(line, width, subsequent_indent=hanging, break_on_hyphens=False))
    if head:
        console.print()
    console.print(terminal_table(columns, rows))
    if notes:
        console.print()
    for note in notes:
        console.print(note)
