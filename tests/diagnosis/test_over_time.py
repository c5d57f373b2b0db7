"""Calibration and scores over time are those of each period by itself."""

import numpy as np
import pytest

from prerank import Ensemble, GaussianMixture, check, energy_score
from prerank.diagnosis import compare, compare_over_time
from prerank.plotting.recalibration import over_time_figure

DAYS = np.arange("2024-01-01", "2024-04-10", dtype="datetime64[D]")


def drifting(n_cases=100, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n_cases, 9, 2))
    return truth[:, 0], truth[:, 1:] - np.linspace(0, 2, n_cases)[:, None, None], truth[:, 1:]


def test_a_period_is_what_its_cases_are_alone():
    y, before, after = drifting()
    order = np.random.default_rng(1).permutation(100)
    table = compare_over_time(y[order], before[order], after[order], DAYS[order], n_periods=4)
    assert list(table["cases"]) == [25] * 4
    assert list(table["first"].astype(str)) == ["2024-01-01", "2024-01-26", "2024-02-20", "2024-03-16"]
    for place in range(4):
        part = slice(25 * place, 25 * place + 25)
        for when, members in (("before", before), ("after", after)):
            score = float(energy_score(y[part], Ensemble(members[part])).mean())
            assert table[f"energy score {when}"][place] == pytest.approx(score)
            alone = check(y[part], members[part], n_replicates=199).table
            ratio = float((alone["PCE"] / alone["expected PCE"]).mean())
            # which case has which random numbers is another matter, and changes hardly anything
            assert table[f"PCE over expected {when}"][place] == pytest.approx(ratio, rel=0.1)
    assert table["rejected before"].iloc[-1] > table["rejected after"].iloc[-1]


def test_cases_of_one_time_stay_together_and_periods_are_no_more_than_times():
    y, before, after = drifting()
    table = compare_over_time(y, before, after, np.arange(100) // 40, n_periods=12)
    assert list(table["cases"]) == [40, 40, 20]
    assert list(table["first"]) == list(table["last"]) == [0, 1, 2]


def test_what_is_compared_has_as_many_members_as_draws():
    y, before, _ = drifting()
    law = GaussianMixture(np.zeros((100, 1)), np.zeros((100, 1, 2)), np.broadcast_to(np.eye(2), (100, 1, 2, 2)))
    found = compare(y, before, law, n_replicates=19)
    assert found.n_points == (8, 8)
    assert found.score_after == pytest.approx(float(energy_score(y, law, n_draws=8).mean()))
    assert "Checks and fair scores by 8 members or draws of each case." in str(found)
    asked = compare(y, before, law, n_draws=50, n_replicates=19)
    assert asked.n_points == (8, 50)
    assert "by 8 before and 50 after members or draws" in str(asked)
    assert compare(y, law, law, n_replicates=19).n_points == (100, 100)
    table = compare_over_time(y, before, law, DAYS, n_periods=1)
    assert table["energy score after"][0] == pytest.approx(found.score_after)


def test_the_figure_draws_the_table_and_computes_nothing(tmp_path):
    y, before, after = drifting()
    table = compare_over_time(y, before, after, DAYS, n_periods=5)
    figure = over_time_figure(table, "°C")
    upper, lower = figure.axes
    for ax, name in ((upper, "energy score"), (lower, "PCE over expected")):
        lines = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
        for when in ("before", "after"):
            np.testing.assert_array_equal(lines[when], table[f"{name} {when}"])
    assert upper.get_ylabel() == "energy score, °C"
    assert [label.get_text() for label in lower.get_xticklabels()] == [str(day)[:10] for day in table["first"]]


def test_times_that_do_not_fit_are_refused():
    y, before, after = drifting()
    with pytest.raises(ValueError, match="times has 99 values for 100 cases"):
        compare_over_time(y, before, after, DAYS[:99])
