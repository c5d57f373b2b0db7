"""Prediction regions cover as promised for any forecast, and their volumes are right."""

import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from scipy.stats import betabinom, chi2
from torch.distributions import Independent, LogNormal, Normal

from prerank import Ensemble, GaussianMixture
from prerank.datasets import Bimodal
from prerank.recalibration import HighestDensityRegions, PredictionRegion

ALMOST_SURE = 1 - 1e-6


def cases(n_targets, n_cases, seed):
    """The true forecast of so many cases, and observations of it."""
    table = Bimodal(n_targets).table(n_cases, seed)
    return Bimodal(n_targets).law(table.x), torch.as_tensor(table.y)


def wrong(truth, shift=0.3, spread=0.5):
    """One hump of two, beside its place and too narrow (or too wide)."""
    n_cases, n_targets = truth.loc.shape[0], truth.n_targets
    loc = truth.loc[:, :1] + shift
    return GaussianMixture(torch.zeros(n_cases, 1), loc, spread * torch.eye(n_targets).expand(n_cases, 1, -1, -1))


FORECASTS = {
    "true": lambda truth: truth,
    "narrow": lambda truth: wrong(truth, spread=0.2),
    "wide": lambda truth: wrong(truth, spread=9.0),
    "members": lambda truth: truth.ensemble(20, seed=5),
    "weighted members": lambda truth: Ensemble(truth.ensemble(9, seed=5).members, torch.rand(len(truth.loc), 9) + 0.1),
    "no mixture": lambda truth: Independent(Normal(truth.mean, 0.4), 1),
}


@pytest.mark.parametrize("n_targets", [2, 6])
@pytest.mark.parametrize("name", FORECASTS)
def test_regions_of_right_and_wrong_forecasts_cover_within_the_beta_binomial_interval(name, n_targets):
    truth, y = cases(n_targets, 300, seed=1)
    fresh, later = cases(n_targets, 500, seed=2)
    regions = HighestDensityRegions(n_draws=200).fit(FORECASTS[name](truth), y)
    for level in (0.5, 0.9):
        region = regions.region(FORECASTS[name](fresh), level)
        _, lower, upper = region.coverage(500, ALMOST_SURE)
        assert lower <= float(region.contains(later).double().mean()) <= upper


@pytest.mark.parametrize(("name", "beyond"), [("narrow", "below all draws"), ("wide", "above all draws")])
def test_without_held_out_cases_the_wrong_forecasts_would_not_cover(name, beyond):
    truth, y = cases(6, 300, seed=1)
    regions = HighestDensityRegions(n_draws=200).fit(FORECASTS[name](truth), y)
    assert float((regions.scores_ > 1 if beyond == "below all draws" else regions.scores_ < 0).double().mean()) > 0.5
    assert regions.scores_.unique().numel() == 300  # told apart all the same
    taken_at_its_word = int((regions.scores_ <= 0.5).sum())
    low, high = betabinom.ppf([5e-7, 1 - 5e-7], 300, 150, 151)
    assert not low <= taken_at_its_word <= high


@pytest.mark.slow
def test_the_mass_of_a_calibrated_forecast_is_near_its_level_and_that_of_a_narrow_one_above():
    truth, y = cases(2, 1000, seed=3)
    narrow = GaussianMixture(truth.logits, truth.loc, 0.5 * truth.scale_tril)
    for level in (0.5, 0.9):
        right = HighestDensityRegions().fit(truth, y).region(truth, level).mass
        assert abs(right - level) < 5 * math.sqrt(level * (1 - level) / 1000) + 5 / 1000
        assert HighestDensityRegions().fit(narrow, y).region(narrow, level).mass > right + 0.05


def test_atoms_do_not_lower_the_coverage():
    y, later = cases(2, 300, seed=1)[1], cases(2, 500, seed=2)[1]
    same = GaussianMixture(torch.zeros(1, 1), torch.zeros(1, 1, 2), torch.eye(2)[None, None])
    regions = HighestDensityRegions(n_draws=200).fit(same.expand((300,)), y.round())
    region = regions.region(same.expand((500,)), 0.8)
    assert float(region.contains(later.round()).double().mean()) >= region.coverage(500, ALMOST_SURE).lower


