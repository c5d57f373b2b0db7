"""Members with the labels of their cases and targets: as xarray, and as a table that `from_long` reads back."""

import numpy as np
import pandas as pd
import pytest
import torch

from prerank import Ensemble, from_long

MEMBERS = np.random.default_rng(0).normal(size=(4, 3, 2))
DAYS = pd.date_range("2024-01-01", periods=4, name="case")
Y = pd.DataFrame(np.zeros((4, 2)), index=DAYS, columns=["Oslo", "Voss"])


def test_a_table_of_an_ensemble_is_read_back() -> None:
    frame = Ensemble(MEMBERS).to_frame(Y)
    found = from_long(frame.assign(observation=0.0))
    np.testing.assert_array_equal(found.members, MEMBERS)
    assert list(found.y.index) == list(DAYS)
    assert list(found.y.columns) == ["Oslo", "Voss"]


def test_cases_of_several_labels_are_columns_and_coordinates() -> None:
    pytest.importorskip("xarray")
    index = pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["place", "day"])
    y = Y.set_axis(index)
    frame = Ensemble(MEMBERS).to_frame(y)
    np.testing.assert_array_equal(from_long(frame.assign(observation=0.0), case=["place", "day"]).members, MEMBERS)
    array = Ensemble(MEMBERS).to_xarray(y)
    assert array.dims == ("case", "member", "target")
    assert array["place"].values.tolist() == ["a", "a", "b", "b"]
    np.testing.assert_array_equal(array.values, MEMBERS)


def test_dimensions_of_observations_are_those_of_the_members() -> None:
    xr = pytest.importorskip("xarray")
    y = xr.DataArray(Y.to_numpy(), {"day": DAYS.to_numpy(), "station": ["Oslo", "Voss"]}, ("day", "station"))
    array = Ensemble(torch.tensor(MEMBERS), torch.ones(4, 3)).to_xarray(y)
    assert array.dims == ("day", "member", "station")
    assert array["weight"].dims == ("day", "member")
    xr.testing.assert_equal(array.isel(member=0, drop=True)["station"], y["station"])
    xr.testing.assert_equal(array["day"].drop_vars("weight", errors="ignore"), y["day"])
    np.testing.assert_array_equal(array.values, MEMBERS)


def test_weights_stand_beside_the_members() -> None:
    pytest.importorskip("xarray")
    weights = np.arange(1.0, 13.0).reshape(4, 3)
    ensemble = Ensemble(torch.tensor(MEMBERS), torch.tensor(weights))
    np.testing.assert_array_equal(ensemble.to_xarray()["weight"].values, weights)
    frame = ensemble.to_frame()
    assert frame.loc[(frame["case"] == 2) & (frame["member"] == 3), "weight"].tolist() == [9.0, 9.0]


def test_what_was_read_becomes_a_dataset_and_a_table() -> None:
    pytest.importorskip("xarray")
    frame = Ensemble(MEMBERS).to_frame(Y).assign(observation=lambda f: f["target"].map({"Oslo": 1.0, "Voss": 2.0}))
    found = from_long(frame.assign(week=frame["case"].dt.day // 3), keep=["week"])
    again = from_long(found.to_frame(), keep=["week"])
    np.testing.assert_array_equal(again.members, MEMBERS)
    pd.testing.assert_frame_equal(again.y, found.y)
    assert again.columns["week"].tolist() == found.columns["week"].tolist()
    dataset = found.to_xarray()
    np.testing.assert_array_equal(dataset["forecast"].values, MEMBERS)
    np.testing.assert_array_equal(dataset["observation"].values, found.y.to_numpy())
    assert dataset["week"].dims == ("case",)


def test_labels_of_other_cases_are_refused() -> None:
    with pytest.raises(ValueError, match=r"labels are to come from \(3, 2\) values; cases and targets are \(4, 2\)"):
        Ensemble(MEMBERS).to_frame(Y[:3])
    with pytest.raises(ValueError, match="pick one of the models"):
        Ensemble(MEMBERS[None]).to_frame()
