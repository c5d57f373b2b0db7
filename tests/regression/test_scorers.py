"""Scorers, forecasts through pipelines and searches, and the paper's rule as a choice between candidates."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from prerank import HDR, Ensemble, Location, Marginal, energy_score, nll, pce, projected_pit
from prerank.recalibration import HighestDensityRegions
from prerank.regression import (
    LogLikelihood,
    MixtureRegressor,
    NegativeEnergyScore,
    NegativePCE,
    PaperRule,
    predict_distribution,
    predict_quantiles,
    sample,
)

Table = tuple[np.ndarray, np.ndarray]
Small = Callable[..., MixtureRegressor]


@pytest.fixture(scope="module")
def fitted(table: Table, small: Small) -> Any:
    return make_pipeline(StandardScaler(), small()).fit(*table)


def test_a_pipeline_forecasts_what_its_last_step_does(fitted: Any, table: Table) -> None:
    x = table[0][:6]
    own = fitted[-1].predict_distribution(fitted[0].transform(x))
    through = predict_distribution(fitted, x)
    assert all((getattr(own, part) == getattr(through, part)).all() for part in ("logits", "loc", "scale_tril"))
    assert (sample(fitted, x, 9, seed=3) == own.ensemble(9, 3).members.numpy()).all()


def test_quantiles_of_a_mixture_are_exact_and_those_of_draws_near_them(fitted: Any, table: Table) -> None:
    x, levels = table[0][:4], [0.1, 0.5, 0.9]
    exact = predict_quantiles(fitted, x, levels)
    assert exact.shape == (4, 3, 2)
    law = predict_distribution(fitted, x)
    below = law.cdf_along(torch.eye(2, dtype=torch.float64)[None], torch.from_numpy(exact))
    np.testing.assert_allclose(below.numpy(), np.broadcast_to(np.array(levels)[:, None], exact.shape), atol=1e-9)

    class Draws:
        def predict_distribution(self, X: Any) -> Ensemble:
            return law.ensemble(4000)

    share = law.cdf_along(
        torch.eye(2, dtype=torch.float64)[None], torch.from_numpy(predict_quantiles(Draws(), x, levels))
    )
    assert (share - torch.tensor(levels)[:, None]).abs().max() < 5 * 0.5 / np.sqrt(4000)


def test_joint_regions_work_through_a_pipeline(fitted: Any, table: Table) -> None:
    x, y = table
    regions = HighestDensityRegions().fit(predict_distribution(fitted, x[:200]), y[:200])
    inside = regions.region(predict_distribution(fitted, x[200:]), 0.8).contains(y[200:])
    assert inside.shape == (100,)


def test_scorers_are_the_mean_scores_of_the_forecast(fitted: Any, table: Table) -> None:
    x, y = table
    law, weights = predict_distribution(fitted, x), np.arange(300.0)
    assert LogLikelihood()(fitted, x, y) == pytest.approx(-float(nll(y, law).mean()), rel=1e-12)
    assert LogLikelihood()(fitted, x, y) == pytest.approx(fitted.score(x, y), rel=1e-12)
    weighted = np.average(-np.asarray(nll(y, law)), weights=weights)
    assert LogLikelihood()(fitted, x, y, weights) == pytest.approx(weighted, rel=1e-12)
    score = energy_score(torch.from_numpy(y).double(), law.ensemble(50, 4)).mean()
    assert NegativeEnergyScore(50, seed=4)(fitted, x, y) == pytest.approx(-float(score), rel=1e-12)
    error = pce(projected_pit(torch.from_numpy(y).double(), law, Location()))
    assert NegativePCE(Location())(fitted, x, y) == pytest.approx(-float(error), rel=1e-12)
    both = [NegativePCE(item)(fitted, x, y) for item in (Marginal(), HDR())]
    assert NegativePCE([Marginal(), HDR()])(fitted, x, y) == pytest.approx(np.mean(both), rel=1e-12)


def test_scales_make_the_energy_score_free_of_units(table: Table, small: Small) -> None:
    x, y = table
    units = np.array([1.0, 1024.0])  # a power of two, so that nothing is rounded
    plain, other = small().fit(x, y), small().fit(x, y * units)
    score = NegativeEnergyScore(scales=(1.0, 1024.0))(other, x, y * units)
    assert score == pytest.approx(NegativeEnergyScore()(plain, x, y), rel=1e-6)
    with pytest.raises(ValueError, match="one positive number for each of the 2 targets"):
        NegativeEnergyScore(scales=(1.0,))(plain, x, y)


def test_a_search_takes_the_scorers_and_the_papers_rule_chooses(table: Table, small: Small) -> None:
    x, y = table
    scoring = {"energy_score": NegativeEnergyScore(), "pce": NegativePCE([Marginal(), Location()])}
    search = GridSearchCV(
        make_pipeline(StandardScaler(), small(preranks=Location(), max_epochs=20)),
        {"mixtureregressor__strength": [0.0, 5.0]},
        scoring=scoring,
        refit=PaperRule(),
        cv=2,
    ).fit(x, y)
    assert search.best_index_ == PaperRule()(search.cv_results_)
    assert predict_distribution(search, x[:3]).batch_shape == (3,)
    assert cross_val_score(small(), x, y, cv=2, scoring=scoring["pce"]).max() < 0


@pytest.mark.parametrize(
    ("scores", "errors", "strengths", "chosen"),
    [
        ([1.0, 1.05, 1.3], [0.05, 0.02, 0.01], [0, 1, 10], 1),  # the third is not admitted
        ([1.3, 1.0, 1.05], [0.01, 0.05, 0.02], [10, 0, 1], 2),  # whatever the order
        ([1.0, 1.05, 1.3], [0.05, 0.02, 0.01], [2, 1, 10], 1),  # no strength 0: the best score is the baseline
        ([1.0, 0.7], [0.02, 0.05], [0, 1], 0),  # a better score alone does not win
        ([np.nan, 1.0], [0.01, 0.05], [0, 1], 1),  # a candidate that failed
    ],
)
def test_the_papers_rule(scores: list, errors: list, strengths: list, chosen: int) -> None:
    results = {
        "mean_test_energy_score": -np.array(scores),
        "mean_test_pce": -np.array(errors),
        "params": [{"model__strength": value} for value in strengths],
    }
    assert PaperRule()(results) == chosen


def test_the_rule_and_the_helpers_say_what_they_lack(table: Table, small: Small) -> None:
    x, _ = table
    with pytest.raises(ValueError, match=r"no 'mean_test_pce'; give it scoring="):
        PaperRule()({"mean_test_energy_score": np.zeros(2), "params": [{}, {}]})
    with pytest.raises(ValueError, match="none of 1 candidates"):
        PaperRule()({"mean_test_energy_score": [np.nan], "mean_test_pce": [np.nan], "params": [{}]})
    with pytest.raises(TypeError, match="LinearRegression has no predict_distribution"):
        predict_distribution(make_pipeline(LinearRegression()).fit(x, x), x)
    with pytest.raises(NotFittedError):
        predict_distribution(make_pipeline(StandardScaler(), small()), x)
    with pytest.raises(NotFittedError):
        predict_distribution(GridSearchCV(small(), {}), x)
    with pytest.raises(ValueError, match="probabilities between 0 and 1"):
        predict_quantiles(small().fit(*table), x, [0.5, 1.0])


def test_one_target_on_one_axis_is_scored(table: Table, small: Small) -> None:
    x, y = table[0], pd.Series(table[1][:, 0])
    model = small().fit(x, y)
    for scorer in (LogLikelihood(), NegativeEnergyScore(), NegativePCE()):
        assert np.isfinite(scorer(model, x, y))


def test_quantiles_are_asked_of_the_estimator_itself(table: Table, small: Small) -> None:
    fitted = small().fit(*table)
    levels = [0.1, 0.9]
    assert np.array_equal(
        fitted.predict_quantiles(table[0][:5], levels), predict_quantiles(fitted, table[0][:5], levels)
    )


def test_quantiles_of_counts_are_counts(small: Small) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    y = np.column_stack([rng.poisson(np.exp(0.3 * x[:, 0])), rng.normal(size=200)]).astype(float)
    found = small().fit(x, y).predict_quantiles(x[:20], [0.1, 0.5, 0.9])
    assert np.array_equal(found[..., 0], found[..., 0].round())
    assert (np.diff(found, axis=1) >= 0).all()
    assert not np.array_equal(found[..., 1], found[..., 1].round())
