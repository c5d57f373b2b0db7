"""The demonstration end to end, in small: the command prints its tables and leaves its figure."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from prerank.cli.main import app
from prerank.plotting.demonstration import Panel, demonstration_figure


@pytest.mark.slow
def test_the_command_trains_judges_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "96")
    threads = torch.get_num_threads()
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--rows", "200", "--fresh", "200"])
    assert result.exit_code == 0, result.output
    for words in ("plain NLL", "penalised", "calibrated", "oracle", "expected", "copula", "Energy score against"):
        assert words in result.output
    told = [line for line in result.output.splitlines() if not line.startswith("figure:")]
    assert max(map(len, told)) <= 96
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".png", ".svg"]
    assert torch.get_num_threads() == threads


def test_a_figure_of_any_number_of_panels_has_room_for_its_key() -> None:
    levels = torch.linspace(0.05, 0.95, 10).numpy()
    panel = Panel("location", levels, levels - 0.1, levels + 0.1, [levels[:, None]] * 4, [0.1, 0.2, 0.3, 0.4])
    for count in (1, 2, 7):
        figure = demonstration_figure([panel] * count, ["a", "b", "c", "d"], ["w", "x", "y", "z"], "title")
        titled = [ax for ax in figure.axes if ax.get_title(loc="left")]
        assert len(titled) == count
        assert any(text.get_text() == "a" for ax in figure.axes for text in ax.texts)
