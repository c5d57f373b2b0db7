"""The commands start, explain themselves, and fail with one clear line."""

import pytest
from typer.testing import CliRunner

from prerank.cli.main import app


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_help_names_every_command():
    text = invoke("--help").output
    assert all(name in text for name in ("benchmark", "demo", "datasets", "report", "simulate"))


@pytest.mark.parametrize("command", ["benchmark", "demo", "datasets", "report", "simulate"])
def test_every_command_has_help(command):
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert len(result.output) > 100