def ball(n_targets, radius):
    return math.pi ** (n_targets / 2) / math.gamma(n_targets / 2 + 1) * radius**n_targets


def region_of(forecast, threshold):
    return PredictionRegion(forecast, 0.9, threshold, 0.9, 100, 91)


@pytest.mark.parametrize("n_targets", [1, 2, 6, 16])
@pytest.mark.parametrize("reach", [0.5, 1.0, 4.0])  # of the radius where most draws lie
@pytest.mark.parametrize("kind", [GaussianMixture, Normal])
def test_the_volume_of_a_gaussian_region_is_that_of_its_ellipsoid(n_targets, reach, kind):
    n_cases, radius = 100, reach * math.sqrt(n_targets)
    generator = torch.Generator().manual_seed(1)
    loc = torch.randn(n_cases, n_targets, generator=generator, dtype=torch.float64)
    scale = loc.flip(0).exp()
    if kind is GaussianMixture:
        below = 0.5 * torch.randn(n_cases, n_targets, n_targets, generator=generator, dtype=torch.float64).tril(-1)
        forecast = GaussianMixture(loc[:, :1] * 0, loc[:, None], (torch.diag_embed(scale) + below)[:, None])
    else:
        forecast = Independent(Normal(loc, scale), 1)
    log_det = scale.log().sum(-1)
    peak = -log_det - 0.5 * n_targets * math.log(2 * math.pi)
    value, error = region_of(forecast, peak - radius**2 / 2).volume(2000, seed=3)
    exact = ball(n_targets, radius) * log_det.exp()
    squares = ((value - exact) / error).square()
    low, high = chi2.ppf([1e-6, 1 - 1e-6], n_cases) / n_cases
    assert low < float(squares.mean()) < high
    assert float((error / value).max()) < 0.1


def test_far_components_add_their_volumes():
    loc = torch.tensor([[[-50.0, 0.0], [50.0, 0.0]]], dtype=torch.float64)
    tril = torch.stack([torch.eye(2), 3 * torch.eye(2)]).double()[None]
    logits = torch.tensor([[0.3, 0.7]], dtype=torch.float64).log()
    threshold = math.log(0.3 / (2 * math.pi)) - 2.0, math.log(0.7 / 9 / (2 * math.pi))
    squared = [2 * (threshold[0] + 2.0 - threshold[0]), 2 * (threshold[1] - threshold[0])]
    exact = math.pi * (squared[0] + 9 * max(squared[1], 0.0))
    value, error = region_of(GaussianMixture(logits, loc, tril), torch.tensor([threshold[0]])).volume(4000)
    assert abs(float(value) - exact) < 5 * float(error) < 0.3 * exact


def test_an_affine_map_of_targets_changes_no_answer_and_scales_volumes():
    truth, y = cases(3, 200, seed=1)
    fresh, later = cases(3, 100, seed=2)
    shift = torch.tensor([1.0, -2.0, 30.0], dtype=torch.float64)
    map_ = torch.tensor([[2.0, 0.0, 0.0], [0.5, 0.1, 0.0], [-7.0, 1.0, 3.0]], dtype=torch.float64)

    def mapped(forecast):
        return GaussianMixture(forecast.logits, forecast.loc @ map_.mT + shift, map_ @ forecast.scale_tril)

    before = HighestDensityRegions(n_draws=200).fit(truth, y).region(fresh, 0.8)
    after = HighestDensityRegions(n_draws=200).fit(mapped(truth), y @ map_.mT + shift).region(mapped(fresh), 0.8)
    assert torch.equal(before.contains(later), after.contains(later @ map_.mT + shift))
    determinant = float(torch.linalg.det(map_))
    torch.testing.assert_close(after.volume().value, determinant * before.volume().value, rtol=1e-6, atol=0)


