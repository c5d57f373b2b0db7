"""Ranks are intervals: nothing depends on how ties are broken, and every null knows it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from prerank import (
    Copula,
    Custom,
    Ensemble,
    GaussianMixture,
    Location,
    Marginal,
    Scale,
    corrected_pce,
    paper_preranks,
    pce,
    pce_interval,
    pce_null,
    pce_test,
    projected_pit,
    reliability_band,
    reliability_curve,
)
from prerank.calibration import RandomisedRank, centred_levels, exchange, inclusive_levels
from prerank.calibration import curve_table as curvetable
from prerank.calibration.curve_table import Coded, Summed, tables_of
from prerank.calibration.projected_pits import ProjectedPIT
from prerank.calibration.rank_intervals import Intervals, add_at, add_in_order, curve_sums, steps

LEVEL = 1e-4  # of each statistical check


def generator(seed):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def ranked(x, preranks=None, **options):
    """PITs of x[:, 0] among x[:, 1:], with all exchangeable points."""
    chosen = paper_preranks(x.shape[-1]) if preranks is None else preranks
    return projected_pit(x[:, 0], Ensemble(x[:, 1:]), chosen, exchangeable=True, **options)


def at_most(level, count):
    """Rejections of `count` tests at 5 % that chance exceeds with probability `level`."""
    return stats.binom.ppf(1 - level, count, 0.05)


# -- the curve


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 12), st.sampled_from([1, 7, 100]), st.booleans())
def test_sums_of_contributions_are_those_of_the_definition(seed, n_cases, n_levels, inclusive):
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.choice([rng.random(), 0.0, 1.0, 0.5, *rng.random(6)], (2, n_cases, 3)), 0)
    lower, upper = torch.from_numpy(ends)
    levels = inclusive_levels(n_levels + 1) if inclusive else centred_levels(n_levels)
    weights = torch.from_numpy(rng.random(n_cases))
    expected = sum(
        weights[i] * torch.stack([steps(lower[i, k : k + 1], upper[i, k : k + 1], levels)[0] for k in range(3)], -1)
        for i in range(n_cases)
    )
    torch.testing.assert_close(curve_sums(lower, upper, levels, weights), expected, rtol=0, atol=1e-10)


def test_values_added_in_order_are_those_added_anyhow():
    """What a GPU does in the place of additions whose order is chance; whole numbers have one sum."""
    places = torch.randint(5, (2, 3, 40, 4), generator=generator(1))
    values = torch.randint(-9, 10, places.shape, generator=generator(2)).double()
    anyhow, in_order = torch.ones(2, 3, 5, 4).double(), torch.ones(2, 3, 5, 4).double()
    add_at(anyhow, places, values)
    add_in_order(in_order, places, values)
    assert torch.equal(anyhow, in_order)
    assert anyhow.sum() == 2 * 3 * 5 * 4 + values.sum()


@pytest.mark.slow
def test_the_curve_is_the_mean_over_all_ways_of_breaking_ties():
    x = normal(40, 6, 3).round()
    whole = reliability_curve(ranked(x)).frequency
    draws = torch.stack([reliability_curve(ranked(x, how=RandomisedRank(), seed=s)).frequency for s in range(400)])
    error = draws.std(0) / 20
    assert ((draws.mean(0) - whole).abs() <= 5.5 * error + 1e-12).all()


def test_errors_of_an_ensemble_depend_on_no_seed():
    x = normal(60, 9, 4, seed=1).round()
    assert torch.equal(pce(ranked(x, seed=0)), pce(ranked(x, seed=1)))


def test_values_are_the_middles_of_the_intervals():
    pit = projected_pit(torch.tensor([[2.0]]), Ensemble(torch.tensor([[[1.0], [2.0], [2.0], [3.0]]])), Location())
    assert (float(pit.lower), float(pit.upper), float(pit.values)) == (0.2, 0.8, 0.5)


# -- tables: counting and summing are the same


@pytest.mark.parametrize("unit", [5, 9, 300, torch.tensor([9, 5, 9, 7, 5] * 8)], ids=["5", "9", "300", "several"])
@pytest.mark.parametrize("tied", [False, True])
def test_counting_intervals_by_number_is_summing_them(unit, tied):
    rng = np.random.default_rng(3)
    most = unit if isinstance(unit, int) else 9
    units = np.broadcast_to(np.asarray(unit), (40,))
    lower = rng.integers(0, units[:, None, None], (40, most, 2))
    width = rng.integers(1, np.minimum(units[:, None, None] - lower, 4) + 1) if tied else np.ones_like(lower)
    points = Intervals(torch.from_numpy(lower).short(), torch.from_numpy(lower + width).short(), unit)
    levels = centred_levels()
    ((columns, table),) = tables_of(points, levels)
    assert isinstance(table, Coded)
    low, high = (end.reshape(-1, 2) for end in points.bounds())
    rows = torch.from_numpy(rng.integers(0, len(low), (5, 30)))
    weights = torch.from_numpy(rng.random(30))
    for own in (None, weights):
        torch.testing.assert_close(
            table.sums(rows, own), Summed(low, high, None, levels).sums(rows, own), rtol=0, atol=1e-9
        )
    every = torch.from_numpy(rng.random((1, len(low))))
    summed = Summed(low, high, None, levels)
    for exponent in (1, 2):
        moments = (one.moments(every, exponent) for one in (table, summed))
        torch.testing.assert_close(*moments, rtol=1e-9, atol=1e-9)
    numbers = torch.from_numpy(rng.integers(0, 7, len(low)))
    whole = torch.from_numpy(rng.integers(0, 1000, len(low))).double()
    for own in (None, whole):
        sums = [one.sums_of_sets(numbers, 7, own, 30) for one in (table, summed)]
        assert torch.equal(*sums)
        assert torch.equal(sums[0], sums[0].round())
        direct = table.sums(torch.arange(len(low))[None], (numbers == 3).double() * (1 if own is None else own))
        torch.testing.assert_close(sums[0][3].mT / 2**30, direct[0], rtol=1e-6, atol=1e-6 * len(low))
    assert columns.tolist() == [0, 1]


def test_too_many_different_intervals_are_summed_with_the_same_result(monkeypatch):
    x = normal(80, 12, 3, seed=2).round()
    counted = pce_test(ranked(x), n_replicates=99)
    monkeypatch.setattr(curvetable, "_MOST_CODES", 0)
    summed = pce_test(ranked(x), n_replicates=99)
    torch.testing.assert_close(counted.statistic, summed.statistic, rtol=1e-9, atol=1e-12)
    assert torch.equal(counted.adjusted_p_value, summed.adjusted_p_value)


# -- results do not depend on chunks, companions or the order of cases


@pytest.mark.parametrize("weighted", [False, True])
def test_chunks_change_no_p_value(monkeypatch, weighted):
    x = normal(50, 9, 3, seed=4)
    weights = torch.rand(50, 8, generator=generator(5), dtype=torch.float64) if weighted else None
    own = torch.ones(50, dtype=torch.float64) if weighted else None
    pit = projected_pit(
        x[:, 0], Ensemble(x[:, 1:], weights), paper_preranks(3), observation_weights=own, exchangeable=True
    )
    whole = pce_test(pit, n_replicates=99)
    monkeypatch.setattr(exchange, "at_once", lambda *_: 7)
    assert torch.equal(pce_test(pit, n_replicates=99).p_value, whole.p_value)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_model_of_a_fleet_has_the_p_values_it_has_alone(weighted):
    members, y = normal(3, 40, 8, 3, seed=6), normal(40, 3, seed=7)
    weights = torch.rand(3, 40, 8, generator=generator(8), dtype=torch.float64) if weighted else None

    def test(members, weights):
        own = None if weights is None else torch.ones(weights.shape[:-1], dtype=torch.float64)
        forecast = Ensemble(members, weights)
        pit = projected_pit(y, forecast, [Marginal(), Scale()], observation_weights=own, exchangeable=True)
        return pce_test(pit, n_replicates=99)

    together = test(members, weights)
    for e in range(3):
        alone = test(members[e], None if weights is None else weights[e])
        assert torch.equal(alone.p_value, together.p_value[e])
        assert torch.equal(alone.adjusted_p_value, together.adjusted_p_value[e])


def test_the_order_of_cases_changes_nothing_given_their_names():
    x = normal(60, 9, 3, seed=9).round()
    ids, order = torch.arange(60) * 3 + 1, torch.randperm(60, generator=generator(10))
    first = ranked(x, case_ids=ids)
    second = ranked(x[order], case_ids=ids[order])
    tests = [pce_test(pit, n_replicates=99) for pit in (first, second)]
    assert torch.equal(tests[0].p_value, tests[1].p_value)
    assert torch.equal(tests[0].adjusted_p_value, tests[1].adjusted_p_value)
    intervals = [pce_interval(pit.of("location"), n_replicates=99) for pit in (first, second)]
    assert intervals[0] == pytest.approx(intervals[1], rel=1e-12)


def test_observations_drawn_from_the_forecast_are_not_the_draws_they_are_ranked_among():
    law = GaussianMixture(torch.zeros(50, 1), torch.zeros(50, 1, 3), torch.eye(3).expand(50, 1, 3, 3))
    pit = projected_pit(law.ensemble(1).members[:, 0], law, Scale())
    assert (pit.tied == 0).all()


def test_randomised_ranks_of_two_preranks_are_drawn_apart():
    y, members = torch.zeros(200, 2), torch.zeros(200, 9, 2)  # all ties: the rank is the draw
    constants = [Custom(lambda x: 0 * x[..., 0], name=name) for name in "ab"]
    values = projected_pit(y, Ensemble(members), constants, RandomisedRank()).values
    assert abs(np.corrcoef(values.T.numpy())[0, 1]) < 0.35  # five standard errors


# -- nulls


@pytest.mark.slow
def test_the_expected_error_of_few_members_is_smaller():
    found = [pce_null(1000, n_members=m).mean * 1000**0.5 for m in (1, 2, 5, 10, 50)]
    assert found == pytest.approx([0.1995, 0.2402, 0.2777, 0.2939, 0.3090], rel=0.01)
    assert pce_null(1000, n_members=100_000).mean == pytest.approx(pce_null(1000).mean, rel=0.01)


def test_the_expected_error_of_one_member_is_a_binomial_mean():
    """One member: the curve is fixed by how often the observation is the larger one."""
    n, levels = 30, centred_levels()
    count = np.arange(n + 1)
    share_below = torch.from_numpy((n - count) / n)[:, None]
    curve = torch.where(levels < 0.5, share_below * 2 * levels, share_below + (1 - share_below) * (2 * levels - 1))
    expected = float((torch.from_numpy(stats.binom.pmf(count, n, 0.5)) * (curve - levels).abs().mean(1)).sum())
    assert pce_null(n, n_members=1).mean == pytest.approx(expected, rel=0.01)


def test_power_two_has_an_exact_expected_error():
    null = pce_null(40, exponent=2, n_members=4)
    assert null.mean == pytest.approx(null.sample.mean(), rel=0.02)


def test_the_known_null_of_ranks_is_that_of_exchange():
    x = normal(200, 6, 2, seed=11)
    test = pce_test(ranked(x, [Location()]), n_replicates=2000)
    known = pce_null(200, n_members=5)
    replicates = test.replicates[:, 0]
    assert float(replicates.mean()) == pytest.approx(known.mean, rel=0.05)
    assert float(replicates.quantile(0.95)) == pytest.approx(known.quantile(0.95), rel=0.08)
    assert float(test.expected_pce) == known.mean


def test_ties_make_the_expected_error_smaller_and_exchange_knows_it():
    x = (normal(200, 6, 2, seed=12) > 0).double()
    test = pce_test(ranked(x, [Marginal()]), n_replicates=999)
    assert float(test.expected_pce[0]) < 0.7 * pce_null(200, n_members=5).mean


def test_no_p_value_is_zero():
    assert float(pce_null(50).p_value(1.0)) == pytest.approx(1 / 50_001)
    assert float(pce_null(50, n_members=3).p_value(1.0)) == pytest.approx(1 / 50_001)


def test_a_correction_never_makes_a_p_value_smaller():
    for seed in range(20):
        x = normal(40, 12, 3, seed=100 + seed)
        test = pce_test(ranked(x), n_replicates=19, seed=seed)
        assert (test.adjusted_p_value >= test.p_value).all()


def test_ties_without_their_points_are_tested_by_signs():
    x = (normal(60, 6, 1, seed=21) > 0).double()
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), Marginal())
    test = pce_test(pit, n_replicates=99)
    assert test.nulls == ("signs",)
    assert test.projection_power.isnan().all()
    with pytest.raises(ValueError, match=r"depends on the data: .* expected_pce="):
        corrected_pce(pit)


# -- size at the default seed, and power


def rejections(make, preranks, repetitions, n_replicates=99):
    """How many of several data sets are rejected at 5 %, no seed varied."""
    y, forecast = make()
    pit = projected_pit(y, forecast, preranks, exchangeable=True)
    test = pce_test(pit, n_replicates=n_replicates)
    assert test.p_value.shape[0] == repetitions
    return int((test.adjusted_p_value.amin(-1) <= 0.05 + 1e-9).sum())


@pytest.mark.parametrize(("n_members", "n_targets"), [(1, 2), (2, 3), (12, 6), (25, 12)])
@pytest.mark.parametrize("discrete", [False, True])
def test_no_data_are_a_false_alarm_because_of_the_default_seed(n_members, n_targets, discrete):
    x = normal(60, 100, n_members + 1, n_targets, seed=n_targets)
    x = (x > 0).double() if discrete else x
    found = rejections(lambda: (x[:, :, 0], Ensemble(x[:, :, 1:])), paper_preranks(n_targets), 60)
    assert found <= at_most(LEVEL, 60)
    found = rejections(lambda: (x[:, :, 0], Ensemble(x[:, :, 1:])), [Copula()], 60)
    assert found <= at_most(LEVEL, 60)


@pytest.mark.parametrize("n_targets", [12, 25])
def test_a_true_mixture_of_many_targets_is_no_false_alarm(n_targets):
    law = GaussianMixture(
        torch.zeros(30, 100, 1, dtype=torch.float64),
        normal(30, 100, 1, n_targets, seed=1),
        torch.eye(n_targets, dtype=torch.float64).expand(30, 100, 1, n_targets, n_targets),
    )
    y = law.loc[..., 0, :] + normal(30, 100, n_targets, seed=2)
    assert rejections(lambda: (y, law), [Copula(200)], 30) <= at_most(LEVEL, 30)


def test_a_copula_whose_ranks_nearly_all_tie_still_sees_a_wrong_correlation():
    """Correlation 0.8 forecast as 0.2, 25 members of 12 targets: randomised ranks see it in half of all data sets."""

    def correlated(rho, *shape, seed):
        common, own = normal(*shape, 1, seed=seed), normal(*shape, 12, seed=seed + 1)
        return rho**0.5 * common + (1 - rho) ** 0.5 * own

    y, members = correlated(0.8, 40, 100, seed=1), correlated(0.2, 40, 100, 25, seed=3)
    found = rejections(lambda: (y, Ensemble(members)), [Copula()], 40)
    assert found >= stats.binom.ppf(LEVEL, 40, 0.9)


# -- weights


def test_a_member_that_stands_in_for_the_observation_loses_its_weight():
    """The observation's weight is unknown and counts for nothing, so neither does that of a member in its place."""
    y = torch.tensor([[1.5]], dtype=torch.float64)
    members = torch.tensor([[[1.0], [2.0], [2.0]]], dtype=torch.float64)
    weights = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    pit = projected_pit(y, Ensemble(members, weights), Marginal(), exchangeable=True)
    points = torch.stack([pit.points.lower[0, :, 0], pit.points.upper[0, :, 0]], -1)
    expected = [
        [1 / 6, 1 / 6],  # the observation: weight 1 of 6 below it, none of its own
        [0.0, 0.0],
        [1 / 4, 1.0],  # of the others, 4, one is below and three tie
        [1 / 3, 1.0],
    ]
    torch.testing.assert_close(points, torch.tensor(expected, dtype=torch.float64))
    own = torch.tensor([2.0], dtype=torch.float64)
    exact = projected_pit(y, Ensemble(members, weights), Marginal(), observation_weights=own)
    assert [float(exact.lower), float(exact.upper)] == pytest.approx([1 / 8, 3 / 8])


