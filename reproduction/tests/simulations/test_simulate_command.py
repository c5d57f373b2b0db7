"""The command writes figures and records, and refuses early what cannot work."""

import pandas as pd
import pytest
from typer.testing import CliRunner

from prerank_paper.cli.main import app
from prerank_paper.simulations.power import QUICK_POWER
from prerank_paper.simulations.scenarios import Simulation, gaussian_vector


def invoke(*arguments: str):
    return CliRunner().invoke(app, ["simulate", *arguments])


def test_study_writes_figures_and_tidy_records(tmp_path, monkeypatch):
    whole = gaussian_vector()
    few = Simulation(whole.name, whole.title, whole.covariance, whole.scenarios[:2])
    monkeypatch.setattr("prerank_paper.cli.simulations.gaussian_vector", lambda: few)
    result = invoke("1", "--cases", "40", "--members", "5", "--out", str(tmp_path / "new"))
    assert result.exit_code == 0, result.output
    written = {file.name for file in (tmp_path / "new").iterdir()}
    for stem in ("simulation-1-exact", "simulation-1-as-published", "simulation-1-extract"):
        assert {f"{stem}.png", f"{stem}.svg"} <= written
    table = pd.read_parquet(tmp_path / "new" / "simulation-1.parquet")
    assert len(table) == 2 * 2 * 7
    assert len(pd.read_csv(tmp_path / "new" / "simulation-1.csv")) == len(table)


def test_marginal_writes_the_opening_figure(tmp_path):
    assert invoke("marginal", "--cases", "100", "--out", str(tmp_path)).exit_code == 0
    assert (tmp_path / "marginal.png").stat().st_size > 10_000


def test_power_writes_claims_and_recommendations(tmp_path, monkeypatch):
    design = QUICK_POWER._replace(sizes=(50,), n_cases=100, n_null=19)
    monkeypatch.setattr("prerank_paper.cli.simulations.QUICK_POWER", design)
    result = invoke("power", "--members", "5", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "To find wrong correlation use" in result.output
    assert (tmp_path / "claims.md").read_text(encoding="utf-8").startswith("| sim. |")
    assert len(pd.read_parquet(tmp_path / "power.parquet")) == (13 + 14) * 9


@pytest.mark.parametrize("extra", [["--device", "abacus"], ["--cases", "10"]])
def test_what_cannot_work_is_refused_before_any_work(tmp_path, extra):
    result = invoke("power", "--out", str(tmp_path), *extra)
    assert result.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_an_output_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    assert invoke("marginal", "--out", str(tmp_path / "file")).exit_code == 2
