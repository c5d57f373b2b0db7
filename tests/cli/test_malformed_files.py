"""A hundred files that cannot be checked: each gets one line that says why, status 2, no traceback and no output."""

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from prerank.cli.main import app

xr = pytest.importorskip("xarray")
pytest.importorskip("zarr")
pytest.importorskip("netCDF4")
pytest.importorskip("cftime")

N_CASES, N_MEMBERS, N_TARGETS = 12, 5, 2
RNG = np.random.default_rng(0)
MEMBERS = RNG.normal(size=(N_CASES, N_MEMBERS, N_TARGETS))
Y = RNG.normal(size=(N_CASES, N_TARGETS))
DAYS = pd.date_range("2024-01-01", periods=N_CASES)
HTML = "<b onclick=alert(1)>[red]"  # a slash would be a folder to some formats

Writer = Callable[[Path], list[object]]
CASES: list[tuple[str, Writer, tuple[str, ...]]] = []


def malformed(*words: str) -> Callable[[Writer], Writer]:
    """A case: what the function writes, and the arguments it returns, get a line with these words."""

    def listed(write: Writer) -> Writer:
        CASES.append((write.__name__, write, words))
        return write

    return listed


def several(kind: str, table: dict[str, tuple[Callable[[], dict], tuple[str, ...]]], write: Callable) -> None:
    """Cases that differ in what is in the file alone."""
    for name, (content, words) in table.items():
        CASES.append((f"{kind}: {name}", lambda folder, content=content: write(folder, content()), words))


# -- NPZ


def npz(folder: Path, content: dict) -> list[object]:
    options = content.pop("options", [])
    np.savez(folder / "f.npz", **content)
    return [folder / "f.npz", *options]


def put(array: np.ndarray, value: float, *place: int | slice) -> np.ndarray:
    changed = array.copy()
    changed[place] = value
    return changed


