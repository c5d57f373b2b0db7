"""The report as a file: its numbers are those of the check, and nothing from the data becomes markup."""

import base64
import hashlib
import html
import json
import re
import tomllib
from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import prerank
from prerank import Custom, Dependency, Location, Marginal, check, check_pits
from prerank.calibration import describe_shape
from prerank.diagnosis import grouped, report
from prerank.diagnosis.explanations import SHAPES, words_of
from prerank.diagnosis.report import MOST_BYTES, MOST_GROUPS
from prerank.diagnosis.reproduce import in_python

ROOT = Path(__file__).parents[2]
HOSTILE = "</script><script>alert(1)</script><svg onload=\"x('y')\">&amp;\u2028\x00{{ 7*7 }}"
EVEN = (np.arange(60) + 0.5) / 60


class Page(HTMLParser):
    """What a browser would make of a page: its elements with their attributes, and the text of each kind of element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.within: list[str] = []
        self.text: dict[str, list[str]] = {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.within.append(tag)

    def handle_endtag(self, tag):
        while self.within and self.within.pop() != tag:
            pass

    def handle_data(self, data):
        self.text.setdefault(self.within[-1] if self.within else "", []).append(data)

    def data(self):
        return json.loads(self.text["script"][0])


@pytest.fixture(scope="module")
def too_narrow():
    rng = np.random.default_rng(1)
    y = pd.DataFrame(2.0 * rng.normal(size=(80, 3)), columns=[HOSTILE, "b", "c"])
    return check(y, rng.normal(size=(80, 9, 3)), [Marginal(), Location()], n_replicates=99)


def test_the_numbers_drawn_are_those_of_the_check(too_narrow):
    data = Page(too_narrow.to_html()).data()
    (group,) = data["groups"]
    assert [data["words"][panel["n"]] for panel in group["panels"]] == list(too_narrow.table.index)
    assert [panel["e"] for panel in group["panels"]] == pytest.approx(list(too_narrow.table["PCE"]), rel=1e-3)
    for panel, drawn in zip(too_narrow.panels(), group["panels"], strict=True):
        for one, numbers in zip(panel.projections, drawn["q"], strict=True):
            assert np.array(numbers["h"]) / 100 == pytest.approx(one.heights, abs=0.006)
            assert np.array(numbers["d"]) / 10_000 == pytest.approx(one.deviation, abs=6e-5)
            assert np.array(numbers.get("w", drawn.get("w"))) / 10_000 == pytest.approx(one.half_width, abs=6e-5)
            # densities of ten bins sum to ten, and the PCE is the mean distance of the curve from the diagonal
            assert sum(numbers["h"]) == pytest.approx(1000, abs=6)
            assert np.abs(one.deviation).mean() == pytest.approx(one.pce, abs=1e-9)


def test_verdict_table_and_notes_are_on_the_page(too_narrow):
    text = html.unescape(too_narrow.to_html(title="June", date="2026-06-30"))
    assert "Miscalibrated (adjusted p-value" in text
    for row in too_narrow.rows():
        assert row[1] in text
        assert row[2] in text
    assert too_narrow.notes[-1] in text
    assert "<title>June</title>" in text
    assert "2026-06-30. Made by prerank" in text
    assert f"prerank {prerank.__version__}" in text
    for word in ("Recalibrate.", "Start with the single targets.", "Are cases dependent?"):
        assert word in text


def test_the_same_check_makes_the_same_bytes_and_the_file_is_the_page(too_narrow, tmp_path):
    rng = np.random.default_rng(3)
    y, members = rng.normal(size=(40, 2)), rng.normal(size=(40, 5, 2))
    pages = {check(y, members, [Custom(lambda y: y.amax(-1))], n_replicates=19).to_html() for _ in range(2)}
    assert len(pages) == 1
    text = too_narrow.to_html(tmp_path / "new" / "report.html")
    assert (tmp_path / "new" / "report.html").read_bytes() == text.encode()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["report.html"]
    with pytest.raises(ValueError, match="is a folder"):
        too_narrow.to_html(tmp_path / "new")


def test_nothing_from_the_data_becomes_markup(too_narrow):
    result = grouped({HOSTILE: too_narrow, "b": check_pits(EVEN, [HOSTILE])})
    harmless = grouped({"a": too_narrow, "b": check_pits(EVEN, ["pit"])})
    for page in (
        too_narrow.to_html(title=HOSTILE, command=HOSTILE, python=HOSTILE, date=HOSTILE),
        result.to_html(title=HOSTILE, command=HOSTILE),
    ):
        found = Page(page)
        tags = [tag for tag, _ in found.elements]
        assert tags.count("script") == 2
        assert not any(name.startswith("on") or name == "style" for _, given in found.elements for name in given)
        assert "\u2028" not in page
        assert "\x00" not in page
        assert "49" not in "".join(found.text["h1"])
        assert "alert(1)" in "".join(found.text["h1"])
        assert any("alert(1)" in word for word in found.data()["words"])
    kinds = [{tag for tag, _ in Page(one.to_html()).elements} for one in (result, harmless)]
    assert kinds[0] == kinds[1]


def test_the_policy_of_the_page_allows_its_own_script_and_style_and_nothing_else(too_narrow):
    page = too_narrow.to_html()
    found = Page(page)
    (policy,) = (given["content"] for tag, given in found.elements if given.get("http-equiv"))
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    for kind, body in (
        ("style", found.text["style"][0]),
        ("script", re.findall(r"<script>(.*?)</script>", page, re.S)[0]),
    ):
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    addresses = [value for _, given in found.elements for name, value in given.items() if name in ("src", "href")]
    assert addresses == ["data:,"]


def test_the_lines_to_repeat_it_give_the_same_result():
    rng = np.random.default_rng(3)
    y, forecast = rng.normal(size=(40, 3)), rng.normal(size=(40, 5, 3))
    blocks = np.repeat(np.arange(20), 2)
    asked = [Dependency(lag=2), Location()]
    result = check(y, forecast, asked, blocks=blocks, n_replicates=99, seed=5)
    code = html.unescape(re.findall(r"<pre[^>]*><code>(result = .*?)</code>", result.to_html(), re.S)[0])
    assert code == (
        "result = check(y, forecast, [Dependency(lag=2), Location()], blocks=blocks, n_replicates=99, seed=5)\n"
        'result.to_html("report.html")'
    )
    names = {**vars(prerank), "Dependency": Dependency, "Location": Location, "check": check}
    again = eval(
        code.splitlines()[0].removeprefix("result = "), names, {"y": y, "forecast": forecast, "blocks": blocks}
    )
    assert again.table.equals(result.table)


def test_what_has_no_short_form_is_called_by_its_name():
    assert in_python(np.zeros(3), "weights") == "weights"
    assert in_python(Custom(lambda y: y[..., 0], name="first"), "prerank") == "Custom(function=function, name='first')"
    assert in_python(np.int64(3), "seed") == "3"
    assert in_python({"time": "case"}, "axes") == "{'time': 'case'}"


def test_every_word_of_a_reading_has_a_meaning():
    z = torch.linspace(0.0005, 0.9995, 1000)
    tail = torch.where(z > 0.9, 0.98 + 0.02 * z, z)
    wave = (z + 0.1 * torch.sin(6 * torch.pi * z) / 3).clamp(0, 1)
    shapes = [
        z,
        z**2,
        z**0.5,
        0.5 + 0.3 * (z - 0.5),
        torch.special.ndtr(2 * torch.special.ndtri(z)),
        tail,
        1 - tail,
        wave,
    ]
    words = {word for shape in shapes for word in words_of(describe_shape(shape, 0.001))} | {describe_shape(z, 0.9)}
    assert words == set(SHAPES)


def test_a_shape_looks_like_what_it_is_called():
    for word, shape in SHAPES.items():
        heights = np.array(shape.heights)
        assert heights.mean() == pytest.approx(1.0, abs=0.05)
        sample = np.concatenate([np.linspace(k, k + 1, round(200 * height)) / 10 for k, height in enumerate(heights)])
        p_value = 0.9 if word == "flat" else 0.001
        assert word in words_of(describe_shape(torch.tensor(sample), p_value)), word


def test_many_groups_are_limited_with_a_sentence_and_stay_below_two_megabytes():
    right, wrong = check_pits(EVEN), check_pits(EVEN**3)
    checks = {("x" * 300 + f" {k}"): wrong if k == 550 else right for k in range(600)}
    page = grouped(checks).to_html()
    assert len(page.encode()) <= MOST_BYTES
    assert f"{MOST_GROUPS} of 600 groups are listed, those with the smallest adjusted p-values" in page
    assert page.count('<tr data-p="') + page.count('<tr class="bad" data-p="') == MOST_GROUPS
    assert page.index('data-place="550"') < page.index('data-place="0"')  # what fails comes first


def test_pictures_leave_out_groups_before_the_page_gets_too_large():
    rng = np.random.default_rng(0)
    y, members = rng.normal(size=(20, 40)), rng.normal(size=(20, 5, 40))
    wide = check(y, members, [Marginal()], n_replicates=19)
    page = grouped(dict.fromkeys(range(400), wide)).to_html()
    assert len(page.encode()) <= MOST_BYTES
    assert "150 of 400 groups have pictures here" in page


def test_very_many_projections_leave_those_with_the_largest_errors(monkeypatch):
    rng = np.random.default_rng(0)
    y, members = rng.normal(size=(40, 12)), rng.normal(size=(40, 5, 12))
    y[:, 7] += 5
    result = check(y, members, [Marginal(), Custom(lambda y: -y, name="turned")], n_replicates=19)
    monkeypatch.setattr(report, "_PICTURED", 20)
    (group,) = Page(result.to_html()).data()["groups"]
    assert [(len(panel["q"]), panel["k"]) for panel in group["panels"]] == [(10, 12), (10, 12)]
    assert all(panel["q"][panel["s"]]["e"] == max(one["e"] for one in panel["q"]) for panel in group["panels"])


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (lambda: check(np.zeros((1, 1)), np.zeros((1, 1, 1)), n_replicates=19), "Take more cases."),
        (
            lambda: check(np.zeros((30, 2)), np.zeros((30, 4, 2)), [Marginal()], n_replicates=99),
            "More cases, or another",
        ),
        (lambda: check_pits(EVEN), "Nothing has to be corrected."),
        (lambda: check_pits(EVEN**3), "Look along other pre-ranks."),
        (lambda: grouped({"a": check_pits(EVEN), "b": check_pits(EVEN**3)}), "1 of 2 groups fail"),
    ],
    ids=["one case", "all ties", "calibrated", "miscalibrated", "groups"],
)
def test_every_outcome_has_its_advice(result, said):
    page = result().to_html()
    assert said in page
    assert "NaN" not in page
    assert "inf" not in json.dumps(Page(page).data())


def test_the_template_is_part_of_the_package():
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    source = Path(prerank.__file__).parents[1]
    patterns = [f"{package.replace('.', '/')}/{pattern}" for package, found in said.items() for pattern in found]
    parts = [path.relative_to(source) for path in (source / "prerank" / "plotting" / "report").iterdir()]
    assert {part.name for part in parts} == {"page.html", "page.css", "page.js"}
    assert all(any(fnmatch(str(part), pattern) for pattern in patterns) for part in parts)


def test_groups_whose_labels_look_alike_keep_their_own_pictures():
    right, wrong = check_pits(EVEN), check_pits(EVEN**3)
    data = Page(grouped({1: right, "1": wrong}).to_html()).data()
    assert [group["panels"][0]["f"] for group in data["groups"]] == [1, 0]
