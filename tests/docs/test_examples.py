"""The examples of docs/extending.md: each is a file that runs by itself, and does what the page says."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def load(path):
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_every_example_and_nothing_else():
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```\{literalinclude\} \.\./(\S+)$", page, re.MULTILINE)
    assert sorted(shown) == [path.relative_to(ROOT).as_posix() for path in EXAMPLES]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, device, capsys):
    load(path).main(device)
    assert "nan" not in capsys.readouterr().out


def test_a_linear_prerank_is_known_to_be_linear_and_a_nonlinear_one_to_learn_from_draws():
    from prerank.preranks import needs_of

    slope, unusual = (load(ROOT / "examples" / f"{name}_prerank.py") for name in ("linear", "nonlinear"))
    assert needs_of(slope.Slope(), 3) == (True, False, False)
    assert needs_of(unusual.MostUnusual(), 3) == (False, True, False)
