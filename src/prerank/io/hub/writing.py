"""Write corrected samples as a hub: the same folders, files, rows and types, and samples by the same names."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa

from prerank._writing import whole_file, whole_folder
from prerank.io.errors import DataError
from prerank.io.hub.files import Task
from prerank.io.hub.reading import HubLayout
from prerank.io.layouts import as_stored, in_order, write_stored
from prerank.io.long_form import Matched


def require_hub(out: Path, layout: HubLayout) -> None:
    """Refuse a folder where a corrected hub cannot be written: one with other things, or with these models."""
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file, and a corrected hub is a folder; give another name with --out")
    if out.resolve() == layout.hub.resolve() or layout.hub.resolve() in out.resolve().parents:
        raise DataError(f"{out} would be written into the hub that is read; give another folder with --out")
    for model in sorted({file.model for file in layout.files}):
        if (out / "model-output" / model).exists():
            raise DataError(f"{out} has a model {model!r} already; give another folder with --out")
    if out.is_dir() and any(out.iterdir()) and not (out / "model-output").is_dir():
        raise DataError(f"{out} is a folder with other things in it; give a new one with --out")


def admissible_samples(members: np.ndarray, rules: Task) -> tuple[np.ndarray, list[str]]:
    """Samples as the hub's rules want them: whole numbers, within the limits; and what was changed for it."""
    changed, notes = members, []
    if rules.whole:
        changed = np.round(changed)
        notes.append("samples are rounded to whole numbers, as hub-config/tasks.json asks")
    limits = [(rules.least, changed < np.inf if rules.least is None else changed < rules.least)]
    limits.append((rules.most, changed > np.inf if rules.most is None else changed > rules.most))
    for limit, beyond in limits:
        if limit is not None and beyond.any():
            share = 100 * float(beyond.mean())
            changed = np.where(beyond, limit, changed)
            notes.append(f"{share:.2g} % of samples are moved to {limit:g}, the limit in hub-config/tasks.json")
    return changed, notes


def write_hub(out: Path, found: Matched, layout: HubLayout) -> None:
    """The rows of the corrected samples in files of the names that they came from, with the hub's rules and observations.

    Rows of other targets and output types, such as quantiles, are left out: they belong to the raw forecast.
    """
    require_hub(out, layout)
    values, there = in_order(found, layout.cases, layout.targets)
    each = layout.shape[1] * layout.shape[2]
    chosen = there[layout.place // each]
    if values.shape[1] != layout.shape[1]:
        raise DataError(
            f"{values.shape[1]} draws for {layout.shape[1]} samples of a case; a hub keeps their number: leave out --draws"
        )
    for model in sorted({file.model for file in layout.files}):
        with whole_folder(out / "model-output" / model) as folder:
            for number, file in enumerate(layout.files):
                mine = np.flatnonzero(chosen & (layout.file == number))
                if file.model == model and len(mine):
                    _write_file(folder / file.path.name, file.path, layout, values, mine)
    _copied(layout.hub / "hub-config", out / "hub-config")
    if layout.observations is not None and layout.observations.resolve().is_relative_to(layout.hub.resolve()):
        _copied(layout.observations, out / layout.observations.relative_to(layout.hub))


def _write_file(path: Path, source: Path, layout: HubLayout, values: np.ndarray, mine: np.ndarray) -> None:
    order = mine[np.argsort(layout.row[mine], kind="stable")]
    table = as_stored(source).take(pa.array(layout.row[order]))
    numbers = values.reshape(-1)[layout.place[order]]
    name, whole = table.column_names.index("value"), layout.rules.whole
    kind = table.schema.field("value").type
    if pa.types.is_string(kind):
        column = pa.array([repr(int(one)) if whole else repr(float(one)) for one in numbers], pa.string())
    elif pa.types.is_integer(kind) and not whole:
        column, kind = pa.array(numbers, pa.float64()), pa.float64()
    else:
        column = pa.array(numbers).cast(kind)
    write_stored(table.set_column(name, table.schema.field("value").with_type(kind), column), path, path)


def _copied(source: Path, copy: Path) -> None:
    if source.is_dir():
        for entry in sorted(source.iterdir()):
            _copied(entry, copy / entry.name)
    elif source.is_file():
        with whole_file(copy) as partial:
            shutil.copyfile(source, partial)
