"""Numbers of recalibration on real data are those of the records, in the tables and on the page."""

import csv
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "results" / "recalibration"
PAGE = (ROOT / "docs" / "benchmarks" / "recalibration.md").read_text(encoding="utf-8")

NAMES = {
    "plain": "the network as it is",
    "penalty on all": "penalty on all pre-ranks, strength 10",
    "affine": "`Affine()` alone",
    "HDR recalibration": "`HDRRecalibration`",
    "latent recalibration": "`LatentRecalibration`",
    "Schaake shuffle": "`SchaakeShuffle`",
    "ECC": "`EnsembleCopulaCoupling`",
    "affine + tilt": "`(Affine(), Tilt())`",
    "affine + tilt + tilt": "`(Affine(), Tilt(), Tilt())`, the default",
}


@pytest.fixture(scope="module")
def summary():
    with (FOLDER / "summary.csv").open() as stream:
        return {row["method"]: row for row in csv.DictReader(stream)}


@pytest.mark.parametrize("method", NAMES)
def test_the_page_shows_the_summary_of_the_records(method, summary):
    row = summary[method]
    near = [f"{row[f'near, {some}']} of {row[f'cells, {some}']}" for some in ("chose nothing", "chose")]
    cells = [*near, f"{row['near, test level']} of {row['cells']}", f"{float(row['not rejected %']):.0f} %"]
    assert f"| {NAMES[method]} | {' | '.join(cells)} |" in PAGE


@pytest.mark.parametrize("method", [name for name in NAMES if name != "plain"])
def test_the_page_shows_what_happens_to_the_energy_score(method, summary):
    row = summary[method]
    changes = [f"{float(row[name]):+.2f} %" for name in ("median %", "energy score %", "without extreme %")]
    counts = [f"{float(row[name]):.0f}" for name in ("better", "worse")]
    worst = f"{float(row['worst %']):+.2f} % ({row['worst dataset']})"
    assert f"| {NAMES[method]} | {' | '.join([*changes, *counts, worst])} |" in PAGE


def test_the_page_shows_what_happens_to_the_likelihood(summary):
    shown = [row for row in summary.values() if row["NLL datasets"] and row["method"] != "plain"]
    assert len(shown) == 4
    for row in shown:
        changes = [f"{float(row[f'NLL change, {name}']):+.2f}" for name in ("median", "worst")]
        assert f"| {NAMES[row['method']]} | {' | '.join([*changes, row['NLL worse']])} |" in PAGE


def test_datasets_that_chose_settings_are_named(benchmark_script):
    tables = benchmark_script("recalibration_tables")
    named = PAGE[PAGE.index("Test rows of six datasets (") :].split("(")[1].split(")")[0]
    assert sorted(named.split(", ")) == sorted(tables.CHOSE)


def test_the_tables_are_made_from_the_records(summary, benchmark_script):
    tables = benchmark_script("recalibration_tables")
    records = tables.read(FOLDER / "real.jsonl")
    assert len(records) == len({(item["dataset"], item["seed"], item["method"]) for item in records})
    made = tables.summary_table(tables.means(tables.cell_table(records)), tables.score_table(records))
    for row in made.to_dict("records"):
        known = summary[row["method"]]
        assert (row["near"], row["cells"]) == (int(known["near"]), int(known["cells"]))
        assert row["energy score %"] == pytest.approx(float(known["energy score %"]), abs=1e-3)
    covered = tables.region_table(records)
    inside = (covered["coverage"] >= covered["low"]) & (covered["coverage"] <= covered["high"])
    own = covered["region"] == "recalibrated"
    assert bool(inside[own].all())
    assert f"covered as promised in all {int(own.sum())} cells" in " ".join(PAGE.split())


def test_every_method_has_all_datasets_and_seeds(summary, benchmark_script):
    tables = benchmark_script("recalibration_tables")
    cells = tables.means(tables.cell_table(tables.read(FOLDER / "real.jsonl")))
    assert set(summary) == set(tables.ORDER)
    assert {row["datasets"] for row in summary.values()} == {"15"}
    assert {row["cells"] for row in summary.values()} == {"105"}
    assert set(cells["seeds"]) == {5}


def test_what_the_page_says_of_single_datasets_is_recorded(benchmark_script):
    records = benchmark_script("recalibration_tables").read(FOLDER / "real.jsonl")
    n_cal = {item["dataset"]: item["n_cal"] for item in records if item["method"] == "plain"}
    with (FOLDER / "scores.csv").open() as stream:
        default = {row["dataset"]: row for row in csv.DictReader(stream) if row["method"] == "affine + tilt + tilt"}
    said = " ".join(PAGE.split())
    assert f"a smooth tilt of {n_cal['wq']} cases" in said
    assert f"the energy score falls by {-float(default['scm20d']['change %']):.0f} %" in said


def test_the_page_shows_what_was_tried_as_it_is_recorded(benchmark_script):
    tables = benchmark_script("recalibration_tables")
    table = tables.tried_table(tables.read(FOLDER / "real.jsonl"), tables.read(FOLDER / "tried.jsonl"))
    shown = [line.split(" | ")[1:] for line in PAGE.splitlines() if " of 7, " in line]
    made = table[["births2", "scm20d", "scpf", "wq"]].fillna("-").to_numpy().tolist()
    assert len(shown) >= 10
    for cells in shown:
        assert [cell.removesuffix(" |") for cell in cells] in made


