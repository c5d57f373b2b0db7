"""Numbers on the pages of benchmarks are those of the committed records."""

import csv
import json
import re
import statistics
from pathlib import Path

import pytest
from scipy import stats

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "benchmarks"


def read(file):
    return re.sub(r"\s+", " ", file.read_text(encoding="utf-8"))


TESTS, SPEED = (read(PAGES / f"{name}.md") for name in ("tests", "speed"))
SIGNS, THREADS = (read(ROOT / "docs" / "decisions" / name) for name in ("32-random-signs.md", "31-threads.md"))


def records(name):
    with (ROOT / "results" / name).open() as stream:
        return list(csv.DictReader(stream))


def percent(value):
    return f"{100 * value:.1f}".removesuffix(".0") + " %"


def test_sizes_are_those_of_the_record():
    cells = [row for row in records("size/size.csv") if row["error"] == "none"]
    repetitions = int(cells[0]["repetitions"])
    rejected = [float(row["rejected"]) for row in cells]
    bound = stats.binom.ppf(1 - 0.05 / len(cells), repetitions, 0.05) / repetitions
    assert max(rejected) <= bound
    assert f"The highest of {len(cells)} cells is {percent(max(rejected))} at the 5 % level" in TESTS
    assert f"the binomial bound at 0.05 / {len(cells)} is {percent(bound)}" in TESTS
    full = [
        float(row["rejected"]) for row in cells if row["targets"] == "continuous" and float(row["attainable"]) > 0.049
    ]
    mean = sum(full) / len(full)
    assert 0.047 <= mean <= 0.053
    assert f"The mean over the {len(full)} cells with continuous targets" in TESTS
    assert f"attainable size is 5 % is {100 * mean:.2f} %" in TESTS


def test_powers_are_those_of_the_record():
    cells = records("size/derandomised.csv")
    for row in cells:
        assert float(row["interval"]) >= float(row["randomised"]) - 3.5 * float(row["standard error"]) - 1e-9
    assert f"less powerful beyond noise in {len(cells)} cells" in TESTS
    flip = next(row for row in cells if row["scenario"] == "PC flip" and row["pre-rank"] == "copula")
    tied = next(row for row in cells if row["scenario"] == "correlation 0.8 as 0.2, M = 25, D = 12")
    said = [
        f"{100 * float(row['interval']):.0f} % of the data sets instead of {100 * float(row['randomised']):.0f} %"
        for row in (flip,)
    ]
    said.append(f"in {100 * float(tied['interval']):.0f} % instead of {100 * float(tied['randomised']):.0f} %")
    for words in said:
        assert words in TESTS


def test_what_is_said_of_large_forecasts_is_what_was_recorded():
    whole, tenth, rates = (
        json.loads((ROOT / "results" / "large" / f"{name}.json").read_text())
        for name in ("4000000", "400000", "throughput")
    )
    (run,) = whole["runs"]
    assert run["peak_megabytes"] < 2000 < run["data_megabytes"]
    assert f"{run['cases']:,} cases of {run['members']} members and {run['targets']} targets" in SPEED
    assert f"test with {run['replicates']} replicates" in SPEED
    assert f"is {run['peak_megabytes'] / 1000:.2f} GB; it takes {run['cpu_seconds']:.0f} s of processor time" in SPEED
    assert f"{run['cases_per_cpu_second']:,} cases a second" in SPEED
    memory, cluster = tenth["chunks_and_memory"], tenth["chunks_and_cluster"]
    assert memory["p_values"] == cluster["p_values"] == cluster["other_numbers"] == 0
    assert memory["other_numbers"] <= 1e-12
    assert f"the peak is {tenth['runs'][1]['peak_megabytes'] / 1000:.1f} GB" in SPEED
    assert f"differ by {memory['other_numbers']:.1e} at most" in SPEED
    *preranks, everything, ours, theirs = rates["throughput"]
    for row in preranks:
        cells = (row["what"], f"{row['ranked_per_cpu_second']:,}", f"{row['checked_per_cpu_second']:,}")
        assert f"| {' | '.join(cells)} |" in SPEED
    assert f"| all of these | | {everything['checked_per_cpu_second']:,} |" in SPEED
    assert f"{ours['ranked_per_cpu_second']:,} cases a second and {theirs['ranked_per_cpu_second']:,}" in SPEED