# -- bands, intervals, corrected errors


@pytest.mark.parametrize("kind", ["ranks", "ties", "closed form"])
def test_bands_hold_the_curves_of_a_calibrated_forecast_as_often_as_stated(kind):
    n_sets, n_cases = 1000, 60
    if kind == "closed form":
        y = normal(n_sets, n_cases, 2, seed=1)
        law = GaussianMixture(*(torch.zeros(n_cases, 1, *s, dtype=torch.float64) for s in [(), (2,), (2, 2)]))
        law = GaussianMixture(law.logits, law.loc, torch.eye(2, dtype=torch.float64).expand(n_cases, 1, 2, 2))
        pit = projected_pit(y, law.expand((n_sets, n_cases)), [Marginal()], exchangeable=True, n_draws=20)
    else:
        x = normal(n_sets, n_cases, 9, 2, seed=2)
        x = x.round() if kind == "ties" else x
        pit = projected_pit(x[:, :, 0], Ensemble(x[:, :, 1:]), [Marginal()], exchangeable=True)
    test = pce_test(pit, n_replicates=199)
    curve = reliability_curve(pit)
    outside = (curve.frequency - curve.levels[:, None]).abs() > test.band_width[:, :1, None] * test.spread + 1e-9
    missed = int(outside.flatten(1).any(1).sum())
    assert stats.binom.ppf(LEVEL, n_sets, 0.05) <= missed <= stats.binom.ppf(1 - LEVEL, n_sets, 0.052)


