"""The paper's cleaning rules, one claim each, and what is refused instead of repaired."""

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from prerank.io import DataError
from prerank.io.formats import Csv
from prerank_paper.datasets import load_file
from prerank_paper.datasets.cleaning import clean
from prerank_paper.datasets.selection import LastColumns, NamedColumns, Selection, select

N = 40
TARGET = pa.table({"y": [i / 7 for i in range(N)]})


def kept(name: str = "x", **columns: object) -> list[str]:
    """The features that survive, next to one that always does."""
    features = pa.table({"steady": [i / 3 for i in range(N)], **columns})
    return [column for column in clean(features, TARGET).features.column_names if column != "steady"]


@pytest.mark.parametrize(
    ("values", "stays"),
    [
        ([i % 10 for i in range(N)], True),  # an integer column with 10 values is categorical
        ([i % 11 for i in range(N)], True),  # with 11 it is a number, and numbers need 10
        ([float(i % 9) for i in range(N)], False),  # 9 different numbers
        ([float(i % 10) for i in range(N)], True),
        ([float(i % 2) for i in range(N)], True),  # exactly two values: categorical
        ([0.5] * N, False),
        ([7] * N, True),  # a constant integer column is categorical and stays, as in the paper's wage
        ([i % 2 == 0 for i in range(N)], True),
        ([f"t{i % 21}" for i in range(N)], False),  # more than 20 categories
        ([None] * 8 + list(range(32)), True),  # exactly 20 % missing
        ([None] * 9 + list(range(31)), False),
        ([None] * N, False),
    ],
)
def test_which_features_stay(values: list[object], stays: bool) -> None:
    assert (kept(x=values) == ["x"]) is stays


def test_text_is_one_hot_coded_at_the_end_with_no_level_dropped() -> None:
    features = pa.table({"t": ["b", "a", "c", "a"] * 10, "u": list(range(N))})
    cleaned = clean(features, TARGET).features
    assert cleaned.column_names == ["u", "t=a", "t=b", "t=c"]
    assert cleaned["t=a"].to_pylist()[:4] == [False, True, False, True]


def test_twenty_categories_stay() -> None:
    assert len(kept(x=[f"t{i % 20:02}" for i in range(N)])) == 20


def test_dates_count_as_text() -> None:
    day = datetime.date(2020, 1, 1)
    assert kept(x=[day + datetime.timedelta(days=i) for i in range(N)]) == []
    assert kept(x=[day, datetime.date(2021, 1, 1)] * 20) == ["x=2020-01-01", "x=2021-01-01"]


def test_dictionaries_decimals_and_half_floats_are_read_for_what_they_hold() -> None:
    assert kept(x=pa.array(["u", "v"] * 20).dictionary_encode()) == ["x=u", "x=v"]
    assert kept(x=pa.array([i / 4 for i in range(N)]).cast(pa.decimal128(10, 2))) == ["x"]
    assert kept(x=pa.array(np.arange(N, dtype=np.float16))) == ["x"]


def test_rows_with_gaps_are_left_out_and_counted() -> None:
    features = pa.table({"a": [None, *range(1, N)], "b": [float("nan") if i == 3 else i / 3 for i in range(N)]})
    targets = pa.table({"y": [None if i == 5 else i / 7 for i in range(N)]})
    cleaned = clean(features, targets)
    assert len(cleaned.features) == len(cleaned.targets) == N - 3
    assert cleaned.targets["y"].to_pylist()[:3] == [1 / 7, 2 / 7, 4 / 7]
    assert cleaned.log == (
        "1 of 40 rows left out: a missing target in 'y'",
        "2 of 39 rows left out: a missing feature in 'a', 'b'",
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["high"] * N, "Target 'y' is text, not a number: row 1 holds 'high'"),
        (["1", "2"] * 20, "stored as text although its values are numbers"),
        ([3.5] * N, "Target 'y' is constant: 3.5 in all 40 rows"),
        ([None] * N, "has no value in any of 40 rows"),
        ([float("inf"), *range(N - 1)], "holds 1 infinite values"),
        ([datetime.date(2020, 1, 1)] * N, "is text"),
        ([[1.0]] * N, "neither number nor text"),
    ],
)
def test_targets_that_are_refused(values: list[object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        clean(pa.table({"x": list(range(N))}), pa.table({"y": values}))


def test_a_boolean_target_is_a_number() -> None:
    assert clean(pa.table({"x": list(range(N))}), pa.table({"y": [True, False] * 20})).log == ()


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"x": [0.5] * N}, "No feature is left after cleaning: feature 'x' left out: 1 different numbers"),
        ({"x": [float("inf"), *map(float, range(N - 1))]}, "Column 'x' holds 1 infinite values"),
        ({"x": ["a", "b"] * 20, "x=a": list(range(N))}, "second column 'x=a'"),
    ],
)
def test_features_that_are_refused(features: dict[str, list[object]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        clean(pa.table(features), TARGET)


def test_gaps_that_leave_no_row_are_refused() -> None:
    columns = {f"x{k}": [None if i % 5 == k else i / 3 for i in range(N)] for k in range(5)}
    with pytest.raises(DataError, match="No row is left after cleaning"):
        clean(pa.table(columns), TARGET)


def test_roles_of_columns() -> None:
    raw = pa.table({"b": [1], "id": [2], "a": [3], "u": [4], "v": [5]})
    features, targets = select(raw, Selection(NamedColumns(("v", "b")), drop=("id",), alphabetical=True))
    assert (features.column_names, targets.column_names) == (["a", "u"], ["v", "b"])
    features, targets = select(raw, Selection(LastColumns(1), keep=("a", "b")))
    assert (features.column_names, targets.column_names) == (["a"], ["b"])


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(NamedColumns(("pric",))), "no target column 'pric'.*Did you mean 'price'"),
        (Selection(NamedColumns(("price",)), drop=("nope",)), "no dropped column 'nope'"),
        (Selection(NamedColumns(("price", "price"))), "named twice"),
        (Selection(NamedColumns(())), "at least one column name"),
        (Selection(NamedColumns(("price", "x"))), "Every one of the 2 columns is a target"),
        (Selection(LastColumns(2)), "last 2 columns"),
    ],
)
def test_roles_that_cannot_be(selection: Selection, message: str) -> None:
    with pytest.raises(DataError, match=message):
        select(pa.table({"x": [1], "price": [2]}), selection)


