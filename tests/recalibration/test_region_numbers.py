"""Prediction regions by numbers: places, promises, thresholds, and volumes draw by draw."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from scipy.stats import beta, betabinom, binom
from torch.distributions import Independent, Laplace, MultivariateNormal, Normal, Poisson, Uniform

from builders import normal
from prerank import Ensemble, GaussianMixture, Marginal
from prerank.forecasts import equally_weighted_draws, select_cases
from prerank.recalibration import HighestDensityRegions, PredictionRegion, Tilted
from prerank.recalibration.densities import density_scale, log_density
from prerank.recalibration.pit_coordinates import OldPITs
from prerank.recalibration.regions import _reaching


def laplace(n_cases):
    return Independent(Laplace(normal(n_cases, 2), torch.tensor([1.0, 2.0]).double()), 1)


def with_scores(scores):
    regions = HighestDensityRegions(n_draws=10)
    regions.scores_ = torch.tensor(scores)
    return regions


@pytest.mark.parametrize(
    ("level", "place"), [(0.1, 1), (0.11, 2), (0.2, 2), (0.3, 3), (0.5, 5), (0.51, 6), (0.7, 7), (0.9, 9), (1e-6, 1)]
)
def test_the_edge_is_the_held_out_case_at_the_level_among_one_more(level, place):
    scores = [10.0 * k for k in range(1, 10)]
    assert with_scores(scores)._mass(level) == (10.0 * place, place)


def test_a_level_that_the_held_out_cases_cannot_promise_is_refused_with_what_they_can():
    regions = with_scores([0.1 * k for k in range(1, 9)])
    with pytest.raises(
        ValueError, match=r"^8 held-out cases cannot promise a coverage of 0.9: at least 9 are needed; .* 0.8888$"
    ):
        regions._mass(0.9)
    assert regions._mass(0.8888)[1] == 8
    one = with_scores([0.3])
    assert one._mass(0.5) == (pytest.approx(0.3), 1)
    with pytest.raises(ValueError, match="at least 19 are needed"):
        one._mass(0.95)


def test_observations_without_density_bound_the_level():
    regions = with_scores([0.1, 0.2, 0.5, math.inf, math.inf])
    assert regions._mass(0.5) == (0.5, 3)
    with pytest.raises(ValueError, match=r"^2 of 5 held-out observations .* covers 0.6; ask for a level below 0.6,"):
        regions._mass(0.6)


@pytest.mark.parametrize("kind", ["mixture", "members", "other"])
def test_scores_are_masses_and_thresholds_the_log_densities_there(kind, mixed):
    forecast, y, new = mixed(9), 2 * normal(9, 2, seed=1), mixed(4, seed=5)
    if kind == "members":
        forecast, new = forecast.ensemble(6), new.ensemble(6)
    elif kind == "other":
        forecast, new = laplace(9), laplace(4)
    regions = HighestDensityRegions(n_draws=30, seed=2).fit(forecast, y)
    region = regions.region(new, 0.7)
    old_law, new_law = regions.fit(forecast, y).region(forecast, 0.7).forecast, region.forecast
    masses = density_scale(old_law, 30, 2, "regions", common=True).mass(log_density(old_law, y[:, None]))[:, 0]
    torch.testing.assert_close(regions.scores_, masses.sort().values)
    assert (region.place, region.n_held_out, region.level) == (7, 9, 0.7)
    assert region.mass == pytest.approx(float(masses.sort().values[6]))
    exact = density_scale(new_law, 30, 2, "regions", common=True).log_density(region.mass)
    torch.testing.assert_close(region.threshold, exact)
    assert bool((region.threshold < exact).all())  # rounded outwards
    assert (HighestDensityRegions().n_draws, HighestDensityRegions().seed) == (1000, 0)


def test_points_at_the_threshold_are_inside(mixed):
    law, y = mixed(4), normal(4, 2)
    own = log_density(law, y[:, None])[:, 0]
    change = torch.tensor([0.0, 1e-6, -1e-6, -1.0]).double()
    region = PredictionRegion(law, 0.9, own + change, 0.9, 10, 9)
    assert region.contains(y).tolist() == [True, False, True, True]


def test_promises_are_quantiles_of_beta_and_beta_binomial_laws(mixed):
    region = PredictionRegion(mixed(1), 0.9, torch.zeros(1), 0.9, 19, 18)
    assert region.coverage() == (0.9, pytest.approx(beta(18, 2).ppf(0.025)), pytest.approx(beta(18, 2).ppf(0.975)))
    expected, lower, upper = region.coverage(40, confidence=0.8)
    law = betabinom(40, 18, 2)
    assert (expected, lower, upper) == (0.9, law.ppf(0.1) / 40, law.ppf(0.9) / 40)
    for confidence in (0.0, 1.0):
        with pytest.raises(ValueError, match=r"a probability between 0 and 1, such as 0\.95"):
            region.coverage(confidence=confidence)
    with pytest.raises(ValueError, match="n_cases=0"):
        region.coverage(0)
    low, high = 100 * beta(18, 2).ppf(0.025), 100 * beta(18, 2).ppf(0.975)
    promise = f"covers {low:.1f} to {high:.1f} % of all cases with probability 95 %"
    assert repr(region) == f"PredictionRegion(1 case, 2 targets, level 0.9: {promise})"


def test_options_of_regions_are_checked():
    for options in ({"n_draws": 1}, {"seed": 0.5}):
        with pytest.raises((TypeError, ValueError), match="a whole number"):
            HighestDensityRegions(**options)
    assert HighestDensityRegions(n_draws=2, seed=-1).n_draws == 2


def reaching(law, threshold):
    """Weights, means and factors of the Gaussians that reach to a threshold, component by component."""
    weights, factors = torch.zeros_like(law.logits), torch.zeros_like(law.scale_tril)
    for n in range(len(law.loc)):
        for c in range(law.n_components):
            tril = law.scale_tril[n, c]
            peak = float(law.log_weights[n, c]) + float(
                MultivariateNormal(law.loc[n, c], scale_tril=tril).log_prob(law.loc[n, c])
            )
            squared = 2 * (peak - float(threshold[n])) / 2
            size = math.sqrt(squared) if squared > 0 else 1.0
            factors[n, c] = size * tril
            weights[n, c] = float(torch.linalg.det(tril)) * size**2 if squared > 0 else 0.0
    alone = weights.sum(1) == 0
    weights[alone] = law.weights[alone]
    return weights / weights.sum(1, keepdim=True), factors


def test_gaussians_reach_as_far_as_the_region(mixed):
    law = mixed(4)
    peaks = law.log_weights - law.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1) - math.log(2 * math.pi)
    # far out; between the peaks of the components; above all of them
    threshold = torch.stack([peaks[0].min() - 5, peaks[1].mean(), peaks[2].max() + 1, peaks[3].min() - 1])
    found = _reaching(law, threshold[:, None], 10, 0)
    weights, factors = reaching(law, threshold)
    torch.testing.assert_close(found.weights, weights)
    torch.testing.assert_close(found.scale_tril, factors)
    assert torch.equal(found.loc, law.loc)
    single = mixed(4, dtype=torch.float32)
    wide = _reaching(single, threshold[:, None].float(), 10, 0)
    assert {part.dtype for part in (wide.logits, wide.loc, wide.scale_tril)} == {torch.float64}
    volume = PredictionRegion(single, 0.9, threshold.float(), 0.9, 100, 91).volume(10)
    assert (volume.value.dtype, volume.error.dtype) == (torch.float64, torch.float64)


def test_a_law_that_is_no_mixture_is_reached_by_one_gaussian_with_its_moments():
    law, threshold = laplace(3), torch.tensor([-6.0, -7.0, -8.0]).double()
    found = _reaching(law, threshold[:, None], 50, 4)
    drawn = equally_weighted_draws(law, 50, 4, "volume, moments").members
    centred = drawn - drawn.mean(1, keepdim=True)
    own = GaussianMixture(
        torch.zeros(3, 1), drawn.mean(1)[:, None], torch.linalg.cholesky(centred.mT @ centred / 50)[:, None]
    )
    torch.testing.assert_close(found.loc, own.loc)
    torch.testing.assert_close(found.scale_tril, reaching(own, threshold)[1], rtol=1e-6, atol=1e-6)
    single = _reaching(Independent(Laplace(torch.zeros(3, 2), torch.ones(2)), 1), threshold[:, None], 50, 4)
    assert {part.dtype for part in (single.logits, single.loc, single.scale_tril)} == {torch.float64}
    flat = Independent(Laplace(torch.zeros(3, 2), torch.tensor([1.0, 1e-12])), 1)
    assert _reaching(flat, threshold[:, None], 50, 4).scale_tril.isfinite().all()


@pytest.mark.parametrize("elements", [1 << 20, 1])
@pytest.mark.parametrize("kind", ["mixture", "other"])
def test_a_volume_is_a_mean_over_draws_of_the_forecast_and_of_wide_gaussians(kind, elements, mixed, monkeypatch):
    monkeypatch.setattr("prerank._chunks.ELEMENTS", elements)
    law = mixed(3) if kind == "mixture" else laplace(3)
    threshold = torch.tensor([-4.0, -5.0, -3.5]).double()
    value, error = PredictionRegion(law, 0.9, threshold, 0.9, 100, 91).volume(61, seed=8)
    wide = _reaching(law, threshold[:, None], 30, 8)
    means, variances = [], []
    for drawn_from, stream in ((law, "volume, own"), (wide, "volume, wide")):
        points = equally_weighted_draws(drawn_from, 30, 8, stream).members
        own, other = log_density(law, points).exp(), log_density(wide, points).exp()
        weight = torch.where(own >= threshold[:, None].exp(), 2 / (own + other), 0.0)
        assert 0 < float((weight > 0).double().mean()) < 1
        means.append(weight.mean(1))
        variances.append(weight.var(1) / 30)
    torch.testing.assert_close(value, (means[0] + means[1]) / 2)
    torch.testing.assert_close(error, (variances[0] + variances[1]).sqrt() / 2)


def test_a_region_of_equally_probable_points_has_the_volume_of_them_all():
    law = Independent(Uniform(torch.zeros(3, 2).double(), torch.tensor([2.0, 4.0]).double()), 1)
    region = PredictionRegion(law, 0.9, law.log_prob(torch.ones(3, 2).double()), 0.9, 100, 91)
    value, error = region.volume(400)
    assert ((value - 8.0).abs() < 5 * error).all()
    assert (error < 0.8).all()


def test_few_draws_for_a_volume_are_at_least_two_of_each_kind(mixed):
    region = PredictionRegion(mixed(3), 0.9, torch.full((3,), -9.0).double(), 0.9, 100, 91)
    for few in (1, 2, 4):
        assert torch.equal(region.volume(few).value, region.volume(5).value)
    assert not torch.equal(region.volume(6).value, region.volume(4).value)
    assert torch.equal(region.volume().value, region.volume(1000, 0).value)
    with pytest.raises(ValueError, match="n_draws=0: a whole number of at least 1"):
        region.volume(0)


def test_regions_of_weighted_members_are_those_of_their_kernels():
    members, weights = Ensemble(normal(5, 6, 2), torch.rand(5, 6) + 0.1), normal(5, 2, seed=1)
    region = HighestDensityRegions(n_draws=20).fit(members, weights).region(members, 0.5)
    assert isinstance(region.forecast, GaussianMixture)
    assert region.forecast.n_components == 6


WIDE, N_HELD_OUT, N_TARGETS = 5.0, 9, 10  # the score of every case hangs on the extremes of its own draws


def repetitions(kind, count, seed):
    """Forecasts far too wide of ten cases each, the last one new, and observations: one repetition after another."""
    n_cases = count * (N_HELD_OUT + 1)
    loc = normal(n_cases, N_TARGETS, seed=seed)
    y = loc + normal(n_cases, N_TARGETS, seed=seed + 1)
    spread = WIDE * torch.ones_like(loc)
    if kind == "mixture":
        law = GaussianMixture(torch.zeros(n_cases, 1), loc[:, None], torch.diag_embed(spread)[:, None])
    else:
        law = Independent(Normal(loc, spread), 1)
    for start in range(0, n_cases, N_HELD_OUT + 1):
        cases = slice(start, start + N_HELD_OUT), slice(start + N_HELD_OUT, start + N_HELD_OUT + 1)
        yield [(select_cases(law, part), y[part]) for part in cases]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mixture", "other", "opaque"])
@pytest.mark.parametrize("seed", [0, 1])
def test_nine_held_out_cases_cover_nine_tenths_for_every_seed(kind, seed, opaque):
    """The rank of ten exchangeable scores is uniform, so coverage is 9/10 to the digit, for a fixed seed as on average."""
    regions, inside, count = HighestDensityRegions(n_draws=40, seed=seed), 0, 600
    for (forecast, y), (fresh, later) in repetitions(kind, count, seed=10):
        if kind == "opaque":
            forecast, fresh = opaque(forecast), opaque(fresh)
        inside += int(regions.fit(forecast, y).region(fresh, 0.9).contains(later)[0])
    # no further off than a binomial count is once in 10^5
    low, high = binom.ppf([5e-6, 1 - 5e-6], count, 0.9)
    assert low <= inside <= high


def test_a_score_is_one_function_of_forecast_and_observation(mixed):
    """What the promise rests on: the same case has the same score wherever it stands, held out or new."""
    law, y = mixed(6), normal(6, 2, seed=3)
    tilted = Tilted(law, OldPITs((Marginal(),), 20, 0), torch.tensor([[0.4, -0.3]]).double(), pool=60)
    for forecast in (law, laplace(6), tilted):
        order = torch.tensor([3, 0, 5, 1, 4, 2])
        moved = select_cases(forecast, order)
        if isinstance(moved, Tilted):
            moved = moved.named(torch.arange(6))
        first, second = (
            HighestDensityRegions(n_draws=30).fit(law_, y_).scores_ for law_, y_ in ((forecast, y), (moved, y[order]))
        )
        assert torch.equal(first, second)
        regions = HighestDensityRegions(n_draws=30).fit(forecast, y)
        for k in range(1, 7):  # at the k-th score k observations are inside: those that were held out
            assert int(regions.region(moved, k / 7).contains(y[order]).sum()) == k


@pytest.mark.parametrize("kind", ["mixture", "members", "Poisson"])
def test_atoms_in_single_precision_are_inside_at_their_own_score(kind):
    generator = torch.Generator().manual_seed(1)
    y = torch.poisson(torch.full((600, 3), 2.0), generator=generator).float()
    if kind == "mixture":
        forecast = GaussianMixture(
            torch.zeros(600, 1), torch.full((600, 1, 3), 2.1), 1.3 * torch.eye(3).expand(600, 1, 3, 3)
        )
    elif kind == "members":
        forecast = Ensemble(torch.poisson(torch.full((20, 3), 2.0), generator=generator).expand(600, 20, 3))
    else:
        forecast = Independent(Poisson(torch.full((600, 3), 2.1)), 1)
    regions = HighestDensityRegions(n_draws=100).fit(forecast, y)
    assert regions.scores_.dtype == torch.float64
    assert len(regions.scores_.unique()) < 200
    for place in range(10, 600, 37):
        region = regions.region(forecast, place / 601)
        inside = int(region.contains(y).sum())
        assert inside >= int((regions.scores_ <= region.mass).sum()) >= place


def test_labels_of_cases_and_targets_are_matched(mixed):
    law, names, times = mixed(8), ["a", "b"], pd.date_range("2020-01-01", periods=8)
    members = xr.DataArray(
        law.ensemble(9).members.numpy(),
        dims=("time", "number", "station"),
        coords={"time": times, "station": names},
    )
    y = pd.DataFrame(law.ensemble(1, 5).members[:, 0].numpy(), index=times, columns=names)
    region = HighestDensityRegions(n_draws=50).fit(members, y).region(members, 0.5)
    inside = region.contains(y)
    assert 0 < inside.sum() < 8
    order = np.array([5, 0, 7, 1, 2, 6, 3, 4])
    assert (region.contains(y.iloc[order][["b", "a"]]) == inside[order]).all()
    assert (region.contains(y.to_numpy()) == inside).all()
    with pytest.raises(ValueError, match=r"case 0 is 2021-01-01 in y and 2020-01-01 in the forecast"):
        region.contains(y.set_axis(pd.date_range("2021-01-01", periods=8)))
    with pytest.raises(ValueError, match=r"target 1 is 'c' in y"):
        region.contains(y.set_axis(["a", "c"], axis=1))
