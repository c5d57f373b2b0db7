"""Scores look at labels as `check` does: the same case is scored with the same case."""

import numpy as np
import pandas as pd
import pytest
import torch

from prerank.forecasts import Ensemble
from prerank.scores import crps, energy_score, variogram_score

xarray = pytest.importorskip("xarray")
TIMES = pd.date_range("2020-01-01", periods=8)
POINTS = np.random.default_rng(0).normal(size=(8, 6, 3))
Y = xarray.DataArray(POINTS[:, 0], dims=("time", "station"), coords={"time": TIMES, "station": list("abc")})
MEMBERS = xarray.DataArray(
    POINTS[:, 1:], dims=("time", "number", "station"), coords={"time": TIMES, "station": list("abc")}
)


@pytest.mark.parametrize("score", [energy_score, variogram_score])
def test_cases_and_targets_are_found_by_their_coordinates(score):
    expected = score(Y.to_numpy(), MEMBERS.to_numpy())
    assert isinstance(expected, np.ndarray)
    assert np.array_equal(score(Y, MEMBERS[::-1]), expected)
    assert np.array_equal(score(Y, MEMBERS[:, :, ::-1]), expected)
    assert np.array_equal(score(Y[::-1], MEMBERS), expected[::-1])
    assert np.array_equal(score(Y, MEMBERS.transpose("number", "time", "station")), expected)


def test_weights_stay_with_the_members_they_came_with():
    weights = np.random.default_rng(1).random((8, 5))
    expected = energy_score(Y.to_numpy(), MEMBERS.to_numpy(), weights=weights)
    assert np.array_equal(energy_score(Y, MEMBERS[::-1], weights=weights[::-1].copy()), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_scored_in_single(dtype):
    y, members = torch.tensor(POINTS[:, 0]).to(dtype), torch.tensor(POINTS[:, 1:]).to(dtype)
    for score in (energy_score, variogram_score, crps):
        half = score(y, members)
        assert half.dtype == torch.float32
        assert torch.equal(half, score(y.float(), Ensemble(members.float())))
