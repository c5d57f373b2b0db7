"""A tilt and a tilted forecast step by step: pools, weights, moments, resampling, what is judged and what is said."""

import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import Independent, Laplace, MultivariateNormal

from builders import normal
from prerank import Ensemble, GaussianMixture, Location, Marginal, Scale
from prerank.forecasts import equally_weighted_draws
from prerank.randomness import case_keys, uniform
from prerank.recalibration import Tilt, Tilted
from prerank.recalibration.basis import by_case, legendre
from prerank.recalibration.features import Features, standardised
from prerank.recalibration.guard import Guard, Verdict
from prerank.recalibration.path import Candidate, Path
from prerank.recalibration.persistence import write
from prerank.recalibration.pit_coordinates import OldPITs
from prerank.recalibration.tilt import FittedTilt, _density
from prerank.recalibration.tilted import even_steps, picked, taken

THETA = torch.tensor([[0.3, -0.2, 0.1], [0.1, 0.2, 0.0]], dtype=torch.float64)
OLD = OldPITs((Marginal(), Location()), 10, 3)
SMALL = Tilt(degree=2, n_draws=16, n_reference=10, pool=50)
CPU = torch.device("cpu")


def exponent(law, points, theta=THETA, old=OLD):
    """Of one tilt, written out; the points' PITs are under the law itself."""
    basis = legendre(old(law, points, torch.arange(len(points))), theta.shape[-2])
    return (basis * (theta if theta.ndim == 2 else theta[:, None])).sum((-2, -1))


def laplace(n_cases):
    return Independent(Laplace(normal(n_cases, 2), torch.ones(2).double()), 1)


@pytest.mark.parametrize("by_cases", [False, True])
@pytest.mark.parametrize("elements", [1 << 20, 1])
def test_moments_and_density_come_from_a_weighted_pool(by_cases, elements, mixed, monkeypatch):
    monkeypatch.setattr("prerank._chunks.ELEMENTS", elements)
    law, theta = mixed(4), THETA
    if by_cases:
        theta = THETA * torch.tensor([1.0, -1.0, 0.5, 2.0]).double()[:, None, None]
    tilted = Tilted(law, OLD, theta, pool=60)
    pool = equally_weighted_draws(law, 60, 3, "pool for the normaliser").members
    weight = exponent(law, pool, theta).exp()
    share = weight / weight.sum(1, keepdim=True)
    mean = (share[..., None] * pool).sum(1)
    centred = pool - mean[:, None]
    covariance = torch.einsum("np,npi,npj->nij", share, centred, centred)
    torch.testing.assert_close(tilted.mean, mean)
    torch.testing.assert_close(tilted.covariance_matrix, covariance)
    torch.testing.assert_close(tilted.variance, covariance.diagonal(dim1=1, dim2=2))
    torch.testing.assert_close(tilted.effective_size, 1 / share.square().sum(1))
    error = (share.square().sum(1) - 1 / 60).sqrt()
    torch.testing.assert_close(tilted.log_normaliser_error, error)
    points = normal(3, 5, 4, 2, seed=1)
    own = exponent(law, points.reshape(15, 4, 2).movedim(0, 1), theta).movedim(1, 0).reshape(3, 5, 4)
    expected = law.log_prob(points) + own - weight.mean(1).log()
    torch.testing.assert_close(tilted.log_prob(points), expected)
    torch.testing.assert_close(tilted.log_weights(pool), weight.log())


def test_a_tilt_of_nothing_is_the_forecast_itself(mixed):
    law = mixed(3)
    tilted = Tilted(law, OLD, 0 * THETA, pool=30)
    torch.testing.assert_close(tilted.log_prob(law.mean), law.log_prob(law.mean))
    assert tilted.log_normaliser_error.abs().max() < 1e-7
    torch.testing.assert_close(tilted.effective_size, torch.full((3,), 30.0).double())
    assert (tilted.has_rsample, tilted.share, tilted.pool) == (False, 1.0, 30)
    assert Tilted(law, OLD, THETA).pool == 2000
    for pool in range(3, 30):  # shares of some pools round to a little less than one in so many
        assert Tilted(law, OLD, 0 * THETA, pool=pool).log_normaliser_error.abs().max() < 1e-7
    assert tilted.support is law.support


