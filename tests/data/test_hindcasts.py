"""Hindcasts as climate services lay them out: observations of a time axis are joined on start + lead, or refused."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from prerank.io import DataError, Naming, read_forecasts

xr = pytest.importorskip("xarray")

N_STARTS, N_MEMBERS, N_LEADS = 12, 4, 5
RNG = np.random.default_rng(0)
MEMBERS = RNG.normal(size=(N_STARTS, N_MEMBERS, N_LEADS))
DAYS = pd.date_range("2001-01-01", periods=N_STARTS, freq="7D")
MONTHS = pd.date_range("2001-01-01", periods=N_STARTS, freq="MS")
Built = tuple["xr.Dataset", "xr.Dataset", np.ndarray]


def daily_truth(name: str = "time") -> "xr.Dataset":
    """Observed on each day: the number of the day since 2000."""
    days = pd.date_range("2000-12-01", periods=200)
    return xr.Dataset({"t2m": (name, (days - pd.Timestamp("2000-01-01")).days.to_numpy(float))}, {name: days})


def days_since(lead: np.ndarray) -> np.ndarray:
    return np.add.outer((DAYS - pd.Timestamp("2000-01-01")).days.to_numpy(float), lead)


def iri() -> Built:
    """S, M, L with leads in the middle of days, and standard names."""
    coords = {
        "S": ("S", DAYS, {"standard_name": "forecast_reference_time"}),
        "M": ("M", np.arange(1.0, N_MEMBERS + 1), {"standard_name": "realization"}),
        "L": ("L", np.arange(N_LEADS) + 0.5, {"standard_name": "forecast_period", "units": "days"}),
    }
    return xr.Dataset({"RMM1": (("S", "M", "L"), MEMBERS)}, coords), daily_truth(), days_since(np.arange(N_LEADS))


def names_of_their_own() -> Built:
    """Standard names alone tell what a dimension is."""
    dataset, truth, y = iri()
    return dataset.rename(S="alpha", M="beta", L="gamma"), truth, y


def climpred() -> Built:
    lead = ("lead", np.arange(1, N_LEADS + 1), {"units": "days"})
    coords = {"init": DAYS, "lead": lead, "member": np.arange(N_MEMBERS)}
    members = MEMBERS.transpose(0, 2, 1)
    return (
        xr.Dataset({"t2m": (("init", "lead", "member"), members)}, coords),
        daily_truth(),
        days_since(np.arange(1, 6)),
    )


def cfgrib() -> Built:
    """number, time, step, with a coordinate that says when the forecast is for; a height of one level."""
    step = pd.to_timedelta(np.arange(1, N_LEADS + 1), unit="D")
    coords = {
        "number": np.arange(N_MEMBERS),
        "time": ("time", DAYS, {"standard_name": "forecast_reference_time"}),
        "step": ("step", step, {"standard_name": "forecast_period"}),
        "valid_time": (("time", "step"), np.add.outer(DAYS.to_numpy(), step.to_numpy()), {"standard_name": "time"}),
        "height": [2.0],
    }
    values = MEMBERS.transpose(1, 0, 2)[:, :, :, None]
    dataset = xr.Dataset({"t2m": (("number", "time", "step", "height"), values)}, coords)
    return dataset, daily_truth(), days_since(np.arange(1, N_LEADS + 1))


def hours_to_noon() -> Built:
    """Leads in hours from midnight; daily observations stamped at noon."""
    coords = {"start_date": DAYS, "fhour": ("fhour", 24.0 * np.arange(N_LEADS), {"units": "hours"})}
    dataset = xr.Dataset({"t2m": (("start_date", "ens", "fhour"), MEMBERS)}, coords)
    truth = daily_truth()
    return dataset, truth.assign_coords(time=truth["time"] + np.timedelta64(12, "h")), days_since(np.arange(N_LEADS))


def monthly_truth(stamp: int = 15) -> "xr.Dataset":
    months = pd.date_range("2000-01-01", periods=48, freq="MS") + pd.Timedelta(days=stamp)
    return xr.Dataset({"sst": ("time", np.arange(48.0))}, {"time": months})


def months_since(lead: np.ndarray) -> np.ndarray:
    return np.add.outer(12 + np.arange(N_STARTS), lead).astype(float)


def nmme() -> Built:
    """Months since 1960 in a calendar "360", which xarray does not decode; observations alike."""
    about = {"units": "months since 1960-01-01", "calendar": "360"}
    coords = {
        "S": ("S", 492.0 + np.arange(N_STARTS), {**about, "standard_name": "forecast_reference_time"}),
        "M": np.arange(N_MEMBERS),
        "L": ("L", np.arange(N_LEADS) + 0.5, {"units": "months", "standard_name": "forecast_period"}),
    }
    truth = xr.Dataset(
        {"sst": ("T", np.arange(48.0))}, {"T": ("T", 480.5 + np.arange(48), {**about, "standard_name": "time"})}
    )
    return (
        xr.Dataset({"sst": (("S", "L", "M"), MEMBERS.transpose(0, 2, 1))}, coords),
        truth,
        months_since(np.arange(N_LEADS)),
    )


def c3s() -> Built:
    """leadtime_month is 1 in the month of the start."""
    coords = {
        "number": np.arange(N_MEMBERS),
        "forecast_reference_time": MONTHS,
        "leadtime_month": np.arange(1, N_LEADS + 1),
    }
    dims = ("number", "forecast_reference_time", "leadtime_month")
    return (
        xr.Dataset({"sst": (dims, MEMBERS.transpose(1, 0, 2))}, coords),
        monthly_truth(),
        months_since(np.arange(N_LEADS)),
    )


def months_as_words() -> Built:
    """Starts as text, leads in months counted from the start."""
    coords = {"init": [str(day.date()) for day in MONTHS], "lead": ("lead", np.arange(1, 6), {"units": "Months"})}
    dataset = xr.Dataset({"sst": (("init", "member", "lead"), MEMBERS)}, coords)
    return dataset, monthly_truth(0), months_since(np.arange(1, 6))


def years() -> Built:
    """Years as plain numbers, in single precision and whole."""
    coords = {
        "init": np.arange(1960, 1960 + N_STARTS).astype(np.float32),
        "lead": ("lead", np.arange(1, 6, dtype=np.int32), {"long_name": "forecast year"}),
    }
    truth = xr.Dataset({"SST": ("time", np.arange(60.0))}, {"time": np.arange(1950, 2010)})
    y = np.add.outer(10.0 + np.arange(N_STARTS), np.arange(1, 6))
    return xr.Dataset({"SST": (("init", "member", "lead"), MEMBERS)}, coords), truth, y


def no_leap() -> Built:
    """Both in a calendar without leap days: 1 March follows 28 February."""
    cftime = pytest.importorskip("cftime")
    days = [cftime.DatetimeNoLeap(2004, 2, 20 + k // 2) for k in range(0, 2 * 8, 2)] + [
        cftime.DatetimeNoLeap(2004, 3, 1 + k) for k in range(4)
    ]
    coords = {"init": days, "lead": ("lead", np.arange(N_LEADS), {"units": "days"})}
    truth_days = xr.date_range("2004-02-01", periods=60, calendar="noleap", use_cftime=True)
    truth = xr.Dataset({"t": ("time", np.arange(60.0))}, {"time": truth_days})
    first = np.array([19.0 + k for k in range(8)] + [28.0 + k for k in range(4)])
    return xr.Dataset({"t": (("init", "member", "lead"), MEMBERS)}, coords), truth, np.add.outer(first, np.arange(5))


LAYOUTS = [iri, names_of_their_own, climpred, cfgrib, hours_to_noon, nmme, c3s, months_as_words, years, no_leap]


def saved(folder: Path, dataset: "xr.Dataset", truth: "xr.Dataset") -> tuple[Path, Path]:
    pytest.importorskip("netCDF4")
    dataset.to_netcdf(folder / "forecast.nc")
    truth.to_netcdf(folder / "observed.nc")
    return folder / "forecast.nc", folder / "observed.nc"


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: one.__name__)
def test_every_layout_is_joined_on_start_and_lead(layout: Callable[[], Built], tmp_path: Path) -> None:
    dataset, truth, y = layout()
    found = read_forecasts(*saved(tmp_path, dataset, truth))
    np.testing.assert_array_equal(found.members, MEMBERS)
    np.testing.assert_array_equal(found.y.to_numpy(), y)


def test_the_order_of_observations_does_not_matter(tmp_path: Path) -> None:
    dataset, truth, y = iri()
    shuffled = truth.isel(time=np.random.default_rng(1).permutation(truth.sizes["time"]))
    np.testing.assert_array_equal(read_forecasts(*saved(tmp_path, dataset, shuffled)).y.to_numpy(), y)


def test_places_are_targets_beside_leads_or_cases_beside_starts(tmp_path: Path) -> None:
    dataset, truth, y = iri()
    shift = xr.DataArray([0.0, 1000.0], dims="station", coords={"station": ["a", "b"]})
    files = saved(tmp_path, dataset + shift, truth + shift)
    both = read_forecasts(*files)
    assert both.members.shape == (N_STARTS, N_MEMBERS, 2 * N_LEADS)
    places = read_forecasts(*files, Naming(joint=("station",)))
    assert places.members.shape == (N_STARTS * N_LEADS, N_MEMBERS, 2)
    np.testing.assert_array_equal(places.y.to_numpy(), np.stack([y.ravel(), y.ravel() + 1000], axis=1))
    leads = read_forecasts(*files, Naming(joint=("L",)))
    assert leads.y.index.names == ["S", "station"]
    np.testing.assert_array_equal(leads.y.to_numpy()[1::2], y + 1000)


def test_what_lies_beyond_the_observations_is_missing_and_counted(tmp_path: Path) -> None:
    dataset, truth, _ = iri()
    found = read_forecasts(*saved(tmp_path, dataset, truth.sel(time=slice(None, "2001-03-20"))))
    beyond = days_since(np.arange(N_LEADS)) > (pd.Timestamp("2001-03-20") - pd.Timestamp("2000-01-01")).days
    assert beyond.sum() == 3
    np.testing.assert_array_equal(np.isnan(found.y.to_numpy()), beyond)
    assert any("3 of 60 pairs of S and L have no observation" in note for note in found.notes)


def test_observations_without_a_time_are_left_out_and_counted(tmp_path: Path) -> None:
    dataset, truth, y = iri()
    times = truth["time"].values.copy()
    times[150:] = np.datetime64("NaT")
    found = read_forecasts(*saved(tmp_path, dataset, truth.assign_coords(time=times)))
    np.testing.assert_array_equal(found.y.to_numpy(), y)
    assert any("50 of 200 observations left out: time is missing" in note for note in found.notes)


def test_units_that_no_file_says_are_asked_for_and_can_be_given(tmp_path: Path) -> None:
    dataset, truth, y = climpred()
    dataset["lead"].attrs.clear()
    files = saved(tmp_path, dataset, truth)
    with pytest.raises(DataError, match=r"'lead' has no units, such as days; say them with --lead-units"):
        read_forecasts(*files)
    np.testing.assert_array_equal(read_forecasts(*files, Naming(lead_units="days")).y.to_numpy(), y)
    with pytest.raises(DataError, match="--lead-units moons: give one of seconds"):
        read_forecasts(*files, Naming(lead_units="moons"))


def test_years_of_starts_are_proposed_as_blocks_and_parts_of_dates_are_groups(tmp_path: Path) -> None:
    dataset, truth, _ = iri()
    starts = pd.date_range("2000-12-05", periods=N_STARTS, freq="7D")
    found = read_forecasts(*saved(tmp_path, dataset.assign_coords(S=starts), truth), Naming(keep=("season",)))
    assert found.block == "year"
    assert list(found.columns["year"]) == list(starts.year)
    assert set(found.columns["season"]) == {"DJF"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f, o: (f, o.assign_coords(time=o["time"] + np.timedelta64(9000, "D"))), "no observation is at any 'S'"),
        (lambda f, o: (f, o.assign_coords(time=np.arange(200))), "cannot be matched; give both dates, or both numbers"),
        (lambda f, o: (f, xr.concat([o, o], "time")), "2 observations stand at one time of 'time'"),
        (lambda f, o: (f, o.rename(t2m="x").assign(z=o["t2m"])), "2 variables that could be the obs.*--observation"),
        (lambda f, o: (f.assign(z=f["RMM1"]), o), "2 variables that could be the forecasts.*--value"),
        (lambda f, o: (f.drop_vars("L"), o), "'L' has no coordinate"),
        (lambda f, o: (f.assign_coords(L=("L", f["L"].values, {"units": "months"})), o), "at one month.*means of each"),
        (lambda f, o: (f.rename(M="what").assign_coords(what=np.arange(4)), o), "0 variables that could be the f.*--value"),
    ],
)  # fmt: skip
def test_what_cannot_be_joined_is_refused(change, message: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    dataset, truth, _ = iri()
    with pytest.raises(DataError, match=message):
        read_forecasts(*saved(tmp_path, *change(dataset, truth)))


def test_calendars_that_differ_are_refused(tmp_path: Path) -> None:
    dataset, _, _ = no_leap()
    with pytest.raises(DataError, match="calendar 'noleap' and observations in 'standard'"):
        read_forecasts(*saved(tmp_path, dataset, daily_truth()))


REAL = Path(os.environ.get("PRERANK_REAL", "")) / "files" / "netcdf"


@pytest.mark.skipif(not REAL.is_dir(), reason="PRERANK_REAL names no folder with files/netcdf")
def test_a_published_hindcast_gives_the_arrays_that_were_joined_by_hand() -> None:
    found = read_forecasts(REAL / "GMAO-GEOS-V2p1.RMM1.nc", REAL / "RMM1.observed.interannual.1974-06.2017-07.nc")
    with np.load(REAL.parents[1] / "mjo_rmm1.npz") as arrays:
        np.testing.assert_array_equal(found.members, arrays["ensemble"])
        np.testing.assert_array_equal(found.y.to_numpy(), arrays["obs"])
    assert found.block == "year"
