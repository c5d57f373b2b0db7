"""The guard's pools and verdicts written out, draw by draw."""

import math
from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from torch.distributions import Distribution, Independent, Laplace

from builders import normal
from prerank import Marginal, pce
from prerank.forecasts import case_by_case, equally_weighted_draws
from prerank.randomness import numpy_generator
from prerank.recalibration import Tilted
from prerank.recalibration import guard as module
from prerank.recalibration.basis import legendre
from prerank.recalibration.features import Features
from prerank.recalibration.folds import mean_and_error
from prerank.recalibration.guard import Guard, Pools, Verdict
from prerank.recalibration.path import Candidate
from prerank.recalibration.pit_coordinates import OldPITs

OLD = OldPITs((Marginal(),), 10, 3)
THETA = torch.tensor([[0.3, -0.2], [0.1, 0.2]], dtype=torch.float64)


@pytest.fixture
def small(monkeypatch):
    """Pools of 40 draws, each paired with the 3 next ones."""
    monkeypatch.setattr(module, "_POOL", 40)
    monkeypatch.setattr(module, "_SHIFTS", 3)


def score_of(weights, to_y, apart):
    """Energy score of some weighted draws from pairs up to three places apart."""
    share = [float(weight) / float(weights.sum()) for weight in weights]
    pairs = [(i, i + s) for s in (1, 2, 3) for i in range(len(share) - s)]
    mass = sum(share[i] * share[j] for i, j in pairs)
    distance = sum(share[i] * share[j] * float(apart[j - i - 1, i]) for i, j in pairs)
    return sum(p * float(d) for p, d in zip(share, to_y, strict=True)) - 0.5 * distance / mass


@pytest.mark.parametrize("n_draws", [8, 9])
def test_a_score_is_a_jackknife_of_pairs(n_draws, small):
    x, log_weights, y = normal(2, n_draws, seed=1), normal(2, n_draws, seed=2), normal(2, 1, seed=3)
    apart = torch.stack([(x - x.roll(-s, 1)).abs() for s in (1, 2, 3)], 1)
    to_y, none = (x - y).abs(), torch.zeros(2, n_draws + 1).double()
    found = Pools(none[..., None], none, none, to_y, apart).score(log_weights)
    for case in range(2):
        weights = log_weights[case].exp()
        whole, first, second = (
            score_of(weights[a:b], to_y[case, a:b], apart[case, :, a:b]) for a, b in ((0, 8), (0, 4), (4, 8))
        )
        assert float(found[case]) == pytest.approx(2 * whole - 0.5 * (first + second))


def test_weights_without_any_pair_give_a_score_all_the_same(small):
    """All the weight on one draw: no pair is left, and its distance to the observation is the score."""
    to_y = torch.arange(8.0).double()[None]
    log_weights = torch.full((1, 8), -1e6).double()
    log_weights[0, 2], log_weights[0, 6] = 0.0, 0.0
    none = torch.zeros(1, 9).double()
    found = Pools(none[..., None], none, none, to_y, torch.ones(1, 3, 8).double()).score(log_weights)
    assert found.tolist() == [2 * 4.0 - 0.5 * (2.0 + 6.0)]


def test_an_hdr_pit_is_the_weight_of_less_probable_draws():
    density = torch.tensor([[0.0, -1.0, 0.0, 1.0, -2.0], [5.0, 1.0, 2.0, 3.0, 4.0]]).double()
    weights = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0], [-9.0, 0.0, 0.0, 1.0, 0.0]]).double()
    pools = Pools(weights[..., None], weights, density, weights, weights[:, None])
    # of the first case two draws of four, a tie is not below; of the second none below 5 - 9
    assert pools.hdr(weights).tolist() == [[0.5], [0.0]]
    shares = torch.tensor([[0.5, 0.0, 0.0, 0.0, math.log(3.0)]]).double()
    assert float(pools._replace(log_density=density[:1]).hdr(shares)) == pytest.approx(
        (1 + 1 + 3) / 6
    )  # all but the third
    assert float(pools._replace(log_density=density[1:]).hdr(0 * shares)) == 1.0


