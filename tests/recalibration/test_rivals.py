"""Recalibration along one scalar makes its PIT uniform on fresh cases, and says what it cannot do."""

import math

import pytest
import torch
from scipy.stats import chi, kstest, kstwobign
from torch.distributions import Independent, Laplace, StudentT

from prerank import HDR, Ensemble, GaussianMixture, projected_pit
from prerank.calibration import RandomisedRank
from prerank.datasets import Bimodal, Heteroscedastic
from prerank.recalibration import HDRRecalibration, LatentRecalibration
from prerank.recalibration.densities import kernel_mixture
from prerank.recalibration.published_methods import from_latent_vectors, latent_vectors

FAR = float(kstwobign.isf(1e-6))  # of sqrt(n) times the distance of two CDFs
N_HELD_OUT, N_FRESH = 1000, 800


def cases(n_targets, n_cases, seed, spread, recipe=Bimodal):
    """A forecast whose components are too narrow or too wide, and observations."""
    table = recipe(n_targets).table(n_cases, seed)
    truth = recipe(n_targets).law(table.x)
    return GaussianMixture(truth.logits, truth.loc, spread * truth.scale_tril), torch.as_tensor(table.y)


def hdr_distance(y, forecast, members):
    """How far the PITs of the old density among members are from uniform."""
    ranked = Ensemble(members, reference=forecast)
    return kstest(projected_pit(y, ranked, HDR(), RandomisedRank()).lower[:, 0].numpy(), "uniform").statistic


@pytest.mark.slow
@pytest.mark.parametrize("n_targets", [2, 6])
@pytest.mark.parametrize("spread", [0.7, 1.5])
def test_hdr_recalibration_makes_hdr_pits_uniform_on_fresh_cases(n_targets, spread):
    forecast, y = cases(n_targets, N_HELD_OUT, 1, spread)
    fresh, later = cases(n_targets, N_FRESH, 2, spread)
    step = HDRRecalibration(n_draws=50, n_pool=4000).fit(forecast, y)
    bound = FAR * math.sqrt(1 / N_HELD_OUT + 1 / N_FRESH)
    # a mass that no draw of the pool reaches cannot be given to any: its share counts as well
    beyond = float(((step.masses_ == 0) | (step.masses_ == 1)).double().mean())
    assert hdr_distance(later, fresh, step.transform(fresh).members) < bound + beyond
    assert hdr_distance(later, fresh, fresh.ensemble(50, seed=7).members) > bound + beyond


def test_hdr_recalibration_of_a_calibrated_forecast_keeps_it_calibrated():
    forecast, y = cases(2, N_HELD_OUT, 1, 1.0)
    fresh, later = cases(2, N_FRESH, 2, 1.0)
    step = HDRRecalibration(n_draws=50).fit(forecast, y)
    assert kstest(step.masses_.numpy(), "uniform").statistic < FAR / math.sqrt(N_HELD_OUT) + 2 / 1000
    bound = FAR * math.sqrt(1 / N_HELD_OUT + 1 / N_FRESH)
    assert hdr_distance(later, fresh, step.transform(fresh).members) < bound


def test_hdr_recalibration_of_members_and_of_other_distributions_makes_their_own_hdr_uniform():
    forecast, y = cases(2, N_HELD_OUT, 1, 0.75)
    fresh, later = cases(2, N_FRESH, 2, 0.75)
    bound = FAR * math.sqrt(1 / N_HELD_OUT + 1 / N_FRESH)
    kernels = [kernel_mixture(each.ensemble(15, seed=3)) for each in (forecast, fresh)]
    step = HDRRecalibration(n_draws=50, n_pool=500).fit(forecast.ensemble(15, seed=3), y)
    assert hdr_distance(later, kernels[1], step.transform(fresh.ensemble(15, seed=3)).members) < bound
    student = [Independent(StudentT(5.0, each.mean, 1.0), 1) for each in (forecast, fresh)]
    step.fit(student[0], y)
    assert hdr_distance(later, student[1], step.transform(student[1]).members) < bound


