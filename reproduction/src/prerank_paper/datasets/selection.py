"""Which columns of a raw file are targets, which are features, and in what order."""

from dataclasses import dataclass
from difflib import get_close_matches

import pyarrow as pa

from prerank.io import DataError


@dataclass(frozen=True)
class LastColumns:
    """The last `count` columns of the file are the targets."""

    count: int

    def among(self, names: list[str]) -> list[str]:
        """The names of the targets."""
        if not 0 < self.count < len(names):
            raise DataError(
                f"The last {self.count} columns were to be targets, but the file has {len(names)} columns and at least "
                "one must remain a feature."
            )
        return names[-self.count :]


@dataclass(frozen=True)
class NamedColumns:
    """The targets are these columns, in this order."""

    names: tuple[str, ...]

    def among(self, names: list[str]) -> list[str]:
        """The names of the targets."""
        if not self.names:
            raise DataError("No target was named; pass at least one column name.")
        if len(set(self.names)) < len(self.names):
            raise DataError(f"A target is named twice: {', '.join(self.names)}.")
        require(self.names, names, "target")
        return list(self.names)


@dataclass(frozen=True)
class Selection:
    """The roles of a file's columns.

    `drop` names columns that are neither feature nor target; `keep`, if given, names the only columns to look at and
    their order; `alphabetical` sorts the features by name, as the paper's loader does where it names the targets.
    """

    targets: LastColumns | NamedColumns
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    alphabetical: bool = False


def select(raw: pa.Table, selection: Selection) -> tuple[pa.Table, pa.Table]:
    """The features and the targets of a raw table.

    >>> raw = pa.table({"b": [1, 2], "a": [3, 4], "u": [5, 6]})
    >>> features, targets = select(raw, Selection(LastColumns(1), alphabetical=True))
    >>> features.column_names, targets.column_names
    (['a', 'b'], ['u'])
    """
    names = raw.column_names
    if selection.keep:
        require(selection.keep, names, "needed")
        names = list(selection.keep)
    require(selection.drop, names, "dropped")
    names = [name for name in names if name not in selection.drop]
    targets = selection.targets.among(names)
    features = [name for name in names if name not in targets]
    if not features:
        raise DataError(f"Every one of the {len(names)} columns is a target; at least one must remain a feature.")
    return raw.select(sorted(features) if selection.alphabetical else features), raw.select(targets)


def require(wanted: tuple[str, ...], names: list[str], role: str) -> None:
    """Refuse a column that is not in the file, with the nearest name that is."""
    for name in wanted:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            shown = ", ".join(map(repr, names[:12])) + (", ..." if len(names) > 12 else "")
            raise DataError(f"There is no {role} column {name!r} among the file's {len(names)} columns: {shown}.{hint}")
