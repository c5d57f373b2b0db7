"""The paper's tables, laid out from cell statistics: datasets in rows, pre-ranks in columns."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from prerank.plotting.tables import p_text
from prerank_paper.benchmark.plan import NONE, PRERANKS
from prerank_paper.benchmark.records import Results
from prerank_paper.datasets.catalogue import PAPER_DATASETS
from prerank_paper.protocols import AS_PUBLISHED, EXACT
from prerank_paper.report.paper_values import paper_table
from prerank_paper.report.summaries import (
    Protocol,
    baseline,
    datasets_run,
    is_exact,
    penalised,
    says_scale,
    summarise,
)
from prerank_paper.report.text_tables import ABSENT, Entry, Row, TextTable

SHORT_DATASETS = ("bio", "calcofi", "taxi", "blogdata", "meps21", "meps19")
"""The columns of the paper's short table."""

Show = Callable[[pd.Series], str]


def cell_csv(results: Results, cells: pd.DataFrame, columns: Sequence[str] = PRERANKS) -> pd.DataFrame:
    """The layout of the paper's tables as data: dataset, prerank (lower case), value, standard_error.

    A row for every dataset that was run and every column; the value of a cell without a sound model is missing.
    """
    places = pd.MultiIndex.from_product([datasets_run(results).index, columns], names=["dataset", "prerank"])
    table = cells.set_index(["dataset", "prerank"]).reindex(places).reset_index()
    return table.reindex(columns=["dataset", "prerank", "value", "standard_error"]).assign(
        prerank=table["prerank"].str.lower()
    )


def with_error(decimals: int) -> Show:
    """Mean (standard error), the latter where there is one."""

    def show(cell: pd.Series) -> str:
        error = cell.get("standard_error", np.nan)
        suffix = "" if np.isnan(error) else f" ({error:.{decimals}f})"
        return f"{cell['value']:.{decimals}f}{suffix}"

    return show


def shortest(cell: pd.Series) -> str:
    """The value in as few digits as it needs."""
    return f"{cell['value']:g}"


def with_test(cell: pd.Series) -> str:
    """Bias-corrected PCE (standard error) and the p-value of the cell."""
    corrected = with_error(3)(pd.Series({"value": cell["corrected"], "standard_error": cell["corrected_error"]}))
    return f"{corrected}, p {p_text(cell['p_value'])}"


def cell_table(
    results: Results,
    protocol: Protocol,
    cells: pd.DataFrame,
    title: str,
    *,
    show: Show = with_error(3),  # noqa: B008
    paper: str | None = None,
    columns: Sequence[str] = PRERANKS,
    bold_minimum: bool = False,
    expected: bool = False,
) -> TextTable:
    """Datasets by pre-ranks, the paper's values on a second line where it has them.

    `show` writes a cell. `expected` adds a column with the PCE expected under calibration.
    """
    ran = datasets_run(results)
    ours = _by_cell(cells)
    theirs = {} if paper is None else _by_cell(paper_table(paper))
    most_seeds = int(cells["n_seeds"].max()) if "n_seeds" in cells and len(cells) else 0
    rows = []
    for dataset in ran.index:
        lowest = _lowest(ours, dataset, columns) if bold_minimum else None
        entries = [
            Entry(_own_text(results, protocol, ours, dataset, name, show, most_seeds), name == lowest)
            for name in columns
        ]
        if expected:
            level = cells.loc[cells["dataset"] == dataset, "expected_pce"].mean()
            entries.append(Entry(ABSENT if np.isnan(level) else f"{level:.3f}"))
        rows.append(Row(_label(ran, dataset), tuple(entries)))
        if any((dataset, name) in theirs for name in columns):
            lowest = _lowest(theirs, dataset, columns) if bold_minimum else None
            printed = [
                Entry(show(theirs[dataset, name]) if (dataset, name) in theirs else "", name == lowest)
                for name in columns
            ]
            rows.append(Row("paper", (*printed, *[Entry("")] * expected), secondary=True))
    heads = ("dataset", *columns, *(["expected PCE"] if expected else []))
    texts = {entry.text for row in rows for entry in row.entries}
    notes = [_protocol_note(protocol), *_seed_notes(cells, most_seeds), *_text_notes(texts), *_data_notes(ran)]
    return TextTable(title, heads, tuple(rows), tuple(notes))


def short_table(results: Results, protocol: Protocol) -> TextTable | None:
    """The paper's table of six datasets, each pre-rank with its own baseline above it; None if none of them was run."""
    ran = datasets_run(results)
    shown = [name for name in SHORT_DATASETS if name in ran.index]
    if not shown:
        return None
    sources = {"baseline": _by_cell(summarise(baseline(results, protocol)))}
    sources["strength 10"] = _by_cell(summarise(penalised(results, protocol)))
    none, after = _by_cell(paper_table("pce_none")), _by_cell(paper_table("pce_regularised"))
    rows = [Row("None, paper", tuple(Entry(with_error(3)(none[name, NONE])) for name in shown), True)]
    for prerank in PRERANKS:
        for source, cells in sources.items():
            entries = tuple(
                Entry(_own_text(results, protocol, cells, name, prerank, with_error(3), 0)) for name in shown
            )
            rows.append(Row(f"{prerank}, {source}", entries))
        rows.append(Row(f"{prerank}, paper", tuple(Entry(with_error(3)(after[name, prerank])) for name in shown), True))
    notes = [
        _protocol_note(protocol),
        'The paper\'s row "None" is the baseline of PCA alone; each pre-rank has its own baseline here.',
        *_data_notes(ran.loc[shown]),
    ]
    columns = ("pre-rank", *(_label(ran, name) for name in shown))
    return TextTable("PCE of six datasets, before and after", columns, tuple(rows), tuple(notes))


