"""Nothing is imported that a call does not use: help and refusals need nothing that computes, a check no figures."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
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
    ["check", "nowhere.csv", "nowhere.nc"],
    ["check", __file__, "--prerank", "none"],
    ["recalibrate", "nowhere.npz", "--out", "corrected.npz"],
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


# what a check has no use for: torch has a compiler (by way of sympy), pandas an own engine, and scipy a library of laws
UNUSED_BY_A_CHECK = {
    "jinja2",
    "matplotlib",
    "scipy.optimize",
    "scipy.spatial",
    "scipy.stats",
    "sklearn",
    "sympy",
    "torch._dynamo",
    "torch._inductor",
    "torch.fx.experimental.symbolic_shapes",
    "xarray",
}
UNUSED_BY_ITS_IMPORT = UNUSED_BY_A_CHECK | {"pandas", "pyarrow", "rich", "scipy", "typer"}
A_CHECK = """
import numpy as np
points = np.random.default_rng(1).normal(size=(40, 11, 3))
print(check(points[:, 0], points[:, 1:]))
"""


def newly_imported(code: str) -> set[str]:
    """Modules that code after `import torch` imports."""
    lines = ("import json, sys, torch", "before = set(sys.modules)", code, "new = set(sys.modules) - before")
    words = [sys.executable, "-c", "\n".join([*lines, "print('\\n' + json.dumps(sorted(new)))"])]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
def test_importing_check_imports_torch_and_little_else():
    found = newly_imported("from prerank import check")
    assert "prerank.diagnosis.checking" in found
    assert not UNUSED_BY_ITS_IMPORT & found


@pytest.mark.slow
def test_a_check_imports_no_figures_laws_or_compilers():
    found = newly_imported("from prerank import check" + A_CHECK)
    assert {"pandas", "rich", "scipy.special"} <= found
    assert not UNUSED_BY_A_CHECK & found


@pytest.mark.slow
def test_what_computes_is_noticed_by_the_tests_above(tmp_path):
    points = np.random.default_rng(1).normal(size=(40, 6, 2))
    np.savez(tmp_path / "small.npz", members=points[:, 1:], observations=points[:, 0])
    done = run("check", str(tmp_path / "small.npz"))
    assert done.returncode == 0, done.stderr
    found = set(json.loads(done.stdout.splitlines()[-1]))
    assert {"torch", "numpy", "pandas", "scipy"} <= found
    assert not {"jinja2", "matplotlib", "safetensors", "sklearn"} & found
    report = "check(points[:, 0], points[:, 1:]).to_html()"
    assert "jinja2" in newly_imported("from prerank import check" + A_CHECK + report)


def test_the_version_is_that_of_the_package():
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == f"prerank {prerank.__version__}"


def test_no_other_file_states_the_version():
    root = Path(__file__).parents[2]
    for name in ("pyproject.toml", "CITATION.cff", "docs/conf.py"):
        text = (root / name).read_text(encoding="utf-8")
        assert not re.search(r"^version\s*[=:]\s*[\"']?\d", text, re.MULTILINE), f"{name} states a version of its own"


@pytest.mark.slow
def test_the_startup_benchmark_tells_all_it_measures(benchmark_script):
    startup = benchmark_script("startup")
    found = startup.medians(startup.measure({"now": startup.ROOT}, 1))
    assert list(found) == [("", what) for what in startup.PLAIN] + [("now", what) for what in startup.OURS]
    assert all(value > 0 for value in found.values())
