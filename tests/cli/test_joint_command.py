"""`prerank joint`: quantiles of a table or a hub in, draws of a joint forecast out."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from hub_files import ROUNDS, TARGET, add_quantiles, build_hub
from prerank import Location, check
from prerank.cli.main import app
from prerank.io import Naming, read_forecasts, read_hub_quantiles, read_quantiles
from prerank.recalibration import GaussianCopula, Independence, JointFromMargins, QuantileMargins

LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]
N_CASES = 160
FAST = ("--prerank", "location", "--replicates", "99", "--draws", "20")


def invoke(*arguments: object):
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, ["joint", *map(str, arguments)])


def assert_one_line(result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Right quantiles of three hours, whose errors go together."""
    folder, rng = tmp_path_factory.mktemp("quantiles"), np.random.default_rng(1)
    mean = rng.normal(size=(N_CASES, 3))
    y = mean + rng.multivariate_normal(np.zeros(3), 0.2 * np.eye(3) + 0.8, N_CASES, method="cholesky")
    labels = pd.MultiIndex.from_product([range(N_CASES), [1, 2, 10]], names=["day", "hour"])
    wide = pd.DataFrame({level: (mean + stats.norm.ppf(level)).ravel() for level in LEVELS}, index=labels)
    long = wide.rename_axis(columns="quantile").stack().rename("value").reset_index()
    long.sample(frac=1, random_state=0).to_csv(folder / "q.csv", index=False)
    pd.Series(y.ravel(), labels, name="value").reset_index().to_csv(folder / "o.csv", index=False)
    return folder, mean[:, None] + stats.norm.ppf(LEVELS)[None, :, None], y


def test_a_table_of_quantiles_becomes_draws_and_is_judged_against_independent_margins(tables, tmp_path):
    folder, quantiles, y = tables
    named = ("--case", "day", "--joint", "hour")
    result = invoke(folder / "q.csv", folder / "o.csv", *named, *FAST, "--out", tmp_path / "j.csv", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    half = N_CASES // 2
    fitted = JointFromMargins(GaussianCopula(), 20).fit(QuantileMargins(quantiles[:half], LEVELS), y[:half])
    assert found["summary"] == fitted.summary()
    assert found["written"] == {"file": str(tmp_path / "j.csv"), "cases": half, "draws": 20, "targets": 3}
    assert found["margins_kept_within_standard_errors"] < stats.norm.isf(1e-6 / 30)
    assert found["independent"]["rejected"] is True
    assert found["variogram_score"]["joint"] < found["variogram_score"]["independent"]
    assert found["energy_score"].keys() == {"independent", "joint"}
    written = pd.read_csv(tmp_path / "j.csv")
    assert list(written.columns) == ["day", "member", "hour", "value", "observation"]
    members = written["value"].to_numpy().reshape(half, 20, 3)
    drawn = fitted.transform(QuantileMargins(quantiles[half:], LEVELS)).members.numpy()
    np.testing.assert_allclose(members, drawn, rtol=1e-6)
    shown = invoke(folder / "q.csv", folder / "o.csv", *named, *FAST, "--out", tmp_path / "k.npz")
    assert "Margins are kept" in shown.stdout
    assert "The mean of the 3 hours is forecast too narrowly." in shown.stdout
    assert "Energy score" in shown.stdout


def test_new_quantiles_are_joined_by_all_of_the_past(tables, tmp_path):
    folder, _, _ = tables
    new = pd.read_csv(folder / "q.csv").query("day < 7")
    new.to_parquet(tmp_path / "new.parquet")
    for kind in ("gaussian", "empirical", "schaake"):
        asked = (
            folder / "q.csv",
            folder / "o.csv",
            "--case",
            "day",
            "--target",
            "hour",
            "--apply",
            tmp_path / "new.parquet",
        )
        result = invoke(*asked, "--dependence", kind, *FAST, "--out", tmp_path / "j.npz")
        assert result.exit_code == 0, result.output
        assert "Learnt from all cases" in result.stdout
        with np.load(tmp_path / "j.npz") as file:
            assert file["members"].shape == (7, 20, 3)


def test_quantiles_of_a_hub_are_joined(tmp_path):
    hub = build_hub(tmp_path / "hub")
    add_quantiles(hub, "d-team", LEVELS)
    asked = (hub, "--model", "d-team", "--target", TARGET, "--lower", "0", "--before", ROUNDS[2])
    result = invoke(*asked, "--block", "none", *FAST, "--out", tmp_path / "j.parquet")
    assert result.exit_code == 0, result.output
    assert "3 cases, 20 draws, 3 targets" in result.stdout
    written = pd.read_parquet(tmp_path / "j.parquet")
    assert written["value"].min() >= 0
    assert len(written) == 3 * 20 * 3
    naming = Naming(model=("d-team",))
    for found in (read_quantiles(hub, naming=naming), read_hub_quantiles(hub, model=("d-team",))):
        assert found.values.shape == (9, 3, 5)


def checked(*arguments: object):
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, ["check", *map(str, arguments)])