def test_the_same_table_comes_out_of_every_format(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": range(N), "t": ["u", "v"] * 20, "y": [i / 7 for i in range(N)], "z": range(N, 0, -1)})
    frame.to_csv(tmp_path / "f.csv")
    frame.to_csv(tmp_path / "g.csv", sep=";", index=False)
    frame.to_parquet(tmp_path / "f.parquet")
    frame.to_feather(tmp_path / "f.feather")
    tables = [load_file(tmp_path / f"f.{suffix}", targets=["y", "z"]) for suffix in ("csv", "parquet", "feather")]
    tables.append(load_file(tmp_path / "g.csv", targets=["y", "z"], file_format=Csv(delimiter=";")))
    for table in tables:
        assert table.x_names == ("a", "t=u", "t=v")
        np.testing.assert_array_equal(table.x, tables[0].x)
        np.testing.assert_array_equal(table.y, tables[0].y)
    assert tables[0].frame().columns.tolist() == ["x:a", "x:t=u", "x:t=v", "y:y", "y:z"]


def test_own_files_are_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("a,y\n" + "".join(f"{i},{i}e300\n" for i in range(N)))
    with pytest.raises(DataError, match=r"too large for float32; try dtype=float64"):
        load_file(path, targets=["y"])
    assert load_file(path, targets=["y"], dtype=np.float64).y.max() == 39e300
    with pytest.raises(DataError, match=r"write targets=\['y'\]"):
        load_file(path, targets="y")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_empty_text_is_a_missing_value_in_every_kind_of_text(kind: pa.DataType) -> None:
    words = pa.array(["red", "blue", "", *["red", "blue"] * 18, "red"], type=kind)
    cleaned = clean(pa.table({"steady": [i / 3 for i in range(N)], "colour": words}), TARGET)
    assert cleaned.features.column_names == ["steady", "colour=blue", "colour=red"]
    assert cleaned.features.num_rows == N - 1
    assert cleaned.log == ("1 of 40 rows left out: a missing feature in 'colour'",)


@pytest.mark.parametrize(("gaps", "listed"), [(6, "'x0', 'x1', 'x2', 'x3', 'x4', 'x5'"), (7, "'x5', ...")])
def test_a_row_stays_only_if_every_column_has_a_value_there(gaps: int, listed: str) -> None:
    """Column k misses row k: as many rows go as there are columns with a gap, and the first six columns are named."""
    columns = {f"x{k}": [None if i == k else i / (k + 2) for i in range(N)] for k in range(gaps)}
    cleaned = clean(pa.table({"steady": [i / 3 for i in range(N)], **columns}), TARGET)
    assert cleaned.features["steady"].to_pylist() == [i / 3 for i in range(gaps, N)]
    assert cleaned.targets["y"].to_pylist() == [i / 7 for i in range(gaps, N)]
    (line,) = cleaned.log
    assert line.startswith(f"{gaps} of 40 rows left out: a missing feature in 'x0', ")
    assert line.endswith(listed)


def test_a_cleaned_table_is_itself_and_no_other() -> None:
    table = pa.table({"x": [i / 3 for i in range(N)]})
    one, other = clean(table, TARGET), clean(table, TARGET)
    assert one != other
    assert len({one, other}) == 2
    with pytest.raises(AttributeError):
        one.log = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    "features",
    [
        {"x": ["a", "b"] * 20, "x=a": ["c", "d"] * 20},  # the name of a text column that is itself coded
        {"x": ["a=b", "c"] * 20, "x=a": ["b", "c"] * 20},  # two codes that are called alike
        {"x=a": ["b", "c"] * 20, "x": ["a=b", "c"] * 20},
    ],
)
def test_no_coded_column_takes_a_name_that_is_taken(features: dict[str, list[object]]) -> None:
    with pytest.raises(DataError, match="makes a second column 'x=a"):
        clean(pa.table(features), TARGET)