def test_regions_grow_with_their_level():
    truth, y = cases(2, 300, seed=1)
    regions = HighestDensityRegions(n_draws=200).fit(truth, y)
    first, second = (regions.region(truth, level) for level in (0.5, 0.9))
    assert bool((second.threshold < first.threshold).all())
    assert bool((second.contains(y) >= first.contains(y)).all())
    assert int(second.contains(y).sum()) > int(first.contains(y).sum())


def test_the_promise_narrows_with_held_out_cases_and_widens_with_few_new_ones():
    forecast = GaussianMixture(torch.zeros(1, 1), torch.zeros(1, 1, 2), torch.eye(2)[None, None])
    few, many = (PredictionRegion(forecast, 0.9, torch.zeros(1), 0.9, n, place) for n, place in ((99, 90), (999, 900)))
    assert few.coverage().expected == many.coverage().expected == 0.9
    assert few.coverage().lower < many.coverage().lower < 0.9 < many.coverage().upper < few.coverage().upper
    assert many.coverage(50).lower < many.coverage(5000).lower < 0.9
    assert many.coverage(10**5).lower == pytest.approx(many.coverage().lower, abs=5e-4)


def test_what_lies_outside_the_support_is_outside_every_region():
    forecast = Independent(LogNormal(torch.zeros(100, 2), torch.ones(100, 2)), 1)
    y = torch.randn(100, 2, generator=torch.Generator().manual_seed(1)).exp()
    regions = HighestDensityRegions().fit(forecast, y)
    region = regions.region(forecast, 0.9)
    assert not region.contains(-y).any()
    assert region.contains(y).sum() >= 80
    y[:20] *= -1
    regions.fit(forecast, y)
    assert int(regions.region(forecast, 0.7).contains(y).sum()) >= 60
    with pytest.raises(ValueError, match=r"20 of 100 held-out observations have density zero .* level below 0.8"):
        regions.region(forecast, 0.9)


def test_arrays_go_in_and_come_back():
    rng = np.random.default_rng(0)
    members, y = rng.normal(size=(60, 15, 3)), rng.normal(size=(60, 3))
    region = HighestDensityRegions(n_draws=100).fit(members, y).region(members, 0.8)
    assert isinstance(region.contains(y), np.ndarray)
    assert region.contains(y).shape == (60,)
    assert region.contains(torch.as_tensor(y)).dtype == torch.bool


def test_draws_depend_on_the_seed_alone_and_leave_the_global_generator_as_it_was():
    truth, y = cases(2, 50, seed=1)
    state = torch.get_rng_state()
    first, second, other = (HighestDensityRegions(n_draws=50, seed=seed).fit(truth, y).scores_ for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("level", "n_cases", "needed"), [(0.95, 18, 19), (0.9, 8, 9), (0.5, 0, 1), (0.99, 98, 99)])
def test_too_few_held_out_cases_for_a_level_get_the_number_that_is_needed(level, n_cases, needed):
    truth, y = cases(2, needed, seed=1)
    regions = HighestDensityRegions(n_draws=20).fit(truth, y)
    assert regions.region(truth, level).place == needed
    if n_cases:
        regions.fit(truth.select(slice(n_cases)), y[:n_cases])
        with pytest.raises(ValueError, match=f"^{n_cases} held-out cases cannot .* {level:g}: at least {needed} are"):
            regions.region(truth, level)


def test_bad_input_gets_a_sentence():
    truth, y = cases(2, 30, seed=1)
    regions = HighestDensityRegions(n_draws=20)
    with pytest.raises(ValueError, match="not fitted yet; call fit"):
        regions.region(truth, 0.9)
    with pytest.raises(TypeError, match=r"y is a GaussianMixture, .* fit\(forecast, y\)"):
        regions.fit(y, truth)
    with pytest.raises(ValueError, match="30 cases and 2 targets; both must be the same"):
        regions.fit(truth, y[:20])
    with pytest.raises(ValueError, match="y has 1 infinite values"):
        regions.fit(truth, torch.where(y == y[3, 1], torch.inf, y))
    with pytest.raises(ValueError, match=r"leading axes \(4,\) .* one model at a time"):
        regions.fit(truth.expand((4, 30)), y)
    regions.fit(truth, y)
    for level in (0.0, 1.0, 90, float("nan")):
        with pytest.raises(ValueError, match=f"level={level}: the share of observations"):
            regions.region(truth, level)
    region = regions.region(truth, 0.9)
    with pytest.raises(ValueError, match="30 cases and 2 targets"):
        region.contains(y[:20])
    with pytest.raises(ValueError, match="confidence=95: a probability"):
        region.coverage(confidence=95)
    with pytest.raises(ValueError, match="n_draws=1: a whole number of at least 2"):
        HighestDensityRegions(n_draws=1)
    with pytest.raises(TypeError, match="log_prob"):
        regions.fit(WithoutDensity(30), y)


