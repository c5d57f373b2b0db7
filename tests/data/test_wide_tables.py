"""Wide tables, a column per member: the arrays that were put in come out, whatever the columns are called."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from prerank.io import DataError, Naming, read_forecasts

N_DAYS, N_MEMBERS = 30, 5
RNG = np.random.default_rng(2)
MEMBERS = RNG.normal(size=(N_DAYS, N_MEMBERS, 24))
Y = RNG.normal(size=(N_DAYS, 24))
NAMES = ["A 1", "A 2", "B, one", "B 22", "C"]


def hourly() -> pd.DataFrame:
    """A row per hour; the times have no name, as pandas writes an index."""
    times = pd.date_range("2024-01-01", periods=24 * N_DAYS, freq="h")
    columns = {"Real price": Y.ravel(), **{name: MEMBERS[:, m].ravel() for m, name in enumerate(NAMES)}}
    return pd.DataFrame(columns, index=times)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    hourly().to_csv(tmp_path / "wide.csv")
    return tmp_path / "wide.csv"


@pytest.mark.parametrize("members", [("*",), tuple(NAMES), ("A ?", "/B.*/", "C"), ("A 1,A 2", "B*", "C")])
def test_columns_of_members_by_name_wildcard_and_expression(table: Path, members: tuple[str, ...]) -> None:
    found = read_forecasts(table, naming=Naming(members=members, observation="Real price", joint=("hour",)))
    np.testing.assert_allclose(found.members, MEMBERS, rtol=1e-12)
    np.testing.assert_allclose(found.y.to_numpy(), Y, rtol=1e-12)
    assert list(found.y.columns) == list(range(24))
    assert list(found.y.index) == list(pd.date_range("2024-01-01", periods=N_DAYS))


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "feather", "csv.gz"])
def test_every_format_of_tables(suffix: str, tmp_path: Path) -> None:
    frame, path = hourly().rename_axis("time").reset_index(), tmp_path / f"wide.{suffix}"
    if suffix == "parquet":
        frame.to_parquet(path)
    elif suffix == "feather":
        frame.to_feather(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    naming = Naming(members=("*",), observation="Real price", time="time", joint=("hour",))
    np.testing.assert_allclose(read_forecasts(path, naming=naming).members, MEMBERS, rtol=1e-12)


def test_rows_in_another_order_and_a_second_table_of_observations(table: Path, tmp_path: Path) -> None:
    frame = hourly().rename_axis("t")
    frame.drop(columns="Real price").sample(frac=1, random_state=0).to_csv(tmp_path / "f.csv")
    frame[["Real price"]].iloc[24:].sample(frac=1, random_state=1).to_csv(tmp_path / "o.csv")
    naming = Naming(members=("*",), observation="Real price", time="t", joint=("hour",))
    found = read_forecasts(tmp_path / "f.csv", tmp_path / "o.csv", naming)
    np.testing.assert_allclose(found.members, MEMBERS, rtol=1e-12)
    np.testing.assert_allclose(found.y.to_numpy()[1:], Y[1:], rtol=1e-12)
    assert found.y.iloc[0].isna().all()
    assert any("24 of 720 rows have no observation" in note for note in found.notes)


def test_days_may_be_split_into_weeks_and_hours_be_a_column_of_their_own(table: Path, tmp_path: Path) -> None:
    noon = hourly().iloc[12::24].rename_axis("day")
    noon.iloc[:28].to_csv(tmp_path / "noon.csv")
    found = read_forecasts(
        tmp_path / "noon.csv", naming=Naming(members=("*",), observation="Real price", joint=("weekday",))
    )
    np.testing.assert_allclose(found.members, MEMBERS[:28, :, 12].reshape(4, 7, N_MEMBERS).swapaxes(1, 2), rtol=1e-12)
    parted = hourly().assign(date=lambda f: f.index.date.astype(str), hour=lambda f: f.index.hour)
    parted.to_csv(tmp_path / "parted.csv", index=False)
    naming = Naming(members=("A*", "B*", "C"), observation="Real price", case=("date",), joint=("hour",))
    np.testing.assert_allclose(read_forecasts(tmp_path / "parted.csv", naming=naming).members, MEMBERS, rtol=1e-12)


def test_an_absent_hour_is_missing_and_said(table: Path, tmp_path: Path) -> None:
    hourly().drop(index=[pd.Timestamp("2024-01-03 02:00")]).to_csv(table)
    found = read_forecasts(table, naming=Naming(members=("*",), observation="Real price", joint=("hour",)))
    assert np.isnan(found.members[2, :, 2]).all()
    assert np.isnan(found.members).sum() == N_MEMBERS
    assert any("1 of 720 rows of 30 cases by 24 targets are absent" in note for note in found.notes)


def test_parts_of_dates_are_groups(table: Path) -> None:
    naming = Naming(members=("*",), observation="Real price", joint=("hour",), keep=("weekday", "season"))
    found = read_forecasts(table, naming=naming)
    assert list(found.columns["weekday"][:8]) == [1, 2, 3, 4, 5, 6, 7, 1]
    assert set(found.columns["season"]) == {"DJF"}


@pytest.mark.parametrize(
    ("naming", "message"),
    [
        (Naming(), r"no column 'case', 'member' or 'value', only .*--members and --observation"),
        (Naming(members=("*",)), "no column 'observation'; name the one of observations with --observation"),
        (
            Naming(members=("Z*",), observation="Real price"),
            "no column 'Z[*]' for members; not named yet are 'Unnamed: 0'",
        ),
        (Naming(members=("A 1",), observation="Real price"), "a single column of members, 'A 1'"),
        (Naming(members=("/(/",), observation="Real price"), "no regular expression"),
        (
            Naming(members=("*",), observation="price"),
            "no column 'price'; not named yet are 'Unnamed: 0', 'Real price'",
        ),
        (Naming(members=("*",), observation="Real price", time="when"), "no column 'when'"),
        (Naming(members=("*",), observation="Real price", time="A 1"), "'A 1' holds .* which is no date"),
        (Naming(members=("*",), observation="Real price", joint=("hour", "month")), "both split times"),
        (Naming(members=("*",), observation="Real price", keep=("place",)), "no column 'place', only"),
        (Naming(members=("*",), member="m"), "no --member; leave it out"),
        (Naming(time="t"), "--time is for wide tables"),
    ],
)
def test_what_is_not_there_is_answered_by_what_is(table: Path, naming: Naming, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_forecasts(table, naming=naming)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: pd.concat([f, f.iloc[5:6]]), "1 row of the forecasts repeat an earlier one"),
        (lambda f: f.assign(**{"A 1": "warm"}), "holds not only numbers but, for instance, 'warm'"),
        (lambda f: f.set_axis(f.index.strftime("%d.%m.%Y %H:%M")), "columns of dates among those not named yet"),
        (lambda f: f.reset_index(drop=True), "0 columns of dates"),
        (lambda f: f.assign(day=f.index, other=f.index), "3 columns of dates"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(table: Path, change, message: str) -> None:  # type: ignore[no-untyped-def]
    change(hourly()).to_csv(table)
    with pytest.raises(DataError, match=message):
        read_forecasts(table, naming=Naming(members=("A*", "B*"), observation="Real price", joint=("hour",)))


REAL = Path(os.environ.get("PRERANK_REAL", "")) / "files" / "wide"


@pytest.mark.skipif(not REAL.is_dir(), reason="PRERANK_REAL names no folder with files/wide")
def test_a_published_price_table_gives_the_arrays_that_were_made_by_hand() -> None:
    path = REAL / "Forecasts_DE_DNN_LEAR_ensembles.csv"
    naming = Naming(members=("DNN ?", "LEAR [0-9]*"), observation="Real price", joint=("hour",))
    found = read_forecasts(path, naming=naming)
    with np.load(REAL.parents[1] / "prices_de.npz") as arrays:
        n = len(found.y)
        np.testing.assert_allclose(found.members, arrays["ensemble"][:n], rtol=1e-12)
        np.testing.assert_allclose(found.y.to_numpy(), arrays["obs"][:n], rtol=1e-12)