def test_coverage_with_blocks_is_that_of_the_record():
    cells = records("blocks/blocks.csv")
    lowest = min(float(row["coverage"]) for row in cells)
    assert lowest >= stats.binom.ppf(0.05 / len(cells), 1000, 0.95) / 1000
    assert f"at least {percent(lowest)} of 1,000 repetitions in all {len(cells)} cells" in TESTS
    naive = min(float(row["coverage without blocks"]) for row in cells)
    assert f"in as few as {100 * naive:.0f} %" in TESTS
    rejected = [float(row["rejected"]) for row in cells if row["error"] == "none"]
    assert f"rejected in {percent(min(rejected))} to {percent(max(rejected))}" in TESTS


@pytest.mark.parametrize("name", ["size/size.md", "size/size.csv", "size/derandomised.csv", "blocks/blocks.md"])
def test_records_that_the_page_names_are_there(name):
    assert f"`results/{name}`" in TESTS or name == "size/size.csv"
    assert (ROOT / "results" / name).stat().st_size > 0


def test_shares_of_noticed_faults_are_those_of_the_record():
    page = read(ROOT / "docs" / "benchmarks.md")
    record = read(ROOT / "results" / "mutants.md")
    core = re.search(r"of 400 sampled faults in the core the tests noticed \d+, ([\d.]+ %)", record)
    recalibration = re.search(r"of 150 sampled .*? noticed \d+, ([\d.]+ %) \(95 % interval ([\d. to]+ %)\)", record)
    assert f"notice {core[1]} (95 % interval" in page
    assert f"Of 150 faults in `prerank.recalibration` they notice {recalibration[1]} ({recalibration[2]})" in page
    telling = re.search(r"and ([\d.]+ %) \([\d. to]+ %\) of those that are not equivalent", record)
    assert f"and {telling[1]} of those that change anything at all" in page


def test_step_times_are_those_of_the_record():
    rows = {
        (row["targets"], row["protocol"], row["models"], row["code"]): row for row in records("kernels/step_times.csv")
    }
    written = (PAGES / "training.md").read_text(encoding="utf-8").splitlines()
    decision = read(ROOT / "docs" / "decisions" / "20-fleets-on-a-gpu.md")
    dimensions = ("2", "6", "16")

    def ms(*which, of="ms"):
        value = float(rows[which][of])
        return f"{value:.3f}" if value < 0.1 else f"{value:.2f}"

    for targets in dimensions:
        exact, published = (targets, "exact"), (targets, "as published")
        cells = [
            ms(*exact, "all", "fleet"),
            ms(*exact, "all", "fleet", of="floor_ms"),
            ms(*exact, "all", "vmap"),
            ms(*published, "all", "fleet"),
            ms(*published, "all", "fleet", of="floor_ms"),
            ms(*exact, "every third", "fleet"),
            ms(*exact, "every ninth", "fleet"),
            f"{float(rows[(*exact, 'all', 'fleet')]['peak_gb']):.1f}",
        ]
        assert f"| {targets} | {' | '.join(cells)} |" in written
    for name in ("none", "marginal", "location", "scale", "dependency", "PCA", "HDR", "copula"):
        cells = []
        for targets in dimensions:
            known = "contrast" if (name, targets) == ("dependency", "2") else name
            cells += [
                ms(targets, "exact", known, "fleet"),
                ms(targets, "exact", known, "fleet", of="floor_ms"),
                ms(targets, "exact", known, "vmap"),
                ms(targets, "as published", known, "fleet"),
            ]
        assert f"| {name} | {' | '.join(cells)} |" in written
    last = [ms(targets, "exact", "all", "fleet") for targets in dimensions]
    assert f"takes {last[0]}, {last[1]} and {last[2]} ms with 2, 6 and 16 targets" in decision


