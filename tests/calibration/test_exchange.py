"""Exchangeable points and the tests that pick among them: ties and weights of members and cases."""

import pytest
import torch
from scipy import stats

from prerank import (
    HDR,
    PCA,
    Copula,
    Custom,
    Ensemble,
    Location,
    Marginal,
    Scale,
    paper_preranks,
    pce,
    pce_null,
    pce_test,
    projected_pit,
)
from prerank.calibration import EmpiricalRank, RandomisedRank

LEVEL = 1e-4  # of each statistical check


def generator(seed):
    return torch.Generator().manual_seed(seed)


def assert_level(p_values, level=0.05, slack=0.0):
    """The share of p-values at or below the level is the level, by the binomial law; `slack` allows that much more."""
    count = len(p_values)
    rejected = int((p_values <= level * (1 + 1e-9)).sum())
    assert rejected >= stats.binom.ppf(LEVEL / 2, count, level), rejected / count
    assert rejected <= stats.binom.ppf(1 - LEVEL / 2, count, level + slack), rejected / count


# -- exactly uniform: equally weighted members, any number of them, ties included


@pytest.mark.parametrize("n_members", [1, 2, 10])
@pytest.mark.parametrize("rounded", [False, True], ids=["continuous", "counts"])
def test_randomised_ranks_are_uniform_for_any_number_of_members_and_ties(n_members, rounded):
    x = torch.randn(6000, n_members + 1, 3, generator=generator(n_members))
    x = x.round() if rounded else x
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), paper_preranks(3), RandomisedRank())
    for k, name in enumerate(pit.names):
        assert stats.kstest(pit.values[:, k].double().numpy(), "uniform").pvalue > LEVEL, (name, n_members)
    if rounded:
        assert pit.tied.max() > 0.2


def test_all_points_of_a_case_have_pits_that_fill_the_unit_interval():
    x = torch.randn(50, 8, 3, generator=generator(0))
    points = projected_pit(x[:, 0], Ensemble(x[:, 1:]), paper_preranks(3), exchangeable=True).points
    # the intervals tile [0, 1]: at every level the points lie below it with shares that average to the level
    for level in (0.07, 0.3, 0.5, 0.99):
        width = points.upper - points.lower
        shares = ((level - points.lower) / width).clamp(0, 1)
        torch.testing.assert_close(shares.mean(1), torch.full_like(shares[:, 0], level))
    ordered = points.lower.sort(1).values
    untied = list(range(ordered.shape[-1] - 1))  # the copula, last, has ties
    cells = (torch.arange(8, dtype=torch.float64)[:, None] / 8).expand(8, len(untied))
    torch.testing.assert_close(ordered[..., untied], cells.expand(50, 8, len(untied)))


def test_unrandomised_ranks_of_all_points_are_those_each_would_have_as_the_observation():
    x = torch.randn(20, 7, 3, generator=generator(1)).round()
    preranks = [Marginal(), Location(), Scale()]
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), preranks, EmpiricalRank(), exchangeable=True)
    for i in range(7):
        others = [j for j in range(7) if j != i]
        alone = projected_pit(x[:, i], Ensemble(x[:, others]), preranks, EmpiricalRank())
        torch.testing.assert_close(alone.values, pit.points.lower[:, i])


def test_unrandomised_ranks_that_tie_are_tested_by_exchange():
    """A pre-rank of few values: the law of k / M does not hold, the exchange does."""
    x = torch.randn(300 * 40, 11, 2, generator=generator(2))
    coarse = Custom(lambda y: (y[..., 0] > 0).to(y.dtype), name="sign")
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), coarse, EmpiricalRank(), exchangeable=True)
    test = pce_test(pit.in_sets(300), n_replicates=99)
    assert_level(test.p_value[:, 0])
    with pytest.raises(ValueError, match="ranks that tie or carry weights have no known law"):
        pce_test(projected_pit(x[:50, 0], Ensemble(x[:50, 1:]), coarse, EmpiricalRank()))


def test_unrandomised_ranks_without_ties_have_the_law_of_their_number_of_members():
    x = torch.randn(1000 * 50, 6, 2, generator=generator(3))
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), Location(), EmpiricalRank())
    assert_level(pce_test(pit.in_sets(1000), n_replicates=99).p_value[:, 0], slack=0.002)


# -- weighted members


