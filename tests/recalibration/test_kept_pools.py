"""What is kept or left out to save time changes no number."""

import pickle
import weakref

import pytest
import torch
from torch.testing import assert_close

from prerank import HDR, GaussianMixture, Location, Marginal
from prerank import _chunks as chunks
from prerank.preranks import view_of
from prerank.recalibration import Tilt, path, tilted
from prerank.recalibration.folds import folds_of
from prerank.recalibration.pit_coordinates import OldPITs
from prerank.recalibration.steps import HeldOut
from prerank.recalibration.tilted import Tilted


def twice_tilted(n=5, pool=60):
    generator = torch.Generator().manual_seed(0)
    base = GaussianMixture(
        torch.zeros(n, 2), torch.randn(n, 2, 2, generator=generator), torch.eye(2).expand(n, 2, 2, 2).clone()
    )
    pits = OldPITs((Marginal(), Location(), HDR()), 40, 0)
    theta = 0.3 * torch.randn(2, 3, 4, generator=generator)
    return Tilted(Tilted(base, pits, theta[0], pool), pits, theta[1], pool)


def test_a_pool_that_is_kept_serves_the_cases_that_are_selected():
    kept, some = twice_tilted(), torch.tensor([3, 1])
    kept.keep_pool()
    points = torch.randn(2, 7, 2, generator=torch.Generator().manual_seed(1))
    for cases in (some, slice(1, 3)):
        part, fresh = kept.select(cases), twice_tilted().select(cases)
        assert part.has_pool
        assert not fresh.has_pool
        assert_close(part.mean, fresh.mean)
        assert_close(part.log_density(points), fresh.log_density(points))
        assert_close(part.reference_draws(9, "r").members, fresh.reference_draws(9, "r").members)


def test_a_pool_too_large_to_keep_is_not_kept(monkeypatch):
    monkeypatch.setattr(tilted, "MOST_KEPT", 5 * 60 * 2 - 1)
    forecast = twice_tilted()
    forecast.keep_pool()
    assert not forecast.has_pool
    monkeypatch.setattr(tilted, "MOST_KEPT", 5 * 60 * 2)
    forecast.keep_pool()
    assert forecast.has_pool
    assert forecast._kept[0].shape == (5, 60, 2)


def test_exponents_are_computed_once_for_the_same_points(monkeypatch):
    forecast, points = twice_tilted(), torch.randn(5, 4, 2, generator=torch.Generator().manual_seed(2))
    found = forecast.log_weights(points)
    monkeypatch.setattr(Tilted, "_exponent", None)
    assert forecast.log_weights(points) is found


def test_exponents_are_those_of_the_points_as_they_are_now():
    forecast, points = twice_tilted(), torch.randn(5, 4, 2, generator=torch.Generator().manual_seed(2))
    before = forecast.log_weights(points)
    points += 1.0
    after = forecast.log_weights(points)
    assert_close(after, twice_tilted().log_weights(points.clone()))
    assert not torch.equal(before, after)
    del points
    assert not forecast._known._found  # nothing is held for points that are gone


def test_exponents_of_reference_draws_are_those_of_their_places_in_the_pool():
    forecast = twice_tilted()
    drawn = forecast.reference_draws(11, "r").members
    assert_close(forecast.log_weights(drawn), forecast.log_weights(drawn.clone()))


def test_a_pre_rank_sees_the_density_of_a_tilted_forecast():
    forecast, points = twice_tilted(), torch.randn(5, 4, 2, generator=torch.Generator().manual_seed(2))
    seen = view_of(forecast).log_density().function(points)
    assert_close(seen, forecast.log_prob(points.movedim(-2, 0)).movedim(0, -1))


def test_a_metric_of_some_cases_leads_to_the_same_coefficients(monkeypatch):
    generator = torch.Generator().manual_seed(3)
    pits = torch.rand(300, 41, 2, generator=generator)
    pits[:, 0] = pits[:, 0].square()
    folds = folds_of(300, 3, None, 0, torch.device("cpu"))
    weights = torch.rand(300, generator=generator) + 0.5
    monkeypatch.setattr(path, "_CLOSE", 1e-12)
    exact = path.ridge_path(pits, weights, folds, (0.1, 0.01), 3)
    monkeypatch.setattr(path, "_FOR_METRIC", 30)
    quick = path.ridge_path(pits, weights, folds, (0.1, 0.01), 3)
    assert quick.choice == exact.choice
    for one, other in zip(quick.candidates, exact.candidates, strict=True):
        assert_close(one.theta, other.theta, rtol=0, atol=1e-4)
        assert_close(one.without, other.without, rtol=0, atol=1e-4)


