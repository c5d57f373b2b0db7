"""Normal scores and quantiles of mixtures against root finding, the couplings and the rivals step by step."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import chi, norm

from builders import normal
from prerank import Ensemble, GaussianMixture
from prerank.forecasts import equally_weighted_draws
from prerank.randomness import case_keys, uniform
from prerank.randomness import normal as keyed_normal
from prerank.recalibration import (
    EnsembleCopulaCoupling,
    HDRRecalibration,
    LatentRecalibration,
    RecalibratedMargins,
    SchaakeShuffle,
    marginal_quantiles,
)
from prerank.recalibration.densities import density_scale
from prerank.recalibration.published_methods import from_latent_vectors, latent_vectors
from prerank.recalibration.quantiles import (
    Components,
    QuantileMap,
    from_normal_scores,
    margins,
    normal_scores,
    plotting_levels,
)


def cdf(law, y, case, target):
    """Of one target of one case of a mixture, by SciPy."""
    spread = law.scale_tril.double().square().sum(-1).sqrt()
    parts = zip(
        law.weights[case].tolist(), law.loc[case, :, target].tolist(), spread[case, :, target].tolist(), strict=True
    )
    return sum(weight * norm.cdf(y, loc, scale) for weight, loc, scale in parts)


def test_tails_and_densities_of_a_mixture_are_those_of_its_components():
    law = Components(
        *(torch.tensor(part).double() for part in ([math.log(0.25), math.log(0.75)], [-1.0, 2.0], [0.5, 3.0]))
    )
    y = torch.tensor([-2.0, 0.0, 4.0]).double()
    below = 0.25 * norm.cdf(y, -1, 0.5) + 0.75 * norm.cdf(y, 2, 3)
    density = 0.25 * norm.pdf(y, -1, 0.5) + 0.75 * norm.pdf(y, 2, 3)
    found = law.log_tails(y)
    np.testing.assert_allclose(found[0].exp(), below)
    np.testing.assert_allclose(found[1].exp(), 1 - below)
    np.testing.assert_allclose(law.log_density(y), np.log(density * math.sqrt(2 * math.pi)))


def test_margins_have_the_components_last_in_double_precision(mixed):
    forecast = mixed(3, 2, 4, dtype=torch.float32)
    law = margins(forecast)
    assert [tuple(part.shape) for part in law] == [(3, 2, 4)] * 3
    assert [part.dtype for part in law] == [torch.float64] * 3
    torch.testing.assert_close(law.loc[1, 0], forecast.loc[1, :, 0].double())
    expected = forecast.scale_tril.double()[..., 1, :].square().sum(-1).sqrt()
    torch.testing.assert_close(law.scale[:, 1], expected)
    torch.testing.assert_close(law.log_weights[:, 0], forecast.log_weights.double())
    torch.testing.assert_close(law.log_weights[:, 1], forecast.log_weights.double())


def test_quantiles_of_a_mixture_are_where_its_cdf_has_their_level(mixed):
    law, levels = mixed(2, 2, 3), torch.tensor([0.001, 0.3, 0.5, 0.9])
    found = marginal_quantiles(law, levels)
    assert found.shape == (2, 4, 2)
    for case in range(2):
        for target in range(2):
            for place, level in enumerate(levels.double().tolist()):
                exact = brentq(lambda y, c=case, t=target, p=level: cdf(law, y, c, t) - p, -50, 50, xtol=1e-12)
                assert float(found[case, place, target]) == pytest.approx(exact, abs=1e-8)


def test_values_between_far_components_are_found():
    law = Components(*(torch.tensor(part).double() for part in ([math.log(0.5)] * 2, [-1e4, 1e4], [1.0, 1.0])))
    scores = torch.tensor([-1e-3, 0.0, 1e-3, -6.0, 6.0]).double()
    y = from_normal_scores(scores, law)
    torch.testing.assert_close(normal_scores(y, law), scores, atol=1e-6, rtol=0)
    assert bool((y[[3, 0]].abs() < 1.1e4).all())


def test_a_map_of_quantiles_is_linear_between_knots_and_goes_on_with_slope_one():
    expected, observed = torch.tensor([-1.0, 0.0, 2.0]), torch.tensor([[-2.0, 0.0], [0.0, 1.0], [3.0, 2.0]])
    given = torch.tensor([[-3.0, -3.0], [-1.0, -1.0], [-0.5, -0.5], [1.0, 1.0], [2.0, 2.0], [5.0, 5.0]])
    found = QuantileMap(expected, observed)(given)
    assert found.tolist() == [[-4.0, -2.0], [-2.0, 0.0], [-1.0, 0.5], [1.5, 1.5], [3.0, 2.0], [6.0, 5.0]]


def test_order_statistics_stand_at_k_over_n_plus_one():
    found = plotting_levels(4, torch.zeros(1))
    assert found.tolist() == [0.2, 0.4, 0.6, 0.8]
    assert found.dtype == torch.float64


@pytest.mark.parametrize("elements", [1 << 20, 1])
def test_recalibrated_quantiles_have_the_normal_scores_of_the_held_out_cases(elements, mixed, monkeypatch):
    monkeypatch.setattr("prerank._chunks.ELEMENTS", elements)
    forecast, y = mixed(6), normal(6, 2, seed=3)
    margins_ = RecalibratedMargins().fit(forecast, y)
    by_case = np.array([[norm.ppf(cdf(forecast, y[n, d].item(), n, d)) for d in range(2)] for n in range(6)])
    np.testing.assert_allclose(margins_.scores_, np.sort(by_case, 0), atol=1e-8)
    new = mixed(4, seed=9)
    found = margins_.quantiles(new, 3)
    assert found.shape == (4, 3, 2)
    for d in range(2):
        wanted = np.interp(norm.ppf([0.25, 0.5, 0.75]), norm.ppf(np.arange(1, 7) / 7), np.sort(by_case[:, d]))
        for n in range(4):
            scores = norm.ppf([cdf(new, y, n, d) for y in found[n, :, d].tolist()])
            np.testing.assert_allclose(scores, wanted, atol=1e-6)


def test_margins_before_a_fit_and_of_other_targets_are_refused(mixed):
    with pytest.raises(ValueError, match="RecalibratedMargins is not fitted yet"):
        RecalibratedMargins().quantiles(mixed(3), 3)
    margins_ = RecalibratedMargins().fit(mixed(3), normal(3, 2))
    with pytest.raises(ValueError, match="n_levels=0: a whole number of at least 1"):
        margins_.quantiles(mixed(3), 0)
    with pytest.raises(ValueError, match="fitted on 2 targets, but the forecast is for 3"):
        margins_.quantiles(mixed(3, 3), 3)
    with pytest.raises(ValueError, match="1 held-out cases; at least 2 are needed"):
        RecalibratedMargins().fit(mixed(1), normal(1, 2))


def test_a_coupled_distribution_has_the_ranks_of_its_draws(mixed):
    forecast, y = mixed(8), normal(8, 2, seed=3)
    coupling = EnsembleCopulaCoupling(n_draws=7, seed=5).fit(forecast, y)
    members = coupling.transform(forecast).members
    raw = equally_weighted_draws(forecast, 7, 5, "raw members").members
    assert torch.equal(members.argsort(1), raw.argsort(1))
    assert torch.equal(members.sort(1).values, coupling.margins_.quantiles(forecast, 7))
    assert (EnsembleCopulaCoupling().n_draws, EnsembleCopulaCoupling().seed, SchaakeShuffle().seed) == (100, 0, 0)
    with pytest.raises(ValueError, match="n_draws=0"):
        EnsembleCopulaCoupling(n_draws=0)


def test_equal_members_are_put_in_the_order_of_random_numbers(mixed):
    forecast, y = Ensemble(torch.zeros(5, 6, 2).double()), normal(5, 2)
    members = EnsembleCopulaCoupling(seed=4).fit(forecast, y).transform(forecast).members
    at_random = uniform(case_keys(4, torch.arange(5), "order of equal members"), (6, 2))
    assert torch.equal(members.argsort(1), at_random.argsort(1))


def test_a_shuffle_takes_each_case_its_own_part_of_the_history(mixed):
    forecast, y, history = mixed(6), normal(6, 2, seed=3), normal(9, 2, seed=4)
    shuffle = SchaakeShuffle(history, n_draws=4, seed=2).fit(forecast, y)
    members = shuffle.transform(forecast).members
    picked = uniform(case_keys(2, torch.arange(6), "past observations"), (9,)).argsort(-1)[:, :4]
    assert torch.equal(members.argsort(1), history[picked].argsort(1))
    everything = SchaakeShuffle(history).fit(forecast, y).transform(forecast)
    assert everything.n_members == 9
    assert SchaakeShuffle().fit(forecast, y).transform(forecast).n_members == 6
    assert SchaakeShuffle(n_draws=6).fit(forecast, y).transform(forecast).n_members == 6


def test_a_history_of_other_targets_or_no_numbers_is_refused(mixed):
    forecast, y = mixed(6), normal(6, 2)
    for history in (torch.zeros(5, 3), torch.zeros(5, 2, 1), torch.zeros(2)):
        with pytest.raises(ValueError, match=r"(the history has shape .* targets are \(H, 2\)|axes)"):
            SchaakeShuffle(history).fit(forecast, y)
    with pytest.raises(ValueError, match="NaN"):
        SchaakeShuffle(torch.full((5, 2), torch.nan)).fit(forecast, y)
    with pytest.raises(ValueError, match="n_draws=0: a whole number of at least 1"):
        SchaakeShuffle(n_draws=0).fit(forecast, y)
    with pytest.raises(ValueError, match=r"n_draws=7 members need as many past observations, but the history has 6"):
        SchaakeShuffle(n_draws=7).fit(forecast, y)


@pytest.mark.parametrize("elements", [1 << 20, 1])
def test_hdr_recalibration_picks_the_draw_of_the_pool_at_a_mass(elements, mixed, monkeypatch):
    monkeypatch.setattr("prerank._chunks.ELEMENTS", elements)
    forecast, y = mixed(12), 3 * normal(12, 2, seed=3)
    step = HDRRecalibration(n_draws=9, n_pool=20, seed=6).fit(forecast, y)
    masses = density_scale(forecast, 20, 6, "held-out pool").mass(forecast.log_density(y[:, None]))[:, 0]
    assert bool((masses > 1).any())
    expected = masses.clamp(0, 1).sort().values
    torch.testing.assert_close(step.masses_, expected)
    new = mixed(3, seed=9)
    members = step.transform(new).members
    pool = equally_weighted_draws(new, 20, 6, "new pool").members
    order = new.log_density(pool).argsort(-1, descending=True)
    u = uniform(case_keys(6, torch.arange(3), "masses"), (9, 1))[..., 0]
    mass = np.interp(u, np.concatenate([[0], np.arange(1, 13) / 13, [1]]), np.concatenate([[0], expected, [1]]))
    for case in range(3):
        place = np.minimum((mass[case] * 20).astype(int), 19)
        assert torch.equal(members[case], pool[case][order[case][place]])
    assert (HDRRecalibration().n_draws, HDRRecalibration().n_pool, HDRRecalibration().seed) == (100, 1000, 0)
    with pytest.raises(ValueError, match="n_pool=1: a whole number of at least 2"):
        HDRRecalibration(n_pool=1)
    assert HDRRecalibration(n_pool=2, n_draws=1).fit(forecast, y).transform(new).members.shape == (3, 1, 2)


def test_latent_vectors_of_a_mixture_are_normal_scores_of_conditional_laws(mixed):
    law, points = mixed(3, dtype=torch.float32), normal(3, 4, 2)
    found = latent_vectors(points, law)
    assert found.dtype == torch.float64
    cov = (law.scale_tril @ law.scale_tril.mT).double().numpy()
    loc, weights = law.loc.double().numpy(), law.weights.double().numpy()
    for n in range(3):
        for p in range(4):
            first, second = points[n, p].tolist()
            density = weights[n] * norm.pdf(first, loc[n, :, 0], np.sqrt(cov[n, :, 0, 0]))
            share = density / density.sum()
            centre = loc[n, :, 1] + cov[n, :, 1, 0] / cov[n, :, 0, 0] * (first - loc[n, :, 0])
            spread = np.sqrt(cov[n, :, 1, 1] - cov[n, :, 1, 0] ** 2 / cov[n, :, 0, 0])
            expected = norm.ppf(
                [
                    (weights[n] * norm.cdf(first, loc[n, :, 0], np.sqrt(cov[n, :, 0, 0]))).sum(),
                    (share * norm.cdf(second, centre, spread)).sum(),
                ]
            )
            np.testing.assert_allclose(found[n, p], expected, atol=1e-5)
    torch.testing.assert_close(from_latent_vectors(found, law), points, atol=1e-6, rtol=0)


def test_parameters_in_single_precision_are_the_numbers_they_are(mixed):
    law, points = mixed(3, dtype=torch.float32), normal(3, 4, 2)
    wide = GaussianMixture(law.log_weights.double(), law.loc.double(), law.scale_tril.double())
    torch.testing.assert_close(latent_vectors(points, law), latent_vectors(points, wide), rtol=1e-11, atol=1e-11)
    y = points[:, 0].float()
    assert HDRRecalibration(n_pool=5).fit(law, y).masses_.dtype == torch.float64
    assert LatentRecalibration().fit(law, y).lengths_.dtype == torch.float64
    first, second = (RecalibratedMargins().fit(each, y) for each in (law, wide))
    torch.testing.assert_close(first.scores_, second.scores_, rtol=1e-6, atol=1e-6)
    assert first.scores_.dtype == torch.float64


@pytest.mark.parametrize("elements", [1 << 20, 1])
def test_latent_recalibration_moves_lengths_along_their_directions(elements, mixed, monkeypatch):
    monkeypatch.setattr("prerank._chunks.ELEMENTS", elements)
    forecast, y = mixed(12), 3 * normal(12, 2, seed=3)
    step = LatentRecalibration(n_draws=5, seed=6).fit(forecast, y)
    lengths = latent_vectors(y[:, None], forecast).square().sum(-1).sqrt()[:, 0].sort().values
    torch.testing.assert_close(step.lengths_, lengths)
    assert step.fitted_on_.n_targets == 2
    new = mixed(3, seed=9)
    members = step.transform(new).members
    drawn = keyed_normal(case_keys(6, torch.arange(3), "latent"), (5, 2))
    length = drawn.square().sum(-1).sqrt()
    knots, observed = np.log(chi(2).ppf(np.arange(1, 13) / 13)), lengths.log().numpy()
    inside = np.interp(length.log().numpy(), knots, observed)
    beyond = length.log().numpy() - np.clip(length.log().numpy(), knots[0], knots[-1])
    stretched = drawn * torch.as_tensor(np.exp(inside + beyond) / length.numpy())[..., None]
    torch.testing.assert_close(latent_vectors(members, new), stretched, atol=1e-6, rtol=0)
    assert (LatentRecalibration().n_draws, LatentRecalibration().seed) == (100, 0)
    with pytest.raises(ValueError, match="1 held-out cases; at least 2 are needed"):
        LatentRecalibration().fit(mixed(1), y[:1])


def test_a_held_out_length_of_zero_is_no_minus_infinity(mixed):
    law = GaussianMixture(torch.zeros(3, 1), torch.zeros(3, 1, 1), torch.ones(3, 1, 1, 1))
    step = LatentRecalibration(n_draws=3).fit(law, torch.tensor([[0.0], [1.0], [2.0]]))
    assert float(step.lengths_[0]) == 0.0
    members = step.transform(law).members
    assert members.isfinite().all()
    assert members.dtype == torch.float32