def test_draws_are_resampled_at_even_steps_from_a_pool(mixed):
    law = mixed(4)
    tilted = Tilted(law, OLD, THETA, pool=60)
    for arguments, seed, stream in (((), 0, "members"), ((5, "some"), 5, "some")):
        members = tilted.ensemble(20, *arguments).members
        pool = equally_weighted_draws(law, 60, seed, f"pool for {stream}").members
        start = uniform(case_keys(seed, torch.arange(4), "resampling", stream), (1,))
        share = torch.softmax(exponent(law, pool), -1)
        assert torch.equal(members, taken(pool, picked(share, even_steps(start, 20))))
    # 40 draws at a share of one need 80 draws of the law
    many = equally_weighted_draws(law, 80, 0, "pool for members").members
    drawn = tilted.ensemble(40).members
    assert bool((drawn[:, :, None] == many[:, None]).all(-1).any(-1).all())


@pytest.mark.parametrize(
    ("size", "first", "second"), [(60, slice(0, 30), slice(30, 60)), (61, slice(0, 31), slice(30, 61))]
)
def test_reference_draws_and_draws_to_rank_come_from_halves_of_the_pool(size, first, second, mixed):
    law, y = mixed(4), normal(4, 2)
    tilted = Tilted(law, OLD, THETA, pool=size)
    pool = equally_weighted_draws(law, size, 3, "pool for the normaliser").members
    start = uniform(case_keys(3, torch.arange(4), "even steps", "some"), (1,))
    known = tilted.reference_draws(7, "some").members
    share = torch.softmax(exponent(law, pool[:, first]), -1)
    assert torch.equal(known, taken(pool[:, first], picked(share, even_steps(start, 7))))
    drawn = tilted.draws_to_rank(y, 7, "some").members
    for case, ranked in enumerate(drawn):
        own = torch.cat([y[case, None], pool[case, second]])
        assert bool((ranked[:, None] == own).all(-1).any(-1).all())
    for members in (known, drawn):
        torch.testing.assert_close(tilted.log_weights(members), exponent(law, members))
    fresh = Tilted(law, OLD, THETA, pool=size)
    torch.testing.assert_close(tilted.mean, fresh.mean)  # after the pool was made for all, and before


def test_a_pool_that_is_kept_serves_every_part(mixed, monkeypatch):
    monkeypatch.setattr("prerank._chunks.ELEMENTS", 1)
    law = mixed(4)
    tilted, kept = Tilted(law, OLD, THETA, pool=40), Tilted(law, OLD, THETA, pool=40)
    kept.keep_pool()
    torch.testing.assert_close(kept._kept, tilted._kept)
    for cases in (slice(1, 3), torch.tensor([2, 0])):
        torch.testing.assert_close(kept.select(cases)._kept, tuple(part[cases] for part in tilted._kept))
    torch.testing.assert_close(kept.mean, Tilted(law, OLD, THETA, pool=40).mean)
    monkeypatch.setattr("prerank.recalibration.tilted.MOST_KEPT", 4 * 40 * 2 - 1)
    other = Tilted(law, OLD, THETA, pool=40)
    other.keep_pool()
    assert "_kept" not in vars(other)
    smaller = Tilted(law, OLD, THETA, pool=40, share=0.5).with_pool(30)
    assert (smaller.pool, smaller.share, smaller.base) == (30, 0.5, law)


def test_exponents_are_remembered_for_the_same_points_until_they_change(mixed):
    law, points = mixed(4), normal(4, 5, 2)
    tilted = Tilted(law, OLD, THETA, pool=40)
    first = tilted.log_weights(points)
    assert tilted.log_weights(points) is first
    torch.testing.assert_close(tilted.log_weights(points.clone()), first)
    points += 1.0
    torch.testing.assert_close(tilted.log_weights(points), exponent(law, points))