def test_each_bound_of_a_verdict_still_counts_as_harmless():
    chance = 2 * 0.3133 / math.sqrt(4)
    edge = Verdict(0.25, 1.0, -0.5, 0.25, 0.4, 1.25 * 0.4 + chance, 4)
    assert edge.harmless(0.25, 2.0)
    assert not edge.harmless(0.26, 2.0)
    assert not edge.harmless(0.25, 1.9)
    assert not edge._replace(hdr_after=edge.hdr_after + 1e-9).harmless(0.25, 2.0)
    assert not edge._replace(n_cases=5).harmless(0.25, 2.0)
    assert edge._replace(gain=0.5).harmless(0.25, -1.0)
    assert Verdict(1.0, 0.0, 0.0, 0.0) == (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1, 0.0, 0.0)


@pytest.mark.parametrize("elements", [1 << 20, 1])
@pytest.mark.parametrize("kind", ["mixture", "tilted", "other", "opaque"])
def test_pools_are_draws_of_the_root_and_what_scores_need_of_them(
    kind, elements, mixed, held_out, small, monkeypatch, opaque
):
    monkeypatch.setattr("prerank._chunks.ELEMENTS", elements)
    law, y = mixed(6), normal(6, 2, seed=1)
    if kind == "other":
        law = case_by_case(Independent(Laplace(normal(6, 2), torch.ones(2).double()), 1))
    if kind == "opaque":
        law = opaque(Independent(Laplace(normal(6, 2), torch.ones(2).double()), 1))
    forecast = Tilted(law, OLD, THETA, pool=30) if kind == "tilted" else law
    guard = Guard.of(forecast, held_out(y, seed=5), OLD)
    drawn = equally_weighted_draws(law, 40, 5, "pool of the guard").members
    points = torch.cat([y[:, None], drawn], 1)
    before = forecast.log_weights(points) if kind == "tilted" else torch.zeros(6, 41).double()
    density = law.log_prob(points.movedim(1, 0)).movedim(0, 1)
    pools = guard.pools
    torch.testing.assert_close(pools.pits, OLD(forecast, points, torch.arange(6)).float())
    torch.testing.assert_close(pools.log_before, before)
    torch.testing.assert_close(pools.log_density, density)
    torch.testing.assert_close(pools.to_y, (drawn - y[:, None]).square().sum(-1).sqrt())
    for s in (1, 2, 3):
        apart = (drawn[:, :-s] - drawn[:, s:]).square().sum(-1).sqrt()
        torch.testing.assert_close(pools.apart[:, s - 1, :-s], apart)
    assert pools.apart.shape == (6, 3, 40)
    assert guard.cases.tolist() == list(range(6))
    torch.testing.assert_close(guard.before, pools.score(before[:, 1:]))
    assert guard.hdr_before == pytest.approx(float(pce(pools.hdr(before)).mean()))


def test_a_law_without_a_density_is_ranked_by_its_tilt_alone(held_out, small):
    class Unsaid(Distribution):
        arg_constraints = {}  # noqa: RUF012

        def __init__(self):
            super().__init__(torch.Size((6,)), torch.Size((2,)), validate_args=False)

        def sample(self, sample_shape=()):
            return torch.randn(*sample_shape, 6, 2).double()

    guard = Guard.of(Unsaid(), held_out(normal(6, 2)), OLD)
    assert torch.equal(guard.pools.log_density, torch.zeros(6, 41).double())
    with pytest.raises(FrozenInstanceError):
        guard.before = None
    assert (guard == replace(guard, before=guard.before.clone())) is False


def test_scores_are_made_of_double_precision(mixed, held_out, small):
    law, y = mixed(6, dtype=torch.float32), normal(6, 2).float()
    pools = Guard.of(law, held_out(y), OLD).pools
    assert [part.dtype for part in pools[:4]] == [torch.float32, *[torch.float64] * 3]
    drawn = equally_weighted_draws(law, 40, 0, "pool of the guard").members
    torch.testing.assert_close(pools.to_y, (drawn - y[:, None]).double().norm(dim=-1), rtol=1e-5, atol=1e-5)


