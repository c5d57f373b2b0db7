"""A correction that depends on features: right given them, and no change where they tell nothing."""

import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import binom

from prerank import Ensemble, Location, Recalibrator, projected_pit
from prerank.recalibration import Affine, Tilt
from prerank.recalibration.basis import by_case, legendre, log_tilt
from prerank.recalibration.likelihood import Points
from prerank.recalibration.path import solve

SMALL = Tilt(n_draws=48, n_reference=50, pool=200, ridges=(1.0, 0.1, 0.01))
GIVEN = replace(SMALL, degree=2, by_features=True)


def season(standard, n_cases, seed):
    """Forecasts that are too low by half a standard deviation times the first feature."""
    forecast = standard(n_cases, seed=seed)
    features = torch.randn(n_cases, 2, generator=torch.Generator().manual_seed(seed + 50), dtype=torch.float64)
    noise = forecast.ensemble(1, seed, "observations").members[:, 0]
    return forecast, noise + 0.5 * features[:, :1], features


@pytest.fixture(scope="module")
def fitted(standard):
    forecast, y, features = season(standard, 500, 1)
    return Recalibrator([Location()], steps=[Affine(), GIVEN]).fit(forecast, y, features=features)


def test_a_bias_that_depends_on_a_feature_is_cured_given_the_feature(fitted, standard):
    forecast, y, features = season(standard, 800, 2)
    low, high = features[:, 0] < -0.5, features[:, 0] > 0.5

    def means(law):
        pit = projected_pit(y, Ensemble(law.ensemble(60).members), Location())
        middle = (pit.lower + pit.upper)[:, 0] / 2
        return [float(middle[part].mean()) - 0.5 for part in (low, high)]

    # the mean of n uniform numbers has the error sqrt(1 / 12 n), and the fit has seen 500 / 800 as many cases
    n_cases = int(min(low.sum(), high.sum()))
    bound = 4.5 * math.sqrt((1 + 800 / 500) / (12 * n_cases))
    assert max(map(abs, means(fitted.transform(forecast, features)))) < bound
    assert min(map(abs, means(forecast))) > bound


def test_features_that_tell_nothing_usually_change_nothing(standard, observed):
    changed, repetitions = 0, 16
    for seed in range(repetitions):
        forecast = standard(120, seed=seed)
        features = torch.randn(120, 1, generator=torch.Generator().manual_seed(seed))
        recalibrator = Recalibrator([Location()], steps=[GIVEN], seed=seed)
        changed += recalibrator.fit(forecast, observed(forecast, seed), features=features).changed_
    assert changed <= binom.ppf(0.9999, repetitions, 0.16)  # one standard error above zero by chance


def test_without_ridge_observed_means_equal_those_of_the_weighted_points_given_features():
    generator = torch.Generator().manual_seed(0)
    pits = torch.rand(400, 25, 1, generator=generator, dtype=torch.float64)
    features = torch.randn(400, 2, generator=generator, dtype=torch.float64)
    pits[:, 0] = torch.special.ndtr(torch.special.ndtri(pits[:, 0]) + 0.5 * features[:, :1])
    points = Points(pits, 2, features)
    used = torch.ones(1, 400, dtype=torch.float64)
    theta, _ = solve(points, used, [slice(None)], 0.0, torch.zeros(1, 2, 2, 1, dtype=torch.float64))
    products = features[:, None, :, None] * legendre(pits, 2)[:, :, None, :, 0]
    share = torch.softmax(log_tilt(pits, by_case(theta[0], features)), -1)
    weighted = (share[..., None, None] * products).sum(1).mean(0)
    # half the squared Newton decrement is below 1e-6; products have a standard deviation near one
    torch.testing.assert_close(products[:, 0].mean(0), weighted, atol=3e-3, rtol=0)
    assert products[:, 0].mean(0).abs().max() > 0.2  # there was something to meet


def test_one_number_per_case_is_one_feature_and_a_constant_one_changes_nothing(standard):
    forecast, y, _ = season(standard, 60, 3)
    recalibrator = Recalibrator([Location()], steps=[GIVEN]).fit(forecast, y, features=torch.ones(60))
    assert recalibrator.n_features_ == 1
    assert not recalibrator.changed_


def test_what_was_learnt_with_features_is_saved_and_read_again(fitted, standard, tmp_path):
    forecast, _, features = season(standard, 20, 4)
    fitted.save(tmp_path / "file")
    again = Recalibrator.load(tmp_path / "file")
    assert again.n_features_ == 2
    drawn = [item.transform(forecast, features).ensemble(4).members for item in (fitted, again)]
    assert torch.equal(*drawn)
    some = fitted.transform(forecast, features).select(torch.tensor([3, 7]))
    assert torch.equal(some.ensemble(4).members, drawn[0][[3, 7]])
    assert "tilt by 2 features" in again.summary()


def test_features_that_do_not_fit_are_refused(fitted, standard):
    forecast, y, features = season(standard, 20, 5)
    bad = features.clone()
    bad[3, 1] = torch.nan
    for message, call in {
        "was fitted on 2 features, and none are given": lambda: fitted.transform(forecast),
        "1 feature are given, but": lambda: fitted.transform(forecast, features[:, :1]),
        "a row for each of the 20 cases": lambda: fitted.transform(forecast, features[:7]),
        "NaN or infinite in 1 of 20 cases, the first of them case 3": lambda: fitted.transform(forecast, bad),
        "no step uses them": lambda: Recalibrator(steps=[SMALL]).fit(forecast, y, features=features),
        "needs features": lambda: Recalibrator(steps=[GIVEN]).fit(forecast, y),
        "was fitted on no features": lambda: (
            Recalibrator(steps=[Affine()]).fit(forecast, y).transform(forecast, features)
        ),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
