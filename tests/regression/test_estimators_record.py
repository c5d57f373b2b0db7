"""What is said of estimators side by side is what was recorded."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "results" / "estimator" / "estimators.jsonl"


@pytest.fixture(scope="module")
def benchmark(benchmark_script: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark_script("estimators")


def test_the_table_beside_the_records_is_made_from_them(benchmark: ModuleType) -> None:
    shown = (ROOT / "results" / "estimator" / "estimators.md").read_text(encoding="utf-8")
    assert benchmark.table(benchmark.known(RECORD)) in shown


def test_the_page_shows_recorded_energy_scores(benchmark: ModuleType) -> None:
    page = (ROOT / "docs" / "benchmarks" / "estimators.md").read_text(encoding="utf-8")
    assert benchmark.wide(pd.DataFrame(benchmark.known(RECORD)), "energy score") in page


def test_the_page_shows_the_recorded_summary_and_what_it_says_of_it_holds(benchmark: ModuleType) -> None:
    page = (ROOT / "docs" / "benchmarks" / "estimators.md").read_text(encoding="utf-8")
    record = pd.DataFrame(benchmark.known(RECORD))
    assert len(record) == len(record.drop_duplicates(["dataset", "seed", "method"])) == 15 * 5 * len(benchmark.METHODS)
    found = benchmark.summarised(record)
    assert benchmark.markdown(found.reset_index()) in page
    ours = found.index.str.startswith("ours, stacked")
    assert found.loc[ours, "best or within noise"].min() > found.loc[~ours, "best or within noise"].max()
    others = ~found.index.str.startswith("ours")
    assert (
        found.loc[found.index.str.endswith("calibrated"), "cells within 1.25"].min()
        > found.loc[others, "cells within 1.25"].max()
    )
    scores = record.pivot_table(index="dataset", columns="method", values="energy score")
    assert set(scores.index[scores.idxmin(axis=1) == "forest weights"]) == {"wq", "scpf", "meps21"}
    by_seed = record.pivot_table(index=["dataset", "seed"], columns="method", values="energy score")
    behind = by_seed["ours, stacked, calibrated"] - by_seed["forest weights"]
    beyond = [name for name in ("wq", "scpf", "meps21") if behind[name].mean() > 2 * behind[name].sem()]
    assert beyond == ["wq"]
    stacked = record[record["method"] == "ours, stacked, calibrated"]
    cells = stacked.groupby("dataset")[benchmark._preranks(record)].mean().stack()
    above = cells[cells > 1.25]
    assert (
        f"{len(above)} cells of {cells.notna().sum()} stay above 1.25, {(above < 1.4).sum()} of them below 1.4" in page
    )
    assert f"wq (scale {above['wq', 'scale']:.1f}) and\nblogdata (copula {above['blogdata', 'copula']:.1f})" in page
    assert list(above.nlargest(2).index) == [("wq", "scale"), ("blogdata", "copula")]


def test_the_page_says_how_much_longer_stacking_takes() -> None:
    page = " ".join((ROOT / "docs" / "benchmarks" / "estimators.md").read_text(encoding="utf-8").split())
    seconds = pd.read_csv(RECORD.with_name("time.csv")).pivot_table(index="dataset", columns="way", values="processor")
    ratio = seconds["stacked"] / seconds["defaults"]
    assert round(ratio.median()) == 4
    assert round(ratio["scm20d"]) == 20
    assert f"about four times as long as the network alone, in the median of {len(ratio)} datasets" in page
    assert "twenty times with 16 targets" in page
