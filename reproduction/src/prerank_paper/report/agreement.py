"""How far the as-published results agree with the paper's tables."""

import numpy as np
import pandas as pd

from prerank_paper.benchmark.plan import NONE, PUBLISHED_STRENGTH, TOGETHER
from prerank_paper.benchmark.records import Results
from prerank_paper.report.paper_values import paper_table
from prerank_paper.report.summaries import (
    CELL,
    PUBLISHED_PROTOCOL,
    baseline,
    datasets_run,
    is_exact,
    on_every_prerank,
    summarise,
    table_of,
)

CRITERIA: dict[str, tuple[float | None, bool]] = {
    "pce_baseline": (0.2, False),
    "pce_regularised": (0.2, True),
    "energy_score_regularised": (0.05, True),
    "nll_regularised": (None, True),
    "pce_marginal_all": (0.2, True),
    "pce_pca_all": (0.2, True),
    "selected_lambda": (0.0, False),
}
"""For each table the relative deviation that counts as agreement, and whether two standard errors do as well."""

AT_SELECTED = " at the paper's selected strengths"
"""What the name of a regularised table ends with if ours has the strengths that the paper selected, instead of 10."""


def criterion_text(table: str) -> str:
    """The rule of a table in words.

    >>> criterion_text("pce_regularised")
    'within 20 % or 2 standard errors'
    """
    relative, errors = CRITERIA[table.removesuffix(AT_SELECTED)]
    if relative == 0.0:
        return "equal"
    parts = [] if relative is None else [f"{100 * relative:g} %"]
    return f"within {' or '.join([*parts, *(['2 standard errors'] if errors else [])])}"


def compare(results: Results, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """A row per cell that both have: ours, the paper's, their deviation, whether they agree, whether the data are exact.

    `tables` are the as-published cells by the name of the paper's table, with `AT_SELECTED` behind it where our models
    have the paper's selected strengths. Two standard errors are those of the
    difference, the root of the sum of squares; one that is not known counts as zero.
    """
    status = datasets_run(results)["dataset_status"]
    parts = []
    for name, table in tables.items():
        if name.removesuffix(AT_SELECTED) not in CRITERIA:
            continue
        relative, errors = CRITERIA[name.removesuffix(AT_SELECTED)]
        ours = table.reindex(columns=[*CELL, "value", "standard_error"]).dropna(subset="value")
        both = ours.merge(paper_table(name.removesuffix(AT_SELECTED)), on=CELL, suffixes=("", "_paper"))
        deviation = (both["value"] - both["value_paper"]).abs()
        error = np.hypot(both["standard_error"].fillna(0.0), both["standard_error_paper"].fillna(0.0))
        close = pd.Series(False, index=both.index)
        if relative is not None:
            close |= deviation <= relative * both["value_paper"].abs() + 1e-12
        if errors:
            close |= deviation <= 2 * error
        parts.append(
            both.assign(
                table=name,
                relative_deviation=deviation / both["value_paper"].abs().replace(0.0, np.nan),
                agrees=close,
                exact_data=[is_exact(status[dataset]) for dataset in both["dataset"]],
            )
        )
    compared = pd.concat(parts, ignore_index=True).astype({"agrees": bool, "exact_data": bool})
    return compared[["table", *(name for name in compared.columns if name != "table")]]


def shares(compared: pd.DataFrame) -> pd.DataFrame:
    """Per table, on exact data and on all: cells, how many agree, their share, the median relative deviation."""
    rows = []
    for table in dict.fromkeys(compared["table"]):
        of_table = compared[compared["table"] == table]
        for data, cells in (("exact", of_table[of_table["exact_data"]]), ("all", of_table)):
            rows.append(
                {
                    "table": table,
                    "data": data,
                    "criterion": criterion_text(table),
                    "cells": len(cells),
                    "agree": int(cells["agrees"].sum()),
                    "share": cells["agrees"].mean() if len(cells) else np.nan,
                    "median deviation": cells["relative_deviation"].median() if len(cells) else np.nan,
                }
            )
    columns = [
        "table",
        "data",
        "criterion",
        "cells",
        "agree",
        "share",
        "median deviation",
    ]  # also where no cell is the paper's
    return pd.DataFrame(rows, columns=columns)


def candidates(results: Results) -> pd.DataFrame:
    """Which of our models have the PCEs of the paper's "+ALL" tables: a row per table, penalty and strength.

    Models with that penalty, with a penalty on its first pre-rank alone, and with none, on datasets with the paper's
    very values; how many cells lie within 20 %, and how far they are off in the median.
    """
    status = datasets_run(results)["dataset_status"]
    exact = [name for name in status.index if is_exact(status[name])]
    strengths = sorted(results.models.loc[results.models["penalty"].isin(TOGETHER.values()), "strength"].unique())
    rows = []
    for together, alone in TOGETHER.items():
        table = table_of(together)
        printed = paper_table(table).set_index(CELL)["value"]
        for penalty, strength in [(together, PUBLISHED_STRENGTH), *((alone, s) for s in strengths), (NONE, 0.0)]:
            chosen = (
                baseline(results, PUBLISHED_PROTOCOL)
                if penalty == NONE
                else on_every_prerank(results, PUBLISHED_PROTOCOL, penalty, strength)
            )
            ours = summarise(chosen[chosen["dataset"].isin(exact)]).set_index(CELL)["value"]
            off = (ours / printed - 1).abs().dropna()
            row = {"table": table, "our penalty": penalty, "strength": strength, "cells": len(off)}
            rows.append(row | {"within 20 %": (off <= 0.2).mean(), "median deviation": off.median()})
    return pd.DataFrame(rows)
