"""Recalibrated margins are calibrated and exact; a coupling keeps them and takes its ranks from the template."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest, kstwobign, norm

from prerank import Ensemble, GaussianMixture, Marginal, projected_pit
from prerank.calibration import RandomisedRank
from prerank.recalibration import EnsembleCopulaCoupling, RecalibratedMargins, SchaakeShuffle, members_in_order
from prerank.recalibration.quantiles import Components, from_normal_scores, normal_scores

FAR = float(kstwobign.isf(1e-6))  # of sqrt(n) times the distance of two CDFs


def gaussian(n_cases, spread=1.0, shift=0.0, correlation=0.7, n_targets=3):
    tril = torch.linalg.cholesky(torch.full((n_targets, n_targets), correlation).double().fill_diagonal_(1.0))
    loc = shift + torch.linspace(-3, 3, n_cases).double()[:, None].expand(-1, n_targets)
    return GaussianMixture(torch.zeros(n_cases, 1), loc[:, None], (spread * tril).expand(n_cases, 1, -1, -1))


def components(weights, loc, scale):
    weights, loc, scale = (torch.tensor(part, dtype=torch.float64) for part in (weights, loc, scale))
    return Components(weights.log(), loc, scale)


def ranks(members):
    return members.argsort(1).argsort(1)


def template(kind):
    """The result of a coupling of 20 cases, the template of its ranks, and the quantiles of its margins."""
    forecast, y = gaussian(100, spread=0.6, shift=0.5), gaussian(100).ensemble(1, seed=1).members[:, 0]
    margins = RecalibratedMargins().fit(forecast, y)
    if kind == "raw":
        raw = Ensemble(forecast.ensemble(15, seed=2).members)
        margins = RecalibratedMargins().fit(raw, y)
        return EnsembleCopulaCoupling().fit(raw, y).transform(raw), raw.members, margins.quantiles(raw, 15)
    history = torch.randn(15, 3, generator=torch.Generator().manual_seed(1)).double()
    shuffled = SchaakeShuffle(history).fit(forecast, y).transform(forecast)
    return shuffled, history, margins.quantiles(forecast, 15)


def test_coupling_keeps_the_rank_order_of_the_raw_members():
    coupled, raw, _ = template("raw")
    assert torch.equal(ranks(coupled.members), ranks(raw))


def test_the_schaake_shuffle_takes_the_ranks_of_the_history_in_every_case():
    shuffled, history, _ = template("history")

    def rows(ranked):
        return [sorted(map(tuple, case)) for case in ranked.tolist()]

    assert rows(ranks(shuffled.members)) == rows(ranks(history[None])) * 100


@pytest.mark.parametrize("kind", ["raw", "history"])
def test_a_coupling_keeps_the_recalibrated_margins_to_the_last_digit(kind):
    coupled, _, quantiles = template(kind)
    assert torch.equal(coupled.members.sort(1).values, quantiles)
    assert bool((quantiles.diff(dim=1) > 0).all())


def test_a_part_of_the_history_is_another_one_in_each_case():
    forecast, y = gaussian(50), gaussian(50).ensemble(1, seed=1).members[:, 0]
    shuffled = SchaakeShuffle(n_draws=10).fit(forecast, y).transform(forecast)
    assert shuffled.n_members == 10
    assert len({str(case) for case in ranks(shuffled.members).sort(1).indices.tolist()}) > 25
    # the targets of the history rise and fall together, so do the members of every case
    correlation = np.corrcoef(ranks(shuffled.members)[..., :2].reshape(-1, 2).T.numpy())[0, 1]
    assert correlation > 0.5


@pytest.mark.parametrize("kind", ["distribution", "members"])
def test_margins_that_were_wrong_are_calibrated_on_fresh_cases(kind):
    n_held_out, n_fresh = 800, 600

    def forecast(n_cases, seed):
        wrong = gaussian(n_cases, spread=0.4, shift=1.5)
        return wrong if kind == "distribution" else wrong.ensemble(12, seed=seed)

    y, later = (gaussian(n).ensemble(1, seed=n).members[:, 0] for n in (n_held_out, n_fresh))
    coupling = EnsembleCopulaCoupling(n_draws=40).fit(forecast(n_held_out, 3), y)
    bound = FAR * math.sqrt(1 / n_held_out + 1 / n_fresh)
    for members, calibrated in ((coupling.transform(forecast(n_fresh, 4)), True), (forecast(n_fresh, 4), False)):
        ensemble = members if isinstance(members, Ensemble) else members.ensemble(40, seed=9)
        pits = projected_pit(later, ensemble, Marginal(), RandomisedRank()).lower
        distances = [kstest(pits[:, d].numpy(), "uniform").statistic for d in range(3)]
        assert all(bool(distance < bound) is calibrated for distance in distances)


def test_equal_members_are_ordered_at_random_and_apart_in_each_target():
    forecast, y = Ensemble(torch.zeros(400, 10, 2)), torch.randn(400, 2, generator=torch.Generator().manual_seed(1))
    members = EnsembleCopulaCoupling().fit(forecast, y).transform(forecast).members
    assert bool((members.diff(dim=1).abs().sum(1) > 0).all())
    ranked = ranks(members).double()
    correlation = np.corrcoef(ranked.reshape(-1, 2).T.numpy())[0, 1]
    assert abs(correlation) < 5 / math.sqrt(400 * 9)


@pytest.mark.parametrize("value", [-40.0, -8.0, -1.0, 0.0, 2.5, 9.0, 38.0])
def test_normal_scores_of_a_gaussian_are_exact_far_into_both_tails(value):
    law = components([1.0], [3.0], [2.0])
    y = torch.tensor([3.0 + 2.0 * value]).double()
    torch.testing.assert_close(normal_scores(y, law), torch.tensor([value]).double(), rtol=1e-9, atol=1e-12)


def test_normal_scores_of_a_mixture_are_those_of_its_cdf():
    law = components([0.2, 0.8], [-1.0, 2.0], [0.5, 1.5])
    y = torch.linspace(-3, 6, 50).double()
    cdf = 0.2 * norm.cdf(y, -1.0, 0.5) + 0.8 * norm.cdf(y, 2.0, 1.5)
    np.testing.assert_allclose(normal_scores(y, law), norm.ppf(cdf), atol=1e-9)


def test_values_come_back_from_their_normal_scores_over_gaps_and_far_tails():
    law = components([1e-6, 0.3, 0.7 - 1e-6], [1e3, -5.0, 5.0], [10.0, 1e-2, 1.0])
    scores = torch.linspace(-30, 30, 601).double()
    y = from_normal_scores(scores, law)
    assert bool((y.diff() >= 0).all())
    torch.testing.assert_close(normal_scores(y, law), scores, rtol=1e-6, atol=1e-6)


def test_bad_input_gets_a_sentence():
    forecast, y = gaussian(30), gaussian(30).ensemble(1, seed=1).members[:, 0]
    for step in (EnsembleCopulaCoupling(), SchaakeShuffle()):
        with pytest.raises(ValueError, match=f"{type(step).__name__} is not fitted yet; call fit"):
            step.transform(forecast)
        with pytest.raises(TypeError, match=r"the order is fit\(forecast, y\)"):
            step.fit(y, forecast)
        with pytest.raises(ValueError, match="fitted on 3 targets, but the forecast is for 2"):
            step.fit(forecast, y).transform(gaussian(30, n_targets=2))
        with pytest.raises(ValueError, match="1 held-out cases; at least 2 are needed"):
            step.fit(forecast.select(slice(1)), y[:1])
    weighted = Ensemble(torch.zeros(30, 5, 3), torch.ones(30, 5))
    with pytest.raises(ValueError, match="the members carry weights"):
        EnsembleCopulaCoupling().fit(forecast, y).transform(weighted)
    with pytest.raises(ValueError, match=r"the history has shape \(9, 2\); .* same 3 targets are \(H, 3\)"):
        SchaakeShuffle(torch.zeros(9, 2)).fit(forecast, y)
    with pytest.raises(ValueError, match=r"n_draws=31 members need as many past observations, .* has 30"):
        SchaakeShuffle(n_draws=31).fit(forecast, y)
    other = torch.distributions.Independent(torch.distributions.Laplace(torch.zeros(30, 3), torch.ones(30, 3)), 1)
    with pytest.raises(TypeError, match=r"CDFs of an Independent .*equally_weighted_draws"):
        EnsembleCopulaCoupling().fit(other, y)


def test_members_in_order_are_quantiles_of_the_law_in_the_order_of_the_raw_members():
    """Of a mixture of two Gaussians, whose CDF at the members is m / (M + 1); others than a mixture are refused."""
    generator = torch.Generator().manual_seed(3)
    raw = Ensemble(torch.randn(4, 9, 2, generator=generator).double())
    loc = torch.tensor([[-1.0, 0.0], [2.0, 1.0]]).double().expand(4, 2, 2)
    law = GaussianMixture(torch.zeros(4, 2).double(), loc, torch.eye(2).double().expand(4, 2, 2, 2))
    found = members_in_order(law, raw).members
    assert torch.equal(found.argsort(1), raw.members.argsort(1))
    cdf = torch.distributions.Normal(loc[:, None], 1.0).cdf(found[:, :, None]).mean(2)
    wanted = torch.arange(1, 10).double() / 10
    torch.testing.assert_close(cdf.sort(1).values, wanted[:, None].expand(4, 9, 2), rtol=0, atol=1e-6)
    with pytest.raises(TypeError, match="members_in_order takes a GaussianMixture"):
        members_in_order(raw, raw)
    with pytest.raises(ValueError, match="raw Ensemble of the same 4 cases and 2 targets"):
        members_in_order(law, Ensemble(raw.members[:3]))
    with pytest.raises(ValueError, match="the members carry weights"):
        members_in_order(law, Ensemble(raw.members, torch.rand(4, 9).double()))
