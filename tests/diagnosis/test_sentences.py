"""Plain sentences about failures: each known error gets the right one, and a calibrated forecast gets none."""

import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from prerank import HDR, PCA, Contrast, Custom, Dependency, Location, Marginal, Scale, check, check_pits
from prerank.calibration.evidence import LEVEL
from prerank.diagnosis import grouped
from prerank.diagnosis.explanations import SHAPES, words_of
from prerank.diagnosis.sentences import OF_ONE_NUMBER, SENTENCES, failures_in_words, voices_of
from prerank.diagnosis.target_words import TargetWords
from prerank.preranks import SquaredDifference
from prerank.preranks.projection import PointwiseProjection

LEADS = pd.Index([6, 12, 18, 24, 30], name="lead")
APART = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
PRERANKS = [Marginal(), Location(), Scale(), Dependency(), HDR()]


def checked(seed: int, correlation=0.6, spread=1.0, shift=0.0, n_cases=600, **options):
    """One truth with correlation 0.6 to the power of the distance, and a forecast of it that is wrong as was said."""
    rng = np.random.default_rng(seed)
    y = rng.multivariate_normal(np.zeros(5), 0.6**APART, n_cases, method="cholesky")
    members = rng.multivariate_normal(np.zeros(5), correlation**APART, (n_cases, 20), method="cholesky")
    frame = pd.DataFrame(y, columns=LEADS)
    return check(frame, shift + spread * members, options.pop("preranks", PRERANKS), n_replicates=199, **options)


ERRORS = {
    "too high": (
        {"shift": 0.8},
        {
            "marginal": "All 5 leads are forecast too high.",
            "location": "The mean of the 5 leads is forecast too high.",
            "HDR": "Scenarios are over-confident: outcomes fall too often where the forecast has low density.",
        },
        ("scale", "dependency"),
    ),
    "too low": ({"shift": -0.8}, {"marginal": "All 5 leads are forecast too low."}, ("scale", "dependency")),
    "too narrow": (
        {"spread": 0.5},
        {
            "marginal": "All 5 leads are forecast too narrowly.",
            "location": "The mean of the 5 leads is forecast too narrowly.",
            "scale": "The 5 leads are forecast too close together.",
            "HDR": "Scenarios are over-confident: outcomes fall too often where the forecast has low density.",
        },
        ("dependency",),
    ),
    "too wide": (
        {"spread": 2.0},
        {
            "marginal": "All 5 leads are forecast too widely.",
            "scale": "The 5 leads are forecast too far apart.",
            "HDR": "Scenarios are under-confident: outcomes fall too often where the forecast has high density.",
        },
        ("dependency",),
    ),
    "too alike": (
        {"correlation": 0.95},
        {
            "location": "The mean of the 5 leads is forecast too widely.",
            "scale": "The 5 leads are forecast too close together.",
            "dependency": "The 5 leads are forecast too alike from one to the next.",
        },
        ("marginal",),
    ),
    "too little alike": (
        {"correlation": 0.0},
        {
            "location": "The mean of the 5 leads is forecast too narrowly.",
            "scale": "The 5 leads are forecast too far apart.",
            "dependency": "The 5 leads are forecast too little alike from one to the next.",
        },
        ("marginal",),
    ),
    "one target wrong": ({"shift": np.array([0, 0.9, 0, 0, 0])}, {"marginal": "Lead 12 is forecast too high."}, ()),
}


@pytest.mark.parametrize("error", ERRORS)
def test_each_error_gets_its_sentence(error):
    """In two of three data sets or more: a target that is right is named too in one of twenty, and a tail may be."""
    wrong, expected, right = ERRORS[error]
    found = [checked(seed, **wrong).sentences for seed in (1, 2, 3)]
    for name, sentence in expected.items():
        begins = re.compile(re.escape(sentence.removesuffix(".")) + r"(\.|, and .*)")
        assert sum(bool(begins.fullmatch(said.get(name, ""))) for said in found) >= 2, [
            said.get(name) for said in found
        ]
    for name in right:
        assert sum(name in said for said in found) <= 1


