"""The rows of one target and output type, from all files of some models."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from prerank._wording import counted
from prerank.io.errors import DataError, by_option, listed
from prerank.io.hub.files import MODEL, Submission, chosen_models, submissions, submitted_rows, task_of


class Rows(NamedTuple):
    """Rows of some models, with the numbers of their files and their places in them; the target, and what was noticed."""

    rows: pd.DataFrame
    models: list[str]
    files: list[Submission]
    target: str | None
    notes: list[str]


def rows_of(hub: Path, asked: Sequence[str], target: str | None, output_type: str) -> Rows:
    """The rows of one target and output type of all models, by their names or by wildcards.

    A model that has none is left out where a wildcard stands for it and for others that have some.
    """
    names = chosen_models(hub, asked)
    files = [file for name in names for file in submissions(hub, name)]
    rules = task_of(hub, target, output_type)
    tables, empty = [], 0
    there: dict[str, set[tuple[str, str]]] = {name: set() for name in names}
    for number, file in enumerate(files):
        table = submitted_rows(file)
        there[file.model] |= _outputs_in(table)
        chosen = pc.equal(table["output_type"], output_type)
        for name, wanted in rules.keys.items():
            if name in table.column_names:
                chosen = pc.and_(chosen, pc.equal(table[name], wanted))
        places = np.flatnonzero(chosen.to_numpy(zero_copy_only=False) == True)  # noqa: E712 - a null is no row
        if not len(places):
            empty += 1
            continue
        part = table.take(pa.array(places)).to_pandas()
        tables.append(part.assign(**{MODEL: file.model, "round": file.round, "file": number, "row": places}))
    with_none = [name for name in names if all(part[MODEL].iloc[0] != name for part in tables)]
    if with_none and len(with_none) < len(names) and not {*with_none} & {*asked}:
        found = rows_of(hub, [name for name in names if name not in with_none], target, output_type)
        have = "has" if len(with_none) == 1 else "have"
        return found._replace(notes=[f"left out: {', '.join(with_none)}, which {have} no {output_type}s", *found.notes])
    if with_none:
        raise DataError(_why_none(hub, with_none[0], target, output_type, there[with_none[0]]))
    target = _only_target(tables, target, output_type)
    others = sorted({kind for found in there.values() for kind, _ in found} - {output_type})
    notes = [f"output types {', '.join(others)} are not looked at, {output_type} is"] if others else []
    if empty:
        have = "has" if empty == 1 else "have"
        notes.append(f"{empty} of {counted(len(files), 'file')} {have} no {output_type} of the target")
    return Rows(pd.concat(tables, ignore_index=True), names, files, target, notes)


def _outputs_in(table: pa.Table) -> set[tuple[str, str]]:
    """Output types and targets that occur together."""
    if "target" not in table.column_names:
        return {(str(kind), "") for kind in pc.unique(table["output_type"]).to_pylist()}
    pairs = table.select(["output_type", "target"]).group_by(["output_type", "target"]).aggregate([]).to_pydict()
    return {(str(kind), str(name)) for kind, name in zip(pairs["output_type"], pairs["target"], strict=True)}


def _why_none(hub: Path, model: str, target: str | None, output_type: str, there: set[tuple[str, str]]) -> str:
    """Why a model has no forecast of this kind, and what it has."""
    kinds = {kind for kind, name in there if target is None or name == target}
    every = sorted({name for _, name in there if name})
    if target is not None and not kinds and every:
        return (
            f"{model} has no forecast of the target {target!r}, only of {listed(every)}; name one {by_option('target')}"
        )
    subject = f"{model} has no {output_type}s of {target!r}" if target is not None else f"{model} has no {output_type}s"
    if output_type == "sample" and "quantile" in kinds:
        return (
            f"{subject}, but quantiles, which do not say how targets go together; check them with --dependence, such as "
            "gaussian, make draws of them with prerank joint, or give a model that submits samples"
        )
    other = sorted({name for kind, name in there if kind == output_type})
    advice = f"it has some of {listed(other)}" if other else "give another model"
    return f"{subject}, only {listed(sorted(kinds))}; {advice}"


def _only_target(tables: Sequence[pd.DataFrame], target: str | None, output_type: str) -> str | None:
    if target is not None or "target" not in tables[0].columns:
        return target
    there = sorted({str(name) for table in tables for name in table["target"].dropna().unique()})
    if len(there) > 1:
        raise DataError(
            f"there are {output_type}s of {len(there)} targets, {listed(there)}; name one {by_option('target')}"
        )
    return there[0]
