"""The public face: few names, each with its purpose on one page, and one order of arguments."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
import torch

import prerank
from prerank import Location, PreRankPenalty, check, crps, energy_score, nll, projected_pit, variogram_score
from prerank.calibration import SmoothRank, smooth_pit
from prerank.training import EnergyScore, NegativeLogLikelihood, evaluate

PACKAGES = (
    *("calibration", "datasets", "diagnosis", "forecasts", "io", "models", "preranks"),
    *("recalibration", "regression", "scores", "training"),
)
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "index.md"


def public():
    """Every public object by its dotted name."""
    for package in PACKAGES:
        module = importlib.import_module(f"prerank.{package}")
        for name in module.__all__:
            yield f"prerank.{package}.{name}", getattr(module, name)


def calls():
    """Every public function, and how values of public classes are called."""
    for name, value in public():
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value) and "__call__" in vars(value):
            yield f"{name}.__call__", vars(value)["__call__"]


def test_prerank_has_about_thirty_names_and_all_of_them_exist():
    assert 25 <= len(prerank.__all__) <= 40
    assert all(getattr(prerank, name) is not None for name in prerank.__all__)
    assert {"check", "projected_pit", "energy_score", "crps", "nll", "variogram_score"} <= set(dir(prerank))
    with pytest.raises(AttributeError, match="module 'prerank' has no attribute 'Replicates'"):
        _ = prerank.Replicates


def test_each_name_has_its_purpose_on_one_page():
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(prerank.__all__)
    assert all(10 < len(purpose) < 80 for _, purpose in rows)


def test_every_public_function_takes_y_then_the_forecast_then_the_preranks():
    seen = 0
    for name, function in calls():
        parameters = [p for p in inspect.signature(function).parameters if p != "self"]
        if {"y", "forecast"} <= set(parameters):
            seen += 1
            assert parameters[:2] == ["y", "forecast"], f"{name}{inspect.signature(function)}"
            place = {"preranks", "prerank"} & set(parameters[:4])
            assert not place or parameters[2] in place, f"{name}{inspect.signature(function)}"
    assert seen >= 12


def test_one_word_for_how_many_to_draw_and_for_preranks():
    allowed = {"prerank.calibration.pce_null", "prerank.calibration.reliability_band"}  # of an ensemble that there is
    for name, function in calls():
        parameters = inspect.signature(function).parameters
        assert "n_members" not in parameters or name in allowed, name
        assert "law" not in parameters, name


@pytest.mark.parametrize(
    "swapped",
    [
        lambda y, forecast: check(forecast, y),
        lambda y, forecast: projected_pit(forecast, y),
        lambda y, forecast: projected_pit(Location(), forecast, y),
        lambda y, forecast: projected_pit([Location()], forecast, y),
        lambda y, forecast: evaluate(forecast, y),
        lambda y, forecast: energy_score(forecast, y),
        lambda y, forecast: variogram_score(forecast, y),
        lambda y, forecast: crps(forecast, y),
        lambda y, forecast: nll(forecast, y),
        lambda y, forecast: PreRankPenalty(Location())(forecast, y),
        lambda y, forecast: NegativeLogLikelihood()(forecast, y),
        lambda y, forecast: EnergyScore()(forecast, y),
        lambda y, forecast: smooth_pit(Location().given(forecast), forecast.ensemble(9), y, SmoothRank()),
    ],
)
def test_the_old_order_gets_a_sentence_never_a_number(swapped):
    forecast = prerank.GaussianMixture(torch.zeros(8, 1), torch.zeros(8, 1, 2), torch.eye(2).expand(8, 1, 2, 2))
    with pytest.raises((TypeError, ValueError), match=r"order is \(y, forecast|look swapped|pass an array of numbers"):
        swapped(torch.zeros(8, 2), forecast)