def test_other_functions_bring_as_many_cells_near_their_level(benchmark_script):
    """On the seeds that they were tried on."""
    tables = benchmark_script("recalibration_tables")
    tried = [item for item in tables.read(FOLDER / "tried.jsonl") if item["method"].endswith((", splines", ", tails"))]
    same = {(item["dataset"], item["seed"]) for item in tried}
    records = tables.read(FOLDER / "real.jsonl")
    own = [item for item in records if (item["dataset"], item["seed"]) in same]
    cells = tables.means(tables.cell_table([*own, *tried]))
    cells = cells[cells["pre-rank"] != tables.OLD]
    said = " ".join(PAGE.split())
    assert len({name for name, _ in same}) == 6
    for method in ("affine + tilt", "affine + tilt, splines", "affine + tilt, tails"):
        ratio = cells.loc[cells["method"] == method, "ratio"]
        assert f"{(ratio <= tables.NEAR).sum()} of {len(ratio)} on six datasets" in said


def test_what_unneeded_corrections_cost_is_recorded():
    """With 200 cases, of the repetitions in which something was changed."""
    rows = [json.loads(line) for line in (FOLDER / "harmless.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = {targets: [] for targets in (2, 6, 16)}
    for row in rows:
        if row["changed"] and row["n_cal"] == 200:
            losses[row["targets"]].append(row["nll loss"] / row["targets"])
    two, six, sixteen = (sum(values) / len(values) for values in losses.values())
    said = " ".join(PAGE.split())
    assert f"with 200 cases {two:.4f}, {six:.4f} and {sixteen:.4f} nats per target" in said
    assert f"and {max(map(max, losses.values())):.3f} in the worst repetition" in said


def test_no_correction_of_a_calibrated_forecast_costs_more_than_it_may():
    """Losses of likelihood per target, and how often something is changed, over the repetitions that are recorded."""
    rows = [json.loads(line) for line in (FOLDER / "harmless.jsonl").read_text(encoding="utf-8").splitlines()]
    for n_cal, limit in ((200, 0.005), (600, 0.002), (2000, 0.0005)):
        for n_targets in (2, 6, 16):
            own = [row for row in rows if (row["n_cal"], row["targets"]) == (n_cal, n_targets)]
            assert sum(row["nll loss"] for row in own) / len(own) / n_targets <= limit
            assert sum(row["changed"] for row in own) / len(own) <= 0.2


def _shares(name, groups):
    """Shares of fits that change something, by what `groups` names and by the number of targets."""
    rows = [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    found = {}
    for row in rows:
        found.setdefault(tuple(row[group] for group in groups), {}).setdefault(row["targets"], []).append(
            row["changed"]
        )
    assert all(set(own) == {2, 6, 16} for own in found.values())
    return {group: {d: sum(each) / len(each) for d, each in own.items()} for group, own in found.items()}, len(rows)


def test_the_page_says_how_often_something_is_changed():
    said = " ".join(PAGE.split())
    shares, n_rows = _shares("harmless", ["n_cal"])
    left = [1 - share for own in shares.values() for share in own.values()]
    assert n_rows == 9 * 200
    assert f"left as they are in {100 * min(left):.0f} to {100 * max(left):.0f} % of 200 repetitions each" in said
    rows = [json.loads(line) for line in (FOLDER / "harmless.jsonl").read_text(encoding="utf-8").splitlines()]
    for n_cal, d in ((n, d) for n in (200, 600, 2000) for d in (2, 6, 16)):
        own = [row for row in rows if (row["n_cal"], row["targets"]) == (n_cal, d)]
        assert sum(row["nll loss"] for row in own) / len(own) / d < 0.001
        ratios = {name: sum(row[name] for row in own) / len(own) for name in own[0] if name.endswith(" after")}
        assert max(ratios.values()) <= 1
    shares, n_rows = _shares("power", ["error", "n_cal"])
    assert n_rows == 27 * 40
    for error, words in {
        "small bias": "means too low by 0.1 standard deviations",
        "small spread": "spread 10 % too small",
        "small correlation": "correlation of 0.3 where it is 0.4",
    }.items():
        cells = []
        for n_cal in (200, 600, 2000):
            low, high = min(shares[error, n_cal].values()), max(shares[error, n_cal].values())
            cells.append("100 %" if low == 1 else f"{100 * low:.0f} to {100 * high:.0f} %")
        assert f"| {words} | {' | '.join(cells)} |" in said


def test_the_readme_says_what_is_recorded(summary):
    said = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    plain, default, best = (summary[method] for method in ("plain", "affine + tilt + tilt", "ECC"))
    near = {name: row["near, chose nothing"] for name, row in summary.items()}
    assert f"{near['plain']} of {plain['cells, chose nothing']} PCEs were near what sampling allows" in said
    assert f"{near['affine + tilt + tilt']} after `Recalibrator`, {near['ECC']} after ensemble copula coupling" in said
    change = -float(default["median %"])
    assert f"energy score fell by {change:.1f} % in the median of {default['datasets']} datasets" in said
    worse = [item.split() for item in default["NLL worse"].split(", ")]
    assert "on two with discrete targets the log-likelihood fell by more than a nat" in said
    assert len(worse) == 2
    assert all(float(change) > 1 for _, change in worse)
    rivals = ("ECC", "Schaake shuffle", "HDR recalibration", "latent recalibration")
    assert int(best["near, chose nothing"]) == max(int(near[method]) for method in rivals)