def test_a_thousand_draws_of_each_case_are_paired_with_the_sixteen_next_ones(mixed, held_out):
    pools = Guard.of(mixed(4), held_out(normal(4, 2)), OLD).pools
    assert pools.pits.shape == (4, 1001, 2)
    assert pools.apart.shape == (4, 16, 1000)


def test_at_most_512_cases_are_scored(mixed, held_out, small):
    for n_cases in (512, 513):
        assert len(Guard.of(mixed(n_cases), held_out(normal(n_cases, 2)), OLD).cases) == 512


def test_of_many_cases_some_are_scored_with_the_draws_that_they_would_have(mixed, held_out, small, monkeypatch, opaque):
    monkeypatch.setattr(module, "AT_MOST", 4)
    law, y = mixed(9), normal(9, 2, seed=1)
    guard = Guard.of(law, held_out(y, seed=5), OLD)
    chosen = sorted(numpy_generator(5, "cases of the guard").permutation(9)[:4].tolist())
    assert guard.cases.tolist() == chosen
    monkeypatch.setattr(module, "AT_MOST", 9)
    whole = Guard.of(law, held_out(y, seed=5), OLD)
    assert len(whole.cases) == 9
    torch.testing.assert_close(guard.pools.to_y, whole.pools.to_y[chosen])
    torch.testing.assert_close(guard.pools.pits, whole.pools.pits[chosen])
    monkeypatch.setattr(module, "AT_MOST", 4)
    other = opaque(Independent(Laplace(normal(9, 2), torch.ones(2).double()), 1))  # cannot be cut
    assert len(Guard.of(other, held_out(y, seed=5), OLD).cases) == 9


@pytest.mark.parametrize("with_features", [False, True])
def test_a_verdict_is_of_coefficients_fitted_without_the_fold(with_features, mixed, held_out, small, monkeypatch):
    monkeypatch.setattr(module, "AT_MOST", 8)
    law, y = mixed(12), normal(12, 2, seed=1)
    weights = 0.5 + torch.rand(12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    given = held_out(y, 3, weights, blocks=torch.arange(12) // 2, seed=5)
    forecast = Tilted(law, OLD, 0.5 * THETA, pool=30)
    guard = Guard.of(forecast, given, OLD)
    features = Features.of(normal(12, 2, seed=4), 12, torch.device("cpu")) if with_features else None
    without = torch.stack([THETA, -THETA, 2 * THETA])
    if with_features:
        without = torch.stack([without, 0.5 * without.flip(0)], 1)
    verdict = guard.verdict(Candidate(0.1, THETA, without, None, features))
    exponent = guard.pools.log_before.clone()
    for place, case in enumerate(guard.cases.tolist()):
        theta = without[int(given.folds.fold[case])]
        if with_features:
            theta = (features.values[case][:, None, None] * theta).sum(0)
        exponent[place] += (legendre(guard.pools.pits[place], 2) * theta).sum((-2, -1))
    share = torch.softmax(exponent[:, 1:], 1)
    own, block = given.weights[guard.cases], given.folds.block[guard.cases]
    effective = (own / share.square().sum(1)).sum() / own.sum() / 40
    assert verdict.effective_share == pytest.approx(float(effective), rel=1e-5)
    gain, error = mean_and_error(guard.before - guard.pools.score(exponent[:, 1:]), own, block)
    assert (verdict.gain, verdict.gain_error) == pytest.approx((gain, error), rel=1e-4)
    assert verdict.score == pytest.approx(float((own * guard.before).sum() / own.sum()))
    assert (verdict.hdr_before, verdict.n_cases) == (guard.hdr_before, 8)
    assert verdict.hdr_after == pytest.approx(float(pce(guard.pools.hdr(exponent)).mean()), rel=1e-5)
