"""Groups of cases together: no more false alarms than one check has."""

import numpy as np
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
