"""What help shows can be typed, and a shell can complete it."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from hub_files import add_quantiles, build_hub
from prerank.cli.fileoptions import PRERANKS
from prerank.cli.main import app
from prerank.preranks import paper_preranks
from prerank.preranks.naming import WITH_VALUE, field_preranks

RUN = "from prerank.cli import main; main()"
N_CASES, N_MEMBERS = 40, 6
MODULES = {".nc": "netCDF4", ".zarr": "zarr"}


def examples() -> list[str]:
    """The commands in the help of `check`, without what is said about them."""
    text = typer.main.get_command(app).commands["check"].help
    return [re.split(r"\s{2,}", line.strip())[0] for line in text.splitlines() if line.strip().startswith("prerank ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files that the examples speak of."""
    folder = tmp_path_factory.mktemp("examples")
    points = np.random.default_rng(0).normal(size=(N_CASES, N_MEMBERS + 1, 3))
    y, members = points[:, 0], points[:, 1:]
    np.savez(folder / "forecasts.npz", members=members, observations=y, place=np.arange(N_CASES) % 2)
    grid = pd.MultiIndex.from_product(
        [range(N_CASES), range(N_MEMBERS), list("abc")], names=["case", "member", "target"]
    )
    table = pd.DataFrame({"value": members.ravel()}, grid).reset_index()
    seen = pd.MultiIndex.from_product([range(N_CASES), list("abc")], names=["case", "target"])
    observed = pd.DataFrame({"value": y.ravel()}, seen).reset_index()
    table.to_csv(folder / "forecasts.csv", index=False)
    observed.to_csv(folder / "observations.csv", index=False)
    both = table.merge(observed.rename(columns={"value": "observation"}))
    both.assign(date=both["case"] // 2, place=both["case"] % 2).drop(columns="case").to_parquet(
        folder / "forecasts.parquet"
    )
    add_quantiles(build_hub(folder / "hub", 6), "quantiles-only", [0.05, 0.25, 0.5, 0.75, 0.95], 6)
    if all(importlib.util.find_spec(name) for name in ("xarray", *MODULES.values())):
        import xarray as xr

        days = pd.date_range("2024-02-01", periods=N_CASES)
        season = ("time", np.where(days.month < 3, 0, 1))
        coordinates = {"time": days, "season": season}
        forecast = xr.Dataset({"t2m": (("time", "number", "station"), members)}, coordinates)
        station = xr.Dataset({"t2m": (("time", "station"), y)}, coordinates)
        for name, dataset in (("ensemble", forecast), ("stations", station)):
            dataset.to_netcdf(folder / f"{name}.nc", engine="netcdf4")
            dataset.to_zarr(folder / f"{name}.zarr", consolidated=False)
    return folder


def test_help_has_an_example_of_every_kind_of_file():
    shown = " ".join(examples())
    assert len(examples()) >= 6
    for suffix in (".npz", ".csv", ".parquet", ".nc", ".zarr"):
        assert suffix in shown
    assert "--fail" in shown


@pytest.mark.parametrize("command", examples())
def test_the_examples_of_help_run(command, folder, monkeypatch):
    for suffix, module in MODULES.items():
        if suffix in command:
            pytest.importorskip("xarray")
            pytest.importorskip(module)
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code in ((0, 1) if "--fail" in command else (0,)), result.output
    assert "alibrat" in result.stdout or "No verdict" in result.stdout


def test_the_names_that_are_completed_are_those_of_the_preranks():
    plain = {item.name for n in (1, 2, 5) for item in (*paper_preranks(n), *field_preranks(n))}
    with_value = {f"{name}=" for name in WITH_VALUE} - {"dependency=", "variogram="}  # these also go without
    assert set(PRERANKS) == plain | with_value


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("prerank che", {"check"}),
        ("prerank check --pre", {"--prerank"}),
        ("prerank check f.npz --prerank co", {"contrast", "copula"}),
    ],
)
def test_bash_completes(line, expected):
    words = line.split()
    environment = {
        **os.environ,
        "_PRERANK_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    # the command is known by the name it was called with
    program = f"import sys; sys.argv = ['prerank']; {RUN}"
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert set(found.stdout.split()) == expected, found.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_every_shell_is_shown(shell):
    environment = {"_PRERANK_COMPLETE": f"source_{shell}"}
    found = CliRunner().invoke(app, [], env=environment, prog_name="prerank")
    assert found.exit_code == 0
    assert "_PRERANK_COMPLETE" in found.stdout