def test_a_metric_finds_the_weight_where_it_did_not_look(monkeypatch):
    pits = torch.rand(100, 11, 1, generator=torch.Generator().manual_seed(4))
    folds = folds_of(100, 2, None, 0, torch.device("cpu"))
    weights = torch.zeros(100)
    weights[folds.fold.argsort(stable=True)[5::10]] = 1.0  # every tenth case of a fold begins with its first
    exact = path.ridge_path(pits, weights, folds, (1.0,), 2).candidates[0]
    monkeypatch.setattr(path, "_FOR_METRIC", 10)
    quick = path.ridge_path(pits, weights, folds, (1.0,), 2).candidates[0]
    assert_close(quick.theta, exact.theta, atol=1e-3, rtol=0)


def test_a_second_tilt_that_nothing_speaks_for_is_not_fitted_with_whole_pools(standard, observed, monkeypatch):
    """The first look is enough: no pool is kept, and the answer is no change."""
    forecast = standard(300)
    once = Tilted(forecast, OldPITs((Location(),), 40, 0), torch.zeros(2, 1), 700)
    monkeypatch.setattr(Tilted, "keep_pool", lambda _: pytest.fail("whole pools were made"))
    y = observed(forecast, 5)
    folds = folds_of(300, 5, None, 0, torch.device("cpu"))
    held_out = HeldOut(y, torch.ones(300, dtype=torch.float64), folds, [Location()], 0)
    fitted = Tilt(degree=2, n_draws=64, n_reference=40, pool=700).fit(once, held_out)
    assert not fitted.changed
    assert "support no tilt" in fitted.summary()


def test_a_second_tilt_that_is_needed_is_fitted_with_the_forecasts_own_pools(standard, observed):
    forecast = standard(300)
    once = Tilted(forecast, OldPITs((Location(),), 40, 0), torch.zeros(2, 1), 700)
    y = forecast.mean + 2.0 * (observed(forecast, 5) - forecast.mean)
    folds = folds_of(300, 5, None, 0, torch.device("cpu"))
    held_out = HeldOut(y, torch.ones(300, dtype=torch.float64), folds, [Location()], 0)
    fitted = Tilt(degree=2, n_draws=64, n_reference=40, pool=700).fit(once, held_out)
    assert fitted.changed
    assert fitted.theta[1, 0] > 0.1  # more in both tails
    assert once._kept[0].shape == (300, 700, 2)


@pytest.mark.parametrize(("share", "pool"), [(1.0, 700), (0.5, 800), (0.1, 4000), (0.001, 7000)])
def test_a_pool_is_as_large_as_its_effective_share_asks_for(standard, share, pool):
    forecast = Tilted(standard(3), OldPITs((Location(),), 40, 0), torch.zeros(2, 1), 700, share=share)
    assert forecast.pool_worth(400) == pool
    for larger in (forecast.with_pool(pool), forecast.with_pool(pool).select(slice(0, 2))):
        assert larger.named(larger.case_ids).pool_worth(10**9) == 7000  # not ten times a pool that is larger already


def test_a_forecast_can_be_asked_in_inference_mode():
    points = torch.randn(5, 4, 2, generator=torch.Generator().manual_seed(2))
    expected = twice_tilted().log_density(points)
    with torch.inference_mode():
        forecast, inside = twice_tilted(), points.clone()
        assert_close(forecast.log_density(inside), expected)
        assert_close(forecast.log_density(inside), expected)


def test_a_forecast_that_remembers_points_goes_to_another_process():
    forecast, points = twice_tilted(), torch.randn(5, 4, 2, generator=torch.Generator().manual_seed(2))
    found = forecast.log_weights(points)
    again = pickle.loads(pickle.dumps(forecast))
    assert not again._known._found
    assert_close(again.log_weights(points), found)


def test_other_names_of_cases_are_those_of_all_tilts():
    forecast, names = twice_tilted(), torch.tensor([7, 1, 5, 3, 9])
    points = torch.randn(5, 4, 2, generator=torch.Generator().manual_seed(2))
    forecast.log_weights(points)
    named = forecast.named(names)
    fresh = Tilted(forecast.base.base, forecast.pits, forecast.base.theta, 60, names)
    assert_close(named.log_density(points), Tilted(fresh, forecast.pits, forecast.theta, 60, names).log_density(points))
    assert not torch.equal(named.log_weights(points), forecast.log_weights(points))


