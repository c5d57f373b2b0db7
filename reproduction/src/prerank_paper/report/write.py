"""The report of a benchmark: every table and figure of the paper, in both protocols, from its records."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from prerank._writing import require_folder
from prerank_paper.benchmark.plan import NONE, PRERANKS, TOGETHER
from prerank_paper.benchmark.record_file import NAME, write_record_file
from prerank_paper.benchmark.records import Results, read_failures, read_results
from prerank_paper.protocols import AS_PUBLISHED, EXACT
from prerank_paper.report.agreement import AT_SELECTED, CRITERIA, candidates, compare, shares
from prerank_paper.report.files import write_csv, write_table, write_text
from prerank_paper.report.pages import Section, index_page, must_know, summary_page
from prerank_paper.report.paper_figures import paper_figures, story, trained
from prerank_paper.report.paper_values import paper_table
from prerank_paper.report.spread import against_spread, spread_shares
from prerank_paper.report.summaries import (
    EXACT_PROTOCOL,
    PROTOCOLS,
    PUBLISHED_PROTOCOL,
    Protocol,
    at_tuned_strength,
    baseline,
    paper_cells,
    penalised,
    summarise,
    was_trained,
)
from prerank_paper.report.tables import (
    Show,
    cell_csv,
    cell_table,
    cross_cells,
    cross_table,
    short_table,
    shortest,
    with_error,
    with_test,
)
from prerank_paper.report.text_tables import frame_table, markdown, of_what_ran


class _Layout(NamedTuple):
    title: str
    show: Show
    columns: tuple[str, ...] = PRERANKS
    bold_minimum: bool = False
    expected: bool = False


_LAYOUTS = {
    "pce_baseline": _Layout("PCE without a penalty", with_error(3), expected=True),
    "pce_regularised": _Layout("PCE with the penalty, strength 10, own pre-rank", with_error(3), expected=True),
    "pce_tuned": _Layout("PCE with the penalty, tuned strength, own pre-rank", with_error(3), expected=True),
    "nll_baseline": _Layout("NLL without a penalty", with_error(2), (NONE,)),
    "nll_regularised": _Layout("NLL with the penalty, strength 10", with_error(2)),
    "nll_tuned": _Layout("NLL with the penalty, tuned strength", with_error(2)),
    "energy_score_baseline": _Layout("Energy score without a penalty", with_error(3), (NONE,)),
    "energy_score_regularised": _Layout("Energy score with the penalty, strength 10", with_error(3)),
    "energy_score_tuned": _Layout("Energy score with the penalty, tuned strength", with_error(3)),
    "pce_marginal_all": _Layout(
        "PCE by pre-rank, penalty marginal + ALL at strength 10", with_error(3), PRERANKS, True
    ),
    "pce_pca_all": _Layout("PCE by pre-rank, penalty PCA + ALL at strength 10", with_error(3), PRERANKS, True),
    "selected_lambda": _Layout("Strength chosen on the validation set", shortest),
}
_IN_PAPER = {name for name in _LAYOUTS if name.endswith(("_regularised", "_all"))} | {"pce_baseline", "selected_lambda"}
_NEEDED = {
    "fleets": "dataset training n_models n_targets n_train n_test steps seconds ms_per_step peak_bytes device "
    "dataset_status",
    "models": "steps diverged error",
    "records": "value expected_pce corrected low high p_value",
    "curves": "frequency",
    "timings": "n_models ms_per_step device",
}
"""What is read of each table, beside the names that tell its rows apart."""


def report_folder(folder: Path, out: Path | None = None) -> list[Path]:
    """Read the results of a folder and write their report to `out` (`folder`/report); returns the files, index first.

    A results folder without a finished fleet is refused. What was not run is said where it would stand.
    """
    results = read_results(folder)
    for name, columns in _NEEDED.items():
        lacking = [column for column in columns.split() if column not in getattr(results, name).columns]
        if lacking:
            raise ValueError(
                f"the {name} in {folder} have no {', '.join(lacking)}, which the report needs; `prerank-paper benchmark` of "
                "this release writes them: run it again, into another folder"
            )
    return write_report(results, out or folder / "report", read_failures(folder))


def write_report(results: Results, out: Path, failures: Mapping[str, str] | None = None) -> list[Path]:
    """Write every table, figure and page, and all records in one file; returns the files, index first."""
    if results.records.empty:
        raise ValueError(
            "the results hold no numbers: no model of any fleet could be evaluated; see the failures folder, and run "
            "`prerank-paper benchmark` again"
        )
    require_folder(out)
    cells = {protocol: paper_cells(results, protocol) for protocol in PROTOCOLS}
    tuned = {protocol: cells[protocol]["selected_lambda"] for protocol in PROTOCOLS}
    files: list[Path] = []
    sections = [story(results, out, files), trained(results, out, files)]
    for protocol in PROTOCOLS:
        sections.append(_paper_tables(results, protocol, cells[protocol], out, files))
        sections.append(paper_figures(results, protocol, cells[protocol], out, files))
    sections.append(_cross(results, out, files))
    compared = compare(results, _in_the_papers_order(cells[PUBLISHED_PROTOCOL]) | at_selected_strengths(results))
    sections.append(_agreement(results, compared, out, files))
    numbers = must_know(results, compared)
    summary = write_text(out / "summary.md", summary_page(results, numbers, tuned), files)
    files.append(write_record_file(results._asdict(), out / NAME))
    index = write_text(out / "index.md", index_page(results, numbers, summary, sections, failures or {}, out), [])
    return [index, *files]


def _in_the_papers_order(cells: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {name: cells[name] for name in CRITERIA}


def at_selected_strengths(results: Results) -> dict[str, pd.DataFrame]:
    """The as-published regularised cells at the strengths that the paper selected, by the names of its tables."""
    selected = paper_table("selected_lambda")[["dataset", "prerank", "value"]]
    metrics = {"pce_regularised": "pce", "energy_score_regularised": "energy score", "nll_regularised": "nll"}
    return {
        name + AT_SELECTED: summarise(at_tuned_strength(results, PUBLISHED_PROTOCOL, selected, metric))
        for name, metric in metrics.items()
    }


def _paper_tables(
    results: Results, protocol: Protocol, cells: dict[str, pd.DataFrame], out: Path, files: list[Path]
) -> Section:
    folder = out / "tables" / protocol.folder
    tables, absent = {}, []
    for name, layout in _LAYOUTS.items():
        own = cells[name]
        if own.empty:
            if was_trained(results, protocol.training, TOGETHER if name.endswith("_all") else ()):
                absent.append(f"{layout.title}: no such model was run, or none is sound")
            continue
        write_csv(folder / f"{name}.csv", cell_csv(results, own, layout.columns), files)
        table = cell_table(
            results,
            protocol,
            own,
            layout.title,
            show=layout.show,
            paper=name if name in _IN_PAPER else None,
            columns=layout.columns,
            bold_minimum=layout.bold_minimum,
            expected=layout.expected,
        )
        tables[layout.title] = write_table(folder / name, table, files)
    if protocol.evaluation == EXACT:
        tables |= _tests(results, cells, folder, files)
    short = short_table(results, protocol)
    if short is not None:
        tables[short.title] = write_table(folder / "six_datasets", short, files)
    text = "The paper's tables, its own values in italics beneath ours where it has them, and those that it lacks."
    return Section(f"Tables, {_manner(protocol)}", text, tables=tables, absent=absent)


def _tests(results: Results, cells: dict[str, pd.DataFrame], folder: Path, files: list[Path]) -> dict[str, Path]:
    """The exact tests behind the PCE tables: per seed and per cell as data, bias-corrected PCE and p-value as a table."""
    protocol = EXACT_PROTOCOL
    selections = {
        "pce_baseline": baseline(results, protocol),
        "pce_regularised": penalised(results, protocol),
        "pce_tuned": at_tuned_strength(results, protocol, cells["selected_lambda"]),
    }
    tables = {}
    for name, seeds in selections.items():
        write_csv(folder / f"{name}_tests.csv", seeds.assign(prerank=seeds["prerank"].str.lower()), files)
        per_cell = cells[name].assign(prerank=cells[name]["prerank"].str.lower())
        write_csv(folder / f"{name}_cells.csv", per_cell, files)
        title = f"{_LAYOUTS[name].title}: bias-corrected, and tests"
        note = (
            "Bias-corrected PCE (mean over seeds), and p: twice the median p-value over seeds, test rows taken for "
            "independent (those of air and blogdata are series). Intervals are "
            f"per seed, in {name}_tests.csv"
        )
        table = cell_table(results, protocol, cells[name], title, show=with_test, expected=True)
        tables[title] = write_table(folder / f"{name}_tests", replace(table, notes=(note, *table.notes)), files)
    return tables


def _cross(results: Results, out: Path, files: list[Path]) -> Section:
    cells = cross_cells(results)
    write_csv(out / "tables" / "cross.csv", cells.assign(prerank=cells["prerank"].str.lower()), files)
    tables = {}
    for evaluation in (EXACT, AS_PUBLISHED):
        table = cross_table(results, cells, evaluation)
        stem = out / "tables" / f"cross_evaluated_{'exactly' if evaluation == EXACT else 'as_published'}"
        tables[table.title] = write_table(stem, table, files)
    text = "Each way of training under each way of evaluating: what does the other protocol say of a model?"
    return Section("Trained one way, evaluated the other", text, tables=tables)


def _agreement(results: Results, compared: pd.DataFrame, out: Path, files: list[Path]) -> Section:
    if compared.empty:
        absent = "the comparison: none of the paper's datasets was run and evaluated as published"
        return Section("Agreement with the paper", "", absent=[absent])
    write_csv(out / "agreement.csv", compared.assign(prerank=compared["prerank"].str.lower()), files)
    counted = of_what_ran(shares(compared))
    overview = frame_table(counted, "Agreement with the paper", {"share": ".0%", "median deviation": ".1%"})
    percent = {"strength": "g", "within 20 %": ".0%", "median deviation": ".1%"}
    made_with = frame_table(of_what_ran(candidates(results)), 'What were the "+ALL" tables made with?', percent)
    columns = ["table", "dataset", "prerank", "value", "standard_error", "value_paper", "standard_error_paper"]
    apart = compared.loc[~compared["agrees"], columns]
    formats = dict.fromkeys(columns[3:], ".3g")
    listed = frame_table(apart, "Cells that differ", formats)
    text = (
        "# Agreement with the paper\n\nOur as-published cells (trained and evaluated as published) against the paper's "
        "tables, on the datasets whose values are exactly the paper's and on all. Standard errors are those of the "
        "difference. The regularised tables are compared at strength 10 and at the strengths that the paper selected. "
        'The "+ALL" tables are compared with several of our models, on exact data.'
        f"\n\n{markdown(overview)}\n{markdown(made_with)}\n{_against_spread(results)}{markdown(listed)}"
    )
    path = write_text(out / "agreement.md", text, files)
    return Section("Agreement with the paper", "As-published cells against the paper's.", tables={"Agreement": path})


def _against_spread(results: Results) -> str:
    """The comparison with the spread over initialisations, where there are several."""
    cells = against_spread(results)
    if cells.empty:
        return ""
    formats = {"value": ".3f", "deviation": ".4f", "value_paper": ".3f"}
    note = (
        "Value: mean over splits and initialisations; deviation: standard deviation of its difference from the paper's"
    )
    table = frame_table(cells, "Baselines against the spread over initialisations", formats, [note])
    return f"{spread_shares(cells)}\n\n{markdown(table)}\n"


def _manner(protocol: Protocol) -> str:
    return "trained and evaluated exactly" if protocol.evaluation == EXACT else "trained and evaluated as published"