def cross_cells(results: Results) -> pd.DataFrame:
    """PCE of the own pre-rank for both trainings under both evaluations, the baseline in a row of its own (tidy)."""
    parts = []
    for evaluation in (EXACT, AS_PUBLISHED):
        plain = summarise(baseline(results, Protocol(EXACT, evaluation)))
        parts.append(plain.assign(training=NONE, evaluation=evaluation))
        for training in (EXACT, AS_PUBLISHED):
            cells = summarise(penalised(results, Protocol(training, evaluation)))
            parts.append(cells.assign(training=training, evaluation=evaluation))
    both = pd.concat(parts, ignore_index=True)
    return both[["dataset", "prerank", "training", "evaluation", "value", "standard_error", "expected_pce"]]


def cross_table(results: Results, cells: pd.DataFrame, evaluation: str) -> TextTable:
    """One evaluation of `cross_cells`: for each dataset the baseline and both ways of training."""
    ran = datasets_run(results)
    rows = []
    lines = {NONE: "baseline", EXACT: "trained exactly", AS_PUBLISHED: "trained as published"}
    evaluated = cells[cells["evaluation"] == evaluation]
    own = {training: _by_cell(evaluated[evaluated["training"] == training]) for training in lines}
    for dataset in ran.index:
        for training, line in lines.items():
            protocol = Protocol(training, evaluation)
            entries = tuple(
                Entry(_own_text(results, protocol, own[training], dataset, name, with_error(3), 0)) for name in PRERANKS
            )
            rows.append(Row(f"{_label(ran, dataset)}, {line}", entries))
    notes = [
        "Each penalised model has strength 10 and is evaluated on its own pre-rank. Mean (standard error over seeds).",
        *_text_notes({entry.text for row in rows for entry in row.entries}),
        *_data_notes(ran),
    ]
    title = f"PCE, evaluated {'exactly' if evaluation == EXACT else 'as published'}, by how models were trained"
    return TextTable(title, ("dataset, training", *PRERANKS), tuple(rows), tuple(notes))


def _by_cell(cells: pd.DataFrame) -> dict[tuple[str, str], pd.Series]:
    return {(row["dataset"], row["prerank"]): row for _, row in cells.iterrows()}


def _label(ran: pd.DataFrame, dataset: str) -> str:
    exact = dataset not in ran.index or is_exact(ran["dataset_status"][dataset])
    return dataset if exact else f"{dataset}‡"


def _own_text(
    results: Results,
    protocol: Protocol,
    cells: Mapping[tuple[str, str], pd.Series],
    dataset: str,
    prerank: str,
    show: Show,
    most_seeds: int,
) -> str:
    if (dataset, prerank) in cells:
        cell = cells[dataset, prerank]
        return show(cell) + ("†" if cell.get("n_seeds", most_seeds) < most_seeds else "")
    return "= scale" if says_scale(results, dataset, prerank, protocol.evaluation) else ABSENT


def _lowest(cells: Mapping[tuple[str, str], pd.Series], dataset: str, columns: Sequence[str]) -> str | None:
    values = {name: float(cells[dataset, name]["value"]) for name in columns if (dataset, name) in cells}
    return min(values, key=lambda name: values[name]) if values else None


def _protocol_note(protocol: Protocol) -> str:
    if protocol.evaluation == EXACT:
        return "Exact protocol: penalties were trained exactly, and all models evaluated exactly, on the whole test set"
    return (
        "As-published protocol: penalties were trained as published, and all models evaluated as published, per batch "
        "of 256 test cases"
    )


def _seed_notes(cells: pd.DataFrame, most_seeds: int) -> list[str]:
    if "standard_error" not in cells or most_seeds == 0:
        return []
    if most_seeds == 1:
        return ["One seed, hence no standard errors"]
    fewer = ["† fewer seeds than that: some models failed"] if (cells["n_seeds"] < most_seeds).any() else []
    return [f"Mean (standard error) over {most_seeds} seeds", *fewer]


def _text_notes(texts: set[str]) -> list[str]:
    notes = []
    if "= scale" in texts:
        notes.append(
            "= scale: with two targets an exact dependency ranks as scale does, so no model was trained for it"
        )
    if ABSENT in texts:
        notes.append(f"{ABSENT} no sound model: not run, or failed")
    return notes


def _data_notes(ran: pd.DataFrame) -> list[str]:
    """Which of the paper's datasets these results have not, where they have some, and which are not quite the paper's."""
    known = [item.name for item in PAPER_DATASETS]
    missing = [name for name in known if name not in ran.index]
    inexact = [f"{name}: {status}" for name, status in ran["dataset_status"].items() if not is_exact(status)]
    notes = (
        [f"Of the paper's datasets these results have not {', '.join(missing)}"]
        if 0 < len(missing) < len(known)
        else []
    )
    return notes + ([f"‡ not the paper's values: {'; '.join(inexact)}"] if inexact else [])
