"""The examples of estimators at work: each is a file that runs by itself, and ends as it says."""

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "estimators"
SAYS = {
    "groups": "calibrated: log-likelihood of fresh patients",
    "pipeline": "quantiles of rent",
    "search": "chosen:",
    "series": "of the next 200 days",
}


@pytest.mark.parametrize("name", sorted(SAYS))
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert SAYS[name] in said
    assert "nan" not in said


def test_every_example_is_run() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(SAYS)
