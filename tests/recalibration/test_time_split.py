"""Earlier cases and later ones, whatever says when they were; and a forecast before and after, by hand."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from prerank import Location, Recalibrator, check, energy_score
from prerank.diagnosis import compare
from prerank.recalibration import Affine, split_by_time

TIMES = {
    "numbers": ([3, 1, 2, 1], 2),
    "dates": (pd.to_datetime(["2024-03-01", "2024-01-01", "2024-02-01", "2024-01-01"]), pd.Timestamp("2024-02-01")),
    "dates and a word": (pd.to_datetime(["2024-03-01", "2024-01-01", "2024-02-01", "2024-01-01"]), "2024-02"),
    "text": (["day 10", "day 1", "day 2", "day 1"], "day 2"),
    "decimals": ([Decimal("1.9"), Decimal("-1"), Decimal("1.10"), Decimal("-1")], Decimal("1.10")),
}


@pytest.mark.parametrize("kind", TIMES)
def test_what_comes_before_a_time_is_earlier_and_equal_times_stay_together(kind):
    times, before = TIMES[kind]
    for given in (times, pd.Series(times, index=[7, 5, 3, 1]), np.asarray(times)):
        split = split_by_time(given, before=before)
        assert (split.earlier.tolist(), split.later.tolist()) == ([1, 3], [2, 0])
        assert split_by_time(given).earlier.tolist() == [1, 3]


def test_a_share_is_met_as_nearly_as_whole_times_allow():
    times = np.repeat([5, 3, 1], [2, 5, 3])
    for share, earlier in ((0.1, 3), (0.5, 3), (0.56, 8), (0.95, 8)):
        assert len(split_by_time(times, share=share).earlier) == earlier
    assert len(split_by_time(np.arange(91), share=0.1).earlier) == 9


@pytest.mark.parametrize(
    ("times", "options", "message"),
    [
        ([1, 2], {"share": 0.5, "before": 2}, "give one of them"),
        ([1, 2], {"share": 1.0}, "share=1: a share of the cases between 0 and 1"),
        ([1, 2], {"before": 1}, r"before 1: none of 2 cases \(1 to 2\) come before it"),
        ([1, 1], {}, "a share of 0.5 of 2 cases leaves none to fit on"),
        ([1.0, np.nan], {}, "1 of 2 cases have no label, the first is case 1"),
        (["31.01.2024", "01.02.2024"], {}, "write them as 2024-01-31"),
    ],
)
def test_what_leaves_a_part_empty_or_open_is_refused(times, options, message):
    with pytest.raises(ValueError, match=message):
        split_by_time(times, **options)


def test_a_comparison_is_two_checks_and_two_scores():
    rng = np.random.default_rng(2)
    truth = rng.normal(size=(120, 9, 2))
    y, members = truth[:, 0] + 1.0, truth[:, 1:]
    y[3, 0] = members[5, 2] = np.nan
    earlier, later = split_by_time(np.arange(120))
    corrected = Recalibrator(steps=[Affine()]).fit(members[earlier], y[earlier]).transform(members[later])
    found = compare(y[later], members[later], corrected, Location(), n_replicates=39)
    for result, forecast, score in (
        (found.before, members[later], found.score_before),
        (found.after, corrected, found.score_after),
    ):
        expected = check(y[later], forecast, Location(), n_replicates=39)
        pd.testing.assert_frame_equal(result.table, expected.table)
        assert score == pytest.approx(float(energy_score(y[later], forecast).mean()))
    assert "Energy score" in str(found)
    # missing values are left out of scores as they are of checks
    whole = compare(y, members, members, Location(), n_replicates=39)
    assert whole.before.n_cases == 119
    kept = np.setdiff1d(np.arange(120), [3, 5])
    by_hand = energy_score(y[kept], members[kept]).sum() + energy_score(y[5:6], np.delete(members[5:6], 2, 1)).sum()
    assert whole.score_before == pytest.approx(float(by_hand) / 119)
