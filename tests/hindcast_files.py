"""Hindcasts in the layouts of several climate services, with observations on a time axis and what should be joined."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

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