def test_what_corrected_forecasts_take_is_what_was_recorded():
    found = records("corrected/corrected.csv")

    def seconds(tree, row):
        same = ("task", "targets", "cases")
        own = [r for r in found if r["tree"] == tree and all(r[k] == row[k] for k in same)]
        return statistics.median(float(r["cpu_seconds"]) for r in own)

    shown = [row for row in found if row["tree"] == "now" and row["task"] != "fit"]
    assert {(row["task"], row["targets"]) for row in shown} >= {
        (f"check {kind}", targets) for kind in ("plain", "corrected") for targets in ("2", "4", "16")
    }
    for row in shown:
        cells = [row["targets"], row["task"], f"{int(row['cases']):,}"]
        assert f"| {' | '.join(cells)} | {seconds('now', row):.2f} |" in SPEED
    shares = [float(row["share"]) for row in shown if row["task"] == "check corrected" and row["repeat"] == "0"]
    assert f"effective shares of {', '.join(f'{100 * share:.0f} %' for share in shares)}" in SPEED
    fit = next(row for row in found if row["task"] == "fit" and row["tree"] == "now")
    assert f"{int(fit['cases']):,} cases of {fit['targets']} targets takes {float(fit['cpu_seconds']):.0f} s" in SPEED


def test_what_a_check_takes_and_how_it_grows_is_what_was_recorded(benchmark_script):
    growth = benchmark_script("growth")
    sizes = growth.size_lines(records("growth/trees.csv"))
    assert len(sizes) >= 6
    curves = growth.table(records("growth/growth.csv"))
    assert len(curves) >= 12
    peaks = growth.memory_lines(records("growth/memory.csv"))
    assert len(peaks) >= 8
    for line in sizes + curves + peaks:
        assert line in SPEED
    one, two = (float(row["wall"]) for row in records("growth/growth.csv") if row["curve"] == "threads")
    assert f"two threads take {two / one:.2f} times as long as one" in SPEED
    decision = (ROOT / "docs" / "decisions" / "44-ranks-in-the-cache.md").read_text()
    for line in growth.tree_lines(records("growth/trees.csv")):
        assert line in decision


def test_what_scores_take_beside_other_packages_is_what_was_recorded(benchmark_script):
    found = records("scores/scores.csv")
    lines = benchmark_script("score_times").table(found)
    assert len(lines) == 2 + 5 * 3
    for line in lines:
        assert line in SPEED
    others = {(row["contender"].split()[0], row["version"]) for row in found if row["contender"] != "prerank"}
    for name, version in others:
        assert f"{name} {version}" in SPEED


def test_what_a_start_takes_is_what_was_recorded():
    found = records("startup/startup.csv")

    def middle(tree, what):
        return statistics.median(float(row["seconds"]) for row in found if (row["tree"], row["what"]) == (tree, what))

    torch = middle("", "import torch")
    cells = {(row["tree"], row["what"]) for row in found if row["tree"] in ("", "now")}
    shown = [(tree, what) for tree, what in cells if f"| {what} |" in SPEED]
    assert len(shown) >= 7
    for tree, what in shown:
        value = middle(tree, what)
        assert f"| {what} | {1000 * value:.0f} | {value / torch:.2f} |" in SPEED


