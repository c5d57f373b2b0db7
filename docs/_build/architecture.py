"""The drawing of the layers, and of the study beside them, from the contract in pyproject.toml and the real import graph.

Run it from the repository's root when a test says that the drawing is old: python docs/_build/architecture.py
"""

import textwrap
import tomllib
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import grimp

ROOT = Path(__file__).parents[2]
DRAWING = ROOT / "docs" / "assets" / "architecture.svg"
_WIDTH, _MARGIN, _GAP, _LINE = 920, 16, 12, 15
_INK, _PALE, _BLUE = "#222222", "#E3E6EA", "#0072B2"


class Package(NamedTuple):
    """A package or module of the first level, and what it imports directly."""

    name: str
    imports: tuple[str, ...]


def layers() -> list[list[str]]:
    """The layers of the contract, top first; names in parentheses may be absent."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (contract,) = (item for item in contracts if item["type"] == "layers" and item["containers"] == ["prerank"])
    return [[name.strip(" ()") for name in layer.split("|")] for layer in contract["layers"]]


def packages() -> dict[str, Package]:
    """What there is, by name, from the import graph."""
    graph = grimp.build_graph("prerank", cache_dir=None)
    children = sorted(graph.find_children("prerank"))
    found = {}
    for child in children:
        used = [
            other
            for other in children
            if other != child and graph.direct_import_exists(importer=child, imported=other, as_packages=True)
        ]
        name = child.removeprefix("prerank.")
        found[name] = Package(name, tuple(other.removeprefix("prerank.") for other in used))
    return found


def study() -> Package:
    """The package of the paper's experiments, and which packages of the library it imports."""
    graph = grimp.build_graph("prerank", "prerank_paper", cache_dir=None)
    used = [
        child.removeprefix("prerank.")
        for child in sorted(graph.find_children("prerank"))
        if graph.direct_import_exists(importer="prerank_paper", imported=child, as_packages=True)
    ]
    return Package("prerank_paper", tuple(used))


def drawing(rows: list[list[str]], known: dict[str, Package], beside: Package) -> str:
    """The layers as boxes, top first; every box says what it imports, the nearest layer first. The study is above them."""
    order = {name: place for place, name in enumerate(name for row in rows for name in row)}
    width = _WIDTH - 2 * _MARGIN
    lines = _imports(beside, order, width)
    height = 34 + _LINE * len(lines)
    shapes = _box(beside, lines, _MARGIN, _MARGIN, width, height, 'fill="white" stroke="#0072B2" stroke-dasharray="5 4"')
    top = _MARGIN + height + 2 * _GAP
    for row in rows:
        boxes = [known[name] for name in row if name in known]
        if not boxes:
            continue
        width = (_WIDTH - 2 * _MARGIN - (len(boxes) - 1) * _GAP) / len(boxes)
        texts = [_imports(box, order, width) for box in boxes]
        height = 34 + _LINE * max(1, max(map(len, texts)))
        for place, (box, lines) in enumerate(zip(boxes, texts, strict=True)):
            shapes += _box(box, lines, _MARGIN + place * (width + _GAP), top, width, height)
        top += height + _GAP
    height = top - _GAP + _MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">'
    title = "<title>Layers of prerank: each imports only layers below it</title>"
    ground = f'<rect width="{_WIDTH}" height="{height}" fill="white"/>'
    return "\n".join([head, title, ground, *shapes, "</svg>"]) + "\n"


def _imports(box: Package, order: dict[str, int], width: float) -> list[str]:
    names = ", ".join(sorted(box.imports, key=lambda name: order.get(name, len(order))))
    return textwrap.wrap(f"imports {names}" if names else "imports nothing of ours", int((width - 24) / 6.6))


def _box(
    box: Package, lines: list[str], left: float, top: float, width: float, height: float, look: str = f'fill="{_PALE}"'
) -> list[str]:
    x = left + 12
    shapes = [
        f'<g data-package="{box.name}" data-imports="{" ".join(box.imports)}">',
        f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{height}" rx="5" {look}/>',
        f'<text x="{x:.1f}" y="{top + 21}" font-size="15" font-weight="bold" fill="{_BLUE}">{escape(box.name)}</text>',
    ]
    for number, line in enumerate(lines):
        y = top + 39 + _LINE * number
        shapes.append(f'<text x="{x:.1f}" y="{y}" font-size="11.5" fill="{_INK}">{escape(line)}</text>')
    return [*shapes, "</g>"]


if __name__ == "__main__":
    DRAWING.write_text(drawing(layers(), packages(), study()), encoding="utf-8")
    print(f"{DRAWING.relative_to(ROOT)}: {len(packages())} packages in {len(layers())} layers")