several(
    "npz",
    {
        "no members": (lambda: {"observations": Y}, ("no array 'members'",)),
        "no observations": (lambda: {"members": MEMBERS}, ("no array 'observations'",)),
        "members of two axes": (lambda: {"members": MEMBERS[:, 0], "observations": Y}, ("(12, 2)",)),
        "members of four axes": (lambda: {"members": MEMBERS[None], "observations": Y}, ("(1, 12, 5, 2)",)),
        "observations of three axes": (lambda: {"members": MEMBERS, "observations": Y[None]}, ("(1, 12, 2)",)),
        "more forecasts than observations": (lambda: {"members": MEMBERS, "observations": Y[1:]}, ("(11, 2)",)),
        "more targets than observed": (lambda: {"members": MEMBERS, "observations": Y[:, :1]}, ("does not match",)),
        "members first": (lambda: {"members": MEMBERS.swapaxes(0, 1), "observations": Y}, ("sample-first",)),
        "as many members as cases": (lambda: {"members": MEMBERS[:5], "observations": Y[:5]}, ("ambiguous",)),
        "text": (lambda: {"members": MEMBERS.astype(str), "observations": Y}, ("dtype <U",)),
        "complex numbers": (lambda: {"members": MEMBERS + 0j, "observations": Y}, ("complex128",)),
        "dates": (lambda: {"members": MEMBERS.astype("datetime64[s]"), "observations": Y}, ("datetime64",)),
        "objects": (lambda: {"members": MEMBERS.astype(object), "observations": Y}, ("allow_pickle",)),
        "no cases": (lambda: {"members": MEMBERS[:0], "observations": Y[:0]}, ("no case",)),
        "no members in the array": (lambda: {"members": MEMBERS[:, :0], "observations": Y}, ("no members",)),
        "no targets": (lambda: {"members": MEMBERS[..., :0], "observations": Y[:, :0]}, ("no case or no target",)),
        "all observations missing": (lambda: {"members": MEMBERS, "observations": Y * np.nan}, ("no case is left",)),
        "all members missing": (lambda: {"members": MEMBERS * np.nan, "observations": Y}, ("no case is left",)),
        "an infinite observation": (
            lambda: {"members": MEMBERS, "observations": put(Y, np.inf, 3, 0)},
            ("y has 1 infinite",),
        ),
        "an infinite member": (
            lambda: {"members": put(MEMBERS, -np.inf, 3, 0, 0), "observations": Y},
            ("members have 1 infinite",),
        ),
        "a fill value": (lambda: {"members": put(MEMBERS, 9.96921e36, 3), "observations": Y}, ("fill value",)),
        "a number far off": (lambda: {"members": put(MEMBERS, 1e300, 3, 1, 1), "observations": Y}, ("1e+300",)),
        "names of other targets": (
            lambda: {"members": MEMBERS, "observations": Y, "targets": ["a", "b", "c"]},
            ("'targets' has shape (3,)",),
        ),
        "a target's name twice": (
            lambda: {"members": MEMBERS, "observations": Y, "targets": [HTML, HTML]},
            ("more than once", HTML),
        ),
        "blocks of other cases": (
            lambda: {"members": MEMBERS, "observations": Y, "day": DAYS[:3], "options": ["--block", "day"]},
            ("'day' has shape (3,)",),
        ),
        "blocks of two axes": (
            lambda: {"members": MEMBERS, "observations": Y, "day": Y, "options": ["--block", "day"]},
            ("'day' has shape (12, 2)",),
        ),
        "blocks without a label": (
            lambda: {
                "members": MEMBERS,
                "observations": Y,
                "day": put(Y[:, 0], np.nan, 0),
                "options": ["--block", "day"],
            },
            ("1 missing labels",),
        ),
        "groups without a label": (
            lambda: {"members": MEMBERS, "observations": Y, "place": Y[:, 0] * np.nan, "options": ["--by", "place"]},
            ("12 missing labels",),
        ),
        "a group whose cases are all missing": (
            lambda: {
                "members": MEMBERS,
                "observations": put(Y, np.nan, slice(0, 2)),
                "place": [HTML] * 2 + ["b"] * 10,
                "options": ["--by", "place"],
            },
            ("no case is left", HTML),
        ),
        "a million groups": (
            lambda: {
                "members": np.zeros((1_000_000, 1, 1), dtype=np.float32),
                "observations": np.ones((1_000_000, 1), dtype=np.float32),
                "place": np.arange(1_000_000),
                "options": ["--by", "place"],
            },
            ("1,000,000 groups",),
        ),
    },
    npz,
)


@malformed("no array 'members'", "../../members")
def npz_with_names_that_climb_out_of_the_folder(folder):
    with zipfile.ZipFile(folder / "f.npz", "w") as archive:
        for name, array in (("../../members", MEMBERS), ("/etc/passwd", Y)):
            stream = io.BytesIO()
            np.save(stream, array)
            archive.writestr(f"{name}.npy", stream.getvalue())
    return [folder / "f.npz"]