def test_what_calls_lose_beside_other_programs_is_what_was_recorded():
    found = records("contention/contention.csv")

    def seconds(task, **asked):
        return [float(r["seconds"]) for r in found if r["task"] == task and all(r[k] == v for k, v in asked.items())]

    def alone(task, threads="1"):
        return statistics.median(seconds(task, tree="now", threads=threads, beside="0"))

    def worst(task, tree, threads="0"):
        return max(seconds(task, tree=tree, threads=threads)) / alone(task)

    tasks = list(dict.fromkeys(r["task"] for r in found if r["tree"] == "before"))
    assert len(tasks) == 4
    floor = worst("fixed work", "now", "1")
    for task in tasks:
        assert f"| {task} | {worst(task, 'now'):.1f} | {floor:.1f} |" in SPEED
    inside = [worst(task, "before") for task in tasks]  # threads inside operations
    assert f"{min(inside):.0f} to {max(inside):.0f} times as long as alone" in THREADS
    for task, words in {
        "check 10,000 x 100 x 16": "one for 10,000 cases, 100 members and 16 targets",
        "check 10,000 x 20 x 10": "for 10,000 x 20 x 10",
        "check 100 x 10 x 2": "for 100 x 10 x 2",
    }.items():
        ratio = f"{alone(task, '2') / alone(task):.2f} times"
        assert re.search(f"{re.escape(ratio)}( as long as)? {re.escape(words)}", SPEED), (task, ratio)
        assert len({r["bits"] for r in found if r["task"] == task and r["tree"] == "now"}) == 1
    small = statistics.median(seconds(tasks[0], tree="now", threads="0", beside="0"))
    before = statistics.median(seconds(tasks[0], tree="before", threads="0", beside="0"))
    assert 1.2 < small / before < 1.3
    assert "small checks take a quarter longer than they would with threads inside operations" in THREADS


def test_what_is_said_of_rows_with_several_projections_is_what_was_recorded():
    size, family, power = (records(f"rows/{name}.csv") for name in ("size", "family", "power"))
    repetitions, rates = int(size[0]["repetitions"]), [float(row["rejected"]) for row in size]
    bound = stats.binom.ppf(1 - 0.05 / len(size), repetitions, 0.05) / repetitions
    assert max(rates) <= bound
    assert f"The highest of {len(size)} cells is {percent(max(rates))} in {repetitions:,} repetitions" in TESTS
    assert f"the binomial bound at 0.05 / {len(size)} is {percent(bound)}" in TESTS
    reachable = [
        float(row["rejected"]) for row in size if int(row["n_cases"]) >= 30 and float(row["attainable"]) < 0.02
    ]
    mean = sum(reachable) / len(reachable)
    assert 0.045 <= mean <= 0.055
    assert f"the mean is {100 * mean:.2f} % from 30" in TESTS
    worst = max(float(row["rejected"]) for row in family)
    assert worst <= stats.binom.ppf(1 - 0.05 / len(family), repetitions, 0.05) / repetitions
    assert f"at most {percent(worst)} of 1,000 data sets, in {len(family)} worlds" in TESTS
    gains = sorted(float(row["gain"]) for row in power)
    assert f"{len(power)} cells: the median change is {100 * statistics.median(gains):+.1f} points" in TESTS
    assert f"up to {100 * gains[-1]:.1f} points more often" in TESTS
    assert sum(gain < -0.05 for gain in gains) == 4
    for gain in gains[:4]:
        assert f"{-100 * gain:.1f}" in TESTS
    one = ("bias in one", "right, .8", "200", "20", "10")
    (row,) = [
        row
        for row in power
        if (*(row[k] for k in ("wrong", "dependence", "n_cases", "n_members", "n_targets")),) == one
    ]
    assert (
        f"{percent(float(row['rejected']))} of the data sets instead of {percent(float(row['rejected before']))}"
        in TESTS
    )
    adjusted = max(float(row["rejected"]) - float(row["by Holm"]) for row in records("rows/adjustment.csv"))
    assert f"up to {100 * adjusted:.1f} points more of the data sets than by Holm's" in TESTS