def importance_sample(n_cases, n_members, seed):
    """Members from N(0, 1.5^2), the observation from N(0, 1), weights the ratio of the two densities (two targets)."""
    wide = 1.5
    y = torch.randn(n_cases, 2, generator=generator(seed), dtype=torch.float64)
    members = wide * torch.randn(n_cases, n_members, 2, generator=generator(seed + 1), dtype=torch.float64)

    def weight(x):
        return (-0.5 * (x.square() * (1 - 1 / wide**2)).sum(-1)).exp()

    return y, Ensemble(members, weight(members)), weight(y)


@pytest.mark.parametrize("prerank", [Marginal(), Scale(), PCA(), HDR(), Copula()], ids=lambda p: p.name)
def test_importance_weights_with_the_observations_own_give_exactly_uniform_pits(prerank):
    r"""Given the unordered points, each is the observation with probability proportional to its weight.

    With members from q and the observation from p, the joint density is $w(y) q(y) \prod_m q(x_m)$ with w = p / q.
    """
    y, forecast, own = importance_sample(8000, 4, seed=0)
    pit = projected_pit(y, forecast, prerank, RandomisedRank(), observation_weights=own)
    assert pit.exact
    for k in range(pit.values.shape[-1]):
        assert stats.kstest(pit.values[:, k].numpy(), "uniform").pvalue > LEVEL
    without = projected_pit(y, forecast, prerank)
    assert not without.exact
    assert "approximate" in without.method


def test_without_the_observations_weight_few_members_are_not_uniform():
    y, forecast, _ = importance_sample(8000, 4, seed=0)
    pit = projected_pit(y, forecast, Marginal(), RandomisedRank())
    assert stats.kstest(pit.values[:, 0].numpy(), "uniform").pvalue < LEVEL


@pytest.mark.slow
def test_tests_of_weighted_members_hold_their_size():
    y, forecast, own = importance_sample(300 * 60, 8, seed=4)
    preranks = [Marginal(), Scale()]
    exact = projected_pit(y, forecast, preranks, observation_weights=own, exchangeable=True)
    test = pce_test(exact.in_sets(300), n_replicates=99)
    for g in range(2):
        assert_level(test.p_value[:, g])
    assert_level(test.adjusted_p_value.amin(-1))


@pytest.mark.slow
def test_without_the_observations_weight_tests_of_many_effective_members_nearly_hold_their_size():
    """Simulated by leaving one member out, which errs by one over the effective size: one part in sixty here."""
    y, forecast, _ = importance_sample(300 * 60, 100, seed=5)
    assert forecast.effective_size.mean() > 60
    pit = projected_pit(y, forecast, [Marginal(), Scale()], exchangeable=True)
    test = pce_test(pit.in_sets(300), n_replicates=99)
    for g in range(2):
        assert_level(test.p_value[:, g], slack=0.02)


def test_rounding_of_weights_does_not_push_a_pit_out_of_the_unit_interval():
    weights = torch.rand(4000, 50, generator=generator(6))
    members = torch.randn(4000, 50, 2, generator=generator(7))
    for y in (torch.full((4000, 2), 9.0), torch.full((4000, 2), -9.0)):
        for how in (None, EmpiricalRank()):
            pit = projected_pit(y, Ensemble(members, weights), Marginal(), how, exchangeable=True)
            assert pit.points.lower.min() >= 0
            assert pit.points.upper.max() <= 1
            pce(pit)


def test_equal_weights_given_or_not_are_the_same():
    x = torch.randn(40, 9, 3, generator=generator(8), dtype=torch.float64)
    plain = projected_pit(x[:, 0], Ensemble(x[:, 1:]), paper_preranks(3), exchangeable=True)
    weighted = Ensemble(x[:, 1:], torch.full((40, 8), 2.0, dtype=torch.float64))
    own = torch.full((40,), 2.0, dtype=torch.float64)
    given = projected_pit(x[:, 0], weighted, paper_preranks(3), observation_weights=own, exchangeable=True)
    torch.testing.assert_close(given.points.lower, plain.points.lower)
    torch.testing.assert_close(given.points.upper, plain.points.upper)
    torch.testing.assert_close(pce_test(given, n_replicates=99).statistic, pce_test(plain, n_replicates=99).statistic)


def test_weights_of_reference_draws_count_like_repetitions():
    x = torch.randn(30, 9, 3, generator=generator(9), dtype=torch.float64)
    draws = torch.randn(30, 4, 3, generator=generator(10), dtype=torch.float64)
    weights = torch.tensor([1.0, 2.0, 1.0, 3.0], dtype=torch.float64).expand(30, 4)
    repeated = draws.repeat_interleave(torch.tensor([1, 2, 1, 3]), 1)
    for prerank in (PCA(n_components=2), Copula()):
        found = projected_pit(x[:, 0], Ensemble(x[:, 1:], reference=Ensemble(draws, weights)), prerank)
        expected = projected_pit(x[:, 0], Ensemble(x[:, 1:], reference=repeated), prerank)
        torch.testing.assert_close(found.values, expected.values)