def test_resampling_picks_where_cumulated_shares_pass_a_number():
    members = torch.tensor([[[10.0], [20.0], [30.0]]])
    share = torch.tensor([[0.2, 0.5, 0.3]])
    drawn = taken(members, picked(share, torch.tensor([[0.1, 0.21, 0.69, 0.71, 1.5]]).double()))
    assert drawn.flatten().tolist() == [10.0, 20.0, 20.0, 30.0, 30.0]
    assert even_steps(torch.tensor([[0.5], [0.0]]), 4).tolist() == [
        [0.125, 0.375, 0.625, 0.875],
        [0.0, 0.25, 0.5, 0.75],
    ]


def test_samples_have_their_axes_first_and_follow_torchs_generator(mixed):
    tilted = Tilted(mixed(3), OLD, THETA, pool=40)
    torch.manual_seed(5)
    seed = int(torch.randint(1 << 62, ()))
    torch.manual_seed(5)
    drawn = tilted.sample((2, 4))
    expected = tilted.ensemble(8, seed, "sample").members
    assert torch.equal(drawn.reshape(8, 3, 2), expected.movedim(1, 0))
    assert tilted.sample().shape == (3, 2)


@pytest.mark.parametrize("cases", [slice(1, 3), torch.tensor([2, 0])])
def test_some_cases_of_a_tilted_forecast_keep_their_draws(cases, mixed):
    theta = THETA * torch.tensor([1.0, -1.0, 0.5, 2.0]).double()[:, None, None]
    for coefficients in (THETA, theta):
        tilted = Tilted(mixed(4), OLD, coefficients, pool=40, share=0.5)
        some = tilted.select(cases)
        assert (some.pool, some.share, some.case_ids.tolist()) == (40, 0.5, tilted.case_ids[cases].tolist())
        assert torch.equal(some.ensemble(30).members, tilted.ensemble(30).members[cases])
        torch.testing.assert_close(some.mean, tilted.mean[cases])
        named = some.ensemble(30, case_ids=torch.tensor([7, 8])).members
        assert not torch.equal(named, some.ensemble(30).members)


def test_a_tilt_of_a_tilt_weighs_draws_of_the_root_by_both(mixed):
    law = mixed(3)
    once = Tilted(law, OLD, THETA, pool=40)
    twice = Tilted(once, replace(OLD, seed=4), 2 * THETA, pool=50)
    assert twice.root is law
    assert repr(twice) == "Tilted(GaussianMixture, 3 cases, 2 targets)"
    points = normal(3, 6, 2)
    expected = exponent(law, points) + exponent(once, points, 2 * THETA, replace(OLD, seed=4))
    torch.testing.assert_close(twice.log_weights(points), expected)
    pool = equally_weighted_draws(law, 50, 4, "pool for the normaliser").members
    torch.testing.assert_close(twice.mean, (torch.softmax(twice.log_weights(pool), 1)[..., None] * pool).sum(1))
    some = twice.select(slice(1, 3))
    torch.testing.assert_close(some.log_weights(points[1:]), expected[1:])


def test_a_value_of_other_cases_and_a_law_that_cannot_be_cut_are_refused(mixed, opaque):
    tilted = Tilted(mixed(3), OLD, THETA, pool=40)
    with pytest.raises(ValueError, match=r"value has shape \(2, 2\), but the forecast is for 3 cases and 2 targets"):
        tilted.log_prob(torch.zeros(2, 2))
    whole = Tilted(opaque(laplace(3)), OLD, THETA, pool=40)
    assert whole.mean.shape == (3, 2)
    with pytest.raises(TypeError, match="an Opaque cannot be cut into cases; give its class a select"):
        whole.select(slice(1))


