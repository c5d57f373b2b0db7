"""`prerank-paper datasets`: the list, the card, the pair plot, and refusals with exit status 2."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from prerank.datasets import Table
from prerank_paper.cli.datasets import app
from prerank_paper.datasets import load
from prerank_paper.datasets.builtin import BUILTIN
from prerank_paper.datasets.catalogue import PAPER_DATASETS
from prerank_paper.datasets.pair_plot import pair_plot
from prerank_paper.datasets.pairs import pair_counts


def run(*arguments: str):  # type: ignore[no-untyped-def]
    return CliRunner(env={"COLUMNS": "100"}).invoke(app, list(arguments))


def test_the_list_names_every_dataset_with_its_shape_and_place() -> None:
    result = run()
    assert result.exit_code == 0
    lines = {line.split()[0]: line.split() for line in result.output.splitlines() if line.strip()}
    for dataset in PAPER_DATASETS:
        rows, n_features, n_targets, place = lines[dataset.name][1:5]
        assert int(rows.replace(",", "").removeprefix("~")) == dataset.n_rows
        assert (int(n_features), int(n_targets), place) == (dataset.n_features, dataset.n_targets, "upstream")
    assert all("built in" in " ".join(lines[name]) for name in BUILTIN)


def test_the_list_says_what_is_at_hand(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRERANK_DATA", str(real_data))
    lines = {line.split()[0]: line for line in run().output.splitlines() if line.strip()}
    assert "PRERANK_DATA " in lines["wq"]
    assert "PRERANK_DATA *" in lines["taxi"]
    assert "upstream" in lines["scm1d"]


def test_a_card_and_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "new" / "plot.png"
    result = run("show", "diabetes", "--plot", str(picture))
    assert result.exit_code == 0
    for words in ("six serum measurements", "176 train", "glucose", "BSD-3", "not in the paper"):
        assert words in result.output
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "wq"), "prerank-paper datasets fetch wq"),
        (("show", "nope"), "no dataset 'nope'"),
        (("fetch", "meps20"), "--accept-licence"),
        (("fetch", "bimodal"), "built in"),
    ],
)
def test_refusals_exit_with_two(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_pair_counts_lose_no_row() -> None:
    table = load("diabetes")
    counts = pair_counts(table, n_bins=10, most_targets=4)
    assert counts.names == table.y_names[:4]
    assert (counts.singles.sum(axis=1) == 442).all()
    assert (counts.pairs.sum(axis=(2, 3)) == 442).all()
    np.testing.assert_array_equal(counts.pairs[2, 1], counts.pairs[1, 2].T)
    np.testing.assert_array_equal(counts.pairs[2, 1].sum(axis=1), counts.singles[1])


def test_an_outlier_does_not_empty_the_picture() -> None:
    y = np.linspace(0, 1, 1000)
    y[0] = 1e9
    assert (pair_counts(Table.of(y, y)).singles > 0).mean() > 0.9


@pytest.mark.parametrize("n_targets", [1, 2, 3])
def test_a_pair_plot_has_an_axes_for_every_pair(n_targets: int) -> None:
    values = np.arange(300.0).reshape(100, 3) % 7
    figure = pair_plot(Figure(), pair_counts(Table.of(values, values[:, :n_targets])), "title")
    assert len(figure.axes) == n_targets**2
