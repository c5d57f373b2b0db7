"""Groups of cases together: no more false alarms than one check has."""

import numpy as np
import pandas as pd
import pytest

from prerank import PCA, Marginal, check, check_pits
from prerank.diagnosis import grouped


def test_adjusting_for_groups_never_makes_a_p_value_smaller_and_one_group_keeps_its_own():
    rng = np.random.default_rng(0)
    checks = {
        name: check_pits(rng.uniform(size=(80, 2)) ** power) for name, power in zip("abcd", (1, 1, 2, 3), strict=True)
    }
    together = grouped(checks)
    assert (together.table["adjusted p-value"] >= together.table["p-value"]).all()
    assert together.table.loc["d", "reading"].startswith("pit ")
    alone = grouped({"c": checks["c"]})
    assert alone.p_value == checks["c"].p_value


def test_a_level_of_five_per_cent_that_groups_cannot_reach_is_no_verdict():
    values = np.random.default_rng(0).normal(size=(40, 10, 2))
    one = check(values[:, 0], 0.1 * values[:, 1:], Marginal(), n_replicates=49)
    assert grouped({1: one, 2: one}).calibrated is False  # 2 x 1/50
    three = grouped({1: one, 2: one, 3: one})
    assert three.calibrated is None
    assert three.verdict.startswith("No verdict: the smallest adjusted p-value possible for 3 groups is 0.060")


def test_a_group_of_one_block_is_not_called_flat():
    values = np.random.default_rng(2).normal(size=(60, 10, 2))
    rounds = np.repeat(range(30), 2)
    rounds[:4] = 0
    model = np.where(rounds == 0, "new", "old")
    readings = check(values[:, 0], values[:, 1:], Marginal(), by=model, blocks=rounds).table["reading"]
    assert readings["new"] == "too few cases or blocks to tell"
    assert readings["old"] == "flat"


@pytest.mark.slow
def test_many_groups_are_given_the_replicates_that_they_need():
    """Forty groups of two pre-ranks: 99 replicates could never reject one of them, and a verdict needs no small p-value."""
    values = np.random.default_rng(1).normal(size=(800, 8, 2))
    y, members, places = values[:, 0], values[:, 1:], np.arange(800) % 40
    options = {"by": places, "preranks": [Marginal(), PCA()], "n_replicates": 99}
    right = check(y, members, **options)
    assert right.rejected is False
    assert right.attainable <= 0.05
    assert all(one.attainable <= 2 / 3200 + 1e-12 for one in right.checks.values())
    wrong = check(np.where(places[:, None] == 7, y + 5, y), members, **options)
    assert wrong.rejected
    assert "Miscalibrated in 1 of 40 groups: 7 (" in wrong.verdict
    assert wrong.table.loc[7, "p-value"] == 2 / 3200  # 40 groups, two pre-ranks


def test_no_groups_are_refused():
    with pytest.raises(ValueError, match="there are no groups"):
        grouped({})


def two_labels():
    values = np.random.default_rng(3).normal(size=(600, 12, 2))
    places = pd.DataFrame({"model": np.array(["a", "b"])[np.arange(600) % 2], "week": np.arange(600) % 3})
    y = np.where(((places["model"] == "b") & (places["week"] == 2)).to_numpy()[:, None], values[:, 0] + 4, values[:, 0])
    return y, values[:, 1:], places


def test_several_labels_make_crossed_groups_with_readable_names(tmp_path):
    y, members, by = two_labels()
    found = check(y, members, [Marginal(), PCA()], by=by, n_replicates=99)
    assert list(found.checks) == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 2)]
    assert found.factors == ("model", "week")
    assert found.table.index.names == ["model", "week"]
    assert found.table.loc[("b", 2), "p-value"] < 0.01
    assert "Miscalibrated in 1 of 6 groups: b / week 2 (" in found.verdict
    assert found.sentences[0].endswith(": in b / week 2.")
    assert found.to_frame().index.names[:2] == ["model", "week"]
    assert found.to_xarray()["group"].values[5] == "b / week 2"
    again = check(y, members, [Marginal(), PCA()], by=[list(by["model"]), by["week"].to_numpy()], n_replicates=99)
    assert again.table["p-value"].tolist() == found.table["p-value"].tolist()
    assert again.factors == ("label 1", "label 2")
    one = check(y, members, Marginal(), by=by[["week"]], n_replicates=99)
    assert list(one.checks) == [0, 1, 2]
    figure = found.plot(tmp_path / "crossed.svg")
    (ax,) = figure.axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b"]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "1", "2"]
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("model", "week")
    cells = np.array([text.get_text() for text in ax.texts]).reshape(2, 3)
    assert [[" ▲" in cell for cell in row] for row in cells.tolist()] == [[False] * 3, [False, False, True]]
    page = found.to_html()
    assert "<h3>model by week</h3>" in page
    assert "b / week 2" in page


def test_groups_are_aligned_by_their_labels_and_must_be_there():
    y, members, by = two_labels()
    frame = pd.DataFrame(y, index=[f"case {k}" for k in range(600)])
    labelled = by.set_index(frame.index)
    found, shuffled = (
        check(frame, members, Marginal(), by=labels, n_replicates=99) for labels in (labelled, labelled.iloc[::-1])
    )
    assert found.table.equals(shuffled.table)
    with pytest.raises(ValueError, match="1 missing label"):
        check(y, members, Marginal(), by=by.assign(week=by["week"].where(by.index != 5)))
    with pytest.raises(ValueError, match="one label per case in each"):
        check(y, members, Marginal(), by=[by["week"].to_numpy(), by["week"].to_numpy()[1:]])


def test_three_labels_are_groups_in_one_table():
    y, members, by = two_labels()
    found = check(y, members, Marginal(), by=by.assign(half=np.arange(600) // 300), n_replicates=99)
    assert len(found.checks) == 12
    assert "b / week 2 / half 1" in found.verdict
    assert found.plot().axes