def test_a_calibrated_forecast_gets_no_sentence():
    """Of any row in 5 % of the data sets or fewer, since p-values are adjusted for the rows."""
    found = [checked(100 + seed, n_cases=200, preranks=PRERANKS[:4]).sentences for seed in range(20)]
    assert sum(map(bool, found)) <= stats.binom(20, 0.05).isf(1e-5)


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.2, 0.4])
def test_sentences_are_about_the_rejected_rows_and_follow_their_readings(shift):
    result = checked(7, shift=np.array([shift, 0, 0, 0, -shift]), spread=1 - shift / 2, n_cases=300)
    rejected = result.table.index[result.table["adjusted p-value"] <= LEVEL]
    assert list(result.sentences) == list(rejected)
    assert not any("flat" in sentence for sentence in result.sentences.values())
    assert not any("flat" in result.table.loc[name, "reading"] for name in rejected)
    assert bool(result.sentences) == bool(result.rejected)
    for name in set(rejected) - {"marginal"}:
        words = SENTENCES[{"location": "Location", "scale": "Scale", "dependency": "Dependency", "HDR": "HDR"}[name]]
        for word in words_of(result.table.loc[name, "reading"]):
            beginning = words[word].format(targets="the 5 leads", apart="from one to the next")
            assert beginning.partition(" too ")[2].split(":")[0] in result.sentences[name]


def test_text_and_report_begin_with_the_sentences():
    result = checked(1, shift=0.8)
    verdict, *rest = str(result).splitlines()
    assert verdict == result.verdict
    assert rest[0] == "- All 5 leads are forecast too high."
    assert str(result).index("over-confident") < str(result).index("pre-rank ")
    page = result.to_html()
    assert page.index("All 5 leads are forecast too high.") < page.index("<table>")
    assert "All 5 leads are forecast too high." in result._repr_html_().split("<table")[0]


def test_every_word_of_a_reading_has_a_sentence_for_every_prerank():
    words = set(SHAPES) - {"flat"}
    assert set(OF_ONE_NUMBER) == {*words, "together"}
    for said in SENTENCES.values():
        assert set(said) - {"together"} == words
    targets = TargetWords("hour", ("1", "2", "3"))
    every = [*PRERANKS, Contrast(0, 2), SquaredDifference(1, 2), Dependency(lag=2, name="second")]
    for name, voice in voices_of(every, targets).items():
        for word in words:
            (sentence,) = _said(name, word, voice)
            assert "{" not in sentence
            assert sentence.endswith(".")
    assert _said("second", "biased high", voices_of(every, targets)["second"]) == [
        "The 3 hours are forecast too alike 2 apart."
    ]
    assert _said("contrast", "biased low", voices_of(every, targets)["contrast"]) == [
        "Hour 1 is forecast too low against hour 3."
    ]


def _said(name, reading, voice):
    table = pd.DataFrame({"adjusted p-value": [0.01], "reading": [reading]}, index=pd.Index([name], name="pre-rank"))
    index = pd.MultiIndex.from_tuples([(name, "one")], names=["pre-rank", "projection"])
    rows = pd.DataFrame(
        {"adjusted p-value": [0.01], "reading": [reading], "PCE": 0.1, "expected PCE": 0.1}, index=index
    )
    return list(failures_in_words(table, rows, {name: voice}).values())


def test_errors_of_different_targets_are_said_of_each():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.normal(size=(400, 3)), columns=["Oslo", "Bergen", "Voss"])
    result = check(frame, rng.normal([0.8, -0.8, 0.0], size=(400, 20, 3)), Marginal(), n_replicates=199)
    assert result.sentences == {"marginal": "Oslo is forecast too high; Bergen is forecast too low."}


def test_components_are_called_principal_components():
    rng = np.random.default_rng(2)
    law = torch.distributions.MultivariateNormal(torch.zeros(400, 3), torch.diag(torch.tensor([0.1, 0.2, 0.3])))
    (sentence,) = check(rng.normal(size=(400, 3)), law, PCA(), n_replicates=199).sentences.values()
    assert sentence == "The 3 targets are forecast too narrowly along all 3 principal components."


def test_a_row_that_fails_by_no_single_projection_names_the_largest_error():
    table = pd.DataFrame({"adjusted p-value": [0.04], "reading": ["no single projection"]}, index=["marginal"])
    index = pd.MultiIndex.from_product([["marginal"], ["1", "2"]])
    own = pd.DataFrame(
        {"adjusted p-value": 0.2, "reading": "flat", "PCE": [0.1, 0.2], "expected PCE": 0.1}, index=index
    )
    voices = voices_of([Marginal()], TargetWords("week", ("1", "2")))
    assert failures_in_words(table, own, voices) == {
        "marginal": "Weeks 1 and 2 are miscalibrated together, none of them by itself; the largest error is that of week 2."
    }