def test_the_band_of_one_projection_knows_the_number_of_members():
    for n_members in (1, 5, 40):
        band = reliability_band(80, n_members=n_members)
        x = normal(2000 * 80, n_members + 1, 1, seed=n_members)
        curve = reliability_curve(projected_pit(x[:, 0], Ensemble(x[:, 1:]), Marginal()).in_sets(2000)).frequency
        inside = (curve >= band.lower[:, None] - 1e-9) & (curve <= band.upper[:, None] + 1e-9)
        missed = 2000 - int(inside.flatten(1).all(1).sum())
        # fewer values than the band's simulation can tell apart make it a little wide for one member
        assert missed <= stats.binom.ppf(1 - LEVEL, 2000, 0.052)
        assert missed >= (0 if n_members == 1 else stats.binom.ppf(LEVEL, 2000, 0.048))


def test_the_interval_of_several_projections_is_as_wide_as_their_null():
    pit = ProjectedPIT.of_values(torch.full((50, 3), 0.5) + 0.001 * torch.rand(50, 3, generator=generator(0)))
    narrow = pce_interval(pit)
    wide = pce_interval(pit, null=torch.full((99,), 0.2))
    assert narrow.high - narrow.estimate < 0.01
    assert wide.high - wide.estimate == pytest.approx(0.2)


