"""Every command of the recipes on the files as their owners publish them: the numbers are those of arrays made by hand."""

import json
import os
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from prerank import Dependency, Location, check
from prerank.cli.main import app

REAL = Path(os.environ.get("PRERANK_REAL", "")) / "files"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not REAL.is_dir(), reason="PRERANK_REAL names no folder with files"),
]
RECIPES = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
TYPED = [line for line in RECIPES.splitlines() if line.startswith("prerank ")]
ON_FILES = [text for text in TYPED if any(word in text for word in (".nc", "Forecasts_DE", "hub"))]
TARGET = "wk inc flu hosp"
MODELS = ("FluSight-baseline", "UGuelph-CompositeCurve", "UMass-trends_ensemble")


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """A folder with the published files, as a reader has them."""
    for path in (*(REAL / "netcdf").iterdir(), *(REAL / "wide").iterdir(), REAL / "hub"):
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def result_of(text: str, *more: str) -> dict:
    result = CliRunner().invoke(app, [*shlex.split(text)[1:], "--json", *more])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def typed(*words: str) -> str:
    """The first command of the recipes with these words."""
    return next(text for text in TYPED if all(word in text for word in words))


def assert_same(document: dict, result) -> None:
    assert document["cases"] == result.n_cases
    for row in document["preranks"]:
        assert row["pce"] == pytest.approx(result.table.loc[row["prerank"], "PCE"], abs=1e-12)
        assert row["adjusted_p_value"] == pytest.approx(result.table.loc[row["prerank"], "adjusted p-value"], abs=1e-12)


def test_there_is_a_recipe_for_every_published_file() -> None:
    for path in (*(REAL / "netcdf").iterdir(), *(REAL / "wide").iterdir()):
        assert any(path.name in text for text in ON_FILES), path.name
    assert sum(" hub " in text for text in ON_FILES) >= 4


@pytest.mark.parametrize(
    "words",
    [
        ("recalibrate", "hub"),
        ("--by model", "--by location"),
        ("--dependence independent",),
        ("--dependence gaussian",),
    ],
    ids=" ".join,
)
def test_other_commands_of_the_recipes_run(words, reader) -> None:
    text = typed(*words)
    found = result_of(text, "--prerank", "location", "--replicates", "99")
    if "--html" in text:
        assert (reader / "report.html").stat().st_size < 2_000_000
    if "--out" in text:
        assert (reader / "corrected-hub" / "model-output" / "UMass-trends_ensemble").is_dir()
        assert found["written"]["targets"] == 4


def test_a_price_table(reader) -> None:
    table = pd.read_csv(REAL / "wide" / "Forecasts_DE_DNN_LEAR_ensembles.csv", index_col=0)
    models = [f"DNN {k}" for k in range(1, 5)] + [f"LEAR {k}" for k in (56, 84, 1092, 1456)]
    members = table[models].to_numpy().reshape(-1, 24, 8).transpose(0, 2, 1)
    y = table["Real price"].to_numpy().reshape(-1, 24)
    assert_same(result_of(typed("Forecasts_DE")), check(y, members))


def test_a_hub_with_three_models(reader) -> None:
    found = result_of(typed('--model "*"', "--html"))
    assert [group["group"] for group in found["groups"]] == sorted(MODELS)
    for group in found["groups"]:
        y, members, rounds = _arrays_of(group["group"])
        assert_same(group, check(y, members, blocks=rounds))
    alone = result_of(f'prerank check hub --model UMass-trends_ensemble --target "{TARGET}" --joint horizon')
    y, members, rounds = _arrays_of("UMass-trends_ensemble")
    assert_same(alone, check(y, members, blocks=rounds))


def test_a_hub_by_model_and_place(reader) -> None:
    found = result_of(typed("--by model", "--by location"), "--prerank", "location", "--prerank", "dependency")
    arrays = [_arrays_of(model) for model in MODELS]
    y, members = (np.concatenate([each[k] for each in arrays]) for k in range(2))
    firsts = [_rows_of(model).groupby(["reference_date", "location"], sort=True).head(1) for model in MODELS]
    places = np.concatenate([first["location"].to_numpy() for first in firsts])
    labels = pd.DataFrame({"model": np.repeat(MODELS, [len(first) for first in firsts]), "location": places})
    expected = check(y, members, [Location(), Dependency()], by=labels)
    assert {group["group"] for group in found["groups"]} == {_called(*name) for name in expected.checks}
    by_name = {group["group"]: group for group in found["groups"]}
    for name, one in expected.checks.items():
        assert_same(by_name[_called(*name)], one)


