"""`prerank check --html` and `--plot`: a report of the file, with lines that repeat it."""

import html
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from prerank.cli.main import app


def invoke(*arguments: object):
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, ["check", *map(str, arguments)])


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    """Arrays of three targets, too narrow in the south, in a folder that the command is called from."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    south = np.arange(120) >= 60
    members = np.where(south[:, None, None], 0.3, 1.0) * rng.normal(size=(120, 9, 3))
    place = np.where(south, "<i>south", "north")
    np.savez("a b.npz", members=members, observations=rng.normal(size=(120, 3)), place=place, day=np.arange(120) // 2)
    return tmp_path


def repeated(report: str) -> tuple[str, str]:
    """The command and the lines of Python on a page."""
    command, python = re.findall(r"<pre[^>]*><code>((?:prerank|from pathlib) .*?)</code>", report, re.S)
    return html.unescape(command), html.unescape(python)


@pytest.mark.parametrize(
    "options",
    [
        ["--prerank", "location", "--prerank", "HDR", "--block", "day", "--seed", "3"],
        ["--prerank", "marginal", "--by", "place", "--replicates", "199", "--block", "day"],
    ],
    ids=["one check", "groups"],
)
def test_the_report_repeats_itself_from_the_command_and_from_python(options, files):
    first = invoke("a b.npz", *options, "--html", "first.html")
    assert first.exit_code == 0, first.output
    report = Path("first.html").read_text(encoding="utf-8")
    command, python = repeated(report)
    program, name, *arguments = shlex.split(command)
    assert (program, name) == ("prerank", "check")
    Path("first.html").unlink()
    again = CliRunner().invoke(app, [name, *arguments])
    assert again.exit_code == 0, again.output
    assert Path("first.html").read_text(encoding="utf-8") == report
    Path("first.html").unlink()
    exec(python, {})
    data = [re.findall(r'id="data">(.*?)</script>', text)[0] for text in (report, Path("first.html").read_text())]
    assert data[0] == data[1]


def test_groups_are_drawn_as_a_heat_map_and_named_as_text(files):
    result = invoke(
        "a b.npz", "--by", "place", "--prerank", "location", "--html", "r.html", "--plot", "g.svg", "--fail"
    )
    assert result.exit_code == 1, result.output
    assert "Miscalibrated in 1 of 2 groups" in result.stdout
    assert "Where it fails" in Path("g.svg").read_text()
    report = Path("r.html").read_text(encoding="utf-8")
    assert "<i>south" not in report
    assert "&lt;i&gt;south" in report
    assert "Is a b.npz calibrated?" in report


def test_a_report_that_cannot_be_written_is_refused_before_the_work(files):
    (files / "folder").mkdir()
    for option in ("--html", "--plot"):
        result = invoke("absent.npz", option, "folder")
        assert result.exit_code == 2
        assert "folder is a folder" in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert not result.stdout


def test_a_table_in_long_form_has_a_report_too(files):
    rng = np.random.default_rng(1)
    grid = pd.MultiIndex.from_product([range(30), range(4), ["u", "v"]], names=["day", "member", "target"])
    frame = pd.DataFrame({"value": rng.normal(size=len(grid))}, index=grid).reset_index()
    frame["observation"] = frame.groupby(["day", "target"])["value"].transform("mean")
    frame.to_csv("f.csv", index=False)
    result = invoke("f.csv", "--case", "day", "--prerank", "location", "--html", "r.html")
    assert result.exit_code == 0, result.output
    exec(repeated(Path("r.html").read_text(encoding="utf-8"))[1], {})
