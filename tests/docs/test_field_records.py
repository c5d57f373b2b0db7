"""What the pages say of the field's pre-ranks is what the committed records say."""

import csv
import re
from pathlib import Path

import pytest
from scipy import stats

ROOT = Path(__file__).parents[2]


def page(name):
    return re.sub(r"\s+", " ", (ROOT / "docs" / name).read_text(encoding="utf-8"))


def records(name):
    with (ROOT / "results" / "field" / f"{name}.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_sizes_of_the_fields_preranks_are_below_the_bound_and_as_said():
    cells = records("size")
    rates = [float(row["rejected"]) for row in cells]
    repetitions = int(cells[0]["repetitions"])
    bound = stats.binom.ppf(1 - 0.05 / len(cells), repetitions, 0.05) / repetitions
    assert max(rates) <= bound
    full = [float(row["rejected"]) for row in cells if float(row["attainable"]) > 0.049]
    said = page("benchmarks/tests.md")
    assert f"The highest of {len(cells)} cells is {100 * max(rates):.1f} % in {repetitions} repetitions" in said
    assert f"the bound {100 * bound:.1f} %" in said
    assert f"the {len(full)} cells that can attain 5 % is {100 * sum(full) / len(full):.1f} %" in said


def test_the_half_that_recommend_tests_keeps_its_size_as_said():
    rows = records("recommended")
    count, rejected, naive = (sum(int(row[key]) for row in rows) for key in ("data sets", "tested", "naive"))
    assert rejected <= stats.binom.ppf(0.99, count, 0.05)
    said = page("benchmarks/tests.md")
    assert f"{count:,} calibrated forecasts" in said
    assert f"rejects {100 * rejected / count:.1f} % of them" in said
    assert f"{100 * naive / count:.0f} % would" in said


def test_powers_are_those_of_the_guide():
    rates = {(row["simulation"], row["scenario"], row["pre-rank"]): row for row in records("power")}
    said = page("guide/choosing.md")

    def percent(*key):
        return f"{100 * float(rates[key]['rejected']):.0f} %"

    structure = ("simulation-2", "PCA structure")
    assert f"the seven reject {percent(*structure, 'the seven')} of the data sets" in said
    assert f"over rows and columns {percent(*structure, 'variogram on the grid')}" in said
    assert f"stretched field in {percent('simulation-2', 'anisotropy ×5', 'isotropy')}" in said
    assert f"a correlation range of 1.7 in {percent('simulation-1', 'range 1.7', 'Mahalanobis')}" in said
    assert all(row["rejected"] == "0.0" for key, row in rates.items() if key[::2] == ("simulation-2", "Mahalanobis"))
    repetitions = {row["repetitions"] for row in rates.values()}
    assert f"Percent of {repetitions.pop()} data sets" in said
    assert not repetitions


@pytest.mark.parametrize("row", records("packages"), ids=lambda row: row["pre-rank"])
def test_times_are_those_of_the_record(row):
    times = {
        (one["pre-rank"], one["cases"], one["members"], one["targets"]): float(one["seconds"])
        for one in records("time")
    }
    own = [
        times[(row["pre-rank"], *size)]
        for size in (("1000", "50", "10"), ("2000", "50", "10"), ("1000", "100", "10"), ("1000", "50", "20"))
    ]
    cells = [f"{value:.3f}" for value in own]
    assert f"| {row['pre-rank']} | {' | '.join(cells)} | {float(row['seconds']):g} |" in page("benchmarks/speed.md")