def _called(model: str, place: str) -> str:
    return f"{model} / location {place}" if place.isdigit() else f"{model} / {place}"


def _rows_of(model: str) -> pd.DataFrame:
    """The samples of the four horizons that all models have, by pandas alone."""
    kinds = {".csv": lambda path: pd.read_csv(path, dtype={"location": str}), ".parquet": pd.read_parquet}
    files = sorted((REAL / "hub" / "model-output" / model).iterdir())
    rows = pd.concat([kinds[path.suffix](path) for path in files])
    rows = rows[(rows["output_type"] == "sample") & (rows["target"] == TARGET) & (rows["horizon"] >= 0)].copy()
    rows["reference_date"] = rows["reference_date"].astype(str)
    rows["number"] = rows["output_type_id"].str.extract(r"(\d+)$", expand=False).astype(int)
    return rows.sort_values(["reference_date", "location", "number", "horizon"])


def _arrays_of(model: str):
    """Observations, samples and rounds of a model."""
    rows = _rows_of(model)
    seen = pd.read_csv(REAL / "hub" / "target-data" / "target-hospital-admissions.csv", dtype={"location": str})
    known = seen.set_index(["date", "location"])["value"]
    first = rows.groupby(["reference_date", "location"], sort=True).head(4)
    days = zip(first["target_end_date"].astype(str), first["location"], strict=True)
    y = np.array([known[day] for day in days]).reshape(-1, 4)
    return y, rows["value"].to_numpy(dtype=float).reshape(-1, 100, 4), first["reference_date"].to_numpy()[::4]


def test_a_hindcast_of_days(reader) -> None:
    xr = pytest.importorskip("xarray")
    with xr.open_dataset(REAL / "netcdf" / "GMAO-GEOS-V2p1.RMM1.nc", decode_times=False) as one:
        forecast = one["RMM1"].transpose("S", "M", "L").load()
    with xr.open_dataset(REAL / "netcdf" / "RMM1.observed.interannual.1974-06.2017-07.nc", decode_times=False) as other:
        observed = other["rmm1"].dropna("time").load()  # 145 values at the end have neither time nor value
    starts = pd.Timestamp("1960-01-01") + pd.to_timedelta(forecast["S"].values.astype(int), unit="D")
    dates = pd.Timestamp("1974-06-03") + pd.to_timedelta(observed["time"].values.astype(int), unit="D")
    seen = pd.Series(observed.values, dates)
    leads = np.floor(forecast["L"].values).astype(int)  # 0.5 is the middle of the first day
    y = np.stack([seen.reindex(starts + pd.Timedelta(days=int(lead))).to_numpy() for lead in leads], axis=1)
    expected = check(y.astype(np.float32), forecast.values, blocks=starts.year)
    assert_same(result_of(typed("GMAO")), expected)


def test_a_hindcast_of_years(reader) -> None:
    xr = pytest.importorskip("xarray")
    with xr.open_dataset(REAL / "netcdf" / "CESM-DP-LE.SST.global.nc", decode_times=False) as one:
        forecast = one["SST"].load()
    with xr.open_dataset(REAL / "netcdf" / "ERSSTv4.global.mean.nc", decode_times=False) as other:
        observed = next(iter(other.data_vars.values())).load().squeeze()
    starts, leads = forecast["init"].values.astype(int), forecast["lead"].values.astype(int)
    years = dict(zip(observed["time"].values.astype(int).tolist(), observed.values.tolist(), strict=True))
    y = np.array([[years.get(start + lead, np.nan) for lead in leads] for start in starts])
    members = forecast.transpose("init", "member", "lead").values
    kept = ~np.isnan(y).any(1)
    assert_same(
        result_of(typed("CESM"), "--block", "none"), check(y[kept], members[kept], axes=("case", "member", "target"))
    )
