"""Hindcasts as climate services lay them out: observations of a time axis are joined on start + lead, or refused."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hindcast_files import (
    LAYOUTS,
    MEMBERS,
    N_LEADS,
    N_MEMBERS,
    N_STARTS,
    Built,
    climpred,
    daily_truth,
    days_since,
    iri,
    nmme,
    no_leap,
    saved,
)
from prerank.io import DataError, Naming, read_forecasts, write_forecasts

xr = pytest.importorskip("xarray")


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: one.__name__)
def test_every_layout_is_joined_on_start_and_lead(layout: Callable[[], Built], tmp_path: Path) -> None:
    dataset, truth, y = layout()
    found = read_forecasts(*saved(tmp_path, dataset, truth))
    np.testing.assert_array_equal(found.members, MEMBERS)
    np.testing.assert_array_equal(found.y.to_numpy(), y)


def test_a_zarr_store_is_joined_as_a_file_is(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    dataset, truth, y = iri()
    for one, name in ((dataset, "f.zarr"), (truth, "o.zarr")):
        one.to_zarr(tmp_path / name, consolidated=False)
    found = read_forecasts(tmp_path / "f.zarr", tmp_path / "o.zarr")
    np.testing.assert_array_equal(found.members, MEMBERS)
    np.testing.assert_array_equal(found.y.to_numpy(), y)
    write_forecasts(tmp_path / "out.nc", found._replace(members=-MEMBERS), like=found.layout)
    with xr.open_dataset(tmp_path / "out.nc") as written:
        np.testing.assert_array_equal(written["RMM1"].values, -MEMBERS)


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


def test_several_models_share_their_observations(tmp_path: Path) -> None:
    dataset, truth, y = nmme()
    models = xr.DataArray([0.0, 10.0], dims="model", coords={"model": ["first", "second"]})
    found = read_forecasts(*saved(tmp_path, dataset + models, truth), Naming(keep=("model",)))
    assert found.members.shape == (2 * N_STARTS, N_MEMBERS, N_LEADS)
    first = (found.columns["model"] == "first").to_numpy()
    for which, shift in ((first, 0.0), (~first, 10.0)):
        np.testing.assert_array_equal(found.members[which], MEMBERS + shift)
        np.testing.assert_array_equal(found.y.to_numpy()[which], y)
    assert "observations: the same for every model" in found.notes


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
