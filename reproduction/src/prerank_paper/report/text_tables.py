"""Tables as text: rows of entries, set as Markdown or LaTeX."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

ABSENT = "–"
"""What stands where there is no number."""

_LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$"}
_LATEX |= {
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "–": "--",
    "−": "$-$",
    "≤": r"$\leq$",
    "±": r"$\pm$",
    "<": "$<$",
    ">": "$>$",
}


class Entry(NamedTuple):
    """The text of one place in a table."""

    text: str
    bold: bool = False


class Row(NamedTuple):
    """A line of a table; a secondary one (the paper's values under ours) is set in italics."""

    label: str
    entries: tuple[Entry, ...]
    secondary: bool = False


@dataclass(frozen=True)
class TextTable:
    """A table ready to print."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


def markdown(table: TextTable) -> str:
    """The table as Markdown: its title, the grid, the notes."""
    head = [
        f"**{table.title}**",
        "",
        f"| {' | '.join(table.columns)} |",
        f"| --- |{' ---: |' * (len(table.columns) - 1)}",
    ]
    body = []
    for row in table.rows:
        label = f"*{row.label}*" if row.secondary else row.label
        texts = [
            _marked(entry.text, "*{}*" if row.secondary else "{}", "**{}**" if entry.bold else "{}")
            for entry in row.entries
        ]
        body.append(f"| {' | '.join([label, *texts])} |")
    notes = ["", *(f"* {note}" for note in table.notes)] if table.notes else []
    return "\n".join([*head, *body, *notes]) + "\n"


def latex(table: TextTable) -> str:
    """The table as a LaTeX `table` (needs booktabs and graphicx)."""
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        r"\resizebox{\columnwidth}{!}{%",
        rf"\begin{{tabular}}{{l{'c' * (len(table.columns) - 1)}}}",
        r"\toprule",
        " & ".join(_escaped(column) for column in table.columns) + r" \\",
        r"\midrule",
    ]
    for row in table.rows:
        label = rf"\quad\textit{{{_escaped(row.label)}}}" if row.secondary else _escaped(row.label)
        texts = [
            _marked(
                _escaped(entry.text),
                r"\textit{{{}}}" if row.secondary else "{}",
                r"\textbf{{{}}}" if entry.bold else "{}",
            )
            for entry in row.entries
        ]
        lines.append(" & ".join([label, *texts]) + r" \\")
    caption = " ".join(f"{_escaped(text).rstrip('.')}." for text in (table.title, *table.notes))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", "}", rf"\caption{{{caption}}}", r"\end{table}"]) + "\n"


def frame_table(frame: pd.DataFrame, title: str, formats: Mapping[str, str], notes: Sequence[str] = ()) -> TextTable:
    """A frame as it stands, its first column as labels; `formats` are format strings by column."""
    rows = [
        Row(
            _plain(line[0], formats.get(str(frame.columns[0]), "")),
            tuple(
                Entry(_plain(value, formats.get(str(column), "")))
                for value, column in zip(line[1:], frame.columns[1:], strict=True)
            ),
        )
        for line in frame.itertuples(index=False, name=None)
    ]
    return TextTable(title, tuple(str(column) for column in frame.columns), tuple(rows), tuple(notes))


def of_what_ran(frame: pd.DataFrame) -> pd.DataFrame:
    """Without rows of no cell and columns without a value: a part of the study that nobody asked for is not missing."""
    kept = frame[frame["cells"] > 0] if "cells" in frame else frame
    return kept if kept.empty else kept.dropna(axis=1, how="all")


def _plain(value: object, form: str) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ABSENT
    return format(value, form).replace("%", " %" if form.endswith("%") else "%")


def _marked(text: str, *marks: str) -> str:
    """The text inside each of the marks, which are format strings; nothing stays nothing."""
    for mark in marks if text else ():
        text = mark.format(text)
    return text


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)