@pytest.mark.parametrize("elements", [1 << 20, 1])
def test_points_of_a_tilt_are_pits_with_the_observation_first(elements, mixed, held_out, monkeypatch):
    monkeypatch.setattr("prerank._chunks.ELEMENTS", elements)
    law, y = mixed(5), normal(5, 2)
    given = held_out(y, preranks=(Marginal(),), seed=7)
    old = OldPITs((Marginal(), Scale()), 10, 7)
    found = SMALL.points(law, given, old)
    drawn = equally_weighted_draws(law, 16, 7, "draws of the tilt").members
    expected = old(law, torch.cat([y[:, None], drawn], 1), torch.arange(5)).float()
    torch.testing.assert_close(found, expected)
    assert found.shape == (5, 17, 3)
    assert found.dtype == torch.float32


def test_points_of_a_second_tilt_are_draws_that_no_reference_has(mixed, held_out):
    law, y = mixed(5), normal(5, 2)
    tilted = Tilted(law, OLD, THETA, pool=60, share=0.1)
    found = SMALL.points(tilted, held_out(y, seed=7), OLD)
    drawn = Tilted(law, OLD, THETA, pool=60).draws_to_rank(y, 16, "draws of the tilt").members
    torch.testing.assert_close(found, OLD(tilted, torch.cat([y[:, None], drawn], 1), torch.arange(5)).float())


