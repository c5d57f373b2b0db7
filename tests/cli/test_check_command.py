"""`prerank check`: whatever the file, the numbers are those of `check`; what cannot be read gets one line."""

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from prerank import HDR, Location, check
from prerank.calibration import holm
from prerank.cli.main import app
from prerank.inputs import lazy_members

REAL = os.environ.get("PRERANK_REAL")
N_CASES, N_MEMBERS = 60, 9
TARGETS = ["h1", "h2", "h10"]
OTHER_NAMES = ["--case", "day", "--member", "run", "--target", "lead", "--value", "wind", "--observation", "seen"]
DAYS = pd.date_range("2024-01-01", periods=N_CASES)


def invoke(*arguments: object):
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, ["check", *map(str, arguments)])


def assert_one_line(result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    assert not result.stdout
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr


@pytest.fixture(scope="module")
def arrays() -> tuple[pd.DataFrame, np.ndarray]:
    """A forecast that is far too narrow, with a member missing."""
    rng = np.random.default_rng(5)
    members = 0.3 * rng.normal(size=(N_CASES, N_MEMBERS, len(TARGETS)))
    members[7, 2] = np.nan
    return pd.DataFrame(rng.normal(size=(N_CASES, len(TARGETS))), index=DAYS, columns=TARGETS), members


def long_tables(y: pd.DataFrame, members: np.ndarray) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both in long form, rows shuffled, without the rows of the missing member; with a week per day."""
    grid = pd.MultiIndex.from_product([y.index, range(members.shape[1]), y.columns], names=["case", "member", "target"])
    forecasts = pd.DataFrame({"value": members.ravel()}, index=grid).reset_index().dropna()
    observations = y.rename_axis("case").reset_index().melt("case", var_name="target", value_name="value")
    if isinstance(y.index, pd.DatetimeIndex):
        forecasts["week"] = (forecasts["case"] - DAYS[0]).dt.days // 2
    return forecasts.sample(frac=1, random_state=1), observations.sample(frac=1, random_state=2)


def npz_one(folder: Path, y: pd.DataFrame, members: np.ndarray) -> list[object]:
    np.savez(folder / "f.npz", members=members, observations=y.to_numpy(), targets=TARGETS)
    return [folder / "f.npz"]


def npz_two_other_names_sample_first(folder: Path, y: pd.DataFrame, members: np.ndarray) -> list[object]:
    np.savez_compressed(folder / "f.npz", ensemble=np.moveaxis(members, 1, 0), targets=TARGETS)
    np.savez(folder / "o.npz", obs=y.to_numpy())
    names = ["--value", "ensemble", "--observation", "obs", "--axes", "member,case,target"]
    return [folder / "f.npz", folder / "o.npz", *names]


def csv_two(folder: Path, y: pd.DataFrame, members: np.ndarray) -> list[object]:
    for table, name in zip(long_tables(y, members), ("f.csv", "o.csv"), strict=True):
        table.to_csv(folder / name, index=False)
    return [folder / "f.csv", folder / "o.csv"]


def csv_one_other_names(folder: Path, y: pd.DataFrame, members: np.ndarray) -> list[object]:
    table = long_tables(y, members)[0]
    table["seen"] = [y.loc[day, target] for day, target in zip(table["case"], table["target"], strict=True)]
    table.rename(columns={"case": "day", "member": "run", "target": "lead", "value": "wind"}).to_csv(folder / "f.csv")
    return [folder / "f.csv", *OTHER_NAMES]


def parquet_and_csv(folder: Path, y: pd.DataFrame, members: np.ndarray) -> list[object]:
    forecasts, observations = long_tables(y, members)
    forecasts.astype({"target": "category"}).to_parquet(folder / "f.parquet")
    observations.to_csv(folder / "o.csv", index=False)
    return [folder / "f.parquet", folder / "o.csv"]


def parquet_cases_of_two_columns(folder: Path, y: pd.DataFrame, members: np.ndarray) -> list[object]:
    for table, name in zip(long_tables(y, members), ("f.pq", "o.pq"), strict=True):
        table.assign(year=table["case"].dt.year, day=table["case"].dt.day_of_year).drop(columns="case").to_parquet(
            folder / name
        )
    return [folder / "f.pq", folder / "o.pq", "--case", "year", "--case", "day"]


def netcdf_two(folder: Path, y: pd.DataFrame, members: np.ndarray) -> list[object]:
    xr = pytest.importorskip("xarray")
    coords = {"time": y.index, "station": TARGETS}
    forecast = xr.DataArray(members, dims=("time", "realization", "station"), coords=coords, name="t2m")
    order = np.random.default_rng(0).permutation(len(y))
    shuffled = forecast.transpose("realization", "station", "time").isel(time=order, station=[2, 0, 1])
    shuffled.to_netcdf(folder / "f.nc", engine="scipy")
    xr.DataArray(y.to_numpy(), dims=("time", "station"), coords=coords, name="t2m").to_netcdf(
        folder / "o.nc", engine="scipy"
    )
    return [folder / "f.nc", folder / "o.nc"]


def netcdf_one_dimensions_of_other_names(folder: Path, y: pd.DataFrame, members: np.ndarray) -> list[object]:
    xr = pytest.importorskip("xarray")
    coords = {"run": y.index, "place": TARGETS}
    variables = {"wind": (("place", "run", "m"), members.transpose(2, 0, 1)), "seen": (("run", "place"), y.to_numpy())}
    xr.Dataset(variables, coords).to_netcdf(folder / "f.nc", engine="scipy")
    return [folder / "f.nc", "--case", "run", "--member", "m", "--target", "place"]


WRITERS: list[Callable] = [
    npz_one,
    npz_two_other_names_sample_first,
    csv_two,
    csv_one_other_names,
    parquet_and_csv,
    parquet_cases_of_two_columns,
    netcdf_two,
    netcdf_one_dimensions_of_other_names,
]


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_every_format_gives_the_numbers_of_the_arrays(write, arrays, tmp_path):
    expected = check(*arrays, axes=("case", "member", "target"))
    result = invoke(*write(tmp_path, *arrays), "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["verdict"] == expected.verdict
    assert found["calibrated"] is False
    assert found["notes"] == list(expected.notes)
    for name in ("PCE", "expected PCE", "low", "high", "p-value", "adjusted p-value"):
        key = name.lower().replace(" ", "_").replace("-", "_")
        assert [row[key] for row in found["preranks"]] == expected.table[name].tolist()
    assert [row["projection"] for row in found["projections"]][:3] == TARGETS


@pytest.mark.filterwarnings("ignore")  # about text in Zarr stores
@pytest.mark.parametrize("kind", ["classic", "netCDF4", "zarr"])
def test_files_that_are_read_in_chunks_give_the_same_p_values(kind, arrays, tmp_path, monkeypatch):
    xr = pytest.importorskip("xarray")
    pytest.importorskip("dask.array")
    if kind != "classic":
        pytest.importorskip(kind)
    y, members = arrays
    coordinates = {"time": DAYS, "station": TARGETS, "week": ("time", np.arange(N_CASES) // 2)}
    variables = {"t2m": (("number", "time", "station"), members.swapaxes(0, 1)), "seen": (("time", "station"), y)}
    dataset = xr.Dataset(variables, coordinates)
    path = tmp_path / ("f.zarr" if kind == "zarr" else "f.nc")
    if kind == "zarr":
        dataset.chunk({"time": 13}).to_zarr(path, consolidated=False)
    else:
        dataset.to_netcdf(path, engine="scipy" if kind == "classic" else kind.lower())
    asked = [path, "--prerank", "location", "--prerank", "HDR", "--block", "week", "--json"]
    whole = json.loads(invoke(*asked).stdout)
    monkeypatch.setattr("prerank.io.stores.LARGE", 0)
    monkeypatch.setattr("prerank.io.stores._CHUNK", 13 * members[0].nbytes)
    monkeypatch.setattr("prerank.inputs.lazy_members.VALUES", 13 * members[0].size)
    read = []
    look = lazy_members._look
    monkeypatch.setattr(lazy_members, "_look", lambda block, *others: read.append(len(block)) or look(block, *others))
    chunked = json.loads(invoke(*asked).stdout)
    assert read == [13, 13, 13, 13, 8]
    assert [row["p_value"] for row in chunked["preranks"]] == [row["p_value"] for row in whole["preranks"]]
    assert [row["pce"] for row in chunked["preranks"]] == pytest.approx([row["pce"] for row in whole["preranks"]])
    assert chunked["notes"] == whole["notes"]


def test_the_table_is_that_of_check(arrays, tmp_path):
    result = invoke(*csv_two(tmp_path, *arrays))
    assert result.exit_code == 0
    assert result.stdout.rstrip() == str(check(*arrays, axes=("case", "member", "target"))).rstrip()


@pytest.mark.parametrize("write", [csv_two, npz_one, netcdf_one_dimensions_of_other_names], ids=lambda w: w.__name__)
def test_blocks_preranks_and_seed_reach_the_check(write, arrays, tmp_path):
    y, members = arrays
    files = write(tmp_path, y, members)
    weeks = np.arange(N_CASES) // 2
    if write is npz_one:
        np.savez(tmp_path / "f.npz", members=members, observations=y.to_numpy(), targets=TARGETS, week=weeks)
    elif write is netcdf_one_dimensions_of_other_names:
        xr = pytest.importorskip("xarray")
        with xr.open_dataset(tmp_path / "f.nc") as dataset:
            dataset.load().assign(week=("run", weeks)).to_netcdf(tmp_path / "g.nc", engine="scipy")
        files = [tmp_path / "g.nc", "--value", "wind", "--observation", "seen", *files[1:]]
    asked = ["--block", "week", "--prerank", "LOCATION", "--prerank", "HDR", "--seed", "3", "--json"]
    result = invoke(*files, *asked)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    expected = check(y, members, [Location(), HDR()], axes=("case", "member", "target"), blocks=weeks, seed=3)
    assert found["blocks"] == N_CASES // 2
    assert found["seed"] == 3
    assert [row["prerank"] for row in found["preranks"]] == ["location", "HDR"]
    assert [row["p_value"] for row in found["preranks"]] == expected.table["p-value"].tolist()


def test_fail_means_status_1_for_a_miscalibrated_forecast_only(arrays, tmp_path):
    y, members = arrays
    files = npz_one(tmp_path, y, members)
    assert invoke(*files, "--prerank", "HDR").exit_code == 0
    failed = invoke(*files, "--prerank", "HDR", "--fail")
    assert failed.exit_code == 1
    assert "Miscalibrated" in failed.stdout
    # an observation that stands at every rank equally often cannot be told from a calibrated one
    grid = np.linspace(0.0, 1.0, N_MEMBERS + 1)
    level = np.stack([np.roll(grid, -k) for k in range(N_MEMBERS + 1)] * 6)[..., None]
    np.savez(tmp_path / "level.npz", members=level[:, 1:], observations=level[:, 0])
    fine = invoke(tmp_path / "level.npz", "--prerank", "marginal", "--fail")
    assert fine.exit_code == 0, fine.output
    assert "No evidence against calibration" in fine.stdout


def test_one_target_needs_no_axis_of_its_own(tmp_path):
    rng = np.random.default_rng(0)
    y, members = rng.normal(size=50), rng.normal(size=(50, 5))
    np.savez(tmp_path / "f.npz", members=members, observations=y)
    result = invoke(tmp_path / "f.npz", "--json")
    expected = check(y[:, None], members[..., None])
    assert json.loads(result.stdout)["p_value"] == expected.p_value


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_figure_is_written_and_json_stays_alone_on_the_output(suffix, arrays, tmp_path):
    figure = tmp_path / f"check.{suffix}"
    result = invoke(*npz_one(tmp_path, *arrays), "--prerank", "location", "--plot", figure, "--json")
    assert json.loads(result.stdout)["cases"] == N_CASES
    assert figure.stat().st_size > 1000


def test_a_figure_that_cannot_be_drawn_is_refused_without_output(arrays, tmp_path):
    files = [*npz_one(tmp_path, *arrays), "--prerank", "location"]
    assert_one_line(invoke(*files, "--plot", tmp_path / "check.docx"), "docx")


@pytest.mark.parametrize("name", ["f.npz", "f.nc", "f.csv", "f.parquet", "f.feather"])
@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 8], ids=["empty", "noise"])
def test_a_file_that_is_not_what_its_name_says_gets_one_line(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    assert_one_line(invoke(tmp_path / name), name)


@pytest.mark.parametrize("write", [npz_one, netcdf_one_dimensions_of_other_names], ids=lambda w: w.__name__)
@pytest.mark.parametrize("share", [0.02, 0.5, 0.95])
def test_a_truncated_file_gets_one_line(write, share, arrays, tmp_path):
    path, *options = write(tmp_path, *arrays)
    data = Path(str(path)).read_bytes()
    Path(str(path)).write_bytes(data[: int(share * len(data))])
    assert_one_line(invoke(path, *options), Path(str(path)).name)


@pytest.mark.parametrize("name", ["absent.npz", "absent.nc", "absent.csv", "absent.parquet"])
def test_a_file_that_is_not_there_gets_one_line(name, tmp_path):
    assert_one_line(invoke(tmp_path / name), name)
    (tmp_path / name).mkdir()
    assert_one_line(invoke(tmp_path / name), name)


@pytest.mark.parametrize("kind", ["U8", "complex128", "datetime64[s]", "object"])
def test_arrays_that_hold_no_real_numbers_get_one_line(kind, arrays, tmp_path):
    np.savez(tmp_path / "f.npz", members=np.zeros((9, 5, 2)).astype(kind), observations=np.zeros((9, 2)))
    assert_one_line(invoke(tmp_path / "f.npz"))


def test_an_array_without_a_name_gets_one_line(tmp_path):
    with (tmp_path / "f.npz").open("wb") as stream:
        np.save(stream, np.zeros((9, 5, 2)))
    assert_one_line(invoke(tmp_path / "f.npz"), "one array without a name")


def test_control_characters_of_a_file_do_not_reach_the_terminal(arrays, tmp_path):
    y, members = arrays
    files = csv_two(tmp_path, y.set_axis(["a", "b", "\x1b[31mz\x9b"], axis=1), members)
    for asked in (files, [*files, "--json"], [tmp_path / "\x1b[31mz\x9b.npz"]):
        result = invoke(*asked, "--prerank", "marginal")
        assert not {"\x1b", "\x9b"} & {*result.output}
        assert "z" in result.output


def test_options_that_do_not_fit_get_one_line(arrays, tmp_path):
    npz, tables = npz_one(tmp_path, *arrays), csv_two(tmp_path, *arrays)
    assert_one_line(invoke(*npz, "--prerank", "energy"), "no pre-rank 'energy'", "location")
    assert_one_line(invoke(*npz, "--block", "date"), "no array 'date'")
    assert_one_line(invoke(*npz, "--value", "nowhere"), "no array 'nowhere'", "'members'")
    assert_one_line(invoke(*npz, "--case", "time"), "order of their axes")
    np.savez(tmp_path / "g.npz", members=np.zeros((9, 5, 2)), observations=np.zeros((9, 2)), targets=["a", "b", "c"])
    assert_one_line(invoke(tmp_path / "g.npz"), "'targets' has shape (3,)", "(2,)")
    assert_one_line(invoke(*npz, "--axes", "member,case"), "member,case")
    assert_one_line(invoke(*tables, "--axes", "member,case,target"), "axes are for arrays")
    assert_one_line(invoke(*tables, "--member", "run"), "no column 'run'", "'member'")
    assert_one_line(invoke(*tables, "--target", "a", "--target", "b"), "a, b")
    assert_one_line(invoke(npz[0], tables[1]), "different kinds")
    assert_one_line(invoke(tables[0]), "no column 'observation'")
    (tmp_path / "f.xlsx").touch()
    assert_one_line(invoke(tmp_path / "f.xlsx"), "'.xlsx'", ".csv")


def test_names_from_a_file_are_shown_as_they_are(arrays, tmp_path):
    y, members = arrays
    names = ["<b>[red]b[/]</b>", "t", "z :smile: [/]"]
    files = csv_two(tmp_path, y.set_axis(names, axis=1), members)
    shown = invoke(*files, "--prerank", "marginal")
    assert shown.exit_code == 0, shown.output
    assert f"{names[0]} to {names[2]}: under-dispersed" in " ".join(shown.stdout.split())


def test_groups_are_checked_one_by_one_and_adjusted_together(arrays, tmp_path):
    y, members = arrays
    widened = np.nan_to_num(members)  # with a member missing in one group the other's p-values are simulated too
    north = np.arange(N_CASES) < N_CASES // 2
    widened[north] *= 1 / 0.3  # the truth in the north, too narrow in the south
    place = np.where(north, "north", "south")
    np.savez(tmp_path / "f.npz", members=widened, observations=y.to_numpy(), targets=TARGETS, place=place)
    asked = [tmp_path / "f.npz", "--by", "place", "--prerank", "HDR"]
    found = json.loads(invoke(*asked, "--json").stdout)
    own = [check(y[rows], widened[rows], HDR(), axes=("case", "member", "target")).p_value for rows in (north, ~north)]
    assert [row["group"] for row in found["groups"]] == ["north", "south"]
    assert [row["p_value"] for row in found["groups"]] == own
    assert [row["adjusted_p_value"] for row in found["groups"]] == holm(own).tolist()
    assert [row["cases"] for row in found["groups"]] == [30, 30]
    assert found["p_value"] == min(holm(own).tolist())
    shown = invoke(*asked, "--fail")
    assert shown.exit_code == 1
    assert "south" in shown.stdout.splitlines()[0]


@pytest.mark.slow
def test_groups_that_cannot_be_checked_get_one_line(arrays, tmp_path):
    y, members = arrays
    each = np.arange(N_CASES)
    np.savez(tmp_path / "f.npz", members=members, observations=y.to_numpy(), each=each, gone=np.where(each < 2, 1, 2))
    hopeless = invoke(tmp_path / "f.npz", "--by", "each")
    assert hopeless.exit_code == 0
    assert "No verdict: the smallest adjusted p-value possible for 60 groups is 1.000" in hopeless.stdout
    unnamed = np.where(each < 2, np.nan, 1.0)
    np.savez(tmp_path / "g.npz", members=members, observations=y.to_numpy(), gone=unnamed)
    assert_one_line(invoke(tmp_path / "g.npz", "--by", "gone"), "2 missing labels")
    assert_one_line(invoke(tmp_path / "g.npz", "--block", "gone"), "2 missing labels")
    empty = y.to_numpy().copy()
    empty[:2] = np.nan
    np.savez(tmp_path / "f.npz", members=members, observations=empty, gone=np.where(each < 2, 1, 2))
    assert_one_line(invoke(tmp_path / "f.npz", "--by", "gone"), "group 1: ")


@pytest.mark.slow
@pytest.mark.skipif(not REAL or not (Path(REAL) / "uw_temperature.npz").exists(), reason="PRERANK_REAL is not set")
@pytest.mark.filterwarnings("ignore")  # about text in Zarr stores
def test_the_real_ensemble_gives_the_same_output_in_every_format(tmp_path):
    xr = pytest.importorskip("xarray")
    with np.load(Path(str(REAL)) / "uw_temperature.npz") as file:
        y, members, date, group = (file[name] for name in ("obs", "ensemble", "case_date", "case_group"))
    places = [f"s{k + 1}" for k in range(y.shape[1])]
    np.savez(tmp_path / "f.npz", members=members, observations=y, targets=places, date=date, group=group)
    forecasts, observations = long_tables(pd.DataFrame(y, columns=places), members)
    forecasts = forecasts.assign(date=date[forecasts["case"]], group=group[forecasts["case"]])
    forecasts.to_csv(tmp_path / "f.csv", index=False)
    observations.to_csv(tmp_path / "o.csv", index=False)
    forecasts.to_parquet(tmp_path / "f.parquet")
    observations.to_parquet(tmp_path / "o.parquet")
    variables = {
        "t2m": (("case", "realization", "station"), members),
        "seen": (("case", "station"), y),
        "date": ("case", date),
        "group": ("case", group),
    }
    dataset = xr.Dataset(variables, {"station": places})
    files = [["f.npz"], ["f.csv", "o.csv"], ["f.parquet", "o.parquet"]]
    if importlib.util.find_spec("netCDF4"):
        dataset.to_netcdf(tmp_path / "f.nc", engine="netcdf4")
        files.append(["f.nc"])
    if importlib.util.find_spec("zarr"):
        dataset.to_zarr(tmp_path / "f.zarr", consolidated=False)
        files.append(["f.zarr"])
    for asked in (
        ["--block", "date", "--prerank", "location", "--prerank", "HDR"],
        ["--by", "group", "--prerank", "location", "--replicates", "399"],
    ):
        outputs = [invoke(*(tmp_path / name for name in names), *asked, "--json") for names in files]
        assert [one.exit_code for one in outputs] == [0] * len(files), [one.stderr for one in outputs]
        # only NetCDF and Zarr tell what the targets are
        assert len({one.stdout.replace("stations", "targets") for one in outputs}) == 1
        found = json.loads(outputs[0].stdout)
        if "--by" in asked:
            assert [row["group"] for row in found["groups"]] == list(range(20))
            assert sum(row["cases"] for row in found["groups"]) == len(y)
        else:
            assert found["blocks"] == 52
        assert found["calibrated"] is False  # its members are far too close together, see the data's description
