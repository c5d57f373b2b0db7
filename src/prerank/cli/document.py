"""A check as JSON, for machines. The keys are documented in the reference of the command line."""

import json
from typing import Any

import pandas as pd

from prerank.diagnosis import Check, Comparison, GroupedCheck
from prerank.diagnosis.groups import group_text


def as_document(result: Check | GroupedCheck, seed: int) -> str:
    """The result as JSON; numbers that do not exist are null."""
    document = {**_of_groups(result), "seed": seed} if isinstance(result, GroupedCheck) else of_check(result, seed)
    return json.dumps(document, indent=2, allow_nan=False)


def of_check(result: Check, seed: int) -> dict[str, Any]:
    """The keys of one check."""
    return {
        "verdict": result.verdict,
        "sentences": list(result.sentences.values()),
        **_outcome(result),
        "cases": result.n_cases,
        "blocks": result.n_blocks,
        "replicates": result.n_replicates,
        "seed": seed,
        "notes": list(result.notes),
        "preranks": _preranks(result),
        "projections": _records(result.projections),
    }


def of_comparison(result: Comparison, seed: int) -> dict[str, Any]:
    """The keys of a comparison."""
    first, second = result.names
    found: dict[str, Any] = {
        first: of_check(result.before, seed),
        second: of_check(result.after, seed),
        "energy_score": {first: result.score_before, second: result.score_after},
    }
    if result.variogram is not None:
        found["variogram_score"] = dict(zip(result.names, result.variogram, strict=True))
    return found


def _of_groups(result: GroupedCheck) -> dict[str, Any]:
    rows = _records(result.table)
    if result.factors:
        texts = [group_text(name, result.factors) for name in result.checks]
        rows = [{"group": text, **row} for text, row in zip(texts, rows, strict=True)]
    details = [{"notes": list(one.notes), "preranks": _preranks(one)} for one in result.checks.values()]
    notes = list(result.notes)
    return {
        "verdict": result.verdict,
        "sentences": result.sentences,
        **_outcome(result),
        "notes": notes,
        "groups": [{**row, **more} for row, more in zip(rows, details, strict=True)],
    }


def _outcome(result: Check | GroupedCheck) -> dict[str, Any]:
    return {
        "rejected": result.rejected,
        "calibrated": result.calibrated,
        "p_value": result.p_value,
        "attainable_p_value": result.attainable,
    }


def _preranks(result: Check) -> list[dict[str, Any]]:
    """The rows of the table, each with its sentence, which is null where nothing fails."""
    return [{**row, "sentence": result.sentences.get(row["prerank"])} for row in _records(result.table)]


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table, with keys such as adjusted_p_value."""
    rows = table.reset_index().to_dict("records")
    return [{_key(str(name)): _plain(item) for name, item in row.items()} for row in rows]


def _plain(item: Any) -> Any:
    """Numbers and text as they are, what is no number as null, and labels of other kinds, such as dates, as text."""
    if isinstance(item, str | int | float):
        return None if item != item else item
    return str(item).removesuffix(" 00:00:00")


def _key(name: str) -> str:
    return name.lower().replace("pre-rank", "prerank").replace(" ", "_").replace("-", "_")
