"""The page on the architecture draws the layers that there are and names modules that there are."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
BOX = re.compile(r'<g data-package="([^"]*)" data-imports="([^"]*)">\s*<rect x="[^"]*" y="([^"]*)"')


@pytest.fixture(scope="module")
def script() -> ModuleType:
    pytest.importorskip("grimp")
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "docs" / "_build" / "architecture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def drawn(script) -> list[tuple[str, set[str], float]]:
    found = BOX.findall(script.DRAWING.read_text(encoding="utf-8"))
    return [(name, set(imports.split()), float(top)) for name, imports, top in found]


def test_the_drawing_has_the_layers_of_the_contract(script, drawn):
    there = {name for name, _, _ in drawn}
    wanted = [["prerank_paper"], *([name for name in layer if name in there] for layer in script.layers())]
    rows: dict[float, list[str]] = {}
    for name, _, top in drawn:
        rows.setdefault(top, []).append(name)
    assert [rows[top] for top in sorted(rows)] == [layer for layer in wanted if layer], _remedy(script)


def test_the_drawing_has_the_imports_of_the_code(script, drawn):
    known = [script.study(), *script.packages().values()]
    there = {package.name: set(package.imports) for package in known}
    assert {name: imports for name, imports, _ in drawn} == there, _remedy(script)


def test_every_package_imports_layers_below_it_only(script):
    depth = {name: place for place, layer in enumerate(script.layers()) for name in layer}
    for package in script.packages().values():
        assert all(depth[name] > depth[package.name] for name in package.imports), package


def test_every_module_that_the_page_names_exists():
    named = sorted(set(re.findall(r"`(prerank(?:_paper)?(?:\.\w+)+)`", PAGE.read_text(encoding="utf-8"))))
    sources = {"prerank": ROOT / "src", "prerank_paper": ROOT / "reproduction" / "src"}
    places = {name: sources[name.partition(".")[0]] / name.replace(".", "/") for name in named}
    absent = [name for name, place in places.items() if not place.is_dir() and not place.with_suffix(".py").is_file()]
    assert len(named) > 40
    assert not absent, f"docs/architecture.md names modules that do not exist: {', '.join(absent)}"


def test_every_package_stands_in_the_table(script):
    text = PAGE.read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `prerank\.(\w+)` \|", text, re.MULTILINE))
    assert listed == set(script.packages())


def _remedy(script: ModuleType) -> str:
    return f"{script.DRAWING.name} is old: run python docs/_build/architecture.py"
