"""Verdicts follow from the rates by the stated rule, and recommendations from the cases needed."""

import math
from pathlib import Path

import pandas as pd
import pytest

from prerank_paper.simulations.claims import (
    PAPER_CLAIMS,
    Claim,
    Comparison,
    Reduced,
    Uniqueness,
    Verdict,
    claims_markdown,
    judge_claims,
)
from prerank_paper.simulations.power import cases_needed
from prerank_paper.simulations.recommendations import recommendation_sentences, recommendations
from prerank_paper.simulations.scenarios import gaussian_field, gaussian_vector

SIZES = (100, 800, 10_000)


def records(rates: dict[tuple[str, str], tuple[float, float, float]], form: str = "paper") -> pd.DataFrame:
    return pd.DataFrame(
        {
            "simulation": "simulation-1",
            "scenario": error,
            "error": error,
            "form": form,
            "prerank": prerank,
            "n_cases": n,
            "repetitions": 100,
            "rejection_rate": rate,
            "standard_error": math.sqrt(rate * (1 - rate) / 100),
        }
        for (error, prerank), curve in rates.items()
        for n, rate in zip(SIZES, curve, strict=True)
    )


SEEN, LATE, UNSEEN = (0.3, 0.9, 1.0), (0.05, 0.2, 1.0), (0.05, 0.04, 0.06)


def verdict(claim, table):
    return judge_claims([claim], table)["verdict (paper)"].item()


@pytest.mark.parametrize(("rates", "sees"), [(SEEN, "confirmed"), (LATE, "depends on N"), (UNSEEN, "refuted")])
def test_detection_and_insensitivity_are_judged_the_other_way_round(rates, sees):
    table = records({("mean +0.5", "location"): rates})
    opposite = {"confirmed": "refuted", "refuted": "confirmed"}.get(sees, sees)
    assert verdict(Claim("", "", "simulation-1", "location", ("mean +0.5",)), table) == sees
    assert verdict(Claim("", "", "simulation-1", "location", ("mean +0.5",), detects=False), table) == opposite


def test_three_rejections_in_ten_are_not_unseen():
    """Within what a true forecast could show in ten data sets, and yet no sign that the mistake stays hidden."""
    few = records({("a", "location"): (0.05, 0.06, 0.3)}).assign(repetitions=10)
    blind = Claim("", "", "simulation-1", "location", ("a",), detects=False)
    assert verdict(blind, few) == "depends on N"
    assert verdict(blind, records({("a", "location"): (0.05, 0.06, 0.0)}).assign(repetitions=10)) == "confirmed"


def test_one_counterexample_refutes_all_but_not_most():
    table = records({("a", "HDR"): SEEN, ("b", "HDR"): SEEN, ("c", "HDR"): UNSEEN})
    assert verdict(Claim("", "", "simulation-1", "HDR", ("a", "b", "c")), table) == "refuted"
    assert verdict(Claim("", "", "simulation-1", "HDR", ("a", "b", "c"), most=True), table) == "confirmed"


def test_comparison_needs_a_clear_majority():
    table = records({("a", "PCA"): SEEN, ("a", "random directions"): UNSEEN, ("b", "PCA"): UNSEEN})
    table = pd.concat([table, records({("b", "random directions"): SEEN})])
    claim = Comparison("", "", "simulation-1", "PCA", "random directions", ("a", "b"))
    assert verdict(claim, table) == Verdict.MIXED.value
    one = Comparison("", "", "simulation-1", "PCA", "random directions", ("a",))
    assert verdict(one, table) == "confirmed"


def test_only_one_is_refuted_by_another_and_reduced_by_the_median():
    table = records({("a", "PCA"): SEEN, ("a", "scale"): LATE, ("a", "HDR"): UNSEEN, ("b", "HDR"): SEEN})
    assert verdict(Uniqueness("", "", "simulation-1", "PCA", ("HDR",), ("a",)), table) == "confirmed"
    assert verdict(Uniqueness("", "", "simulation-1", "PCA", ("scale", "HDR"), ("a",)), table) == "refuted"
    assert verdict(Reduced("", "", "simulation-1", "HDR", ("a", "b")), table) == "confirmed"


def test_the_form_that_keeps_variances_is_judged_by_itself():
    table = pd.concat([records({("a", "scale"): SEEN}), records({("a", "scale"): UNSEEN}, "variances kept")])
    judged = judge_claims([Claim("1", "scale sees a", "simulation-1", "scale", ("a",))], table)
    assert judged["verdict (variances kept)"].item() == "refuted"
    assert claims_markdown(judged).splitlines()[2] == (
        "| 1 | 1 | scale sees a | **confirmed** | **refuted** | a 0.90 → 1.00<br>kept: a 0.04 → 0.06 |"
    )


def test_every_claim_is_about_scenarios_that_exist():
    known = {s.name: {scenario.error for scenario in s.scenarios} for s in (gaussian_vector(), gaussian_field())}
    for claim in PAPER_CLAIMS:
        assert set(claim.errors) <= known[claim.simulation], claim.text


def test_missing_records_are_said():
    with pytest.raises(ValueError, match="no power records"):
        judge_claims([Claim("", "x", "simulation-2", "scale", ("a",))], records({("a", "scale"): SEEN}))


def test_cases_needed_must_stay_enough():
    table = records({("a", "PCA"): (0.9, 0.5, 1.0), ("a", "scale"): UNSEEN, ("a", "HDR"): SEEN})
    needed = cases_needed(table).loc["a"]
    assert needed["PCA"] == 10_000
    assert math.isnan(needed["scale"])
    assert needed["HDR"] == 800


def test_recommendation_is_as_good_as_its_worst_form():
    table = records(
        {
            ("range 0.3", "scale"): SEEN,
            ("range 1.7", "scale"): LATE,
            ("range 0.3", "dependency"): SEEN,
            ("range 1.7", "dependency"): SEEN,
        }
    )
    assert recommendation_sentences(recommendations(table)) == [
        "To find wrong correlation use dependency (800 cases are enough)."
    ]


def test_the_page_shows_the_verdicts_that_follow_from_the_committed_rates():
    root = Path(__file__).parents[3]
    verdicts = claims_markdown(judge_claims(PAPER_CLAIMS, pd.read_csv(root / "results" / "simulations" / "power.csv")))
    assert (root / "results" / "simulations" / "claims.md").read_text(encoding="utf-8") == verdicts
    assert verdicts in (root / "docs" / "simulations.md").read_text(encoding="utf-8")
