"""Tables show what was run, what was not, and what the paper has."""

import re
import subprocess
from shutil import which

import pandas as pd
import pytest

from prerank_paper.benchmark.plan import PRERANKS
from prerank_paper.report.summaries import EXACT_PROTOCOL, PUBLISHED_PROTOCOL, paper_cells
from prerank_paper.report.tables import (
    SHORT_DATASETS,
    cell_csv,
    cell_table,
    cross_cells,
    cross_table,
    short_table,
    with_test,
)
from prerank_paper.report.text_tables import latex, markdown

TEX = next((path for name in ("pdflatex", "xelatex", "tectonic") if (path := which(name))), None)


@pytest.fixture(scope="module")
def exact(results):
    return paper_cells(results, EXACT_PROTOCOL)


@pytest.fixture(scope="module")
def table(results, exact):
    return cell_table(
        results, EXACT_PROTOCOL, exact["pce_baseline"], "PCE", paper="pce_baseline", bold_minimum=True, expected=True
    )


def line(table, label):
    return next(row for row in table.rows if row.label == label)


def test_every_dataset_that_was_run_has_a_line_and_the_papers(table):
    assert [row.label for row in table.rows] == ["households", "paper", "air", "paper", "house", "paper"]
    assert any("these results have not births1" in note for note in table.notes)


def test_nothing_is_called_missing_where_the_papers_datasets_were_not_asked_for(make):
    made = make(["house"], seeds=(0,))
    elsewhere = made._replace(
        **{name: getattr(made, name).assign(dataset="mine") for name in ("fleets", "models", "records", "curves")}
    )
    table = cell_table(elsewhere, EXACT_PROTOCOL, paper_cells(elsewhere, EXACT_PROTOCOL)["pce_baseline"], "PCE")
    assert [row.label for row in table.rows] == ["mine"]
    assert not any("have not" in note for note in table.notes)
    assert short_table(elsewhere, EXACT_PROTOCOL) is None


def test_two_targets_print_equal_to_scale(table):
    assert line(table, "house").entries[PRERANKS.index("dependency")].text == "= scale"
    assert any("= scale" in note for note in table.notes)


def test_the_smallest_of_a_row_is_bold(table):
    row = line(table, "air")
    values = [float(entry.text.split(" ")[0]) for entry in row.entries[:7]]
    assert [entry.bold for entry in row.entries[:7]].count(True) == 1
    assert row.entries[values.index(min(values))].bold


def test_the_expected_pce_is_the_last_column(table):
    assert table.columns[-1] == "expected PCE"
    assert line(table, "air").entries[-1].text == "0.010"


def test_data_that_are_not_the_papers_are_marked(make):
    made = make(["house"], seeds=(0,), status="substitute: another year")
    cells = paper_cells(made, EXACT_PROTOCOL)["pce_baseline"]
    table = cell_table(made, EXACT_PROTOCOL, cells, "PCE")
    assert line(table, "house‡")
    assert any("another year" in note for note in table.notes)
    assert any("no standard errors" in note for note in table.notes)
    assert "(" not in line(table, "house‡").entries[0].text


def test_a_cell_with_fewer_seeds_is_marked(results, exact):
    cells = exact["pce_baseline"].copy()
    cells.loc[0, "n_seeds"] = 2
    shown = markdown(cell_table(results, EXACT_PROTOCOL, cells, "PCE"))
    assert shown.count("†") == 2  # the cell and the note


def test_tests_show_corrected_error_and_p_value(results, exact):
    shown = cell_table(results, EXACT_PROTOCOL, exact["pce_baseline"], "tests", show=with_test)
    assert re.fullmatch(r"-?0\.\d{3} \(0\.\d{3}\), p (< 0\.001|\d\.\d{3})", line(shown, "air").entries[0].text)


def test_markdown_has_as_many_bars_in_every_line(table):
    bars = {text.count("|") for text in markdown(table).splitlines() if text.startswith("|")}
    assert bars == {len(table.columns) + 1}


def test_latex_is_balanced_and_escaped(table):
    text = latex(table)
    assert text.count("{") == text.count("}")
    assert {text_line.count(" & ") for text_line in text.splitlines() if text_line.endswith(r"\\")} == {8}
    assert not re.search(r"(?<!\\)[%_]", text.replace("{!}{%", ""))


def test_csv_has_the_papers_layout(results, exact):
    table = cell_csv(results, exact["pce_baseline"])
    assert list(table.columns) == ["dataset", "prerank", "value", "standard_error"]
    assert len(table) == 3 * 7
    assert set(table["prerank"]) == {name.lower() for name in PRERANKS}
    missing = table[table["value"].isna()]
    assert missing[["dataset", "prerank"]].to_numpy().tolist() == [["house", "dependency"]]


def test_the_short_table_sets_each_baseline_beside_none(make):
    made = make(["taxi", "house", "bio"], seeds=(0, 1))
    table = short_table(made, PUBLISHED_PROTOCOL)
    assert table.columns[1:] == ("bio", "taxi")
    assert set(table.columns[1:]) < set(SHORT_DATASETS)
    assert [row.label for row in table.rows[:4]] == [
        "None, paper",
        "marginal, baseline",
        "marginal, strength 10",
        "marginal, paper",
    ]
    assert table.rows[0].entries[0].text == "0.061"


def test_the_cross_table_has_both_trainings_under_both_evaluations(results):
    cells = cross_cells(results)
    counted = cells.groupby(["training", "evaluation"]).size()
    assert counted["exact", "exact"] == 20
    assert counted["as published", "exact"] == 21
    assert counted["none", "as published"] == 21
    assert len(cross_table(results, cells, "exact").rows) == 3 * 3


def test_a_protocol_that_was_not_run_leaves_dashes(make):
    made = make(["house"], seeds=(0, 1), trainings=("exact",))
    cells = paper_cells(made, PUBLISHED_PROTOCOL)
    assert cells["pce_regularised"].empty
    table = cell_table(made, PUBLISHED_PROTOCOL, cells["pce_regularised"], "PCE", expected=True)
    assert {entry.text for entry in line(table, "house").entries} == {"–"}
    assert isinstance(cells["selected_lambda"], pd.DataFrame)


@pytest.mark.skipif(TEX is None, reason="no TeX is installed: pdflatex, xelatex or tectonic")
def test_latex_compiles(results, exact, table, tmp_path):
    tables = [
        table,
        cell_table(results, EXACT_PROTOCOL, exact["pce_baseline"], "Tests, p < 5 % & more", show=with_test),
    ]
    packages = "\\usepackage{booktabs}\\usepackage{graphicx}"
    body = "\n".join(latex(item) for item in tables)
    (tmp_path / "tables.tex").write_text(
        f"\\documentclass{{article}}{packages}\\begin{{document}}\n{body}\\end{{document}}\n", encoding="utf-8"
    )
    options = [] if "tectonic" in str(TEX) else ["-interaction=nonstopmode", "-halt-on-error"]
    done = subprocess.run([str(TEX), *options, "tables.tex"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "tables.pdf").stat().st_size > 0
