"""CSV, ARFF, Parquet and Feather: what they mean, and that nothing but a DataError comes out of a malformed file."""

from contextlib import suppress
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prerank.io import DataError
from prerank.io.arff import parse_arff
from prerank.io.formats import Arff, Csv, Feather, Parquet, format_of


@pytest.fixture
def write(tmp_path: Path):  # type: ignore[no-untyped-def]
    def writer(content: str | bytes, name: str = "file.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return writer


def test_types_follow_the_values_of_the_whole_column(write) -> None:  # type: ignore[no-untyped-def]
    rows = "".join(f"{i},{i},{i},t{i}\n" for i in range(200_000))  # far beyond one block of the parser
    table = Csv().read(write("a,b,c,d\n" + rows + "1,1.5,NA,?\n"))
    assert table.schema.types == [pa.int64(), pa.float64(), pa.int64(), pa.string()]
    assert table["c"].null_count == table["d"].null_count == 1


def test_floats_are_read_exactly(write) -> None:  # type: ignore[no-untyped-def]
    values = ["0.1", "1e-300", "179769313486231570e291", "35.2401", "-72.902871", "9007199254740993.5"]
    table = Csv().read(write("a\n" + "\n".join(values) + "\n"))
    assert table["a"].to_pylist() == [float(value) for value in values]


def test_quotes_newlines_byte_order_mark_and_index(write) -> None:  # type: ignore[no-untyped-def]
    table = Csv().read(write('\ufeff"","a b","c"\n"7","x\ny","09"\n"8","u, v","10"\n'))
    assert table.to_pydict() == {"a b": ["x\ny", "u, v"], "c": [9, 10]}


def test_without_a_header_columns_are_numbered(write) -> None:  # type: ignore[no-untyped-def]
    assert Csv(header=False).read(write("1,2\n3,4\n")).to_pydict() == {"0": [1, 3], "1": [2, 4]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a,b\n", "no rows"),
        ("a,b\n1,2,3\n", "Expected 2 columns, got 3"),
        ("a,b\n1,2\n3\n", "Expected 2 columns, got 1"),
        ("a,a\n1,2\n", "more than one column named 'a'"),
        ("a,,b\n1,2,3\n", "column 2 has no name"),
        (b"a,b\n1,\xff\n", "not UTF-8: byte 6"),
    ],
)
def test_malformed_csv_is_named(write, content: str | bytes, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DataError, match=message):
        Csv().read(write(content))


def test_arff_as_the_mulan_collection_writes_it() -> None:
    text = b"""% comment in latin-1: Dr\xfceg
@RELATION 'a relation'

@ATTRIBUTE std_temp            numeric
@attribute 'two words' {a, b}
@attribute city=Oakland numeric
@Attribute 25400 real
@DATA
% inside
0.5, a, 0, 3
?,b,1,0
"""
    table = parse_arff(text, "r")
    assert table.to_pydict() == {
        "std_temp": [0.5, None],
        "two words": ["a", "b"],
        "city=Oakland": [0, 1],
        "25400": [3, 0],
    }
    assert table["25400"].type == pa.int64()  # the header says real, the values say integer


def test_arff_quotes() -> None:
    text = b"@relation r\n@attribute a string\n@attribute b numeric\n@data\n'x, y',1\nz,2\n"
    assert parse_arff(text, "r").to_pydict() == {"a": ["x, y", "z"], "b": [1, 2]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "no @data line"),
        (b"@relation r\n@attribute a numeric\n", "no @data line after 1 attributes"),
        (b"@relation r\n@data\n1\n", "declares no @attribute"),
        (b"@relation r\n@attribute a\n@data\n1\n", "needs a name and a type"),
        (b"@relation r\n@attribute a numeric\n@data\n", "has no rows"),
        (b"@relation r\n@attribute a numeric\n@data\n1,2\n", "Expected 1 columns, got 2"),
        (b"@relation r\n@attribute a numeric\n@data\n{0 1}\n", "sparse"),
        (b"@relation r\n@attribute a relational\n@data\n1\n", "relational"),
        (b"@relation r\n1,2\n", "line 2: expected @relation"),
        (b"@relation r\n@attribute a string\n@data\n'u'\n\"v\"\n", "mixes single and double quotes"),
        (b"@relation r\n@attribute a string\n@data\n\xff\n", "line 4 is not UTF-8"),
        (b"@relation r\n@attribute a numeric\n@attribute a numeric\n@data\n1,2\n", "more than one column"),
    ],
)
def test_malformed_arff_is_named(text: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_arff(text, "r")


@pytest.mark.parametrize(("suffix", "kind"), [(".parquet", Parquet), (".feather", Feather)])
def test_pandas_files_come_back_without_their_index(tmp_path: Path, suffix: str, kind: type) -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": ["u", None]}, index=[5, 9])
    path = tmp_path / f"file{suffix}"
    frame.to_parquet(path) if kind is Parquet else frame.reset_index(drop=True).to_feather(path)
    assert format_of(path) == kind()
    assert kind().read(path).to_pydict() == {"a": [1, 2], "b": ["u", None]}


@pytest.mark.parametrize("kind", [Parquet, Feather, Csv, Arff])
def test_files_that_are_not_there_or_not_of_the_format(tmp_path: Path, kind: type) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        kind().read(tmp_path / "none")
    (tmp_path / "junk").write_bytes(b"\x00\x01junk")
    with pytest.raises(DataError):
        kind().read(tmp_path / "junk")


def test_an_unknown_suffix_and_a_bad_delimiter(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot tell the format from '\.xlsx'"):
        format_of(Path("a.xlsx"))
    with pytest.raises(DataError, match="one ASCII character"):
        Csv(delimiter="::").read(tmp_path / "a.csv")


FUZZ = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
CELLS = st.sampled_from(
    [
        "",
        "0",
        "1",
        "-1.5",
        "1e999",
        "inf",
        "nan",
        "NA",
        "?",
        "true",
        "2020-01-01",
        "12:30",
        "x",
        "'",
        '"',
        ",",
        "\n",
        "é",
    ]
) | st.text(max_size=6)
CSV_TEXT = st.lists(st.lists(CELLS, min_size=1, max_size=5).map(",".join), max_size=8).map("\n".join)
ARFF_TEXT = st.lists(
    st.sampled_from(
        [
            "@relation r",
            "@attribute a numeric",
            "@attribute 'b c' {x,y}",
            "@attribute d",
            "@data",
            "1,x",
            "?,y",
            "{0 1}",
        ]
    )
    | st.lists(CELLS, max_size=4).map(",".join),
    max_size=10,
).map("\n".join)


@pytest.mark.slow
@FUZZ
@given(st.binary(max_size=200) | CSV_TEXT.map(str.encode), st.booleans())
def test_csv_survives_fuzzing(tmp_path: Path, content: bytes, header: bool) -> None:
    path = tmp_path / "fuzz.csv"
    path.write_bytes(content)
    with suppress(DataError):
        Csv(header=header).read(path)


@FUZZ
@given(st.binary(max_size=200) | ARFF_TEXT.map(str.encode))
def test_arff_survives_fuzzing(content: bytes) -> None:
    with suppress(DataError):
        parse_arff(content, "fuzz")


@FUZZ
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))))
def test_numbers_written_to_csv_come_back(tmp_path: Path, rows: list[tuple[int, float]]) -> None:
    path = tmp_path / "round.csv"
    path.write_text("i,f\n" + "".join(f"{i},{f!r}\n" for i, f in rows))
    if rows:
        assert Csv().read(path).to_pydict() == {"i": [i for i, _ in rows], "f": [f for _, f in rows]}