def test_real_ensembles_on_the_page_are_those_of_the_record():
    page = (PAGES / "recalibration.md").read_text(encoding="utf-8")
    sets = [line for line in page.splitlines() if line.startswith(("| later,", "| alternate,"))]
    rows = {}
    for row in records("recalibration/real_ensembles.csv"):
        rows.setdefault((row["split"], row["set"]), {})[row["method"]] = row
    judged = {key: methods for key, methods in rows.items() if key[0] != "doubled"}
    assert len(judged) == 10

    def cell(row, name, digits):
        return f"{float(row[name]):.{digits}f}" if row[name] else "–"

    for (split, name), methods in judged.items():
        head = f"| {'later' if split == 'time' else 'alternate'}, {name} |"
        of_members = [cell(methods[m], "ES of M", 2) for m in SOME]
        of_draws = [cell(methods[m], "ES of draws", 2) for m in SOME[4:]]
        logs = [cell(methods[m], "log score", 1) for m in ("Gaussian copula", "law of errors")]
        rejected = [f"{float(methods[m]['rejected, M']):.0f}" for m in SOME]
        of_hundred = [f"{float(methods[m]['rejected, draws']):.0f}" for m in SOME[4:]]
        in_order = cell(methods["law of errors"], "ES in order", 2)
        assert f"{head} {' | '.join([*of_members, in_order, *of_draws, *logs])} |" in sets
        assert f"{head} {' | '.join([*rejected, *of_hundred])} |" in sets
    slowest = max(float(methods["law of errors"]["seconds"]) for methods in judged.values())
    assert slowest < 5

    def in_errors(key, method, name, other):
        row = rows[key][method]
        return float(row[f"{name} less {other}"]) / float(row[f"{name} error"])

    german = ("time", "prices_de")
    copula = [
        in_errors((split, "prices_de"), "Gaussian copula", "ES of draws", "law of errors")
        for split in ("time", "doubled")
    ]
    said = " ".join(page.split())
    assert f"better by {-copula[0]:.1f} block errors ({-copula[1]:.1f} with blocks of twice the length" in said
    scores = [
        [float(rows[split, name]["law of errors"]["ES of draws"]) for split in ("time", "doubled")]
        for name in ("prices_de", "prices_np", "prices_igep", "temperature", "mjo")
    ]
    assert f"by at most {max(100 * abs(b / a - 1) for a, b in scores):.1f} %" in said
    about, order = (
        [in_errors(key, "law of errors", name, "ECC") for key in judged] for name in ("ES of M", "ES in order")
    )
    assert [sum(value > 2 for value in values) for values in (about, order)] == [4, 1]
    without = in_errors(german, "law without a curve", "ES of draws", "law of errors")
    assert f"by {-without:.1f} block errors), and a Gaussian law" in said
    own = [
        (float(methods["member by member"]["rejected, M"]), float(methods["law of errors"]["rejected, M"]))
        for methods in judged.values()
    ]
    assert sum(theirs > ours for theirs, ours in own) == MORE


SOME = ("raw", "affine", "ECC", "member by member", "Gaussian copula", "analogs of errors", "law of errors")
MORE = 8  # rows in which member by member is rejected in more pre-ranks


def test_calibrated_ensembles_on_the_page_are_those_of_the_record():
    right = [row for row in records("recalibration/harmless_ensembles.csv") if row["part"] == "calibrated"]
    page = read(PAGES / "recalibration.md")
    count = len({row["repetition"] for row in right})
    changed = sum(row["changed"] == "True" for row in right) / len(right)
    lost = statistics.mean(float(row["energy score"]) / float(row["energy score before"]) - 1 for row in right)
    before, after = (statistics.mean(float(row[name]) for row in right) for name in ("rejected before", "rejected"))
    assert f"{count} repetitions of 18 kinds: something is changed in {percent(changed)}" in page
    assert f"the energy score is worse by {100 * lost:.2f} % on average" in page
    assert f"a check rejects {percent(before)} before and {percent(after)} after" in page


def medians(rows, *keys, value):
    """The median of a column for each combination of others."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(float(row[value]))
    return {group: statistics.median(values) for group, values in groups.items()}


def test_what_a_penalty_costs_on_a_flow_is_that_of_the_record():
    said = read(ROOT / "docs" / "guide" / "training.md").split("## What a penalty costs")[1].split("## ")[0]
    rows = [row for row in records("penalty/steps.csv") if row["tree"] == "now"]
    cost = medians(rows, "flow", "draws", "penalty", value="milliseconds")
    columns = [(flow, draws) for flow in ("coupling", "autoregressive") for draws in ("4", "16")]
    without = [cost[(*column, "without")] for column in columns]
    for penalty in dict.fromkeys(row["penalty"] for row in rows if row["penalty"] != "without"):
        ratios = [f"{cost[(*column, penalty)] / base:.1f}" for column, base in zip(columns, without, strict=True)]
        assert f"| {penalty} | {' | '.join(ratios)} |" in said
