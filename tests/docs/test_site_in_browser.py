"""The documentation in a real browser: its first screen on a desk and on a phone, by keyboard, in the dark; its search."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from chromium import NEEDED, launched

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("sphinx", reason="sphinx is not installed")
pytestmark = [NEEDED, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
SHOWS_FOCUS = """() => {
    const style = getComputedStyle(document.activeElement);
    return style.outlineStyle !== "none" || style.boxShadow !== "none";
}"""
PHONE, DESK = (360, 780), (1280, 800)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The pages, without running the code cells of tutorials."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-j", "2", str(ROOT / "docs"), str(folder)]
    done = subprocess.run(command, env={**os.environ, "PRERANK_DOCS_FAST": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site) -> Iterator[str]:
    """Where this machine serves the pages."""
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that says nothing."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched(sync_api) as started:
        yield started


@pytest.fixture
def opened(browser, address):
    """Open a page; nothing may be asked of another machine, and the console must be empty."""
    contexts, faults = [], []

    def open_page(name: str, size: tuple[int, int], scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda one: None if one.url.startswith((address, "data:")) else faults.append(one.url))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"{address}/{name}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
@pytest.mark.parametrize("name", ["index.html", "install.html", "recipes.html", "coming-from.html"])
def test_pages_fit_their_window_and_axe_finds_no_serious_fault(name, size, scheme, opened):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = opened(name, size, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    grave = {fault["id"]: fault["nodes"][0]["html"] for fault in found if fault["impact"] in ("serious", "critical")}
    assert grave == {}


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_the_first_screen_says_what_it_is_and_how_to_get_it(size, opened):
    page = opened("index.html", size)
    for words in ("Is your joint forecast calibrated?", "pip install ."):
        box = page.locator(".bd-article").get_by_text(words, exact=False).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= size[1], words


def test_the_top_bar_offers_install_and_recipes(opened):
    page = opened("index.html", DESK)
    bar = page.locator(".bd-header .navbar-nav").first
    assert [bar.get_by_role("link", name=name).first.is_visible() for name in ("Install", "Recipes")] == [True, True]
    bar.get_by_role("link", name="Install").first.click()
    assert page.locator("h1").inner_text().startswith("Install")


def test_the_keyboard_gets_to_the_content_and_through_the_bar(opened):
    page = opened("index.html", DESK)
    page.keyboard.press("Tab")
    assert "Skip to main content" in page.evaluate("document.activeElement.textContent")
    reached = set()
    for _ in range(25):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.textContent.trim()"))
        assert page.evaluate(SHOWS_FOCUS), page.evaluate("document.activeElement.outerHTML")
    assert {"Install", "Recipes"} <= reached


@pytest.mark.parametrize("word", ["TARP", "SBC", "hubverse", "ECC", "Schaake"])
def test_search_finds_the_words_of_the_field(word, opened):
    page = opened("search.html", DESK)
    page.goto(f"{page.url.partition('?')[0]}?q={word}")
    page.wait_for_selector("#search-results li", timeout=20_000)
    titles = page.locator("#search-results li a").all_inner_texts()
    assert any(not title.startswith(("Changelog", "Decision")) for title in titles), titles