@pytest.fixture
def pools_at_once(monkeypatch):
    """The largest number of points that pools have held at the same time, as a list of one number."""
    made, most = [], [0]
    draw = tilted.equally_weighted_draws

    def counted(*arguments):
        drawn = draw(*arguments)
        made.append(weakref.ref(drawn.members))
        most[0] = max(most[0], sum(pool().shape[:-1].numel() for pool in made if pool() is not None))
        return drawn

    monkeypatch.setattr(tilted, "equally_weighted_draws", counted)
    return most


def test_moments_need_a_pool_of_a_few_cases_at_a_time(monkeypatch, pools_at_once):
    once = twice_tilted(40).mean
    assert pools_at_once == [2 * 40 * 60]  # each tilt has one
    monkeypatch.setattr(chunks, "ELEMENTS", 2 * 60 * 8)  # two cases
    pools_at_once[0] = 0
    assert_close(twice_tilted(40).mean, once)
    assert pools_at_once[0] <= 2 * (2 * 2 * 60)  # those in use, and the next


def test_a_second_tilt_needs_a_pool_of_a_few_cases_at_a_time(monkeypatch, pools_at_once):
    old, y = OldPITs((Marginal(), Location(), HDR()), 40, 0), torch.zeros(40, 2)
    held_out = HeldOut(y, torch.ones(40), folds_of(40, 4, None, 0, y.device), old.preranks, 0)
    whole = Tilt(n_draws=5, n_reference=40).points(twice_tilted(40), held_out, old)
    monkeypatch.setattr(chunks, "ELEMENTS", 2 * 60 * 8)
    pools_at_once[0] = 0
    assert_close(Tilt(n_draws=5, n_reference=40).points(twice_tilted(40), held_out, old), whole)
    assert pools_at_once[0] <= 2 * (2 * 2 * 60)


def few_points(n=40):
    return torch.randn(n, 3, 2, generator=torch.Generator().manual_seed(2))


def test_a_log_density_at_few_points_needs_a_pool_of_a_few_cases_at_a_time(monkeypatch, pools_at_once):
    points = few_points()
    whole = twice_tilted(40).log_density(points)
    monkeypatch.setattr(chunks, "ELEMENTS", 2 * 60 * 8)
    monkeypatch.setattr(tilted, "MOST_KEPT", 0)
    pools_at_once[0] = 0
    assert_close(twice_tilted(40).log_density(points), whole)
    assert pools_at_once[0] <= 2 * (2 * 2 * 60)


def test_a_third_tilt_is_cut_by_the_largest_pool_below_it(monkeypatch, pools_at_once):
    def forecast():
        twice = twice_tilted(40)
        twice.base = twice.base.with_pool(240)
        return Tilted(twice, twice.pits, twice.theta, 60)

    whole = forecast().log_weights(few_points())
    monkeypatch.setattr(chunks, "ELEMENTS", 2 * 240 * 8)
    monkeypatch.setattr(tilted, "MOST_KEPT", 0)
    pools_at_once[0] = 0
    assert_close(forecast().log_weights(few_points()), whole)
    assert pools_at_once[0] <= 2 * (2 * (240 + 60))


def test_other_points_need_no_other_pools(monkeypatch):
    """Pools of the tilts before are kept if they are not too large."""
    monkeypatch.setattr(chunks, "ELEMENTS", 2 * 60 * 8)
    twice = twice_tilted(40)
    forecast = Tilted(twice, twice.pits, twice.theta, 60)
    forecast.log_density(few_points())
    assert not forecast.has_pool
    assert twice.has_pool
    assert twice.base.has_pool
    monkeypatch.setattr(tilted, "equally_weighted_draws", lambda *_: pytest.fail("a pool was made"))
    assert forecast.log_density(few_points() + 1.0).isfinite().all()


def test_a_pool_that_is_made_for_few_points_counts_unless_it_is_kept():
    forecast = twice_tilted()
    assert forecast.values_per_case(3) == 60 * 8
    assert forecast.values_for_pits(3) == 60 * 8
    assert forecast.values_per_case(100) == 100 * 8
    forecast.base.keep_pool()
    assert forecast.values_per_case(3) == 3 * 8
    assert forecast.values_for_pits(3) == 60 * 8
    forecast.keep_pool()
    assert forecast.values_for_pits(3) == 3 * 8
