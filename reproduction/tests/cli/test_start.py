"""The command line starts at once, and the study computes where nothing of a command line is installed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import prerank_paper

HEAVY = {"torch", "numpy", "pandas", "scipy", "sklearn", "matplotlib", "pyarrow", "safetensors", "dask"}
LIGHT = [
    ["--help"],
    ["--version"],
    [],
    *([name, "--help"] for name in ("benchmark", "simulate", "report", "datasets")),
    ["datasets", "fetch", "--help"],
    ["datasets", "show", "--help"],
    ["benchmark", "--datasets", ""],
]
CODE = """
import json, sys
sys.argv = ["prerank-paper", *json.loads(sys.argv[1])]
from prerank_paper.cli import main
try:
    main()
finally:
    print("\\n" + json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", CODE, json.dumps(arguments)], capture_output=True, text=True)


@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_nothing_heavy_is_imported(arguments):
    done = run(*arguments)
    assert done.returncode in (0, 2), done.stderr
    imported = set(json.loads(done.stdout.splitlines()[-1]))
    assert "prerank_paper" in imported
    assert not HEAVY & imported


def test_what_computes_is_noticed_by_the_test_above():
    done = run("datasets", "show", "nowhere")
    assert HEAVY & set(json.loads(done.stdout.splitlines()[-1]))


def test_the_version_is_that_of_the_package():
    assert run("--version").stdout.splitlines()[0] == f"prerank-paper {prerank_paper.__version__}"


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "prerank_paper", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("benchmark", "simulate", "report", "datasets"))


def test_scripts_need_nothing_of_the_command_line():
    """On a machine that trains there may be torch and little else: no typer, no rich, no Dask."""
    names = [path.stem for path in SCRIPTS if path.stem != "compile_kernels"]  # which imports Triton
    code = (
        "import sys\n"
        "for name in ('typer', 'click', 'rich', 'dask', 'distributed', 'xarray'): sys.modules[name] = None\n"
        f"sys.path.insert(0, {str(SCRIPTS[0].parent)!r})\n"
        f"import prerank_paper.benchmark.run, {', '.join(names)}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(names) > 10
