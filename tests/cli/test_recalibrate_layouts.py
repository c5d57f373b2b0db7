"""`prerank recalibrate` on files as their owners publish them: what it writes can be checked as it stands."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from hub_files import build_hub, day_of, observed, put
from prerank.cli.main import app

FAST = ("--prerank", "location", "--replicates", "39")


def invoke(*arguments: object):
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, list(map(str, arguments)))


def document(*arguments: object) -> dict:
    result = invoke(*arguments, *FAST, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.slow
def test_a_hub_is_corrected_into_a_hub(tmp_path: Path) -> None:
    hub, out = build_hub(tmp_path / "hub", n_rounds=24), tmp_path / "corrected"
    options = ("--model", "a-csv", "--joint", "horizon")
    figures = ("--html", tmp_path / "r.html", "--plot", tmp_path / "r.png", "--title", "Cases <corrected>")
    told = document("recalibrate", hub, *options, "--out", out, *figures)
    assert told["written"]["cases"] == 36
    assert "samples are rounded to whole numbers, as hub-config/tasks.json asks" in told["notes"]
    again = document("check", out, *options)
    assert again["preranks"][0]["pce"] == pytest.approx(told["after"]["preranks"][0]["pce"])
    assert "Cases &lt;corrected&gt;" in (tmp_path / "r.html").read_text()
    assert (tmp_path / "r.png").stat().st_size > 1000
    refused = invoke("recalibrate", hub, *options, "--out", out)
    assert refused.exit_code == 2
    assert "has a model 'a-csv' already" in refused.stderr
    document("recalibrate", hub, "--model", "b-parquet", "--out", out)  # beside the first one
    assert sorted(path.name for path in (out / "model-output").iterdir()) == ["a-csv", "b-parquet"]
    several = invoke("recalibrate", hub, "--model", "*", "--out", tmp_path / "both")
    assert "a correction is learnt for one model, not for a-csv, b-parquet, c-gz together" in several.stderr


def test_rounds_that_are_not_observed_yet_are_corrected_and_do_not_judge(tmp_path: Path) -> None:
    hub, out = build_hub(tmp_path / "hub", n_rounds=24), tmp_path / "corrected"
    put(observed(24), hub / "target-data" / "time-series.csv")  # two horizons of the last round, one of that before
    told = document("recalibrate", hub, "--model", "a-csv", "--out", out)
    assert told["after"]["cases"] == 33
    assert told["written"]["cases"] == 33 + 6
    assert "6 cases not observed yet: corrected, and not judged by" in told["notes"]
    assert sorted(path.name[:10] for path in (out / "model-output" / "a-csv").iterdir())[-1] == day_of(23)
    assert document("check", out)["cases"] == 33


def test_a_wide_table_is_corrected_into_a_wide_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    times = pd.date_range("2024-01-01", periods=120 * 4, freq="6h")
    table = pd.DataFrame(rng.normal(size=(480, 5)), times, ["price", "a", "b", "c", "d"])
    table["price"] += 1.0
    table.to_csv(tmp_path / "prices.csv")
    options = ("--members", "a,b,c,d", "--observation", "price", "--joint", "hour")
    told = document("recalibrate", tmp_path / "prices.csv", *options, "--out", tmp_path / "out.csv")
    again = document("check", tmp_path / "out.csv", *options)
    assert again["preranks"][0]["pce"] == pytest.approx(told["after"]["preranks"][0]["pce"])
    written = pd.read_csv(tmp_path / "out.csv", dtype=str)
    assert list(written.columns) == ["Unnamed: 0", "price", "a", "b", "c", "d"]
    pd.testing.assert_series_equal(
        written["price"], pd.read_csv(tmp_path / "prices.csv", dtype=str)["price"][240:].reset_index(drop=True)
    )


def test_a_hindcast_is_corrected_into_a_hindcast(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    rng = np.random.default_rng(0)
    days = pd.date_range("2001-01-01", periods=130)
    truth = xr.Dataset({"t": ("time", rng.normal(size=130), {"units": "K"})}, {"time": days})
    lead = ("L", np.arange(3), {"units": "days", "standard_name": "forecast_period"})
    values = rng.normal(size=(120, 3, 6)) - 1.0
    raw = xr.Dataset({"t": (("S", "L", "M"), values, {"units": "K"})}, {"S": days[:120], "L": lead}, {"title": "here"})
    raw.to_netcdf(tmp_path / "f.nc")
    truth.to_netcdf(tmp_path / "o.nc")
    told = document("recalibrate", tmp_path / "f.nc", tmp_path / "o.nc", "--out", tmp_path / "out.nc")
    for files in ([tmp_path / "out.nc"], [tmp_path / "out.nc", tmp_path / "o.nc"]):
        again = document("check", *files)
        assert again["preranks"][0]["pce"] == pytest.approx(told["after"]["preranks"][0]["pce"])
    with xr.open_dataset(tmp_path / "out.nc") as written:
        assert written["t"].dims == ("S", "L", "M")
        assert written.attrs == {"title": "here"}
        assert written["t"].attrs == {"units": "K"}
        assert list(written["S"].values) == list(days[60:120].values)


def test_a_report_needs_observations(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "past.npz", members=rng.normal(size=(60, 5, 2)), observations=rng.normal(size=(60, 2)))
    np.savez(tmp_path / "new.npz", members=rng.normal(size=(9, 5, 2)))
    kept = tmp_path / "kept.safetensors"
    document("recalibrate", tmp_path / "past.npz", "--out", tmp_path / "out.npz", "--save", kept)
    arguments = (tmp_path / "new.npz", "--load", kept, "--out", tmp_path / "x.npz", "--html", tmp_path / "r.html")
    refused = invoke("recalibrate", *arguments)
    assert refused.exit_code == 2
    assert "there is no report; leave out --html and --plot" in refused.stderr
    assert not (tmp_path / "x.npz").exists()
