"""`prerank recalibrate --before` and `--share` cut where the order of the labels says, whatever kind they are of."""

import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from prerank.cli.main import app
from prerank.io.label_order import coded_labels, n_before

N_CASES, N_MEMBERS = 60, 5
FAST = ("--prerank", "marginal", "--replicates", "19")
DAYS = pd.date_range("2024-01-01", periods=N_CASES)


def written(folder, labels, suffix="parquet", **columns):
    """Forecasts of 60 cases with these labels, shuffled, in a table."""
    rng = np.random.default_rng(0)
    signal = rng.normal(size=(N_CASES, 1))
    table = pd.DataFrame(
        {
            "case": np.repeat(np.asarray(labels), N_MEMBERS)
            if not hasattr(labels, "repeat")
            else labels.repeat(N_MEMBERS),
            "member": np.tile(np.arange(N_MEMBERS), N_CASES),
            "target": "rain",
            "value": (signal + 0.5 * rng.normal(size=(N_CASES, N_MEMBERS))).ravel(),
            "observation": np.repeat(signal[:, 0] + 1 + rng.normal(size=N_CASES), N_MEMBERS),
            **{name: np.repeat(np.asarray(values), N_MEMBERS) for name, values in columns.items()},
        }
    ).sample(frac=1, random_state=0)
    path = folder / f"past.{suffix}"
    table.to_parquet(path) if suffix == "parquet" else table.to_csv(path, index=False)
    return path


def invoke(*arguments: object):
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, ["recalibrate", *map(str, arguments), *FAST, "--json"])


def judged(*arguments: object) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["judged"]


KINDS = {
    "text with numbers": ([f"day {k + 1}" for k in range(N_CASES)], "day 31", "'day 1' to 'day 30'", "'day 60'"),
    "numbers": (np.arange(1, 61), "31", "1 to 30", "60"),
    "numbers with a fraction": (np.arange(1, 61) / 2, "15.5", "0.5 to 15.0", "30.0"),
    "dates": (DAYS, "2024-01-31", "2024-01-01 to 2024-01-30", "2024-02-29"),
    "dates of a time zone": (
        DAYS.tz_localize("Europe/Oslo"),
        "2024-01-31",
        "2024-01-01 00:00:00+01:00 to 2024-01-30 00:00:00+01:00",
        "2024-02-29 00:00:00+01:00",
    ),
    "dates, and another time zone": (
        DAYS.tz_localize("UTC"),
        "2024-01-31T02:00+02:00",
        "2024-01-01 00:00:00+00:00 to 2024-01-30 00:00:00+00:00",
        "2024-02-29 00:00:00+00:00",
    ),
    "lengths of time": (
        pd.to_timedelta(np.arange(1, 61), "D"),
        "31 days",
        "1 days to 30 days",
        "60 days",
    ),
    "decimals": (
        [Decimal(k + 1) / 10 for k in range(N_CASES)],
        "3.1",
        "Decimal('0.1') to Decimal('3.0')",
        "Decimal('6.0')",
    ),
    "bytes": ([f"day {k + 1}".encode() for k in range(N_CASES)], "day 31", "b'day 1' to b'day 30'", "b'day 60'"),
}