@pytest.mark.parametrize("discrete", [False, True])
def test_the_corrected_error_of_power_two_is_unbiased_for_ranks(discrete):
    x = normal(3000 * 25, 4, 1, seed=13)
    x = x.round() if discrete else x
    estimates = corrected_pce(projected_pit(x[:, 0], Ensemble(x[:, 1:]), Marginal()).in_sets(3000), exponent=2)[:, 0]
    assert abs(float(estimates.mean())) < 4 * float(estimates.std()) / 3000**0.5


def blocked(n_sets, n_blocks, length, seed, shift=0.0):
    """Forecasts of 6 members whose days share a season within a block: dependent cases."""
    shape = (n_sets * n_blocks, 1, 7, 2)
    x = normal(*shape, seed=seed) + 0.5 * normal(n_sets * n_blocks, length, 7, 2, seed=seed + 1)
    x[:, :, 0] += shift
    return x.reshape(n_sets, n_blocks * length, 7, 2), torch.arange(n_blocks).repeat_interleave(length)


def test_the_corrected_error_of_power_two_is_unbiased_for_blocks():
    x, blocks = blocked(2000, 25, 4, seed=14)
    pit = projected_pit(x[:, :, 0], Ensemble(x[:, :, 1:]), Marginal())
    estimates = corrected_pce(pit, exponent=2, blocks=blocks).mean(-1)
    assert abs(float(estimates.mean())) < 4 * float(estimates.std()) / 2000**0.5
    plain = corrected_pce(pit, exponent=2).mean(-1)
    assert float(plain.mean()) > 4 * float(plain.std()) / 2000**0.5  # blind to the dependence


