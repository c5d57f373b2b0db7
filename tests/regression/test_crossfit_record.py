"""Numbers about cross-fitting on pages are those of the committed records."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "benchmarks" / "estimators.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("crossfit", ROOT / "benchmarks" / "crossfit.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_recorded_means(benchmark: ModuleType) -> None:
    rows = benchmark.known(ROOT / "results" / "estimator" / "crossfit.jsonl")
    overall, _ = benchmark.summarised(rows)
    assert len(rows) == len(overall) * len(benchmark.DATASETS) * len(benchmark.SEEDS)
    assert benchmark.markdown(overall.reset_index()) in PAGE


def test_what_decision_26_says_of_them_is_so(benchmark: ModuleType) -> None:
    overall, _ = benchmark.summarised(benchmark.known(ROOT / "results" / "estimator" / "crossfit.jsonl"))
    ours, single, split = (
        overall.loc[way]
        for way in (
            "(c) pool, one fold held out, corrected",
            "(a) all rows, corrected out of fold",
            "paper's split, corrected",
        )
    )
    assert ours["energy score, relative"] < min(single["energy score, relative"], split["energy score, relative"])
    assert single["within 1.25"] < ours["within 1.25"] < split["within 1.25"]
    corrected = overall[overall.index.str.contains("correct") & ~overall.index.str.startswith(("paper", "(c)"))]
    assert (corrected["within 1.25"] < ours["within 1.25"]).all()


def test_the_table_beside_the_records_is_made_from_them(benchmark: ModuleType) -> None:
    made = benchmark.table(benchmark.known(ROOT / "results" / "estimator" / "crossfit.jsonl"))
    shown = (ROOT / "results" / "estimator" / "crossfit.md").read_text(encoding="utf-8")
    assert re.sub(r"\s+", " ", made) in re.sub(r"\s+", " ", shown)
