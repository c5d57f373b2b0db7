"""What is said about the package in several places agrees."""

import importlib.util
import re
import tomllib
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
import yaml

import prerank

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def test_the_lowest_versions_are_the_floors_of_the_package():
    loader = SourceFileLoader("lowest", str(ROOT / ".ci" / "lowest"))
    spec = importlib.util.spec_from_loader("lowest", loader)
    assert spec is not None
    script = importlib.util.module_from_spec(spec)
    loader.exec_module(script)
    written = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    assert written == [script.HEAD, *script.pins()], "run .ci/lowest --write"


def test_every_direct_requirement_is_pinned_for_setup():
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower().replace("_", "-")
    wanted = [*PROJECT["project"]["dependencies"], *(r for g in PROJECT["dependency-groups"].values() for r in g)]
    wanted += [r for name in ("dask", "xarray") for r in PROJECT["project"]["optional-dependencies"][name]]
    names = {re.split(r"[>=<\[ ]", requirement)[0].lower() for requirement in wanted if isinstance(requirement, str)}
    absent = [name for name in sorted(names) if f"\n{name}==" not in pins]
    assert not absent, f"constraints.txt lacks {', '.join(absent)}"


def test_the_conda_recipe_has_the_version_and_the_requirements_of_the_package():
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == prerank.__version__
    assert PROJECT["project"]["requires-python"] == f">={recipe['context']['python_min']}"
    ours = {
        re.sub(r"^[\w-]+", lambda name: CONDA_NAMES.get(name[0], name[0]), r)
        for r in PROJECT["project"]["dependencies"]
    }
    theirs = {requirement.replace(" ", "") for requirement in recipe["requirements"]["run"]}
    assert {requirement for requirement in theirs if not requirement.startswith("python>=")} == ours


@pytest.mark.parametrize("file", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda file: file.stem)
def test_workflows_run_scripts_and_targets_that_exist(file):
    jobs = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert commands
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in commands:
        for script in re.findall(r"^(\.ci/\w+)", command):
            assert (ROOT / script).exists(), command
        for target in re.findall(r"^make (\w+)", command):
            assert f"\n{target}:" in makefile, command


def test_a_release_never_holds_a_password():
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    assert release["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")


def test_pre_commit_runs_local_hooks_only():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repo["repo"] for repo in hooks["repos"]] == ["local"]
