"""The paper's cleaning rules: which features stay, which rows stay, how text becomes numbers.

In this order:

1. rows with a missing target are left out;
2. a feature is *categorical* if it is text or boolean, or an integer column with at most 10 values, or has exactly 2;
   a categorical feature with more than 20 values is left out, and so is any other with fewer than 10;
3. a feature with more than 20 % missing is left out, then every row with a missing feature;
4. text is one-hot coded, no level dropped, in columns `NAME=LEVEL` after the others; numeric categoricals stay one
   numeric column.

A target must be a number, finite, and not constant; a feature must be finite. Everything else is refused, not repaired.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from prerank.datasets.standardise import require_variation
from prerank.io import DataError

MOST_INTEGER_CATEGORIES = 10
MOST_CATEGORIES = 20
FEWEST_NUMBERS = 10
MOST_MISSING = 0.2


@dataclass(frozen=True, eq=False)
class Cleaned:
    """Features and targets in the source's numeric types, and what was left out on the way."""

    features: pa.Table
    targets: pa.Table
    log: tuple[str, ...]


def clean(features: pa.Table, targets: pa.Table) -> Cleaned:
    """Apply the rules to the raw features and targets.

    >>> x = pa.table({"size": range(12), "colour": ["red", "blue"] * 6, "empty": [None] * 12})
    >>> cleaned = clean(x, pa.table({"u": range(12)}))
    >>> cleaned.features.column_names
    ['size', 'colour=blue', 'colour=red']
    >>> cleaned.log
    ("feature 'empty' left out: no value at all",)
    """
    features, targets = _plain(features), _plain(targets)
    for name in targets.column_names:
        _require_number(name, targets[name])
    log: list[str] = []
    features, targets = _complete_rows(features, targets, targets, "target", log)
    features = _telling_features(features, log)
    features, targets = _complete_rows(features, targets, features, "feature", log)
    for table in (features, targets):
        for name in table.column_names:
            _require_finite(name, table[name])
    for name in targets.column_names:
        column = targets[name].to_numpy()[:, None]
        require_variation(column, [name], "rows", "Leave it out of the targets.")
    return Cleaned(_one_hot(features), targets, tuple(log))


def _plain(table: pa.Table) -> pa.Table:
    """Every column as numbers, booleans or text, with one kind of missing value."""
    return pa.table({name: _plain_column(name, table[name]) for name in table.column_names})


def _plain_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    try:
        if pa.types.is_dictionary(kind):
            return _plain_column(name, column.cast(kind.value_type))
        if pa.types.is_null(kind) or pa.types.is_decimal(kind):
            return column.cast(pa.float64())
        if pa.types.is_floating(kind):
            column = column.cast(pa.float32()) if pa.types.is_float16(kind) else column
            return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return column
        text = column.cast(pa.string())
    except pa.ArrowException as error:
        raise DataError(f"Column {name!r} holds {kind}, which is neither number nor text; leave it out.") from error
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    return text


def _is_text(column: pa.ChunkedArray) -> bool:
    return pa.types.is_string(column.type)


def _telling_features(features: pa.Table, log: list[str]) -> pa.Table:
    kept = []
    for name in features.column_names:
        reason = _why_left_out(features[name])
        if reason:
            log.append(f"feature {name!r} left out: {reason}")
        else:
            kept.append(name)
    if not kept:
        raise DataError(f"No feature is left after cleaning: {'; '.join(log[-8:])}.")
    return features.select(kept)


def _why_left_out(column: pa.ChunkedArray) -> str | None:
    n_values = pc.count_distinct(column).as_py()
    if n_values == 0:
        return "no value at all"
    categorical = (
        _is_text(column)
        or pa.types.is_boolean(column.type)
        or (pa.types.is_integer(column.type) and n_values <= MOST_INTEGER_CATEGORIES)
        or n_values == 2
    )
    if categorical and n_values > MOST_CATEGORIES:
        return f"{n_values:,} categories, more than {MOST_CATEGORIES}"
    if not categorical and n_values < FEWEST_NUMBERS:
        return f"{n_values} different numbers, fewer than {FEWEST_NUMBERS}"
    if column.null_count > MOST_MISSING * len(column):
        return f"{column.null_count / len(column):.0%} missing, more than {MOST_MISSING:.0%}"
    return None


def _complete_rows(
    features: pa.Table, targets: pa.Table, checked: pa.Table, role: str, log: list[str]
) -> tuple[pa.Table, pa.Table]:
    gaps = [name for name in checked.column_names if checked[name].null_count]
    if not gaps:
        return features, targets
    complete = pc.is_valid(checked[gaps[0]])
    for name in gaps[1:]:
        complete = pc.and_(complete, pc.is_valid(checked[name]))
    left = pc.sum(complete).as_py()
    columns = ", ".join(map(repr, gaps[:6])) + (", ..." if len(gaps) > 6 else "")
    if not left:
        raise DataError(f"No row is left after cleaning: each of {len(checked):,} misses a {role} among {columns}.")
    log.append(f"{len(checked) - left:,} of {len(checked):,} rows left out: a missing {role} in {columns}")
    return features.filter(complete), targets.filter(complete)


def _require_number(name: str, column: pa.ChunkedArray) -> None:
    if column.null_count == len(column):
        raise DataError(f"Target {name!r} has no value in any of {len(column):,} rows.")
    if not _is_text(column):
        return
    for row, value in enumerate(column.to_pylist()):
        if value is not None and not _parses(value):
            raise DataError(
                f"Target {name!r} is text, not a number: row {row + 1} holds {value[:40]!r}. "
                "Convert it, or name another target."
            )
    raise DataError(f"Target {name!r} is stored as text although its values are numbers; store it as a number.")


def _parses(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _require_finite(name: str, column: pa.ChunkedArray) -> None:
    if pa.types.is_floating(column.type):
        infinite = pc.sum(pc.is_inf(column)).as_py()
        if infinite:
            raise DataError(f"Column {name!r} holds {infinite:,} infinite values; remove these rows or cap the values.")


def _one_hot(features: pa.Table) -> pa.Table:
    columns = {name: features[name] for name in features.column_names if not _is_text(features[name])}
    for name in features.column_names:
        if _is_text(features[name]):
            for level in sorted(pc.unique(features[name]).to_pylist()):
                column = f"{name}={level}"
                if column in columns or column in features.column_names:
                    raise DataError(f"One-hot coding {name!r} makes a second column {column!r}; rename one of them.")
                columns[column] = pc.equal(features[name], level)
    return pa.table(columns)
