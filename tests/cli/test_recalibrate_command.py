"""`prerank recalibrate`: the files of `check` in, files that `check` reads out; nothing half-written."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from prerank import Location, Recalibrator, check
from prerank.cli.main import app
from prerank.forecasts import equally_weighted_draws
from prerank.io import Matched, Naming, read_forecasts, write_forecasts
from prerank.recalibration import recalibrate_over_time

N_CASES, N_MEMBERS, SEED = 90, 6, 3
TARGETS = ["h1", "h2", "h10"]
FAST = ("--prerank", "location", "--replicates", "39")
FORMATS = ["npz", "nc", "csv", "tsv", "parquet", "feather"]


def invoke(*arguments: object):
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, ["recalibrate", *map(str, arguments)])


def assert_one_line(result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    assert not result.stdout
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr


def document(*arguments: object) -> dict:
    result = invoke(*arguments, *FAST, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def found() -> Matched:
    """A forecast that is too low and too narrow; three cases a week, days as labels."""
    rng = np.random.default_rng(5)
    index = pd.date_range("2024-01-01", periods=N_CASES, name="case")
    signal = rng.normal(size=(N_CASES, 1, len(TARGETS)))
    y = pd.DataFrame(2.0 + signal[:, 0] + rng.normal(size=(N_CASES, len(TARGETS))), index=index, columns=TARGETS)
    members = signal + 0.4 * rng.normal(size=(N_CASES, N_MEMBERS, len(TARGETS)))
    return Matched(y, members, pd.DataFrame({"week": np.arange(N_CASES) // 3}, index=index))


@pytest.fixture(scope="module")
def past(found, tmp_path_factory):
    """The same in a file of each format."""
    pytest.importorskip("xarray")
    folder = tmp_path_factory.mktemp("past")
    for suffix in FORMATS:
        write_forecasts(folder / f"past.{suffix}", found)
    return folder


def corrected_here(found: Matched, n_draws: int, fit: slice, new: np.ndarray) -> np.ndarray:
    recalibrator = Recalibrator([Location()], seed=SEED).fit(found.members[fit], found.y.to_numpy()[fit])
    law = recalibrator.transform(torch.tensor(new))
    return equally_weighted_draws(law, n_draws, SEED, "corrected").members.numpy()


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_is_corrected_as_the_arrays_are_and_can_be_checked(suffix, found, past, tmp_path):
    """The first half is fitted on, the second is corrected and judged."""
    out = tmp_path / f"out.{suffix}"
    told = document(past / f"past.{suffix}", "--out", out, "--seed", SEED)
    half, read = N_CASES // 2, read_forecasts(out)
    expected = corrected_here(found, N_MEMBERS, slice(0, half), found.members[half:])
    np.testing.assert_allclose(read.members, expected, rtol=1e-12)
    np.testing.assert_array_equal(read.y.to_numpy(), found.y.to_numpy()[half:])
    assert list(read.y.columns) == TARGETS
    if suffix != "npz":
        assert list(pd.to_datetime(read.y.index)) == list(found.y.index[half:])
    again = check(read.y, read.members, [Location()], axes=("case", "member", "target"), n_replicates=39, seed=SEED)
    assert told["after"]["preranks"][0]["pce"] == pytest.approx(again.table.loc["location", "PCE"])
    assert told["before"]["calibrated"] is False
    assert told["changed"]
    assert told["written"] == {"file": str(out), "cases": N_CASES - half, "draws": N_MEMBERS, "targets": 3}


def test_the_text_says_what_was_done_and_what_came_of_it(past, tmp_path):
    result = invoke(past / "past.csv", "--out", tmp_path / "out.csv", *FAST)
    assert result.exit_code == 0, result.output
    for words in (
        "Fitted on 45 cases, 3 targets.",
        "law of errors: ",
        "Fitted on the first 45 cases (2024-01-01 to 2024-02-14), judged on the rest (2024-02-15 to 2024-03-30):",
        "PCE before",
        "Energy score",
        "Before: Miscalibrated",
        "After: ",
        "Written to",
        "45 cases, 6 draws, 3 targets.",
    ):
        assert words in " ".join(result.stdout.split()), words


def test_new_forecasts_are_corrected_by_what_all_past_cases_say(found, past, tmp_path):
    """Other format, targets in another order, no observations."""
    new = found.members[:4, :, ::-1] + 1.0
    later = found.y.index[:4] + pd.DateOffset(years=1)
    unknown = pd.DataFrame(np.nan, index=later, columns=TARGETS[::-1])
    write_forecasts(tmp_path / "new.nc", Matched(unknown, new, pd.DataFrame(index=later)))
    out = tmp_path / "out.parquet"
    learnt = tmp_path / "learnt.safetensors"
    told = document(
        past / "past.csv", "--apply", tmp_path / "new.nc", "--out", out, "--draws", 9, "--seed", SEED, "--save", learnt
    )
    expected = corrected_here(found, 9, slice(None), new[..., ::-1].copy())
    table = pd.read_parquet(out)
    assert "observation" not in table.columns
    assert told["before"]["cases"] == N_CASES // 2  # judged on the later half of the past
    read = read_forecasts(out, need_observations=False)
    np.testing.assert_allclose(read.members, expected, rtol=1e-12)
    assert list(read.y.index) == list(later)
    # what was kept does the same
    write_forecasts(tmp_path / "new.csv", read._replace(members=new[..., ::-1]))
    told = document(tmp_path / "new.csv", "--load", learnt, "--out", tmp_path / "c.npz", "--draws", 9, "--seed", SEED)
    assert told["before"] is told["after"] is told["judged"] is None
    assert told["summary"][0] == f"Fitted on {N_CASES} cases, 3 targets."
    with np.load(tmp_path / "c.npz", allow_pickle=False) as arrays:
        assert "observations" not in arrays
        np.testing.assert_allclose(arrays["members"], expected, rtol=1e-12)


def test_what_was_learnt_knows_its_targets(found, past, tmp_path):
    """Stations in another order are put into that of the fit, and others refused."""
    learnt = tmp_path / "learnt.safetensors"
    document(past / "past.csv", "--out", tmp_path / "first.csv", "--save", learnt)
    turned = Matched(found.y[TARGETS[::-1]], found.members[..., ::-1], found.columns)
    write_forecasts(tmp_path / "turned.nc", turned)
    for name, source in (("straight.nc", past / "past.nc"), ("turned_out.nc", tmp_path / "turned.nc")):
        document(source, "--load", learnt, "--out", tmp_path / name, "--seed", SEED)
    one, other = (read_forecasts(tmp_path / name) for name in ("straight.nc", "turned_out.nc"))
    assert list(other.y.columns) == TARGETS[::-1]  # what was written is in the order of its file
    np.testing.assert_array_equal(one.members, other.members[..., other.y.columns.get_indexer(one.y.columns)])
    write_forecasts(tmp_path / "else.nc", turned._replace(y=turned.y.set_axis(["a", "b", "c"], axis=1)))
    refused = invoke(tmp_path / "else.nc", "--load", learnt, "--out", tmp_path / "x.nc")
    assert_one_line(refused, "are for the targets a, b, c, what was learnt for h1, h2, h10; give the same targets")


def test_forecasts_with_observations_are_judged_by_them(found, past, tmp_path):
    half = N_CASES // 2
    early, late = (
        Matched(found.y[rows], found.members[rows], found.columns[rows]) for rows in (slice(0, half), slice(half, None))
    )
    write_forecasts(tmp_path / "early.npz", early)
    write_forecasts(tmp_path / "late.npz", Matched(late.y * np.nan, late.members, late.columns))
    np.savez(tmp_path / "seen.npz", observations=late.y.to_numpy())
    arguments = [tmp_path / "early.npz", "--apply", tmp_path / "late.npz", "--out", tmp_path / "out.npz"]
    told = document(*arguments, "--apply-observations", tmp_path / "seen.npz")
    one = document(past / "past.npz", "--out", tmp_path / "one.npz")
    assert told["judged"] == "Judged on --apply:"
    for key in ("before", "after"):
        assert told[key]["preranks"] == one[key]["preranks"]
    told = document(
        tmp_path / "late.npz", tmp_path / "seen.npz", "--load", _learnt(tmp_path, early), "--out", tmp_path / "c.npz"
    )
    assert told["after"]["preranks"] == one["after"]["preranks"]


def test_a_correction_that_harms_later_cases_is_said_first(found, tmp_path):
    """What was too low before is too high afterwards."""
    turned = found.y.to_numpy() - 4.0 * (np.arange(N_CASES) >= N_CASES // 2)[:, None]
    y = pd.DataFrame(turned, found.y.index, TARGETS)
    write_forecasts(tmp_path / "turned.csv", found._replace(y=y))
    told = document(tmp_path / "turned.csv", "--out", tmp_path / "c.csv", "--html", tmp_path / "r.html")
    scores = told["energy_score"]
    assert scores["after"] > scores["before"]
    assert f"rose from {scores['before']:.4g} to {scores['after']:.4g}" in told["warning"]
    assert "Keep the raw forecast" in (tmp_path / "r.html").read_text(encoding="utf-8")
    shown = invoke(tmp_path / "turned.csv", "--out", tmp_path / "d.csv", *FAST)
    assert shown.stdout.startswith("The correction made the forecast worse on the cases that judge it")
    write_forecasts(tmp_path / "same.csv", found)
    assert document(tmp_path / "same.csv", "--out", tmp_path / "e.csv")["warning"] is None


def _learnt(folder, found):
    path = folder / "learnt.safetensors"
    Recalibrator([Location()]).fit(found.members, found.y.to_numpy()).save(path)
    return path


@pytest.mark.parametrize("option", [("--before", "20"), ("--share", "0.66")], ids=" ".join)
def test_blocks_stay_whole_and_reach_fit_and_check(option, past, tmp_path):
    out = tmp_path / "out.csv"
    told = document(past / "past.csv", "--block", "week", *option, "--out", out)
    assert told["before"]["blocks"] == told["after"]["blocks"] == 10
    assert "first 60 cases (0 to 19), judged on the rest (20 to 29)" in told["judged"]
    assert sorted(pd.read_csv(out)["week"].unique()) == list(range(20, 30))


def test_a_date_says_where_the_past_ends(past, tmp_path):
    told = document(past / "past.nc", "--before", "2024-02-01", "--out", tmp_path / "out.nc")
    assert "first 31 cases (2024-01-01 to 2024-01-31)" in told["judged"]


def test_names_and_cases_of_several_columns_stay(found, tmp_path):
    index = pd.MultiIndex.from_product([range(N_CASES // 2), ["Bergen", "Voss"]], names=["day", "place"])
    naming = Naming(("day", "place"), "run", ("lead",), "wind", "seen")
    given = Matched(found.y.set_axis(index), found.members, pd.DataFrame(index=index))
    write_forecasts(tmp_path / "f.csv", given, naming)
    names = [
        "--case",
        "day",
        "--case",
        "place",
        "--member",
        "run",
        "--target",
        "lead",
        "--value",
        "wind",
        "--observation",
        "seen",
    ]
    document(tmp_path / "f.csv", "--out", tmp_path / "out.csv", *names, "--block", "day")
    table = pd.read_csv(tmp_path / "out.csv")
    assert list(table.columns) == ["day", "place", "run", "lead", "wind", "seen"]
    assert table["day"].nunique() * 2 * N_MEMBERS * 3 == len(table)
    document(tmp_path / "f.csv", "--out", tmp_path / "out.nc", *names)
    read = read_forecasts(tmp_path / "out.nc", naming=Naming(("case",), "run", ("lead",), "wind", "seen"))
    assert read.members.shape == (N_CASES // 2, N_MEMBERS, 3)


def test_missing_values_are_left_out_and_counted(found, tmp_path):
    y, members = found.y.copy(), found.members.copy()
    y.iloc[3, 0] = np.nan
    members[5, 1:] = np.nan
    members[10, 0, 1] = np.nan
    members[70, 2] = np.nan
    y.iloc[80, 1] = np.nan
    write_forecasts(tmp_path / "f.npz", Matched(y, members, found.columns))
    told = document(tmp_path / "f.npz", "--out", tmp_path / "out.npz")
    assert told["notes"] == [
        "2 of 90 cases dropped: the observation is missing",
        "1 cases dropped: fewer than 2 of their members are there",
        "2 of 522 members left out: they have missing values",
        "1 case not observed yet: corrected, and not judged by",
    ]
    with np.load(tmp_path / "out.npz", allow_pickle=False) as arrays:
        assert np.isfinite(arrays["members"]).all()


def test_still_miscalibrated_is_status_1_if_asked_for(found, tmp_path):
    """What is learnt on some cases is wrong for the others."""
    y = found.y.copy()
    y.iloc[N_CASES // 2 :] -= 6.0
    write_forecasts(tmp_path / "f.npz", found._replace(y=y))
    assert invoke(tmp_path / "f.npz", "--out", tmp_path / "out.npz", *FAST).exit_code == 0
    assert invoke(tmp_path / "f.npz", "--out", tmp_path / "out.npz", *FAST, "--fail").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", "out.doc"], ["out.doc: cannot tell the format from '.doc'"]),
        (["--out", "out.arff"], ["forecasts are not written as .arff"]),
        (["--out", "past.npz"], ["--out past.npz would replace a file that is read"]),
        (["--out", "out.npz", "--save", "out.npz"], ["--out and --save are both out.npz"]),
        (["--out", "out.npz", "--save", "."], ["is a folder"]),
        (["--out", "out.npz", "--share", "1.5"], ["--share 1.5: a share of the cases between 0 and 1"]),
        (["--out", "out.npz", "--share", "0.5", "--before", "3"], ["--share and --before both"]),
        (["--out", "out.npz", "--before", "1000"], ["--before 1000: all of 90 cases (0 to 89) come before it"]),
        (["--out", "out.npz", "--before", "spring"], ["--before spring: the labels are like 0"]),
        (["--out", "out.npz", "--share", "0.001"], ["leaves none to fit on"]),
        (["--out", "out.npz", "--share", "0.05"], ["too few for 5-fold cross-validation"]),
        (["--out", "out.npz", "--apply-observations", "past.npz"], ["--apply-observations belongs to --apply"]),
        (["--out", "out.npz", "--load", "past.npz"], ["cannot be read as a saved Recalibrator"]),
        (["--out", "out.npz", "--load", "x", "--save", "y"], ["--load fits nothing", "leave out --save"]),
        (
            ["--out", "out.npz", "--apply", "other.npz"],
            ["are for the targets a, b, c, those to learn from for h1, h2, h10"],
        ),
        (["--out", "out.npz", "--prerank", "none"], ["there is no pre-rank 'none'"]),
        (["--out", "out.npz", "--block", "day"], ["has no array 'day'"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(arguments, words, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bare = Matched(found.y.reset_index(drop=True), found.members, pd.DataFrame(index=range(N_CASES)))
    write_forecasts(tmp_path / "past.npz", bare)
    write_forecasts(tmp_path / "other.npz", bare._replace(y=bare.y.set_axis(["a", "b", "c"], axis=1)))
    there = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert_one_line(invoke("past.npz", *arguments), *words)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == there


def test_without_out_the_option_is_named(tmp_path):
    result = invoke(tmp_path / "past.npz")
    assert result.exit_code == 2
    assert "--out" in result.stderr


def test_a_failure_while_writing_leaves_what_was_there(past, tmp_path, monkeypatch):
    out = tmp_path / "out.csv"
    out.write_text("before")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    assert_one_line(invoke(past / "past.npz", "--out", out, *FAST), "No space left", "free some space")
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert out.read_text() == "before"


def test_as_time_goes_on_the_command_is_the_function(found, past, tmp_path):
    out, kept = tmp_path / "out.csv", tmp_path / "fits"
    options = ("--every", 15, "--delay", 2, "--window", 30, "--fits", kept, "--seed", SEED)
    told = document(past / "past.csv", "--out", out, *options)
    issued = recalibrate_over_time(
        found.y.to_numpy(),
        found.members,
        range(N_CASES),
        recalibrator=Recalibrator([Location()], seed=SEED),
        every=15,
        delay=2,
        window=30,
        first=N_CASES // 2,
    )
    assert len(issued.issues) == len(list(kept.iterdir())) == 3
    read = read_forecasts(out)
    np.testing.assert_allclose(read.members, issued.ensemble(seed=SEED).members.numpy(), rtol=1e-12)
    np.testing.assert_array_equal(read.y.to_numpy(), found.y.to_numpy()[N_CASES // 2 :])
    assert told["judged"] == (
        "3 fits, the first on 30 cases (2024-01-01 to 2024-02-14), judged on the rest (2024-02-15 to 2024-03-30):"
    )
    assert "3 fits as time goes on; the summary is that of the last" in told["notes"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--delay", 2), ("--delay", "--every")),
        (("--fits", "folder"), ("--fits", "--every")),
        (("--every", 5, "--save", "learnt"), ("--every", "leave out --save")),
        (("--every", 5, "--share", 0.05), ("first=4", "a fit needs 10")),
    ],
)
def test_options_of_time_that_contradict_others_are_refused(options, words, past, tmp_path):
    assert_one_line(invoke(past / "past.csv", "--out", tmp_path / "out.csv", *options), *words)


def test_columns_of_models_are_learnt_about_one_by_one(found, past, tmp_path):
    """Members of a table that are called by names of models, in another order in the new file."""
    names = ["gfs", "icon", "um", "nam", "gem", "arpege"]
    table = read_forecasts(past / "past.csv").to_frame()
    table["member"] = table["member"].map(lambda number: names[int(number) - 1])
    table.to_csv(tmp_path / "named.csv", index=False)
    learnt = tmp_path / "learnt.safetensors"
    document(tmp_path / "named.csv", "--out", tmp_path / "out.csv", "--save", learnt)
    assert Recalibrator.load(learnt).member_names_ == tuple(sorted(names))
    document(past / "past.csv", "--out", tmp_path / "out.csv", "--save", tmp_path / "numbered")
    assert Recalibrator.load(tmp_path / "numbered").member_names_ is None
