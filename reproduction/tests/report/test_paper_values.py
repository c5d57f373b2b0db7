"""The paper's numbers are there, whole, and under our names."""

import pytest

from prerank_paper.benchmark.plan import PRERANKS
from prerank_paper.datasets.catalogue import PAPER_DATASETS
from prerank_paper.report.agreement import CRITERIA
from prerank_paper.report.paper_values import paper_minutes, paper_table


@pytest.mark.parametrize("name", CRITERIA)
def test_every_table_has_every_cell_once(name):
    table = paper_table(name)
    assert len(table) == 18 * 7
    assert set(table["dataset"]) == {item.name for item in PAPER_DATASETS}
    assert set(table["prerank"]) == set(PRERANKS)
    assert not table.duplicated(["dataset", "prerank"]).any()


def test_the_row_called_none_is_the_baseline_of_pca():
    none = paper_table("pce_none").set_index("dataset")["value"]
    baseline = paper_table("pce_baseline").query("prerank == 'PCA'").set_index("dataset")["value"]
    assert none.to_dict() == baseline[none.index].to_dict()


def test_the_authors_times_cover_three_datasets():
    minutes = paper_minutes().set_index(["dataset", "prerank", "n_draws"])["minutes"]
    assert len(minutes) == 25
    assert minutes["bio", "copula", 1000] == 861


def test_an_unknown_table_is_refused_with_the_known_ones():
    with pytest.raises(KeyError, match="selected_lambda"):
        paper_table("rmse")
