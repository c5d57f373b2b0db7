"""`prerank-paper report`: the tables and figures of a benchmark, from its records."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from prerank.cli.outputs import shown_path

RECORDS = ("fleets", "timings", "checkpoints", "failures")


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The results folder of `prerank-paper benchmark`.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for tables, figures and pages [DIR/report].", show_default=False)
    ] = None,
) -> None:
    """Every table and figure of the paper from the records of a benchmark, in both protocols."""
    from prerank._parallel import single_threaded
    from prerank_paper.report.write import report_folder  # the training layer loads slowly

    if out is not None:
        for name in RECORDS:
            records = (folder / name).resolve()
            if records in (out.resolve(), *out.resolve().parents):
                raise ValueError(
                    f"--out {out} lies among the records that are read, in {folder / name}; give another folder"
                )
    with single_threaded():
        files = report_folder(folder, out)
    console = Console()
    console.print(f"{len(files)} files; start at {shown_path(files[0])}", highlight=False, soft_wrap=True)
