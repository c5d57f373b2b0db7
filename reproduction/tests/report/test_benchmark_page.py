"""The page of results says what the records say: its numbers are put in by a script, and the report is theirs too."""

import importlib.util
import re
from pathlib import Path

import pytest

from prerank_paper.benchmark.record_file import NAME, read_record_file
from prerank_paper.benchmark.records import read_results
from prerank_paper.report import write as report
from prerank_paper.report.paper_values import paper_table
from prerank_paper.report.summaries import EXACT_PROTOCOL, PUBLISHED_PROTOCOL, tuned_strengths

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "results" / "benchmark"
FIELD = re.compile(r"\{[^{}]*\}")
NUMBER = re.compile(r"(?<![\w.])\d(?:[\d,.]*\d)?(?!\w)")
STATED = {
    "10": "the strength of the paper's tables",
    "1": "a strength",
    "5": "a strength, a level, or a margin of the rule",
    "0.01": "a strength",
    "0.1": "a strength",
    "20": "the margin of the rule",
    "95": "a quantile",
    "256": "cases of a minibatch",
    "999": "replicates of a test",
    "100": "draws",
    "1,000": "draws",
    "16": "targets of scm20d",
    "30": "standard deviations: how far rows of house lie from the mean, see the data",
}
"""Numbers of the text that are no results, and what they are."""


@pytest.fixture(scope="module")
def results():
    return read_results(FOLDER)


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("benchmark_page", ROOT / "docs" / "_build" / "benchmark_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found(script, results):
    return script.numbers(results)


@pytest.mark.slow
def test_the_page_has_the_numbers_of_the_records(script, found):
    written = script.PAGE.read_text(encoding="utf-8")
    assert written == script.page(found), "run python docs/_build/benchmark_page.py"


@pytest.mark.slow
def test_verdicts_in_words_are_those_of_the_numbers(found):
    """Strength and spread: what the page and the table of claims call confirmed, and for whom it is not."""
    exact, published, crossed = (found["trend"][name] for name in ("exact", "published", "crossed"))
    assert {row["strengths"] for row in (exact, published, crossed)} == {6}
    assert exact["PCE falls"] >= 0.7 * exact["cells"]  # three cells of four
    assert min(exact["energy score rises"], exact["NLL rises"]) > 0.7 * exact["cells"]
    assert published["PCE falls"] > 0.9 * published["cells"]
    assert crossed["PCE falls"] < 0.5 * crossed["cells"]
    tighter = found["tighter"]
    for name, seeds in (("exact", 6), ("published", 7)):  # "over seeds too for six pre-ranks of seven"
        assert (tighter[name].datasets, tighter[name].seeds, tighter[name].preranks) == (7, seeds, 7)
    assert tighter["crossed"].after > tighter["crossed"].before
    assert tighter["crossed"].seeds_after > tighter["crossed"].seeds_before
    assert found["ways"].exceptions == [("households", "HDR"), ("air", "HDR"), ("births2", "copula")]


def test_no_result_is_typed_by_hand(script):
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", FIELD.sub("", script.TEXT.read_text(encoding="utf-8")))
    typed = {number for line in text.splitlines() for number in NUMBER.findall(line)}
    assert typed <= set(STATED), f"{sorted(typed - set(STATED))} are numbers without a record"


@pytest.mark.slow
def test_the_digests_are_those_of_the_report_on_the_records(script, results, tmp_path, monkeypatch):
    """Pages and tables to the letter; pictures, which depend on fonts, are left out."""

    def noted(figure, stem, files):
        files.extend(stem.with_suffix(suffix) for suffix in (".png", ".svg"))
        return stem.with_suffix(".png")

    monkeypatch.setattr("prerank_paper.report.paper_figures.save_picture", noted)
    for name in ("story", "trained", "before_after", "reference", "null", "reliability", "time"):
        monkeypatch.setattr(f"prerank_paper.report.paper_figures.{name}_figure", lambda *given: None)
    monkeypatch.setattr("prerank_paper.report.paper_figures.reliability_band", lambda n_cases: None)
    files = report.write_report(results, tmp_path)
    made = dict(reversed(line.split("  ")) for line in script.digests(tmp_path, files).splitlines())
    known = dict(reversed(line.split("  ")) for line in script.DIGESTS.read_text(encoding="utf-8").splitlines())
    old = sorted(name for name in made.keys() | known.keys() if made.get(name) != known.get(name))
    assert not old, f"run python docs/_build/benchmark_page.py; these are others than those of its digests: {old}"
    assert len(known) > 80
    for name in script.KEPT:
        assert (FOLDER / name).read_text(encoding="utf-8") == (tmp_path / name).read_text(encoding="utf-8"), name
    assert read_record_file(tmp_path / NAME).keys() == set(results._fields)


def test_the_majority_of_selected_strengths_is_the_largest(results):
    said = (ROOT / "docs" / "paper-to-code.md").read_text(encoding="utf-8")
    shares = [
        f"{int((table['value'] == 10).sum())} of {len(table)}"
        for table in (
            tuned_strengths(results, EXACT_PROTOCOL),
            tuned_strengths(results, PUBLISHED_PROTOCOL),
            paper_table("selected_lambda"),
        )
    ]
    assert all(2 * int(share.split()[0]) > int(share.split()[2]) for share in shares)
    exact, published, papers = shares
    assert (
        f"10 in {exact} cells trained exactly and in {published} as published ({papers} in the paper's table)" in said
    )
