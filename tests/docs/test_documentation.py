"""The documentation tells the truth: its examples run, print what they show, and its links lead somewhere."""

import contextlib
import importlib
import io
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md", "reproduction/README.md")
    ]
    + list((ROOT / "docs").rglob("*.md"))
)
FENCE = re.compile(r"^```([^\s`]*)[^\n`]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
# what the reader of a page is told to have at hand
AT_HAND = {
    "docs/datasets.md": {"rivers.csv": "rain,level,flow\n" + "".join(f"{i},{i / 2},{i * i}\n" for i in range(40))}
}


class Example(NamedTuple):
    line: int
    code: str
    shown: str | None


def examples(page: Path) -> list[Example]:
    """The Python blocks of a page, each with the block of text that follows it directly, if any: its output."""
    text = page.read_text(encoding="utf-8")
    found: list[Example] = []
    end = -1
    for block in FENCE.finditer(text):
        language, body = block[1], block[2]
        if language == "python":
            found.append(Example(text.count("\n", 0, block.start()) + 2, body, None))
            end = block.end()
        elif language == "text" and end >= 0 and not text[end : block.start()].strip():
            found[-1] = found[-1]._replace(shown=body)
    return found


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small arrays are faster on one thread, and tests share the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# The recipes of connectors.md need other packages: tests/connectors runs those that it can.
WITH_EXAMPLES = [page for page in PAGES if page.name != "connectors.md" and examples(page)]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=named)
def test_examples_run_in_order_and_print_what_the_page_shows(page, tmp_path, monkeypatch, one_thread, assert_same_text):
    monkeypatch.chdir(tmp_path)
    for name, content in AT_HAND.get(named(page), {}).items():
        Path(name).write_text(content, encoding="utf-8")
    torch.manual_seed(0)
    names: dict[str, object] = {"__name__": "example"}
    for example in examples(page):
        printed, where = io.StringIO(), f"{named(page)}, line {example.line}"
        source = "\n" * (example.line - 1) + example.code  # so that a traceback names the line of the page
        with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", UserWarning)  # a reader sees these; no page shows one
            exec(compile(source, str(page), "exec"), names)
        said = [str(warning.message) for warning in warned if issubclass(warning.category, UserWarning)]
        assert not said, f"{where} warns, and the page does not say so: {said}"
        if example.shown is not None:
            assert_same_text(printed.getvalue(), example.shown, where)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_relative_link_leads_to_a_file_and_a_heading(page):
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        goal = (page.parent / path).resolve() if path else page
        assert goal.exists(), f"{named(page)} links to {link}, which is not there"
        if anchor:
            headings = {slug(heading) for heading in HEADING.findall(goal.read_text(encoding="utf-8"))}
            assert anchor in headings, f"{named(page)} links to {link}, but {goal.name} has {sorted(headings)}"


def slug(heading: str) -> str:
    """A heading's anchor, as MyST and GitHub make it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower())


def test_pages_name_no_machine_and_no_private_folder():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found = re.search(r"(?<![\w.:/])/(?:home|root|tmp|var|opt|mnt|work)\b/?[\w.-]+|\.\./\.\./\.\./", text)
        assert found is None, f"{named(page)} mentions {found and found.group()}"


def test_pictures_are_small_and_have_a_script():
    pictures = list((ROOT / "docs" / "assets").glob("*.png"))
    assert pictures
    script = (ROOT / "docs" / "assets" / "make_figures.py").read_text(encoding="utf-8")
    for picture in pictures:
        assert picture.stat().st_size < 300_000, picture.name
        assert picture.name in script, f"{picture.name} is made by no script"


def test_the_paper_to_code_table_names_objects_and_tests_that_exist():
    text = (ROOT / "docs" / "paper-to-code.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    quoted = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    tests = {name for name in quoted if name.endswith(".py")}
    names = quoted - tests
    assert len(names) > 40
    assert len(tests) > 10
    for name in names:
        full = name if name.startswith("prerank_paper.") else f"prerank.{name}"
        assert resolves(full), f"{full} does not exist"
    for test in tests:
        path = ROOT / test if test.startswith("reproduction/") else ROOT / "tests" / test
        assert path.exists(), f"{path} does not exist"


def test_the_table_of_where_things_go_names_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## Where do I put it?")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 15
    for _, *columns in rows:
        for folder, cell in zip(("src/prerank", "tests", "."), columns, strict=True):
            for name in re.findall(r"`([^`]+)`", cell):
                from_root = name.partition("/")[0] in ("benchmarks", "results", "reproduction")
                path = ROOT / name if from_root else ROOT / folder / name
                assert path.exists(), f"{path} is not there"


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False