@pytest.mark.slow
@pytest.mark.parametrize("as_block", [False, True], ids=["cases", "blocks"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_before_a_label_is_fitted_on(kind, as_block, tmp_path):
    labels, before, first, last = KINDS[kind]
    path = written(tmp_path, range(N_CASES), day=labels) if as_block else written(tmp_path, labels)
    block = ("--block", "day") if as_block else ()
    for option in (("--before", before), ("--share", 0.5)):
        said = judged(path, "--out", tmp_path / "out.parquet", *block, *option)
        assert f"Fitted on the first 30 cases ({first}), judged on the rest (" in said
        assert said.endswith(f" to {last}):")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz", "nc"])
def test_the_corrected_cases_are_those_that_do_not_come_before(suffix, tmp_path):
    labels = [f"day {k + 1}" for k in range(N_CASES)]
    path, out = written(tmp_path, labels, "csv"), tmp_path / f"out.{suffix}"
    judged(path, "--before", "day 31", "--out", out)
    if suffix == "npz":
        found = list(np.load(out)["case"])
    elif suffix == "nc":
        found = list(pytest.importorskip("xarray").load_dataset(out)["case"].values)
    else:
        found = list(dict.fromkeys((pd.read_csv if suffix == "csv" else pd.read_parquet)(out)["case"]))
    assert sorted(found) == sorted(labels[30:])  # a table keeps the order of its rows, which here is another


@pytest.mark.parametrize(
    ("labels", "before", "words"),
    [
        (DAYS, "spring", "--before spring: the labels are like 2024-01-01; give one of that kind"),
        (DAYS, "31/01/2024", "the labels are like 2024-01-01"),
        (DAYS, "12h", "the labels are like 2024-01-01"),
        (DAYS, "now", "the labels are like 2024-01-01"),
        (DAYS, "2024-01-31T00:00Z", "the labels are like 2024-01-01"),
        (DAYS, "2024-13-01", "the labels are like 2024-01-01"),
        (DAYS, "nat", "the labels are like 2024-01-01"),
        (pd.to_timedelta(np.arange(1, 61), "D"), "31", "the labels are like 1 days"),
        (np.arange(1, 61), "day 31", "the labels are like 1"),
        (np.arange(1, 61), "nan", "--before nan: none of 60 cases (1 to 60) come before it"),
        ([Decimal(k) for k in range(N_CASES)], "many", "the labels are like Decimal('0')"),
        ([f"day {k}" for k in range(N_CASES)], "31", "none of 60 cases ('day 0' to 'day 59') come before it"),
        ([f"day {k}" for k in range(N_CASES)], "week 3", "all of 60 cases ('day 0' to 'day 59') come before it"),
        (DAYS.strftime("%d.%m.%Y"), "31.01.2024", "write them as 2024-01-31"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_word_that_is_no_such_label_is_refused(labels, before, words, tmp_path):
    path = written(tmp_path, labels)
    result = invoke(path, "--before", before, "--out", tmp_path / "out.csv")
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1
    assert words in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_dates_of_another_calendar_have_an_order(tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("cftime")
    rng = np.random.default_rng(0)
    times = xarray.date_range("2024-01-01", periods=N_CASES, calendar="360_day", use_cftime=True)
    variables = {
        "t2m": (("time", "number", "station"), rng.normal(size=(N_CASES, N_MEMBERS, 1))),
        "seen": (("time", "station"), rng.normal(size=(N_CASES, 1))),
    }
    xarray.Dataset(variables, {"time": times}).to_netcdf(tmp_path / "past.nc")
    said = judged(tmp_path / "past.nc", "--before", "2024-02-01", "--out", tmp_path / "out.csv")
    assert "first 30 cases (2024-01-01 to 2024-01-30)" in said


def test_labels_of_every_kind_are_in_order():
    given = pd.Series([Decimal("1.10"), Decimal("1.9"), Decimal(-3), Decimal(-10)])
    assert list(coded_labels(given)[1]) == [Decimal(-10), Decimal(-3), Decimal("1.10"), Decimal("1.9")]
    assert list(coded_labels(pd.Series([b"h10", b"h2"]))[1]) == [b"h2", b"h10"]
    assert list(coded_labels(pd.to_timedelta(pd.Series([10, -9, 2]), "D"))[1].days) == [-9, 2, 10]
    assert n_before(pd.Index(["h2", "h10", f"h{'9' * 5000}"]), f"h{'9' * 4999}") == 2


@pytest.mark.parametrize("kind", ["decimals", "dates of a time zone", "lengths of time", "bytes"])
def test_labels_that_netcdf_does_not_have_are_written_as_text(kind, tmp_path):
    pytest.importorskip("xarray")
    path = written(tmp_path, KINDS[kind][0])
    judged(path, "--out", tmp_path / "out.nc")
    result = CliRunner().invoke(app, ["check", str(tmp_path / "out.nc"), *FAST])
    assert result.exit_code == 0, result.output


def test_a_case_without_a_label_is_not_taken_for_a_late_one(tmp_path):
    xarray = pytest.importorskip("xarray")
    rng = np.random.default_rng(0)
    variables = {
        "t2m": (("time", "number", "station"), rng.normal(size=(N_CASES, N_MEMBERS, 1))),
        "seen": (("time", "station"), rng.normal(size=(N_CASES, 1))),
    }
    times = np.where(np.arange(N_CASES) == 3, np.nan, np.arange(N_CASES))
    xarray.Dataset(variables, {"time": times}).to_netcdf(tmp_path / "past.nc")
    result = invoke(tmp_path / "past.nc", "--before", "30", "--out", tmp_path / "out.csv")
    assert result.exit_code == 2
    assert "1 of 60 cases have no label, the first is case 3" in result.stderr
