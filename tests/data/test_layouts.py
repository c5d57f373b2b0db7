"""Out comes what went in: corrected forecasts have the names, attributes, labels, rows and types of the raw ones."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from hub_files import ROUNDS, build_hub
from prerank.io import DataError, Matched, Naming, read_forecasts, write_forecasts

WIDE = Naming(members=("m *",), observation="seen", joint=("hour",))
LONG = Naming(case=("day",), member="run", target=("lead",), value="wind")
HUB = Naming(model=("*-*",), joint=("horizon",))


def corrected(found: Matched, rows: np.ndarray) -> Matched:
    """Some of the cases, in another order, with other values."""
    members = np.round(3.0 * np.asarray(found.members)[rows] + 7.0, 3)
    return found._replace(y=found.y.iloc[rows], members=members, columns=found.columns.iloc[rows])


def assert_read_again(path: Path, naming: Naming, written: Matched, observations: Path | None = None) -> None:
    """Labels say which case is which: the file has them in its own order."""
    again = read_forecasts(path, observations, naming)
    order = again.y.index.get_indexer(written.y.index)
    assert len(again.y) == len(written.y)
    assert (order >= 0).all()
    np.testing.assert_allclose(again.members[order], written.members, rtol=1e-6)
    np.testing.assert_array_equal(again.y.to_numpy()[order], written.y.to_numpy())


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet", "feather"])
def test_a_table_in_long_form_keeps_columns_rows_and_labels(suffix: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = pd.MultiIndex.from_product([["007", "008", "011"], ["r2", "r10"], [6, 12]], names=["day", "run", "lead"])
    table = pd.DataFrame({"wind": rng.normal(size=12)}, rows).reset_index().sample(frac=1, random_state=1)
    table = table.assign(unit="m/s", observation=table["lead"] + 0.5, note=[f'a, "{k}"' for k in range(12)])
    raw, out = tmp_path / f"raw.{suffix}", tmp_path / f"out.{suffix}"
    if suffix == "parquet":
        table.to_parquet(raw, index=False)
    elif suffix == "feather":
        table.reset_index(drop=True).to_feather(raw)
    else:
        table.to_csv(raw, index=False)
    found = read_forecasts(raw, naming=LONG)
    written = corrected(found, np.array([2, 0]))
    write_forecasts(out, written, LONG, like=found.layout)
    assert_read_again(out, LONG, written)
    read = {"parquet": pd.read_parquet, "feather": pd.read_feather}.get(
        suffix, lambda path: pd.read_csv(path, dtype=str)
    )
    before, after = read(raw), read(out)
    before = before[before["day"] != "008"].reset_index(drop=True)
    pd.testing.assert_frame_equal(after.drop(columns="wind"), before.drop(columns="wind"))
    assert list(after.columns) == list(before.columns)


def test_observations_of_a_second_table_are_written_beside_the_forecast(tmp_path: Path) -> None:
    rows = pd.MultiIndex.from_product([[1, 2, 3], [0, 1], ["a", "b"]], names=["case", "member", "target"])
    pd.DataFrame({"value": np.arange(12.0)}, rows).to_csv(tmp_path / "f.csv")
    pd.DataFrame({"value": np.arange(6.0)}, rows.droplevel("member")[[0, 1, 4, 5, 8, 9]]).to_csv(tmp_path / "o.csv")
    found = read_forecasts(tmp_path / "f.csv", tmp_path / "o.csv")
    written = corrected(found, np.array([1, 2]))
    write_forecasts(tmp_path / "out.csv", written, like=found.layout)
    assert_read_again(tmp_path / "out.csv", Naming(), written)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_wide_table_keeps_its_columns(suffix: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    times = pd.date_range("2024-01-01", periods=96, freq="h")
    table = pd.DataFrame(rng.normal(size=(96, 4)), times, ["seen", "m 2", "m 1", "other"]).assign(flag="07")
    raw, out = tmp_path / f"raw.{suffix}", tmp_path / f"out.{suffix}"
    table.to_csv(raw) if suffix == "csv" else table.rename_axis("time").reset_index().to_parquet(raw)
    found = read_forecasts(raw, naming=WIDE)
    written = corrected(found, np.array([1, 3]))
    write_forecasts(out, written, WIDE, like=found.layout)
    assert_read_again(out, WIDE, written)
    read = pd.read_parquet if suffix == "parquet" else lambda path: pd.read_csv(path, dtype=str)
    before, after = read(raw), read(out)
    kept = np.isin(times.day, [2, 4])
    members = ["m 1", "m 2"]
    pd.testing.assert_frame_equal(
        after.drop(columns=members), before[kept].reset_index(drop=True).drop(columns=members)
    )
    assert list(after.columns) == list(before.columns)


def test_a_hub_keeps_files_columns_types_and_names_of_samples(tmp_path: Path) -> None:
    hub, out = build_hub(tmp_path / "hub"), tmp_path / "out"
    found = read_forecasts(hub, naming=HUB)
    later = np.flatnonzero(found.columns["reference_date"] != ROUNDS[0])
    written = corrected(found, later)
    write_forecasts(out, written, like=found.layout)
    assert_read_again(out, HUB, written)
    assert (out / "hub-config" / "tasks.json").read_bytes() == (hub / "hub-config" / "tasks.json").read_bytes()
    for model, suffix in (("a-csv", "csv"), ("b-parquet", "parquet"), ("c-gz", "csv.gz")):
        names = sorted(path.name for path in (out / "model-output" / model).iterdir())
        assert names == [f"{day}-{model}.{suffix}" for day in ROUNDS[1:]]
        for name in names:
            raw, new = (root / "model-output" / model / name for root in (hub, out))
            if suffix == "parquet":
                assert pq.read_schema(new).equals(pq.read_schema(raw))
            read = pd.read_parquet if suffix == "parquet" else lambda path: pd.read_csv(path, dtype=str)
            before, after = read(raw), read(new)
            pd.testing.assert_frame_equal(after.drop(columns="value"), before.drop(columns="value"))
            assert not after["value"].equals(before["value"])
            assert after["value"].astype(str).str.fullmatch(r"\d+").all()  # whole numbers, as the rules ask
    with pytest.raises(DataError, match="has a model 'a-csv' already"):
        write_forecasts(out, written, like=found.layout)
    with pytest.raises(DataError, match="would be written into the hub that is read"):
        write_forecasts(hub / "out", written, like=found.layout)


def test_a_netcdf_file_keeps_variables_attributes_coordinates_and_types(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    from hindcast_files import LAYOUTS, saved

    for layout in LAYOUTS:
        folder = tmp_path / layout.__name__
        folder.mkdir()
        dataset, truth, _ = layout()
        name = next(iter(dataset.data_vars))
        dataset[name].attrs = {"units": "K", "long_name": "what is forecast", "cell_methods": "time: mean"}
        dataset = dataset.assign(mask=((), 1), note=(dataset[name].dims[:1], np.arange(dataset[name].shape[0])))
        dataset = dataset.assign_attrs(title="Hindcast", Conventions="CF-1.8").astype(
            {name: "float32"} if False else None
        )
        files = saved(folder, dataset, truth)
        naming = Naming(value=name)
        found = read_forecasts(*files, naming)
        rows = np.array([7, 3, 4])
        written = corrected(found, rows)
        write_forecasts(folder / "out.nc", written, naming, like=found.layout)
        with (
            xr.open_dataset(files[0], decode_times=False) as raw,
            xr.open_dataset(folder / "out.nc", decode_times=False) as new,
        ):
            dim = found.y.index.name
            expected = raw.isel({dim: np.sort(rows)})
            xr.testing.assert_identical(
                new.drop_vars([name, *(set(new.data_vars) - set(raw.data_vars))]), expected.drop_vars(name)
            )
            assert new[name].dims == raw[name].dims
            assert new[name].attrs == raw[name].attrs
            assert new[name].dtype == raw[name].dtype
        assert_read_again(folder / "out.nc", naming, written, files[1])
        assert_read_again(folder / "out.nc", naming, written)  # observations stand in it too


def test_other_numbers_of_draws_get_members_of_their_own(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    from hindcast_files import iri, saved

    dataset, truth, _ = iri()
    files = saved(tmp_path, dataset, truth)
    found = read_forecasts(*files)
    more = found._replace(members=np.repeat(found.members, 3, axis=1))
    write_forecasts(tmp_path / "out.nc", more, like=found.layout)
    with xr.open_dataset(tmp_path / "out.nc") as new:
        assert new.sizes["M"] == 12
        assert new["M"].attrs["standard_name"] == "realization"
    assert_read_again(tmp_path / "out.nc", Naming(), more)


def test_numbers_that_were_packed_are_written_in_full(tmp_path: Path) -> None:
    pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    from hindcast_files import iri, saved

    dataset, truth, _ = iri()
    dataset["RMM1"].encoding = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 0.0, "_FillValue": -9999}
    files = saved(tmp_path, dataset, truth)
    found = read_forecasts(*files)
    written = found._replace(members=np.asarray(found.members) * 1e6)
    write_forecasts(tmp_path / "out.nc", written, like=found.layout)
    assert_read_again(tmp_path / "out.nc", Naming(), written)


def test_cases_of_two_dimensions_and_joined_targets_go_back_to_their_places(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    from hindcast_files import iri, saved

    dataset, truth, _ = iri()
    shift = xr.DataArray([0.0, 1000.0], dims="station", coords={"station": ["b", "a"]})
    files = saved(tmp_path, dataset + shift, truth + shift)
    for number, joint in enumerate((("L",), ("station",), ("station", "L"))):
        found = read_forecasts(*files, Naming(joint=joint))
        out = tmp_path / f"out{number}.nc"
        write_forecasts(out, found._replace(members=2 * np.asarray(found.members)), like=found.layout)
        with xr.open_dataset(files[0]) as raw, xr.open_dataset(out) as new:
            np.testing.assert_allclose(new["RMM1"].values, 2 * raw["RMM1"].values)


def test_what_was_not_read_is_not_written(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"case": [1, 1, 2, 2], "member": [0, 1, 0, 1], "target": "a", "value": 1.0, "observation": 1.0}
    )
    table.to_csv(tmp_path / "f.csv", index=False)
    found = read_forecasts(tmp_path / "f.csv")
    strange = found._replace(y=found.y.set_axis([5, 6]))
    with pytest.raises(DataError, match="not those that were read"):
        write_forecasts(tmp_path / "out.csv", strange, like=found.layout)
    assert not (tmp_path / "out.csv").exists()


REAL = Path(os.environ.get("PRERANK_REAL", "")) / "files"
FILES = {
    "hub": (["hub"], Naming(model=("UGuelph*",), target=("wk inc flu hosp",), joint=("horizon",)), "out"),
    "wide": (
        ["wide/Forecasts_DE_DNN_LEAR_ensembles.csv"],
        Naming(members=("DNN ?", "LEAR [0-9]*"), observation="Real price", joint=("hour",)),
        "out.csv",
    ),
    "days": (
        ["netcdf/GMAO-GEOS-V2p1.RMM1.nc", "netcdf/RMM1.observed.interannual.1974-06.2017-07.nc"],
        Naming(),
        "out.nc",
    ),
    "years": (["netcdf/CESM-DP-LE.SST.global.nc", "netcdf/ERSSTv4.global.mean.nc"], Naming(), "out.nc"),
}


@pytest.mark.skipif(not REAL.is_dir(), reason="PRERANK_REAL names no folder with files")
@pytest.mark.parametrize("kind", FILES)
def test_published_files_are_written_as_they_are(kind: str, tmp_path: Path) -> None:
    names, naming, out = FILES[kind]
    files = [REAL / name for name in names]
    found = read_forecasts(*files, naming=naming)
    written = corrected(found, np.arange(len(found.y) // 2, len(found.y)))
    write_forecasts(tmp_path / out, written, naming, like=found.layout)
    if kind == "hub":
        written = written._replace(members=np.round(written.members))
    assert_read_again(tmp_path / out, naming, written)
    if out.endswith(".nc"):
        xr = pytest.importorskip("xarray")
        with (
            xr.open_dataset(files[0], decode_times=False) as raw,
            xr.open_dataset(tmp_path / out, decode_times=False) as new,
        ):
            (name,) = raw.data_vars
            expected = raw.isel({found.y.index.name: slice(len(found.y) // 2, None)})
            assert new[name].dims == raw[name].dims
            assert new[name].attrs == raw[name].attrs
            assert new[name].dtype == raw[name].dtype
            assert new.attrs == raw.attrs
            xr.testing.assert_identical(new[name].coords.to_dataset(), expected[name].coords.to_dataset())