class WithoutDensity(torch.distributions.Distribution):
    """A sampler and nothing else."""

    arg_constraints = {}  # noqa: RUF012

    def __init__(self, n_cases):
        super().__init__(torch.Size((n_cases,)), torch.Size((2,)), validate_args=False)

    def sample(self, sample_shape=()):
        return torch.zeros(*sample_shape, *self.batch_shape, 2)


def on_a_grid(ax):
    """Contours of an axes: vertices of the edge."""
    return np.concatenate([path.vertices for path in ax.collections[-1].get_paths()])


def test_the_drawn_edge_of_two_targets_is_the_edge_of_the_region():
    truth, y = cases(2, 200, seed=1)
    region = HighestDensityRegions(n_draws=300).fit(truth, y).region(truth, 0.8)
    ax = region.plot(case=7, y=y[7])
    edge = torch.as_tensor(on_a_grid(ax))
    law = GaussianMixture(truth.logits[[7]], truth.loc[[7]], truth.scale_tril[[7]])
    beyond = law.log_prob(edge[:, None]).flatten() - region.threshold[7]
    assert len(edge) > 50
    assert beyond.abs().max() < 0.1  # the grid's resolution
    inside, outside = (torch.as_tensor(np.asarray(ax.collections[k].get_offsets())) for k in (1, 0))
    assert (law.log_prob(inside[:, None]) >= region.threshold[7]).all()
    assert (law.log_prob(outside[:, None]) < region.threshold[7]).all()
    assert ax.get_title(loc="left") == "case 7, level 0.8"


@pytest.mark.parametrize("n_targets", [1, 3])
def test_regions_of_one_target_and_of_many_are_drawn(n_targets):
    truth, y = cases(n_targets, 60, seed=1)
    region = HighestDensityRegions(n_draws=100).fit(truth, y).region(truth, 0.8)
    ax = region.plot(case=-1, targets=(2, 0), y=y[-1])
    assert ax.get_xlabel() == ("y1" if n_targets == 1 else "y3")
    assert [text.get_text() for text in (ax.get_legend() or ax.figure.legends[0]).get_texts()][-1] == "observation"


def test_a_region_is_drawn_with_the_names_of_its_frame():
    frame = pd.DataFrame(np.zeros((40, 2)), columns=["wind", "sun"], index=[f"day {i}" for i in range(40)])
    rng = np.random.default_rng(0)
    members = xr.DataArray(
        rng.normal(size=(40, 9, 2)),
        dims=("case", "member", "target"),
        coords={"case": frame.index, "target": frame.columns},
    )
    ax = HighestDensityRegions(n_draws=100).fit(members, frame).region(members, 0.8).plot(case=3)
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title(loc="left")) == ("wind", "sun", "case 'day 3', level 0.8")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"case": 60}, "case=60: there are 60 cases"),
        ({"targets": (0, 0)}, "two different positions from 0 to 1"),
        ({"targets": 1}, "two different positions from 0 to 1"),
        ({"y": [1.0]}, "y has 1 values; the observation of one case is 2 numbers"),
        ({"n_draws": 0}, "n_draws=0"),
    ],
)
def test_what_cannot_be_drawn_of_a_region_is_refused(asked, said):
    truth, y = cases(2, 60, seed=1)
    region = HighestDensityRegions(n_draws=100).fit(truth, y).region(truth, 0.8)
    with pytest.raises(ValueError, match=re.escape(said)):
        region.plot(**asked)
