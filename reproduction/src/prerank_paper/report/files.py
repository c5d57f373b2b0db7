"""The files of a report, each written whole and noted."""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from prerank._writing import whole_file
from prerank.plotting import save_figure
from prerank_paper.report.text_tables import TextTable, latex, markdown


def write_text(path: Path, text: str, files: list[Path]) -> Path:
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
    files.append(path)
    return path


def write_csv(path: Path, frame: pd.DataFrame, files: list[Path]) -> None:
    with whole_file(path) as partial:
        frame.to_csv(partial, index=False, float_format="%.6g")
    files.append(path)


def write_table(stem: Path, table: TextTable, files: list[Path]) -> Path:
    write_text(stem.with_suffix(".tex"), latex(table), files)
    return write_text(stem.with_suffix(".md"), markdown(table), files)


def save_picture(figure: Figure, stem: Path, files: list[Path]) -> Path:
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once for both formats
    written = save_figure(figure, stem)
    files.extend(written)
    return written[0]