def test_every_draw_of_hdr_recalibration_comes_from_the_pool():
    forecast, y = cases(2, 60, 1, 0.8)
    step = HDRRecalibration(n_draws=300, n_pool=40, seed=4).fit(forecast, y)
    members = step.transform(forecast).members
    pool = forecast.ensemble(40, seed=4, stream="new pool").members
    assert bool((members[:, :, None] == pool[:, None]).all(-1).any(-1).all())


def test_latent_vectors_of_a_gaussian_are_its_whitened_values():
    forecast, y = cases(4, 50, 1, 1.0, Heteroscedastic)
    whitened = torch.linalg.solve_triangular(
        forecast.scale_tril[:, 0], (y - forecast.loc[:, 0])[..., None], upper=False
    )
    torch.testing.assert_close(latent_vectors(y[:, None], forecast)[:, 0], whitened[..., 0], rtol=1e-8, atol=1e-8)


def test_latent_vectors_of_draws_are_standard_normal_and_lead_back_to_them():
    forecast, _ = cases(3, 100, 1, 1.0)
    drawn = forecast.ensemble(20, seed=2).members
    latent = latent_vectors(drawn, forecast)
    for d in range(3):
        assert kstest(latent[..., d].flatten().numpy(), "norm").statistic < FAR / math.sqrt(2000)
    lengths = torch.linalg.vector_norm(latent, dim=-1).flatten().numpy()
    assert kstest(lengths, chi(3).cdf).statistic < FAR / math.sqrt(2000)
    torch.testing.assert_close(from_latent_vectors(latent, forecast), drawn, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("spread", [0.2, 3.0])
def test_latent_recalibration_makes_lengths_follow_their_law_however_wrong_the_spread(spread):
    forecast, y = cases(3, N_HELD_OUT, 1, spread, Heteroscedastic)
    fresh, later = cases(3, N_FRESH, 2, spread, Heteroscedastic)
    members = LatentRecalibration(n_draws=50).fit(forecast, y).transform(fresh).members
    bound = FAR * math.sqrt(1 / N_HELD_OUT + 1 / N_FRESH)
    assert hdr_distance(later, fresh, members) < bound  # of one Gaussian, density and length say the same
    assert hdr_distance(later, fresh, fresh.ensemble(50, seed=7).members) > bound


def test_latent_recalibration_undoes_a_factor_of_the_spread():
    forecast, y = cases(2, 4000, 1, 0.5, Heteroscedastic)
    truth, _ = cases(2, 50, 2, 1.0, Heteroscedastic)
    fresh, _ = cases(2, 50, 2, 0.5, Heteroscedastic)
    drawn = LatentRecalibration(n_draws=400).fit(forecast, y).transform(fresh)
    ratio = drawn.covariance_matrix.diagonal(dim1=1, dim2=2) / truth.variance
    error = math.sqrt(2 / (50 * 400) + 2 / 4000)  # of a variance from the draws, and from the held-out lengths
    assert float(ratio.mean()) == pytest.approx(1.0, abs=6 * error)


@pytest.mark.parametrize("step", [HDRRecalibration(n_draws=20, n_pool=50), LatentRecalibration(n_draws=20)])
def test_bad_input_gets_a_sentence(step):
    forecast, y = cases(2, 30, 1, 1.0)
    with pytest.raises(ValueError, match=f"{type(step).__name__} is not fitted yet; call fit"):
        step.transform(forecast)
    with pytest.raises(TypeError, match=r"the order is fit\(forecast, y\)"):
        step.fit(y, forecast)
    with pytest.raises(ValueError, match="y has 1 infinite values"):
        step.fit(forecast, torch.where(y == y[3, 1], torch.inf, y))
    with pytest.raises(ValueError, match="n_draws=0: a whole number"):
        type(step)(n_draws=0)


def test_latent_recalibration_needs_closed_forms_and_the_same_targets():
    forecast, y = cases(2, 30, 1, 1.0)
    other = Independent(Laplace(torch.zeros(30, 2), torch.ones(30, 2)), 1)
    with pytest.raises(TypeError, match="CDFs of an Independent are not known"):
        LatentRecalibration().fit(other, y)
    with pytest.raises(ValueError, match="fitted on 2 targets, but the forecast is for 3"):
        LatentRecalibration().fit(forecast, y).transform(cases(3, 30, 1, 1.0)[0])