def header_only(folder: Path, shape: str) -> list[object]:
    """An NPZ file whose arrays promise another shape than they have."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    array = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + b"\0" * 64
    with zipfile.ZipFile(folder / "f.npz", "w") as archive:
        archive.writestr("members.npy", array)
        archive.writestr("observations.npy", array)
    return [folder / "f.npz"]


@malformed("f.npz")
def npz_that_promises_more_than_any_memory(folder):
    return header_only(folder, "(1000000000, 1000000, 3)")


@malformed("f.npz")
def npz_that_promises_a_negative_shape(folder):
    return header_only(folder, "(-3, 4, 5)")


@malformed("f.npz")
def npz_that_promises_more_than_it_holds(folder):
    return header_only(folder, "(4, 4, 4)")


@malformed("f.npz", "malformed")
def npz_with_a_program_in_its_header(folder):
    return header_only(folder, "__import__('os').getcwd()")


@malformed("different kinds")
def npz_and_csv(folder):
    npz(folder, {"members": MEMBERS, "observations": Y})
    (folder / "o.csv").write_text("case,target,value\n1,a,2\n")
    return [folder / "f.npz", folder / "o.csv"]


# -- tables in long form


def long(case: object = None) -> pd.DataFrame:
    """Forecasts and, in a column of their own, observations."""
    grid = pd.MultiIndex.from_product(
        [range(N_CASES), range(N_MEMBERS), ["a", "b"]], names=["case", "member", "target"]
    )
    table = pd.DataFrame({"value": MEMBERS.ravel()}, index=grid).reset_index()
    table["observation"] = np.repeat(Y[:, None], N_MEMBERS, 1).ravel()
    return table


def seen() -> pd.DataFrame:
    grid = pd.MultiIndex.from_product([range(N_CASES), ["a", "b"]], names=["case", "target"])
    return pd.DataFrame({"value": Y.ravel()}, index=grid).reset_index()


def tables(folder: Path, content: dict) -> list[object]:
    """CSV and Parquet in turn: what is wrong with a table is wrong in every format."""
    options = content.pop("options", [])
    suffix = content.pop("suffix", "csv")
    paths = []
    for name, table in content.items():
        paths.append(folder / f"{name}.{suffix}")
        if suffix == "csv":
            table.to_csv(paths[-1], index=False)
        elif suffix == "feather":
            table.to_feather(paths[-1])
        else:
            table.to_parquet(paths[-1])
    return [*paths, *options]


PAIR = {"f": lambda: long().drop(columns="observation"), "o": seen}

several(
    "table",
    {
        "no rows": (lambda: {"f": long()[:0]}, ("no rows",)),
        "no rows, parquet": (lambda: {"f": long()[:0], "suffix": "parquet"}, ("no rows",)),
        "no column of cases": (lambda: {"f": long().drop(columns="case")}, ("no column 'case'",)),
        "no column of members": (
            lambda: {"f": long().drop(columns="member"), "suffix": "feather"},
            ("no column 'member'",),
        ),
        "no column of targets": (lambda: {"f": long().drop(columns="target")}, ("no column 'target'",)),
        "no column of values": (
            lambda: {"f": long().drop(columns="value"), "suffix": "parquet"},
            ("no column 'value'",),
        ),
        "no observations": (lambda: {"f": long().drop(columns="observation")}, ("no column 'observation'",)),
        "a row twice": (lambda: {"f": pd.concat([long(), long()[:1]])}, ("repeat an earlier one", "case 0")),
        "an observation twice": (
            lambda: {"f": PAIR["f"](), "o": pd.concat([seen(), seen()[3:4]]), "suffix": "parquet"},
            ("1 row of the observations",),
        ),
        "a case that was not observed": (lambda: {"f": PAIR["f"](), "o": seen()[2:]}, ("1 case of the forecasts",)),
        "a case that was not forecast": (lambda: {"f": PAIR["f"]()[10:], "o": seen()}, ("1 case of the observations",)),
        "a target that was not observed": (
            lambda: {"f": PAIR["f"](), "o": seen()[seen()["target"] == "a"]},
            ("1 target of the forecasts",),
        ),
        "two observations of one thing": (
            lambda: {"f": long().assign(observation=np.arange(120.0))},
            ("has two observations",),
        ),
        "text among the values": (
            lambda: {"f": long().astype({"value": object}).replace({"value": {long()["value"][7]: "about 3"}})},
            ("'about 3'",),
        ),
        "HTML among the values": (
            lambda: {"f": long().astype({"value": object}).replace({"value": {long()["value"][7]: HTML}})},
            ("holds not only numbers", HTML),
        ),
        "text as values, parquet": (
            lambda: {"f": long().assign(value="high"), "suffix": "parquet"},
            ("'high'",),
        ),
        "dates as values": (
            lambda: {"f": long().assign(value=pd.Timestamp("2024")), "suffix": "parquet"},
            ("holds not only numbers",),
        ),
        "infinite values": (lambda: {"f": long().assign(value=np.inf)}, ("infinite values",)),
        "values that are all missing": (
            lambda: {"f": long().assign(value=np.nan), "suffix": "parquet"},
            ("no case is left",),
        ),
        "a case without a name": (lambda: {"f": long().replace({"case": {0: np.nan}})}, ("have no 'case'",)),
        "a target without a name": (
            lambda: {"f": long().assign(target=[None, *["a"] * 119]), "suffix": "parquet"},
            ("have no 'target'",),
        ),
        "lists as cases": (
            lambda: {"f": long().assign(case=[[1, 2]] * 120), "suffix": "parquet"},
            ("which are no labels",),
        ),
        "lists as values": (
            lambda: {"f": long().assign(value=[[1.0, 2.0]] * 120), "suffix": "parquet"},
            ("holds not only numbers",),
        ),
        "members that are called differently in every case": (
            lambda: {
                "f": pd.DataFrame(
                    {"case": range(5000), "member": range(5000), "target": "a", "value": 1.0, "observation": 1.0}
                )
            },
            ("too few for",),
        ),
        "a group that varies within a case": (
            lambda: {"f": long().assign(place=range(120)), "options": ["--by", "place"]},
            ("'place' has more than one value in case 0",),
        ),
        "a block that is missing": (
            lambda: {"f": long().assign(day=np.nan), "options": ["--block", "day"]},
            ("'day' is missing in case 0",),
        ),
        "a block that is not there": (lambda: {"f": long(), "options": ["--block", HTML]}, ("no column", HTML)),
        "units that disagree": (
            lambda: {"f": PAIR["f"]().assign(unit="K"), "o": seen().assign(unit="degC")},
            ("'K'", "'degC'"),
        ),
        "two units of one target": (
            lambda: {
                "f": long()
                .assign(unit=["K", "degC"] * 60)
                .assign(target="a")
                .drop_duplicates(["case", "member"])
                .assign(unit=["K", "degC"] * 30)
            },
            ("'K'", "'degC'"),
        ),
        "numbers and text as cases": (
            lambda: {"f": PAIR["f"](), "o": seen().assign(case=lambda t: "day " + t["case"].astype(str))},
            ("12 cases of the forecasts",),
        ),
        "dates with and without a time zone": (
            lambda: {
                "f": PAIR["f"]().assign(case=lambda t: DAYS[t["case"]]),
                "o": seen().assign(case=lambda t: DAYS[t["case"]].tz_localize("UTC")),
                "suffix": "parquet",
            },
            ("12 cases of the forecasts",),
        ),
        "quantiles of neuralforecast": (
            lambda: {"f": pd.DataFrame({"unique_id": "a", "ds": range(9), "NHITS-lo-90": 1.0, "y": 1.0})},
            ("quantiles", "'NHITS-lo-90'"),
        ),
        "quantiles of AutoGluon": (
            lambda: {"f": pd.DataFrame({"item_id": "a", "timestamp": range(9), "mean": 1.0, "0.9": 1.0})},
            ("quantiles", "'0.9'"),
        ),
        "sample paths without observations": (
            lambda: {"f": pd.DataFrame({"unique_id": "a", "ds": range(9), "sample_id": 0, "NHITS": 1.0})},
            ("no column 'y'",),
        ),
        "sample paths of two models": (
            lambda: {
                "f": pd.DataFrame({"unique_id": "a", "ds": range(9), "sample_id": 0, "A": 1.0, "B": 1.0, "y": 1.0})
            },
            ("2 columns could hold",),
        ),
        "sample paths and two observations of a time": (
            lambda: {
                "f": pd.DataFrame({"unique_id": "a", "ds": range(9), "sample_id": 0, "A": 1.0}),
                "o": pd.DataFrame({"unique_id": "a", "ds": [1, 1], "y": 1.0}),
            },
            ("two observations at 1",),
        ),
        "sample paths and observations of other times": (
            lambda: {
                "f": pd.DataFrame({"unique_id": "a", "ds": range(9), "sample_id": 0, "A": 1.0}),
                "o": pd.DataFrame({"unique_id": "a", "ds": range(50, 59), "y": 1.0}),
            },
            ("no case is left",),
        ),
    },
    tables,
)


def raw(suffix: str, content: bytes, *words: str) -> Callable[[Path], list[object]]:
    def write(folder: Path) -> list[object]:
        path = folder / f"f.{suffix}"
        path.write_bytes(content)
        return [path]

    return write


TEXT = long().to_csv(index=False).encode()
NOISE = bytes(range(256)) * 8
for suffix in ("npz", "csv", "tsv", "parquet", "feather", "nc", "zarr"):
    CASES.append((f"empty {suffix}", raw(suffix, b""), (f"f.{suffix}",)))
    CASES.append((f"noise as {suffix}", raw(suffix, NOISE), (f"f.{suffix}",)))
for name, content, words in (
    ("a header alone", b"case,member,target,value\n", ("f.csv",)),
    ("rows of different lengths", TEXT + b"1,2,3,4,5,6,7,8\n", ("f.csv",)),
    ("a quotation that does not end", TEXT + b'"1,2,a,4,5\n', ("f.csv",)),
    ("another delimiter", TEXT.replace(b",", b";"), ("no column 'case'",)),
    ("UTF-16", TEXT.decode().encode("utf-16"), ("f.csv",)),
    ("bytes that are no text", TEXT.replace(b"a", b"\xff\xfe"), ("f.csv",)),
    ("a column twice", TEXT.replace(b"observation", b"value"), ("value",)),
    ("control characters in names", TEXT.replace(b"target", b"\x1b[31mtarget"), ("no column 'target'", "\\x1b")),
    ("HTML", b"<!doctype html><html><body>404 Not Found</body></html>\n", ("f.csv",)),
):
    CASES.append((f"csv: {name}", raw("csv", content), words))


@malformed("f.parquet")
def csv_called_parquet(folder):
    return raw("parquet", TEXT)(folder)


@malformed("f.parquet")
def truncated_parquet(folder):
    path = tables(folder, {"f": long(), "suffix": "parquet"})[0]
    path.write_bytes(path.read_bytes()[:-20])
    return [path]


@malformed("f.feather")
def truncated_feather(folder):
    path = tables(folder, {"f": long(), "suffix": "feather"})[0]
    path.write_bytes(path.read_bytes()[:200])
    return [path]


@malformed("'.xlsx'")
def unknown_suffix(folder):
    return raw("xlsx", b"PK")(folder)


@malformed("absent.csv")
def file_that_is_not_there(folder):
    return [folder / "absent.csv"]


@malformed("f.csv")
def folder_called_csv(folder):
    (folder / "f.csv").mkdir()
    return [folder / "f.csv"]


@malformed("\\x1b[31mred .csv")
def control_characters_in_the_path(folder):
    return [folder / "\x1b[31mred\n.csv"]


# -- NetCDF and Zarr


def dataset(**changes: object) -> "xr.Dataset":
    variables = {"t2m": (("time", "number", "station"), MEMBERS), "seen": (("time", "station"), Y), **changes}
    return xr.Dataset(
        {name: value for name, value in variables.items() if value is not None},
        {"time": DAYS, "station": ["a", "b"]} if not changes.get("bare") else {},
    )


def variables(folder: Path, content: dict) -> list[object]:
    """Datasets as NetCDF 4 or as Zarr, and the options that go with them."""
    options, suffix = content.pop("options", []), content.pop("suffix", "nc")
    paths = []
    for name, data in content.items():
        path = folder / f"{name}.{suffix}"
        paths.append(path)
        if suffix == "nc":
            data.to_netcdf(path)
        else:
            data.to_zarr(path, consolidated=False, zarr_format=2)
    return [*paths, *options]


several(
    "variables",
    {
        "none": (lambda: {"f": xr.Dataset()}, ("none at all",)),
        "none, zarr": (lambda: {"f": xr.Dataset(), "suffix": "zarr"}, ("none at all",)),
        "no dimension of members": (lambda: {"f": dataset(t2m=None)}, ("could be the forecasts",)),
        "no observations": (lambda: {"f": dataset(seen=None), "suffix": "zarr"}, ("could be the observations",)),
        "two forecasts": (
            lambda: {"f": dataset(**{HTML: (("time", "number", "station"), MEMBERS)}), "suffix": "zarr"},
            ("2 variables that could be the forecasts", HTML),
        ),
        "a variable that is not there": (
            lambda: {"f": dataset(), "options": ["--value", HTML], "suffix": "zarr"},
            ("no variable", HTML),
        ),
        "two dimensions of members": (
            lambda: {"f": dataset(t2m=(("time", "number", "realization", "station"), MEMBERS[:, :, None]))},
            ("exactly one holds the members",),
        ),
        "dimensions that say nothing": (
            lambda: {"f": xr.Dataset({"a": (("u", "member", "v"), MEMBERS), "b": (("u", "v"), Y)})},
            ("'u'", "say"),
        ),
        "observations of other dimensions": (
            lambda: {"f": dataset(seen=(("time", "lead"), Y)), "suffix": "zarr"},
            ("they need the same",),
        ),
        "a dimension that is not there": (
            lambda: {"f": dataset(), "options": ["--target", "lead"]},
            ("no dimension 'lead'",),
        ),
        "no cases": (lambda: {"f": dataset().isel(time=slice(0))}, ("is empty",)),
        "no members": (lambda: {"f": dataset().isel(number=slice(0)), "suffix": "zarr"}, ("is empty",)),
        "text": (lambda: {"f": dataset(t2m=(("time", "number", "station"), MEMBERS.astype(str)))}, ("dtype",)),
        "units that disagree": (
            lambda: {
                "f": dataset(
                    t2m=(("time", "number", "station"), MEMBERS, {"units": "K"}),
                    seen=(("time", "station"), Y, {"units": "degC"}),
                )
            },
            ("'K'", "'degC'"),
        ),
        "units that disagree, zarr": (
            lambda: {
                "f": dataset(
                    t2m=(("time", "number", "station"), MEMBERS, {"units": HTML}),
                    seen=(("time", "station"), Y, {"units": "degC"}),
                ),
                "suffix": "zarr",
            },
            ("'degC'", HTML),
        ),
        "other days": (
            lambda: {
                "f": dataset(seen=None),
                "o": dataset(t2m=None).assign_coords(time=DAYS + pd.Timedelta("1D")),
            },
            ("2024-01-13",),
        ),
        "a day too few": (
            lambda: {"f": dataset(seen=None), "o": dataset(t2m=None).isel(time=slice(1, None)), "suffix": "zarr"},
            ("2024-01-01",),
        ),
        "other stations": (
            lambda: {"f": dataset(seen=None), "o": dataset(t2m=None).assign_coords(station=["a", HTML])},
            ("station", HTML),
        ),
        "a day twice, in another order": (
            lambda: {
                "f": dataset(seen=None).assign_coords(time=DAYS[[0, 0, *range(2, 12)]]),
                "o": dataset(t2m=None).assign_coords(time=DAYS[[*range(2, 12), 0, 0]]),
            },
            ("occurs more than once",),
        ),
        "two calendars": (
            lambda: {
                "f": dataset(seen=None).assign_coords(
                    time=xr.date_range("2024-01-01", periods=N_CASES, calendar="360_day", use_cftime=True)
                ),
                "o": dataset(t2m=None),
            },
            ("time 0 is",),
        ),
        "no labels and other sizes": (
            lambda: {
                "f": dataset(seen=None).drop_vars(["time", "station"]),
                "o": dataset(t2m=None).drop_vars(["time", "station"]).isel(time=slice(3)),
            },
            ("differ in size",),
        ),
        "a time without a meaning": (
            lambda: {"f": dataset().assign_coords(time=("time", np.arange(12), {"units": "days since the flood"}))},
            ("f.nc",),
        ),
        "groups along members": (
            lambda: {"f": dataset(place=("number", np.arange(5))), "options": ["--by", "place"]},
            ("one value per case",),
        ),
        "all missing": (lambda: {"f": dataset() * np.nan, "suffix": "zarr"}, ("no case is left",)),
        "a fill value": (
            lambda: {"f": dataset(t2m=(("time", "number", "station"), put(MEMBERS, 9.96921e36, 2)))},
            ("fill value",),
        ),
    },
    variables,
)


def cut(share: float, **encoding: object) -> Callable[[Path], list[object]]:
    def write(folder: Path) -> list[object]:
        dataset().to_netcdf(folder / "f.nc", **encoding)
        data = (folder / "f.nc").read_bytes()
        (folder / "f.nc").write_bytes(data[: int(share * len(data))])
        return [folder / "f.nc"]

    return write


for share in (0.02, 0.5, 0.9):
    CASES.append((f"classic NetCDF cut at {share}", cut(share, engine="scipy"), ("f.nc",)))
    CASES.append((f"NetCDF 4 cut at {share}", cut(share, engine="netcdf4"), ("f.nc",)))


@malformed("absent.zarr")
def zarr_that_is_not_there(folder):
    return [folder / "absent.zarr"]


@malformed("f.zarr")
def zarr_of_an_empty_folder(folder):
    (folder / "f.zarr").mkdir()
    return [folder / "f.zarr"]


def damaged(folder: Path, content: bytes, *names: str) -> list[object]:
    """A store with other bytes in a file of it."""
    variables(folder, {"f": dataset(), "suffix": "zarr"})
    (folder / "f.zarr").joinpath(*names).write_bytes(content)
    return [folder / "f.zarr"]


@malformed("f.zarr")
def zarr_with_metadata_that_is_no_json(folder):
    return damaged(folder, b'{"zarr_format": 2', "t2m", ".zarray")


@malformed("f.zarr")
def zarr_with_metadata_nested_beyond_reason(folder):
    return damaged(folder, b"[" * 100_000 + b"]" * 100_000, ".zgroup")


@malformed("f.zarr")
def zarr_of_another_version(folder):
    return damaged(folder, b'{"zarr_format": 77}', "t2m", ".zarray")


@malformed("f.zarr")
def zarr_with_a_damaged_chunk(folder):
    return damaged(folder, b"no compressed numbers", "t2m", "0.0.0")


@malformed("pickled objects")
def zarr_of_pickles(folder):
    metadata = json.loads((variables(folder, {"f": dataset(), "suffix": "zarr"})[0] / "t2m" / ".zarray").read_text())
    metadata |= {"dtype": "|O", "filters": [{"id": "pickle", "protocol": 5}]}
    (folder / "f.zarr" / "t2m" / ".zarray").write_text(json.dumps(metadata))
    return [folder / "f.zarr"]


@malformed("pickled objects")
def zarr_of_pickles_behind_a_link(folder):
    zarr_of_pickles(folder)
    (folder / "f.zarr" / "t2m").rename(folder / "elsewhere")
    (folder / "f.zarr" / "t2m").symlink_to(folder / "elsewhere")
    return [folder / "f.zarr"]


@malformed("f.zarr")
def zarr_that_promises_more_than_any_memory(folder):
    paths = variables(folder, {"f": dataset().drop_vars(["time", "station"]), "suffix": "zarr"})
    for name, shape in (("t2m", [10**15, 5, 2]), ("seen", [10**15, 2])):
        metadata = json.loads((folder / "f.zarr" / name / ".zarray").read_text())
        (folder / "f.zarr" / name / ".zarray").write_text(json.dumps(metadata | {"shape": shape}))
    return paths


@malformed("f.zarr")
def zarr_in_a_loop_of_links(folder):
    (folder / "f.zarr").mkdir()
    (folder / "f.zarr" / ".zgroup").symlink_to(folder / "f.zarr" / ".zgroup")
    return [folder / "f.zarr"]


def test_there_are_more_than_eighty_different_ones():
    assert len({name for name, *_ in CASES}) == len(CASES) >= 80


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("write", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_malformed_file_gets_one_line_and_nothing_else(write, words, tmp_path, monkeypatch):
    folder = tmp_path / "files"
    folder.mkdir()
    arguments = write(folder)
    monkeypatch.chdir(tmp_path)
    before = sorted(os.walk(tmp_path))
    figure = [] if "--by" in arguments else ["--plot", "figure.png"]
    result = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["check", *map(str, arguments), *figure, "--json"])
    assert result.exit_code == 2, result.output[:300]
    assert result.stdout == ""
    assert result.stderr.endswith("\n")
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.rstrip("\n").isprintable()
    for word in words:
        assert word in result.stderr
    assert sorted(os.walk(tmp_path)) == before
