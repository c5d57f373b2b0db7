"""The gallery: a picture for every example, made by a script that runs the page."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_gallery", ROOT / "docs/assets/gallery/make_gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_of_the_gallery_is_there_and_small(script):
    named = script.pictures(script.PAGE.read_text(encoding="utf-8"))
    there = {path.name: path.stat().st_size for path in script.HERE.glob("*.png")}
    assert sorted(named) == sorted(there)
    assert max(there.values()) < 200_000


def test_every_picture_is_drawn_by_the_example_above_it(script):
    text = script.PAGE.read_text(encoding="utf-8")
    sections = text.split("\n## ")[1:]
    assert len(sections) == len(script.pictures(text))
    for section in sections:
        (picture,) = script.pictures(section)
        (block,) = script.examples(section)
        stem = "report" if picture == "report.png" else Path(picture).stem
        assert re.search(rf'"{stem}(\.png|\.html)?"', block), f"the example of {picture} draws another file"


def test_the_script_runs_examples_in_a_folder_and_keeps_what_they_draw(script, tmp_path):
    blocks = script.examples(script.PAGE.read_text(encoding="utf-8"))
    (heatmap,) = (block for block in blocks if '"heatmap"' in block)
    needed = "import numpy as np\nfrom prerank.plotting import new_figure, quiet_style, save_figure\n"
    script.run([needed, heatmap], tmp_path)
    script.keep(tmp_path / "heatmap.png", tmp_path / "kept.png")
    assert 0 < (tmp_path / "kept.png").stat().st_size < (tmp_path / "heatmap.png").stat().st_size