@pytest.fixture
def judged(mixed, observed, held_out):
    """Judge candidates of two ridges by hand: what the guard says of each is given."""
    law = mixed(12)
    weights = 0.5 + torch.rand(12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def judge(choice, verdicts, monkeypatch, features=None, tilt=SMALL):
        y = observed(law, 1)
        given = held_out(y, weights=weights, preranks=(Marginal(), Location()), features=features)
        lead = () if features is None else (features.values.shape[1],)
        by_fold = torch.stack([THETA.expand(*lead, 2, 3) * (1 + 0.1 * f) for f in range(given.folds.n_folds)])
        candidates = [
            Candidate(ridge, size * THETA.expand(*lead, 2, 3), size * by_fold, normal(12, seed=place), features)
            for place, (ridge, size) in enumerate(((1.0, 0.5), (0.1, 1.0)))
        ]
        asked = []

        class Guarded:
            def verdict(self, candidate):
                asked.append(candidate.ridge)
                return verdicts[candidate.ridge]

        monkeypatch.setattr(Guard, "of", lambda *_: Guarded())
        pits = tilt.points(law, given, OLD)
        return tilt._judged(law, given, OLD, pits, Path(candidates, choice)), candidates, given, pits, asked

    return judge


GOOD, BAD = Verdict(0.5, 1.0, 0.1, 0.2), Verdict(0.01, 1.0, -0.5, 0.1)


def test_the_preferred_candidate_is_kept_if_it_is_harmless(judged, monkeypatch):
    step, candidates, given, pits, asked = judged(1, {1.0: BAD, 0.1: GOOD}, monkeypatch)
    assert asked == [0.1]
    assert (step.ridge, step.refused, step.changed, step.verdict) == (0.1, False, True, GOOD)
    assert torch.equal(step.theta, candidates[1].theta)
    assert (step.gain, step.gain_error) == given.gain(candidates[1].gain)
    weight = torch.softmax((legendre(pits, 2) * step.theta).sum((-2, -1)).double(), 1)
    own = float((given.weights * weight[:, 0]).sum()) / 12
    assert step.own_weight == pytest.approx(own, rel=1e-4)
    torch.testing.assert_close(step.observed, _density(pits[:, 0], given.weights))
    among = weight[:, 1:] / weight[:, 1:].sum(1, keepdim=True)
    expected = _density(pits[:, 1:].reshape(-1, 3), (given.weights[:, None] * among).reshape(-1))
    torch.testing.assert_close(step.corrected, expected, atol=1e-4, rtol=0)
    assert (step.groups, step.preranks) == ((("marginal", 2), ("location", 1)), OLD.preranks)
    assert (step.n_reference, step.pool, step.seed, step.n_features, step.centre) == (10, 50, 0, 0, None)
    # the next step learns from tilts that were fitted without the case's fold
    assert torch.equal(step.out_of_fold.theta, candidates[1].without[given.folds.fold])
    assert step.out_of_fold.case_ids.tolist() == list(range(12))


def test_a_harmful_candidate_gives_way_to_a_more_cautious_one_and_then_to_no_change(judged, monkeypatch):
    step, candidates, *_, asked = judged(1, {1.0: GOOD, 0.1: BAD}, monkeypatch)
    assert (asked, step.ridge, step.refused, step.verdict) == ([0.1, 1.0], 1.0, True, GOOD)
    assert torch.equal(step.theta, candidates[0].theta)
    step, *_, asked = judged(1, {1.0: BAD, 0.1: BAD}, monkeypatch)
    assert (asked, step.ridge, step.refused, step.changed) == ([0.1, 1.0], None, True, False)
    assert torch.equal(step.theta, torch.zeros(2, 3).double())
    step, *_, asked = judged(0, {1.0: GOOD, 0.1: BAD}, monkeypatch)
    assert (asked, step.ridge, step.refused) == ([1.0], 1.0, False)
    step, *_, asked = judged(None, {}, monkeypatch)
    assert (asked, step.ridge, step.refused, step.verdict) == ([], None, False, Verdict(1.0, 0.0, 0.0, 0.0))
    assert (step.gain, step.gain_error) == (0.0, 0.0)
    assert step.own_weight == pytest.approx(1 / 17)


def test_the_options_of_a_tilt_decide_what_is_harmless(judged, monkeypatch):
    between = Verdict(0.03, 1.0, -0.15, 0.1)
    for tilt, kept in (
        (SMALL, True),
        (replace(SMALL, errors=1.0), False),
        (replace(SMALL, least_effective_share=0.04), False),
    ):
        step, *_ = judged(0, {1.0: between}, monkeypatch, tilt=tilt)
        assert step.changed is kept


def test_a_tilt_by_features_keeps_their_centre_and_spread(judged, monkeypatch, tmp_path):
    features = Features.of(normal(12, 2, seed=5), 12, CPU)
    tilt = replace(SMALL, by_features=True)
    step, _, given, pits, _ = judged(0, {1.0: GOOD}, monkeypatch, features, tilt)
    assert torch.equal(step.centre, features.centre)
    assert torch.equal(step.spread, features.spread)
    assert step.n_features == 2
    coefficients = by_case(step.theta, features.values)[:, None]
    weight = torch.softmax((legendre(pits, 2) * coefficients).sum((-2, -1)).double(), 1)
    assert step.own_weight == pytest.approx(float((given.weights * weight[:, 0]).sum()) / 12, rel=1e-4)
    for case, fold in enumerate(given.folds.fold.tolist()):
        expected = by_case((1 + 0.1 * fold) * step.theta, features.values)[case]
        torch.testing.assert_close(step.out_of_fold.theta[case], expected)
    idle, *_ = judged(None, {}, monkeypatch, features, tilt)
    assert idle.out_of_fold is None
    assert torch.equal(idle.theta, torch.zeros(2, 2, 3).double())
    assert idle.n_features == 2
    write(tmp_path / "idle", (idle,), {})  # a file takes no tensor that is a view of itself
    plain, *_ = judged(None, {}, monkeypatch, features, SMALL)
    assert plain.n_features == 0
    assert plain.theta.shape == (2, 3)


def test_a_histogram_of_pits_is_a_density():
    pits = torch.tensor([[0.0, 0.049], [0.051, 1.0], [0.5, 0.999]])
    found = _density(pits, torch.tensor([1.0, 2.0, 1.0]))
    assert found.shape == (2, 20)
    assert found[0, [0, 1, 10]].tolist() == [5.0, 10.0, 5.0]
    assert found[1, [0, 19]].tolist() == [5.0, 15.0]
    assert found.sum(1).tolist() == [20.0, 20.0]
    assert found.dtype == torch.float64


def fitted(**changes):
    groups, rows = (("marginal", 2), ("location", 1)), torch.ones(3, 20).double()
    verdict = Verdict(0.25, 2.0, 0.5, 0.125, 0.1, 0.2, 40)
    step = FittedTilt(OLD.preranks, groups, THETA, 0.1, 0.3, 0.2, verdict, False, 0.01, rows, rows, 10, 60, 3)
    return replace(step, **changes)


def test_a_fitted_tilt_makes_the_tilted_forecast_that_it_describes(mixed):
    law = mixed(4)
    found = fitted().transform(law)
    assert (found.base, found.share, found.pits) == (law, 0.25, OLD)
    assert found.pool == 600  # worth 150 draws; ten times 60 is the most
    assert torch.equal(found.theta, THETA)
    assert fitted(ridge=None).transform(law) is law
    gaussian = MultivariateNormal(normal(4, 2), torch.eye(2).double())
    assert isinstance(fitted().transform(gaussian).base, GaussianMixture)
    centre, spread, features = torch.tensor([1.0]).double(), torch.tensor([2.0]).double(), normal(4, 1, seed=6)
    step = fitted(theta=THETA[None], centre=centre, spread=spread)
    assert (step.n_features, fitted().n_features) == (1, 0)
    given = step.transform(law, features)
    torch.testing.assert_close(given.theta, by_case(THETA[None], standardised(features, centre, spread)))
    with pytest.raises(TypeError, match=r"the 5 members of an Ensemble cannot reach beyond themselves; put ErrorLaw"):
        fitted().transform(Ensemble(torch.zeros(4, 5, 2)))


def test_the_summary_of_a_tilt_has_its_numbers():
    assert fitted().summary() == (
        "tilt: along marginal, location with ridge 0.1; gain 0.3000 ± 0.2000 in the log probability of picking the "
        "observation out of draws; log score better by 0 ± 0 nats per case; energy score 2 before, gain "
        "0.5 ± 0.12; effective size 25% of a pool"
    )
    one = fitted(centre=torch.zeros(1), spread=torch.ones(1))
    assert one.summary().startswith("tilt by 1 feature: along marginal, location with")
    assert fitted(ridge=None).summary() == (
        "tilt: nothing was changed along marginal, location; the held-out cases support no tilt"
    )
    assert fitted(ridge=None, refused=True, verdict=Verdict(0.25, 2.0, -0.5, 0.125)).summary() == (
        "tilt: nothing was changed along marginal, location; a tilt fits, but would do harm (effective size 25.0% of a "
        "pool, energy score worse by 0.5 ± 0.12, log score better by 0 ± 0 nats)"
    )


def test_the_options_of_a_tilt_are_checked_and_have_their_defaults():
    tilt = Tilt()
    assert (tilt.degree, tilt.n_draws, tilt.n_reference, tilt.pool) == (8, 256, 500, 2000)
    assert tilt.ridges == (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
    assert (tilt.least_effective_share, tilt.errors, tilt.by_features) == (0.02, 2.0, False)
    assert Tilt(ridges=(0.0,)).ridges == (0.0,)
    for name in ("degree", "n_draws", "n_reference", "pool"):
        with pytest.raises(ValueError, match=f"{name}=0: a whole number of at least 1"):
            Tilt(**{name: 0})
        assert getattr(Tilt(**{name: 1}), name) == 1
    for ridges in ((), (0.1, -0.1)):
        with pytest.raises(ValueError, match="at least one, each of zero or more"):
            Tilt(ridges=ridges)


def test_a_tilt_by_features_needs_them_and_another_does_not_look_at_them(mixed, observed, held_out):
    law = mixed(20)
    y = observed(law, 1)
    with pytest.raises(ValueError, match=r"Tilt\(by_features=True\) needs features"):
        replace(SMALL, by_features=True).fit(law, held_out(y, preranks=(Marginal(),)))
    features = Features.of(normal(20, 2, seed=5), 20, CPU)
    first, second = (SMALL.fit(law, held_out(y, preranks=(Marginal(),), features=given)) for given in (None, features))
    assert torch.equal(first.theta, second.theta)
    assert math.isfinite(first.own_weight)
