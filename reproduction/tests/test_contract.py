"""Which private modules of the library the study may use, in one list; everything else that it uses is public.

A name is public if its package exports it, or if it is a function of `prerank.randomness`. The list is compared with the
imports.
"""

import ast
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import prerank
import prerank_paper

ROOT = Path(__file__).parents[2]
PUBLIC = {
    *("prerank", "prerank.arrays", "prerank.calibration", "prerank.datasets", "prerank.diagnosis", "prerank.forecasts"),
    *("prerank.inputs", "prerank.io", "prerank.models", "prerank.plotting", "prerank.preranks", "prerank.randomness"),
    *("prerank.recalibration", "prerank.regression", "prerank.scores", "prerank.training"),
}
PRIVATE = {
    "prerank._chunks": "as many cases at once as stay near a cache",
    "prerank._kernels": "the rows of the published draws in the table of kernels",
    "prerank._kernels.jointcdf_kernel": "blocks of the published joint CDF",
    "prerank._kernels.parts_kernel": "building blocks of the published kernels",
    "prerank._parallel": "chunks of simulated cases in threads",
    "prerank._progress": "bars of commands and downloads",
    "prerank._reading": "records are regular files",
    "prerank._wording": "counts in words",
    "prerank._writing": "records are written whole or not at all",
    "prerank.cli.outputs": "where a command writes",
    "prerank.cli.refusal": "a command refuses in one line",
    "prerank.datasets.download": "files from upstream, verified, and where they are kept; one writer for a folder",
    "prerank.datasets.standardise": "constant targets are refused",
    "prerank.io.formats": "files of raw columns",
    "prerank.plotting.heatmaps": "power by pre-rank and cases",
    "prerank.plotting.histograms": "histograms by scenario and pre-rank",
    "prerank.plotting.style": "the colours",
    "prerank.plotting.tables": "p-values as text",
    "prerank.training.evaluation": "the exact records that stand beside the published ones",
}
"""Of the package: what each is needed for."""

MEASURED = {
    "prerank.models.network": "plain code beside its kernel",
    "prerank.preranks.joint_cdf": "plain code beside its kernel",
    "prerank.preranks.point_density": "plain code beside its kernel",
    "prerank.training.batches": "plain code beside its kernel",
    "prerank.training.fleet": "plain code beside its kernel; the weights of a peer",
}
"""What tests and benchmarks of the study take apart in addition."""


class Import(NamedTuple):
    """A name that a file imports from a module."""

    file: str
    module: str
    name: str


def imports_of(*folders: str) -> Iterator[Import]:
    """Names that the files of folders import from anywhere."""
    for path in (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))):
        file = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from (Import(file, node.module, alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (Import(file, alias.name, "") for alias in node.names)


def is_public(module: str, name: str) -> bool:
    if module not in PUBLIC:
        return False
    found = import_module(module)
    return not name or name in getattr(found, "__all__", [own for own in vars(found) if not own.startswith("_")])


def private_modules(*folders: str) -> set[str]:
    """Modules of the library that are imported, or from which a name is that is not public."""
    own = [found for found in imports_of(*folders) if found.module.partition(".")[0] == "prerank"]
    return {found.module for found in own if not is_public(found.module, found.name)}


def test_the_package_uses_public_names_and_the_private_modules_of_the_list():
    assert private_modules("reproduction/src") == PRIVATE.keys()


def test_its_tests_and_benchmarks_use_few_more():
    assert private_modules("reproduction/tests", "reproduction/benchmarks") - PRIVATE.keys() == MEASURED.keys()


def test_neither_the_library_nor_its_tests_and_examples_import_the_study():
    users = {found.file for found in imports_of("src", "tests", "examples") if found.module.startswith("prerank_paper")}
    assert {file for file in users if not file.startswith("tests/docs/")} == set()


def test_both_packages_have_one_version_and_ask_for_one_python():
    library, study = (tomllib.loads((ROOT / folder / "pyproject.toml").read_text()) for folder in (".", "reproduction"))
    assert prerank_paper.__version__ == prerank.__version__
    assert study["project"]["requires-python"] == library["project"]["requires-python"]
    for extra in study["project"]["optional-dependencies"]:
        assert extra in library["project"]["optional-dependencies"]