def test_check_joins_quantiles_by_earlier_cases_and_says_what_it_assumes(tables):
    folder, quantiles, y = tables
    asked = (folder / "q.csv", folder / "o.csv", "--case", "day", "--joint", "hour", "--replicates", "99", "--json")
    half = N_CASES // 2
    found = {}
    for name, dependence in (("gaussian", GaussianCopula()), ("independent", Independence())):
        result = checked(*asked, "--dependence", name, "--prerank", "location")
        assert result.exit_code == 0, result.output
        found[name] = json.loads(result.stdout)
        first = 0 if name == "independent" else half
        past = slice(0, N_CASES if name == "independent" else half)
        fitted = JointFromMargins(dependence).fit(QuantileMargins(quantiles[past], LEVELS), y[past])
        expected = check(y[first:], fitted.transform(QuantileMargins(quantiles[first:], LEVELS)), Location())
        row = found[name]["preranks"][0]
        assert row["pce"] == pytest.approx(float(expected.table["PCE"].iloc[0]), rel=1e-6)
    assert found["independent"]["rejected"] is True  # errors that go together
    assert found["gaussian"]["cases"] == half
    assert any("targets are taken as independent" in note for note in found["independent"]["notes"])
    assert any("assumed is the same dependence in the later ones" in note for note in found["gaussian"]["notes"])


def test_a_model_with_quantiles_alone_is_told_the_option_and_checked_with_it(tmp_path):
    hub = build_hub(tmp_path / "hub")
    for model in ("d-team", "e-team"):
        add_quantiles(hub, model, LEVELS)
    alone = checked(hub, "--model", "d-team")
    assert_one_line(alone, "d-team has no samples, but quantiles", "--dependence")
    asked = (hub, "--model", "?-team", "--prerank", "location", "--replicates", "99", "--json")
    result = checked(*asked, "--dependence", "independent")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [group["group"] for group in found["groups"]] == ["d-team", "e-team"]
    assert [group["cases"] for group in found["groups"]] == [9, 9]
    result = checked(
        *asked, "--dependence", "schaake", "--by", "model", "--by", "location", "--html", tmp_path / "r.html"
    )
    assert_one_line(result, "3 complete past cases; at least 5 are needed")
    assert not (tmp_path / "r.html").exists()
    assert_one_line(checked(*asked, "--dependence", "gaussian", "--block", "nothing"), "no column 'nothing'")
    for day in ROUNDS[1:]:
        for model in ("d-team", "e-team"):
            (hub / "model-output" / model / f"{day}-{model}.csv").unlink()
    assert_one_line(checked(*asked, "--dependence", "gaussian"), "d-team: no case comes before", "independent")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table.rename(columns={"quantile": "q"}), ["no column 'quantile'"]),
        (lambda table: table.assign(quantile=100 * table["quantile"]), ["no level between 0 and 1", "'quantile'"]),
        (lambda table: table.iloc[1:], ["are missing or infinite"]),
        (lambda table: table[table["quantile"] == 0.5], ["at least two"]),
        (lambda table: pd.concat([table, table.iloc[:1]]), ["repeat an earlier one"]),
    ],
)
def test_tables_that_do_not_fit_get_one_line(tables, tmp_path, change, words):
    folder, _, _ = tables
    change(pd.read_csv(folder / "q.csv")).to_csv(tmp_path / "bad.csv", index=False)
    asked = (tmp_path / "bad.csv", folder / "o.csv", "--case", "day", "--target", "hour", "--out", tmp_path / "j.csv")
    assert_one_line(invoke(*asked), *words)
    assert not (tmp_path / "j.csv").exists()


def test_names_that_a_hub_knows_and_several_targets_are_refused_as_for_samples(tmp_path):
    hub = build_hub(tmp_path / "hub")
    for naming, words in (
        (Naming(target=(TARGET, "another")), "a target at a time"),
        (Naming(target=(TARGET,), case=("location",)), "leave out --case"),
    ):
        for read in (read_quantiles, read_forecasts):
            with pytest.raises(ValueError, match=words):
                read(hub, naming=naming)


def test_contradictions_get_one_line(tables, tmp_path):
    folder, _, _ = tables
    asked = (folder / "q.csv", folder / "o.csv", "--case", "day", "--target", "hour")
    assert_one_line(
        invoke(*asked, "--apply", folder / "q.csv", "--share", "0.5", "--out", tmp_path / "j.csv"), "--apply"
    )
    np.savez(tmp_path / "f.npz", members=np.zeros((3, 2, 2)))
    assert_one_line(invoke(tmp_path / "f.npz", "--out", tmp_path / "j.csv"), "tables in long form")
    assert_one_line(invoke(*asked, "--out", folder / "q.csv"), "--out")
