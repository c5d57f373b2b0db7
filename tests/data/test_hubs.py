"""Forecast hubs as teams write them: every layout gives the arrays that were put in; contradictions are refused."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hub_files import (
    HORIZONS,
    N_SAMPLES,
    PLACES,
    ROUNDS,
    TARGET,
    add_quantiles,
    build_hub,
    expected_y,
    members_of,
    observed,
    put,
    samples,
)
from prerank.io import DataError, Naming, read_forecasts, read_hub, read_hub_quantiles


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    return build_hub(tmp_path / "hub")


@pytest.mark.parametrize(("model", "seed"), [("a-csv", 0), ("b-parquet", 1), ("c-gz", 2)])
def test_every_format_gives_the_same_arrays(hub: Path, model: str, seed: int) -> None:
    found = read_hub(hub, model=[model])
    expected = members_of(seed).reshape(-1, N_SAMPLES, len(HORIZONS))
    np.testing.assert_array_equal(np.sort(found.members, axis=1), np.sort(expected, axis=1))
    np.testing.assert_array_equal(found.members, expected)  # samples in the order of their names
    np.testing.assert_array_equal(found.y.to_numpy(), expected_y())
    assert list(found.y.columns) == HORIZONS
    assert found.y.index.names == ["reference_date", "location"]
    assert list(found.columns["location"].unique()) == PLACES
    assert found.block == "reference_date"
    assert found.by is None


def test_models_stand_one_below_the_other_and_are_proposed_as_groups(hub: Path) -> None:
    found = read_forecasts(hub, naming=Naming(model=("*",), target=(TARGET,), joint=("horizon",)))
    assert found.members.shape == (27, N_SAMPLES, 3)
    assert found.by == "model"
    np.testing.assert_array_equal(found.members[9:18], read_hub(hub, model=["b-parquet"]).members)


def test_a_model_with_quantiles_alone_is_left_out_of_a_wildcard_but_not_of_names(hub: Path) -> None:
    add_quantiles(hub, "a-quantiles", [0.1, 0.5, 0.9])
    found = read_hub(hub, model=["a-*", "c-gz"])
    assert list(found.columns["model"].unique()) == ["a-csv", "c-gz"]
    assert "left out: a-quantiles, which has no samples" in found.notes
    np.testing.assert_array_equal(found.members[:9], read_hub(hub, model=["a-csv"]).members)
    with pytest.raises(DataError, match="a-quantiles has no samples, but quantiles"):
        read_hub(hub, model=["a-csv", "a-quantiles"])
    with pytest.raises(DataError, match="a-csv has no quantiles"):
        read_hub_quantiles(hub, model=["a-csv"])
    assert list(read_hub_quantiles(hub, model=["*"]).columns["model"].unique()) == ["a-quantiles"]


def test_a_horizon_that_not_every_model_has_is_left_out_and_said(hub: Path) -> None:
    for path in sorted((hub / "model-output" / "a-csv").iterdir()):
        frame = pd.read_csv(path, dtype=str)
        frame[frame["horizon"] != "2"].to_csv(path, index=False)
    found = read_hub(hub, model=["a-csv", "b-parquet"])
    assert list(found.y.columns) == [0, 1]
    assert any("horizon 2 is left out" in note for note in found.notes)
    assert not np.isnan(found.members).any()


def test_other_names_of_columns_and_no_configuration(hub: Path) -> None:
    (hub / "hub-config" / "tasks.json").unlink()
    for path in sorted((hub / "model-output" / "a-csv").iterdir()):
        frame = pd.read_csv(path, dtype=str).drop(columns=["target_end_date", "target"]).assign(age_group="all")
        names = {"reference_date": "origin_date", "horizon": "lead", "location": "country"}
        frame.rename(columns=names).assign(target_date=pd.read_csv(path, dtype=str)["target_end_date"]).to_csv(
            path, index=False
        )
    truth = observed().rename(columns={"target_end_date": "date", "location": "country", "observation": "value"})
    (hub / "target-data" / "time-series.csv").unlink()
    truth = truth.rename(columns={"date": "seen_on"})  # the only column of days, whatever it is called
    put(truth.drop(columns="target"), hub / "target-data" / "truth.csv")
    found = read_hub(hub, model=["a-csv"], joint=["lead"])
    np.testing.assert_array_equal(found.members, members_of(0).reshape(-1, N_SAMPLES, 3))
    np.testing.assert_array_equal(found.y.to_numpy(), expected_y())
    assert found.block == "origin_date"


def test_the_day_that_is_forecast_follows_from_the_round_and_the_horizon(hub: Path) -> None:
    for path in sorted((hub / "model-output" / "a-csv").iterdir()):
        pd.read_csv(path, dtype=str).drop(columns="target_end_date").to_csv(path, index=False)
    np.testing.assert_array_equal(read_hub(hub, model=["a-csv"]).y.to_numpy(), expected_y())


def test_the_latest_version_of_an_observation_counts(hub: Path) -> None:
    (hub / "target-data" / "time-series.csv").unlink()
    for day, shift in (("2025-03-01", 0), ("2025-02-01", 7), ("2024-12-01", 90)):
        table = observed()
        table["observation"] += shift
        put(table, hub / "target-data" / "time-series" / f"as_of={day}" / "part-0.parquet")
    found = read_hub(hub, model=["a-csv"])
    np.testing.assert_array_equal(found.y.to_numpy(), expected_y())
    assert any("up to as_of 2025-03-01" in note for note in found.notes)


def test_oracle_output_comes_first_and_its_categories_are_passed_over(hub: Path) -> None:
    table = observed().rename(columns={"observation": "oracle_value"})
    table["oracle_value"] += 1
    numbers = table.assign(output_type="quantile", output_type_id="NA")
    shares = table.assign(output_type="pmf", output_type_id="low", oracle_value=1)
    put(pd.concat([shares, numbers]), hub / "target-data" / "oracle-output.csv")
    np.testing.assert_array_equal(read_hub(hub, model=["a-csv"]).y.to_numpy(), expected_y() + 1)


def test_what_is_not_observed_yet_is_missing_and_counted(hub: Path) -> None:
    table = observed()
    put(table[table["target_end_date"] < "2025-01-25"], hub / "target-data" / "time-series.csv")
    found = read_hub(hub, model=["a-csv"])
    missing = np.isnan(found.y.to_numpy())
    assert missing.sum() == 9  # two horizons of the last round and one of the round before, in three places
    assert any("9 of 27 tasks have no observation" in note for note in found.notes)
    (hub / "target-data" / "time-series.csv").unlink()
    assert read_hub(hub, model=["a-csv"], need_observations=False).y.isna().all(axis=None)


def test_quantiles_become_arrays_by_level(hub: Path) -> None:
    levels = ["0.1", "0.50", "0.9"]
    for path in sorted((hub / "model-output" / "a-csv").iterdir()):
        frame = pd.read_csv(path, dtype=str)
        first = frame.drop_duplicates(["location", "horizon"])
        parts = [first.assign(output_type="quantile", output_type_id=q, value=str(100 * float(q))) for q in levels]
        pd.concat([*parts, frame]).to_csv(path, index=False)
    found = read_hub_quantiles(hub, model=["a-csv"])
    np.testing.assert_allclose(found.levels, [0.1, 0.5, 0.9])
    assert found.values.shape == (9, 3, 3)
    np.testing.assert_allclose(found.values[4, 1], [10.0, 50.0, 90.0])
    np.testing.assert_array_equal(found.y.to_numpy(), expected_y())
    only = hub / "model-output" / "a-csv"
    for path in sorted(only.iterdir()):
        frame = pd.read_csv(path, dtype=str)
        frame[frame["output_type"] == "quantile"].to_csv(path, index=False)
    with pytest.raises(DataError, match=r"no samples of .*, but quantiles.*--dependence"):
        read_hub(hub, model=["a-csv"], target=TARGET)


def test_samples_without_a_link_across_horizons_are_refused(hub: Path) -> None:
    for r in range(len(ROUNDS)):
        path = hub / "model-output" / "a-csv" / f"{ROUNDS[r]}-a-csv.csv"
        put(samples(members_of(0), r, "{place}_{h}_{k}"), path)
    with pytest.raises(DataError, match="a-csv draws its samples for each horizon separately"):
        read_hub(hub, model=["a-csv"])


def test_samples_that_are_linked_across_places_are_joint_across_them(hub: Path) -> None:
    for r in range(len(ROUNDS)):
        put(samples(members_of(0), r, "s{k}"), hub / "model-output" / "a-csv" / f"{ROUNDS[r]}-a-csv.csv")
    found = read_hub(hub, model=["a-csv"], joint=["location"])
    assert found.y.index.names == ["reference_date", "horizon"]
    expected = members_of(0).transpose(0, 3, 2, 1).reshape(-1, N_SAMPLES, len(PLACES))
    np.testing.assert_array_equal(found.members, expected)
    both = read_hub(hub, model=["a-csv"], joint=["location", "horizon"])
    assert both.members.shape == (len(ROUNDS), N_SAMPLES, len(PLACES) * len(HORIZONS))
    assert list(both.y.columns[:2]) == ["01, 0", "01, 1"]


def test_another_task_column_is_one_of_cases(hub: Path) -> None:
    for path in sorted((hub / "model-output" / "a-csv").iterdir()):
        frame = pd.read_csv(path, dtype=str).assign(model_id="a-csv")
        old = frame.assign(age_group="65+", value=(frame["value"].astype(int) + 1000).astype(str))
        pd.concat([frame.assign(age_group="0-64"), old]).to_csv(path, index=False)
    table = observed()
    ages = [table.assign(age_group="0-64"), table.assign(age_group="65+", observation=table["observation"] + 1000)]
    put(pd.concat(ages), hub / "target-data" / "time-series.csv")
    found = read_hub(hub, model=["a-csv"])
    assert found.y.index.names == ["reference_date", "location", "age_group"]
    np.testing.assert_array_equal(found.y.to_numpy()[1::2], expected_y() + 1000)
    np.testing.assert_array_equal(found.members[1::2], members_of(0).reshape(-1, N_SAMPLES, 3) + 1000)


def broken(hub: Path, change) -> None:  # type: ignore[no-untyped-def]
    path = hub / "model-output" / "a-csv" / f"{ROUNDS[1]}-a-csv.csv"
    put(change(pd.read_csv(path, dtype=str)), path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="output_type"), r"11-a-csv.csv has no column 'output_type', only 'reference_date'"),
        (lambda f: pd.concat([f, f.iloc[:2]]), "2 rows of the forecasts repeat an earlier one"),
        (lambda f: f.assign(value="many"), "11-a-csv.csv: column 'value' holds not only numbers"),
        (lambda f: f.assign(output_type_id=""), "no output_type_id"),
        (
            lambda f: f.assign(location=["", *f["location"][1:]]),
            "1 of 135 rows of the forecasts have no 'location', the first is row 1 of its file",
        ),
    ],
)
def test_a_submission_that_contradicts_itself_is_refused(hub: Path, change, message: str) -> None:  # type: ignore[no-untyped-def]
    broken(hub, change)
    with pytest.raises(DataError, match=message):
        read_hub(hub, model=["a-csv"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="location"), "has no column 'location', only"),
        (lambda f: f.drop(columns="target_end_date"), "no column of dates"),
        (lambda f: f.assign(location=f["location"].str.lstrip("0") + "x"), "no observation of any of 27 tasks"),
        (lambda f: f.assign(target="deaths"), "no row of the target 'wk inc cases'"),
        (lambda f: pd.concat([f.assign(age="old"), f.assign(age="young", observation=0)]), "several values of .*'age'"),
        (lambda f: f.rename(columns={"observation": "n"}), "of which none is called oracle_value.*--observation"),
    ],
)
def test_observations_that_cannot_be_joined_are_refused(hub: Path, change, message: str) -> None:  # type: ignore[no-untyped-def]
    put(change(observed()), hub / "target-data" / "time-series.csv")
    with pytest.raises(DataError, match=message):
        read_hub(hub, model=["a-csv"])


def test_names_that_are_not_there_are_answered_by_those_that_are(hub: Path) -> None:
    for naming, message in (
        (Naming(), "has 3 models, 'a-csv', 'b-parquet', 'c-gz'; name one or several with --model"),
        (Naming(model=("z",)), "no model 'z', only 'a-csv'"),
        (Naming(model=("a-csv",), target=("deaths",)), "no forecast of the target 'deaths', only of 'wk inc cases'"),
        (Naming(model=("a-csv",), joint=("lead",)), "no column 'lead', only 'reference_date', 'location', 'horizon'"),
        (Naming(model=("a-csv",), member="m"), "forecast hub, whose columns are known; leave out --member"),
    ):
        with pytest.raises(DataError, match=message):
            read_forecasts(hub, naming=naming)
    for part in (hub / "model-output", hub / "model-output" / "a-csv"):
        with pytest.raises(DataError, match=r"is part of a forecast hub; give the hub's folder, .*hub, and --model"):
            read_forecasts(part)
    with pytest.raises(DataError, match="is a file of a forecast hub; give the hub's folder"):
        read_forecasts(hub / "model-output" / "a-csv" / f"{ROUNDS[0]}-a-csv.csv")


REAL = Path(os.environ.get("PRERANK_REAL", "")) / "files" / "hub"


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="PRERANK_REAL names no folder with files/hub")
def test_a_published_hub_gives_what_pandas_finds_in_its_files() -> None:
    model, target = "UMass-trends_ensemble", "wk inc flu hosp"
    found = read_hub(REAL, model=[model], target=target, joint=["horizon"])
    frames = [pd.read_parquet(path) for path in sorted((REAL / "model-output" / model).iterdir())]
    rows = pd.concat(frames).query("output_type == 'sample' and target == @target")
    wide = rows.pivot(index=["reference_date", "location", "output_type_id"], columns="horizon", values="value")
    for mine, theirs in zip(found.members, wide.to_numpy().reshape(-1, 100, 4), strict=True):
        assert sorted(map(tuple, mine)) == sorted(map(tuple, theirs))
    truth = pd.read_csv(REAL / "target-data" / "target-hospital-admissions.csv", dtype={"location": str})
    seen = truth.set_index(["date", "location"])["value"]
    tasks = rows.drop_duplicates(["reference_date", "location", "horizon"])
    days = zip(tasks["target_end_date"].astype(str), tasks["location"], strict=True)
    expected = tasks.assign(seen=[seen[key] for key in days])
    expected = expected.pivot(index=["reference_date", "location"], columns="horizon", values="seen")
    np.testing.assert_array_equal(found.y.to_numpy(), expected.to_numpy())