def test_a_number_of_ones_own_is_called_by_its_name_or_brings_its_words():
    rng = np.random.default_rng(0)
    y, members = rng.normal(size=(300, 3)), 1.5 + rng.normal(size=(300, 20, 3))
    assert check(y, members, Custom(lambda y: y.amax(-1), name="peak"), n_replicates=99).sentences == {
        "peak": "peak is forecast too high."
    }
    assert check(y, members, _Peak(), n_replicates=99).sentences == {
        "peak": "The highest of the 3 targets is overdone."
    }
    even = (np.arange(300)[:, None] + 0.5) / 300
    pits = check_pits(even ** [1, 3], ["right", "wrong"])
    assert pits.sentences == {"wrong": "wrong is forecast too high."}


@dataclass(frozen=True)
class _Peak:
    name: str = "peak"
    words: ClassVar = {"biased high": "the highest of {targets} is overdone"}

    def given(self, view):
        return PointwiseProjection(lambda points: points.amax(-1, keepdim=True), ("peak",))


def test_groups_say_what_fails_where():
    right, wrong = checked(1, n_cases=100, preranks=Location()), checked(1, shift=0.9, n_cases=100, preranks=Location())
    together = grouped({"spring": wrong, "summer": right, "autumn": wrong})
    assert together.sentences == ["The mean of the 5 leads is forecast too high: in spring and autumn."]
    assert str(together).splitlines()[1] == f"- {together.sentences[0]}"
    assert grouped({"summer": right}).sentences == []
    many = grouped({f"place {k}": wrong for k in range(12)})
    assert many.sentences == ["The mean of the 5 leads is forecast too high: in all 12 groups."]


@pytest.mark.parametrize(
    ("labels", "names", "all_of_them", "second"),
    [
        (pd.Index([6, 12, 18], name="lead"), ["6", "12", "18"], "the 3 leads", "lead 12"),
        (pd.Index(["Oslo", "Voss", "B"], name="stations"), ["Oslo", "Voss", "B"], "the 3 stations", "Voss"),
        (pd.Index([1, 2, 3]), ["1", "2", "3"], "the 3 targets", "target 2"),
        (None, ["y1", "y2", "y3"], "the 3 targets", "y2"),
        (
            pd.date_range("2024-01-01", periods=3, name="valid_time"),
            ["2024-01-01", "2024-01-02", "2024-01-03"],
            "the 3 valid times",
            "valid time 2024-01-02",
        ),
        (
            pd.timedelta_range("1D", periods=3, name="lead_time"),
            ["1 days", "2 days", "3 days"],
            "the 3 lead times",
            "lead time 2 days",
        ),
        (pd.Index(["a", "b"], name="city"), ["a", "b"], "a and b", "b"),
        (pd.Index([1, 2], name="city"), ["1", "2"], "cities 1 and 2", "city 2"),
        (pd.Index(["a"], name="x"), ["a"], "a", None),
        (pd.Index([1, 2, 3], name="</script>"), ["1", "2", "3"], "the 3 targets", "target 2"),
        (
            pd.MultiIndex.from_product([[60.0, 61.0], [5.0, 6.0]], names=["lat", "lon"]),
            ["60.0, 5.0", "60.0, 6.0", "61.0, 5.0", "61.0, 6.0"],
            "the 4 targets",
            "latitude 60.0, longitude 6.0",
        ),
    ],
)
def test_targets_are_called_as_in_the_data(labels, names, all_of_them, second):
    words = TargetWords.of(labels, names)
    assert words.all == all_of_them
    if second is not None:
        assert words.one(1) == second


def test_many_targets_are_counted():
    words = TargetWords("hour", tuple(map(str, range(24))))
    assert words.some(range(0, 24, 2)) == "12 of the 24 hours (0, 2, 4, ...)"
    assert words.some(range(24)) == "all 24 hours"
    assert words.some([0, 1, 2, 3, 9]) == "hours 0 to 3 and 9"
