"""The report in a real browser: every control works by mouse and keyboard, nothing is fetched, nothing is cut."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from chromium import NEEDED, launched
from prerank import Custom, Location, Marginal, check
from prerank.diagnosis import grouped

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = NEEDED

HOSTILE = "</script><img src=x onerror=alert(1)>\u2028&\"'"


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """Reports of four targets, of one target, of sixteen targets, and of 300 groups."""
    folder = tmp_path_factory.mktemp("reports")
    rng = np.random.default_rng(4)
    y, members = 1.6 * rng.normal(size=(100, 16)), rng.normal(size=(100, 9, 16))
    names = [HOSTILE, "a name that is much longer than any column could show without breaking it"]
    four = check(pd.DataFrame(y[:, :4], columns=[*names, "c", "d"]), members[..., :4], n_replicates=99)
    one = check(y[:, :1], members[..., :1], n_replicates=99)
    sixteen = check(y, members, [Marginal(), Location()], n_replicates=99)
    either = [Custom(lambda y: y[..., 0], name="first"), Custom(lambda y: y[..., 1], name="second")]
    options = {"preranks": either, "n_replicates": 19_999}
    few = [check(y[:40, :2] / 1.6 + [0, shift], members[:40, :, :2], **options) for shift in (0.0, 0.1, 4.0)]
    many = grouped({HOSTILE if k == 0 else f"place {k}": few[k % 3] for k in range(300)})
    found = {"four": four, "one": one, "sixteen": sixteen, "groups": many}
    for name, result in found.items():
        result.to_html(folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in found}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched(sync_api) as started:
        yield started


@pytest.fixture
def opened(browser, pages):
    """Open a report; at the end nothing may have been fetched, and the console must be empty."""
    contexts, faults = [], []

    def open_page(name: str, width: int = 1200, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        address = pages[name].as_uri()
        page.route("**/*", lambda route: route.continue_() if route.request.url == address else route.abort())
        page.on("request", lambda request: faults.append(request.url) if request.url != address else None)
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(dialog.message))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults


@pytest.mark.slow
@pytest.mark.parametrize("name", ["four", "one", "sixteen", "groups"])
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1200, "light")])
def test_no_page_is_wider_than_its_window_and_axe_finds_no_serious_fault(name, width, scheme, opened):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = opened(name, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [fault["id"] for fault in found if fault["impact"] in ("serious", "critical")] == []


@pytest.mark.slow
def test_numbers_follow_the_pointer_and_the_arrow_keys(opened):
    page = opened("four")
    chart = page.get_by_role("slider", name="Rank histogram of location")
    readout = chart.locator("xpath=preceding-sibling::p")
    assert readout.inner_text() == "Rank histogram, a bar for each of 10 ranks"
    box = chart.bounding_box()
    chart.hover(position={"x": 0.95 * box["width"], "y": 40})
    assert readout.inner_text().startswith("Rank 10 of 10: density")
    page.mouse.move(0, 0)
    assert readout.inner_text() == "Rank histogram, a bar for each of 10 ranks"
    chart.focus()
    for key, text in [
        ("Home", "Rank 1 of 10"),
        ("ArrowRight", "Rank 2 of 10"),
        ("End", "Rank 10"),
        ("ArrowLeft", "Rank 9 of 10"),
    ]:
        page.keyboard.press(key)
        assert readout.inner_text().startswith(text)
        assert chart.get_attribute("aria-valuetext") == readout.inner_text()


def test_every_projection_can_be_chosen_and_its_name_is_text(opened):
    page = opened("four")
    rows = page.get_by_role("radio")
    assert rows.count() == 8  # four targets and four components
    shown = page.locator(".card .drawn").first
    rows.nth(3).click()
    assert shown.inner_text().startswith("Shown: d (")
    page.keyboard.press("ArrowUp")
    assert shown.inner_text().startswith("Shown: c (")
    rows.nth(0).click()
    assert "</script><img src=x onerror=alert(1)>\\u2028&\"'" in shown.inner_text()
    assert page.locator("img").count() == 0


@pytest.mark.slow
def test_the_diagonal_and_the_colours_can_be_switched(opened):
    page = opened("four")
    curve = page.locator(".card .curve").nth(1)
    flat = curve.get_attribute("d")
    page.get_by_label("with the diagonal").focus()
    page.keyboard.press("Space")
    assert page.locator(".card .curve").nth(1).get_attribute("d") != flat
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Dark colours").click()
    assert page.evaluate(paper) != light
    page.keyboard.press("Enter")  # the button has the focus, and now says "Light colours"
    assert page.evaluate(paper) == light
    dark = opened("four", scheme="dark")
    assert dark.evaluate(paper) != light
    dark.emulate_media(media="print", color_scheme="dark")
    assert dark.evaluate(paper) == light
    assert not dark.locator("#theme").is_visible()


@pytest.mark.slow
def test_three_hundred_groups_can_be_found_ordered_and_looked_at(opened):
    page = opened("groups")
    rows = page.locator("#groups tr:visible")
    assert rows.count() == 25
    page.get_by_role("button", name="Show more").click()
    assert rows.count() == 125
    page.get_by_label("only those that fail").check()
    assert page.locator("#shown").inner_text() == "25 of 100 groups"
    page.get_by_label("Find").fill("PLACE 299")
    assert rows.count() == 1
    rows.get_by_role("button").press("Enter")
    assert page.locator("#group").evaluate("one => one.selectedOptions[0].textContent") == "place 299 (40 cases)"
    assert [page.locator(f".card.{kind}").count() for kind in ("good", "bad")] == [1, 1]
    page.get_by_label("Find").fill("")
    page.get_by_label("only those that fail").uncheck()
    page.get_by_label("Order").select_option("as in the data")
    assert rows.nth(1).get_by_role("button").inner_text() == "place 1"
    rows.nth(0).get_by_role("button").click()
    assert page.locator(".card.good").count() == 2
    page.locator("#group").focus()
    before = page.locator("#group").input_value()
    page.keyboard.press("ArrowDown")
    assert page.locator("#group").input_value() != before


def test_without_scripts_the_verdict_and_all_tables_are_there(browser, pages):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["groups"].as_uri())
    assert page.locator("#groups tr").count() == 300
    assert page.locator(".verdict").inner_text().startswith("▲ Miscalibrated in 100 of 300 groups")
    assert "switched off" in page.locator("noscript").inner_text()
    assert not page.get_by_label("Find").is_visible()
    context.close()
