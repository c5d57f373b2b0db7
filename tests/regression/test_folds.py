"""A row that is learnt from has no part in its own forecast: folds in which it would have are refused, with numbers."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, RepeatedKFold, ShuffleSplit

from prerank.regression import CalibratedRegressorCV, MixtureRegressor, StackedFeatures

ROWS = np.arange(30)
X = np.random.default_rng(0).normal(size=(30, 2))
Y = np.random.default_rng(1).normal(size=(30, 2))
HALVES = [(ROWS[15:], ROWS[:15]), (ROWS[:15], ROWS[15:])]


def calibrated(cv: Any) -> Any:
    return CalibratedRegressorCV(MixtureRegressor(max_epochs=1), cv=cv).fit(X, Y)


def stacked(cv: Any) -> Any:
    return StackedFeatures(Ridge(), cv=cv).fit_transform(X, Y)


REFUSED = {
    "tested rows among the training rows": (
        [(ROWS, ROWS[:10]), (ROWS[:20], ROWS[20:])],
        r"fold 0 tests 10 of its 10 rows by a model that is trained on them, the first row 0; .* take test rows out",
    ),
    "one row in both": ([(ROWS[9:], ROWS[:10]), (ROWS[:10], ROWS[10:])], "fold 0 tests 1 of its 10 rows .* row 9;"),
    "test folds that overlap": (
        [(ROWS[20:], ROWS[:20]), (ROWS[:10], ROWS[10:])],
        "tests 10 of 30 rows more than once, .*; use folds without repetition, such as KFold",
    ),
    "repeated folds": (RepeatedKFold(n_splits=3, n_repeats=2), "tests 30 of 30 rows more than once"),
    "random splits": (ShuffleSplit(n_splits=9, random_state=0), "of 30 rows more than once"),
    "a row twice in a fold": ([(ROWS[15:], [0, 0, 1]), HALVES[1]], "fold 0 names 1 rows more than once"),
    "a row that is not there": ([(ROWS[15:], [0, 30])], "fold 0 has row 30, but rows are numbered from 0 to 29"),
    "a row from the end": ([(ROWS[15:], [0, -1])], "fold 0 has row -1"),
    "rows with fractions": ([(ROWS[15:], [0.5, 1.0])], r"fold 0 has shape \(2,\) and type float64; numbers of rows"),
    "no row to test": ([(ROWS[15:], [])], r"fold 0 has shape \(0,\)"),
    "no row to train on": ([([], ROWS[:15])], r"the training rows of fold 0 has shape \(0,\)"),
    "no folds": ([], "has 0 folds; pairs"),
    "three parts": ([(ROWS[:5], ROWS[5:9], ROWS[9:])], r"has 1 fold; pairs \(training rows, test rows\)"),
    "a mask that is too short": ([(ROWS[15:], ROWS[:20] < 5)], r"fold 0 has shape \(20,\) and type bool"),
}


@pytest.mark.parametrize("fit", [calibrated, stacked])
@pytest.mark.parametrize("name", REFUSED)
def test_folds_in_which_rows_meet_themselves_are_refused(fit: Any, name: str) -> None:
    cv, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        fit(cv)


@pytest.mark.parametrize("fit", [calibrated, stacked])
@pytest.mark.parametrize("cv", [1, 0, -3, 1.5, "five", None, True, KFold])
def test_what_is_no_plan_of_folds_is_refused(fit: Any, cv: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^cv="):
        fit(cv)


def test_masks_are_rows() -> None:
    masks = [(ROWS >= 15, ROWS < 15), (ROWS < 15, ROWS >= 15)]
    assert (stacked(masks) == stacked(HALVES)).all()


class Given(Ridge):
    def fit(self, X: Any, y: Any) -> "Given":
        self.rows_ = len(X)
        return super().fit(X, y)

    def predict_distribution(self, X: Any) -> Any:
        raise NotImplementedError


def test_a_pool_does_not_bring_back_rows_that_a_splitter_keeps_out() -> None:
    rows, x, y = np.arange(120), np.zeros((120, 1)), np.random.default_rng(0).normal(size=(120, 2))
    gaps = [(rows[(rows < start - 5) | (rows >= start + 35)], rows[start : start + 30]) for start in range(0, 120, 30)]
    make = CalibratedRegressorCV(Given(), cv=gaps, ensemble=True)
    with pytest.raises(ValueError, match=r"keeps up to 10 of 120 rows out of both .*; use ensemble=False"):
        make.fit(x, y)
    data = make.set_params(ensemble="auto")
    from prerank.regression.calibrated import _rows

    plan = data._plan(_rows(x, y, None, None), 0)
    assert [len(job.train) for job in plan.jobs] == [85, 80, 80, 85, 120]  # one model of each fold, and one of all rows
    plain = CalibratedRegressorCV(Given(), cv=KFold(4))._plan(_rows(x, y, None, None), 0)
    assert [len(job.train) for job in plain.jobs] == [60, 60, 60]