# -- adjusted p-values


def test_one_and_the_same_prerank_twice_is_adjusted_as_one():
    """The signs know that two rows are one: the median factor over 50 data sets is 1, where Holm's is 2."""
    x = torch.randn(50, 40, 8, 1, generator=generator(11))
    twice = [Custom(lambda y: y[..., 0], name="a"), Custom(lambda y: 2 * y[..., 0], name="b")]
    test = pce_test(projected_pit(x[..., 0, :], Ensemble(x[..., 1:, :]), twice))
    assert torch.equal(test.p_value[:, 0], test.p_value[:, 1])
    assert torch.equal(test.adjusted_p_value[:, 0], test.adjusted_p_value[:, 1])
    factor = test.adjusted_p_value / test.p_value
    assert (factor >= 1).all()
    assert float(factor.median()) < 1.1


def test_few_replicates_can_still_reject_over_many_rows():
    """Seven rows and 99 replicates: no factor for the rows, so 39 replicates would do."""
    x = torch.randn(300, 11, 5, generator=generator(12))
    pit = projected_pit(x[:, 0], Ensemble(0.3 * x[:, 1:]), paper_preranks(5), exchangeable=True)
    test = pce_test(pit, n_replicates=99)
    assert set(test.nulls) == {"signs", "exact", "points"}
    for name in ("marginal", "location", "scale", "PCA", "HDR", "copula"):
        assert test.adjusted_p_value[test.groups.index(name)] <= 0.05, name
    assert float(test.attainable) == 1 / 100
    assert (test.adjusted_p_value >= 1 / 100).all()
    assert (test.adjusted_p_value >= test.p_value).all()


def test_replicates_have_the_error_of_a_calibrated_forecast():
    """Their mean is that of 500 draws of the null; its law varies by half its mean."""
    x = torch.randn(200, 31, 3, generator=generator(13)).double()
    x[0, :15] = x[0, 16:]  # some ties, so that points are picked
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), Location(), exchangeable=True)
    test = pce_test(pit, n_replicates=500)
    assert test.nulls == ("points",)
    null = pce_null(200, n_members=30)
    error = null.sample.std() / 500**0.5
    assert float(test.replicates.mean()) == pytest.approx(null.mean, abs=4 * error + 0.01 * null.mean)


def test_case_weights_enter_the_test():
    x = torch.randn(400 * 40, 8, 2, generator=generator(14))
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), Marginal(), exchangeable=True).in_sets(400)
    weights = torch.rand(40, generator=generator(15))
    assert_level(pce_test(pit, n_replicates=99, case_weights=weights).p_value[:, 0])
    single = projected_pit(x[:, 0], Ensemble(x[:, 1:]), Location()).in_sets(400)
    assert_level(pce_test(single, n_replicates=99, case_weights=weights).p_value[:, 0])


# -- dependent cases


def test_blocks_keep_the_size_where_members_run_through_dependent_cases_and_no_blocks_do_not():
    repetitions, n_blocks, length = 300, 25, 8
    shape = (repetitions * n_blocks, 1, 10, 2)
    season = torch.randn(*shape, generator=generator(16))  # shared by the days of a block, each member its own
    day = torch.randn(repetitions * n_blocks, length, 10, 2, generator=generator(17))
    x = (2 * season + day).reshape(repetitions * n_blocks * length, 10, 2)
    preranks = [Marginal(), Location()]
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), preranks).in_sets(repetitions)
    blocks = torch.arange(n_blocks).repeat_interleave(length)
    blocked = pce_test(pit, n_replicates=99, blocks=blocks)
    for g in range(2):
        assert_level(blocked.p_value[:, g])
    plain = pce_test(pit, n_replicates=99)
    assert (plain.p_value <= 0.05).double().mean() > 0.2


def test_blocks_that_do_not_fit_are_refused():
    x = torch.randn(30, 9, 2, generator=generator(18))
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), Marginal())
    with pytest.raises(ValueError, match=r"blocks have shape \(7,\); one label per case is \(30,\)"):
        pce_test(pit, blocks=torch.zeros(7, dtype=torch.long))
