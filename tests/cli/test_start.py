"""The command line starts at once: help and version need nothing that computes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import prerank

HEAVY = {"torch", "numpy", "pandas", "scipy", "sklearn", "matplotlib", "pyarrow", "safetensors", "dask"}
LIGHT = [
    ["--help"],
    ["--version"],
    [],
    *([name, "--help"] for name in ("check", "recalibrate", "demo")),
    ["benchmark", "--quick"],
    ["check", ""],
    ["check", "nowhere.npz"],
    ["recalibrate", "nowhere.npz", "--out", "out.npz"],
]
CODE = """
import json, sys
sys.argv = ["prerank", *json.loads(sys.argv[1])]
from prerank.cli import main
try:
    main()
finally:
    print("\\n" + json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", CODE, json.dumps(arguments)], capture_output=True, text=True)


@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_nothing_heavy_is_imported(arguments):
    done = run(*arguments)
    assert done.returncode in (0, 2), done.stderr
    imported = set(json.loads(done.stdout.splitlines()[-1]))
    assert "prerank" in imported
    assert not HEAVY & imported


def test_what_computes_is_noticed_by_the_test_above(tmp_path):
    (tmp_path / "empty.npz").touch()
    done = run("check", str(tmp_path / "empty.npz"))
    assert HEAVY & set(json.loads(done.stdout.splitlines()[-1]))


def test_the_version_is_that_of_the_package():
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == f"prerank {prerank.__version__}"


def test_no_other_file_states_the_version():
    root = Path(__file__).parents[2]
    for name in ("pyproject.toml", "CITATION.cff", "docs/conf.py"):
        text = (root / name).read_text(encoding="utf-8")
        assert not re.search(r"^version\s*[=:]\s*[\"']?\d", text, re.MULTILINE), f"{name} states a version of its own"


def test_the_startup_benchmark_tells_all_it_measures(benchmark_script):
    found = benchmark_script("startup").measure(1)
    assert list(found) == [
        "python -c pass",
        "import prerank",
        "prerank --version",
        "prerank --help",
        "prerank check --help",
    ]
    assert all(value > 0 for value in found.values())