@pytest.mark.parametrize("n_blocks", [19, 20])
def test_intervals_need_twenty_blocks(n_blocks):
    x, blocks = blocked(1, n_blocks, 3, seed=15)
    pit = ranked(x[0], [Location()])
    test = pce_test(pit, n_replicates=99, blocks=blocks)
    interval = pce_interval(pit, null=test.replicates[:, 0], blocks=blocks)
    assert np.isnan(interval.low) == (n_blocks == 19)
    assert interval.estimate == pytest.approx(float(test.statistic), abs=1e-12)


def test_intervals_with_blocks_hold_zero_for_a_calibrated_forecast():
    held, repetitions = 0, 150
    x, blocks = blocked(repetitions, 25, 6, seed=16)
    pit = projected_pit(x[:, :, 0], Ensemble(x[:, :, 1:]), [Location()], exchangeable=True)
    for s in range(repetitions):
        one = pit.model(s)
        null = pce_test(one, n_replicates=99, blocks=blocks).replicates[:, 0]
        held += pce_interval(one, null=null, n_replicates=99, blocks=blocks).low == 0
    assert held >= stats.binom.ppf(LEVEL, repetitions, 0.95)


# -- what can be seen at all


@pytest.mark.parametrize("kind", ["continuous", "ties", "blocks", "two members"])
def test_the_stated_power_is_that_of_the_test_against_tilted_ranks(kind):
    """Observations picked with a probability linear in their rank, 0.5 to 1.5: a simulation beside the formula."""
    repetitions, n_cases = 400, 60 if kind == "blocks" else 30
    rng = np.random.default_rng(17)
    n_points = 3 if kind == "two members" else 8
    x = rng.normal(size=(repetitions, n_cases, n_points, 1))
    x = np.sort((x > 1.2).astype(float) if kind == "ties" else x, 2)
    rank = (x[..., None, :, 0] < x[..., :, None, 0]).sum(-1) + 0.5 * (
        (x[..., None, :, 0] == x[..., :, None, 0]).sum(-1) - 1
    )
    chance = (0.5 + rank / (n_points - 1)) / n_points
    blocks = None
    u = rng.random((repetitions, n_cases, 1))
    if kind == "blocks":  # the cases of a block have the same rank
        blocks = torch.arange(n_cases // 2).repeat_interleave(2)
        u = np.repeat(u[:, ::2], 2, 1)
    place = (chance.cumsum(-1) < u).sum(-1).clip(0, n_points - 1)
    for i in range(repetitions):  # the picked point becomes the observation, which stands first
        for c in range(n_cases):
            p = place[i, c]
            x[i, c, [0, p]] = x[i, c, [p, 0]]
    x = torch.from_numpy(x)
    pit = projected_pit(x[:, :, 0], Ensemble(x[:, :, 1:]), [Marginal()], exchangeable=True)
    test = pce_test(pit, n_replicates=199, blocks=blocks)
    found = float((test.p_value <= 0.05 + 1e-9).double().mean())
    stated = float(test.projection_power.mean())
    assert stated == pytest.approx(found, abs=0.06 + 3.7 * (found * (1 - found) / repetitions) ** 0.5)


def test_one_block_can_never_reach_five_percent():
    x, _ = blocked(1, 1, 30, seed=18)
    test = pce_test(ranked(x[0], [Marginal(), Location()]), blocks=torch.zeros(30, dtype=torch.long))
    assert float(test.attainable) == 1.0  # the other sign gives the same error
    assert (test.p_value == 1.0).all()


# -- equal but for rounding is equal


def test_sums_that_are_equal_but_for_rounding_tie():
    """0.1 + 0.2 + 0.3 depends on the order of its terms; as a location it is one number."""
    y, members = torch.tensor([[0.1, 0.2, 0.3]]).double(), torch.tensor([[[0.3, 0.2, 0.1], [0.2, 0.3, 0.1]]]).double()
    pit = projected_pit(y, Ensemble(members), [Location(), Scale()])
    assert (pit.tied == 1).all()


def test_the_coarser_of_two_numbers_of_members_does_not_change_the_rest():
    """Cases with fewer members than others: each has the interval it has among its own."""
    x = normal(30, 9, 2, seed=19)
    pit = ranked(x, [Marginal()])
    part = pit.parts[0]
    mixed = replace(part, points=Intervals(part.points.lower, part.points.upper, torch.full((30,), 9)), n_members=None)
    tests = [pce_test(ProjectedPIT((p,), pit.case_ids), n_replicates=99) for p in (part, mixed)]
    torch.testing.assert_close(tests[0].statistic, tests[1].statistic, rtol=0, atol=1e-12)
    assert torch.equal(tests[0].adjusted_p_value, tests[1].adjusted_p_value)


# -- large ensembles


def test_a_very_large_ensemble_is_split_into_members_to_learn_from_and_members_to_rank():
    x = normal(4, 1302, 3, seed=20)
    pit = ranked(x)
    assert pit.parts[0].n_members == 1301 - 250
    assert "250 of 1,301 members" in pit.notes["HDR"]
    whole = ranked(x[:, :1001])
    assert whole.parts[0].n_members == 1000
    assert "of 1,000 members" not in whole.notes["HDR"]


# -- small claims


def test_marginal_ranks_are_exact_to_the_last_digit():
    """A target is ranked as it is: 1 and the next number above it are two values."""
    above = torch.nextafter(torch.tensor(1.0).double(), torch.tensor(2.0).double())
    members = torch.stack([above, torch.tensor(1e6).double()]).reshape(1, 2, 1)
    pit = projected_pit(torch.ones(1, 1, dtype=torch.float64), Ensemble(members), Marginal())
    assert (float(pit.tied), float(pit.upper)) == (0.0, pytest.approx(1 / 3))


def test_one_set_of_observations_serves_several_models():
    members, y = normal(3, 20, 5, 2, seed=30), normal(20, 2, seed=31)
    shared = projected_pit(y, Ensemble(members), Location())
    given = projected_pit(y[None], Ensemble(members), Location())
    assert torch.equal(shared.lower, given.lower)
    assert shared.lower.shape == (3, 20, 1)


@pytest.mark.parametrize("value", [RandomisedRank(), Location(), Copula()], ids=repr)
def test_ways_and_preranks_are_values(value):
    assert value == type(value)()
    assert hash(value) == hash(type(value)())
    with pytest.raises(AttributeError):
        value.name = "another"


def test_tables_that_count_by_the_same_numbers_are_merged():
    x = normal(30, 6, 4, seed=32)
    points = exchange.points_of(ranked(x, [Marginal(), Location(), Scale()]), centred_levels())
    assert [len(columns) for columns, _ in points.tables] == [6]
    mixed = exchange.points_of(ranked(x), centred_levels())
    assert sorted(len(columns) for columns, _ in mixed.tables) == [1, len(ranked(x).names) - 1]  # the copula ties


def test_notes_say_what_was_learnt_from_what():
    pit = ranked(normal(20, 6, 3, seed=33))
    assert pit.notes == {
        "HDR": "kernel density of 6 points, Scott's rule per target",
        "copula": "joint CDF of 6 points",
    }
    assert pit.method == "rank among 5 members"
    assert pit.exact
    few = ranked(normal(20, 3, 4, seed=34), paper_preranks(4))
    assert few.notes["PCA"] == "2 of 4 components"
