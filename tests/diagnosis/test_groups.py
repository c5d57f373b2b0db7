"""Groups of cases together: no more false alarms than one check has."""

import numpy as np
import pytest

from prerank import Marginal, check, check_pits
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
    values = np.random.default_rng(0).normal(size=(40, 10, 1))
    one = check(values[:, 0], 0.1 * values[:, 1:], Marginal(), n_replicates=49)
    assert grouped({1: one, 2: one}).calibrated is False  # 2 x 1/50
    three = grouped({1: one, 2: one, 3: one})
    assert three.calibrated is None
    assert three.verdict.startswith("No verdict: the smallest adjusted p-value possible for 3 groups is 0.060")


def test_no_groups_are_refused():
    with pytest.raises(ValueError, match="there are no groups"):
        grouped({})
