"""The commands start, explain themselves, and fail with one clear line."""

import pytest
from typer.testing import CliRunner

from prerank.cli.main import app


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_help_names_every_command():
    text = invoke("--help").output
    assert all(name in text for name in ("check", "recalibrate", "demo"))


@pytest.mark.parametrize("command", ["check", "recalibrate", "demo"])
def test_every_command_has_help(command):
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert len(result.output) > 100


@pytest.mark.parametrize("line", ["--help", "check --help", "recalibrate --help"])
def test_flags_read_as_flags(line):
    text = invoke(*line.split()).output.lower()
    assert "<bool" not in text
    assert "boolean" not in text
    assert "--help" in text


@pytest.mark.parametrize(
    "line", ["benchmark", "benchmark --quick --out x", "simulate 1", "report x", "datasets show wq", "datasets --help"]
)
def test_commands_of_the_study_are_answered_with_the_new_one(line):
    name = line.split()[0]
    result = invoke(*line.split())
    assert result.exit_code == 2
    assert not result.stdout
    (said,) = result.stderr.splitlines()
    assert said.startswith(f"the command is prerank-paper {name}: ")
    assert f" {name} " not in invoke("--help").output
