"""Results against their definitions, written out: p-values, bands, powers, nulls, intervals, at their edges too."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from builders import normal, uniform
from prerank.calibration import (
    EmpiricalRank,
    centred_levels,
    chi_square_test,
    corrected_pce,
    inclusive_levels,
    ks_test,
    pce,
    pce_interval,
    pce_null,
    pce_test,
    projected_pit,
    reliability_band,
    reliability_curve,
)
from prerank.calibration import confidence as interval
from prerank.calibration.exchange import picked_replicates
from prerank.calibration.null import in_quadrature, rank_spread
from prerank.calibration.projected_pits import ProjectedPIT
from prerank.calibration.testing import projection_power
from prerank.forecasts import Ensemble
from prerank.preranks import Location, Marginal, Scale


def ranked(n_cases=30, n_members=5, n_targets=2, seed=1, preranks=None, decimals=None, **options):
    x = normal(n_cases, n_members + 1, n_targets, seed=seed)
    x = x if decimals is None else x.round(decimals=decimals)
    preranks = [Marginal(), Location()] if preranks is None else preranks
    return projected_pit(x[:, 0], Ensemble(x[:, 1:]), preranks, exchangeable=True, **options)


# -- tests


def picked(pit, n_replicates, levels=None, spread=None, seed=0):
    """Statistics of the data, in row 0, and of data sets that pick other points, of one projection: (B + 1,)."""
    levels = centred_levels() if levels is None else levels
    spread = levels.new_ones(1, len(levels), 1) if spread is None else spread[None]
    return tuple(part[:, 0, 0] for part in picked_replicates(pit, levels, None, spread, n_replicates, 1, seed))


def test_p_values_of_tied_ranks_count_the_data_sets_that_are_at_least_as_large():
    pit = ranked(decimals=0, preranks=[Location()])
    test = pce_test(pit, n_replicates=39)
    assert test.nulls == ("points",)
    statistic, replicates = test.statistic[0], test.replicates[:, 0]
    above = int((replicates >= statistic * (1 - 1e-9)).sum())
    assert float(test.p_value[0]) == pytest.approx((1 + above) / 40)
    assert float(test.expected_pce[0]) == pytest.approx(float(replicates.mean()))
    assert torch.equal(picked(pit, 39)[0].sort().values, torch.cat([statistic[None], replicates]).sort().values)


def test_maxima_and_their_band_are_those_of_the_data_sets_that_pick_other_points():
    pit, levels = ranked(decimals=0, preranks=[Location()]), centred_levels()
    for n_replicates in (39, 50):
        test = pce_test(pit, n_replicates=n_replicates)
        maxima = picked(pit, n_replicates, spread=test.spread)[1][1:]
        inside = test.spread > 0
        deviation = (reliability_curve(pit).frequency - levels[:, None]).abs() / torch.where(inside, test.spread, 1.0)
        above = int((maxima >= deviation.max() * (1 - 1e-9)).sum())
        assert float(test.maximum_p_value[0]) == pytest.approx((1 + above) / (n_replicates + 1))
        rank = math.ceil(0.95 * n_replicates)
        assert float(test.band_width[0]) == pytest.approx(float(maxima.sort().values[rank - 1]))


@pytest.mark.parametrize("n_replicates", [1, 19, 99])
def test_no_test_can_give_less_than_one_in_all_data_sets(n_replicates):
    """At least 39 replicates where a p-value is small, so that one of 5 % is within reach."""
    test = pce_test(ranked(preranks=[Marginal()]), n_replicates=n_replicates)
    assert float(test.attainable) == pytest.approx(1 / (max(n_replicates, 39) + 1))
    several = pce_test(ranked(preranks=[Marginal(), Location(), Scale()], n_targets=3), n_replicates=n_replicates)
    assert several.nulls == ("signs", "exact", "exact")
    # adjusted by replicates, of which the exact ones too need more than one in twenty
    assert float(several.attainable) == pytest.approx(1 / (max(n_replicates, 39) + 1))
    assert (several.adjusted_p_value >= several.attainable - 1e-12).all()


def test_one_projection_is_tested_by_its_null_whatever_the_replicates():
    x = uniform(40, 1, seed=2)
    test = pce_test(x, n_replicates=19)
    null = pce_null(40)
    assert float(test.p_value[0]) == pytest.approx(float(null.p_value(float(pce(x)[0]))))
    assert float(test.projection_expected_pce[0]) == float(test.expected_pce[0]) == pytest.approx(null.mean)
    assert float(test.adjusted_p_value[0]) >= float(test.p_value[0])
    ranks = projected_pit(normal(40, 1, seed=3), Ensemble(normal(40, 7, 1, seed=4)), Marginal())
    expected = pce_null(40, exponent=2, levels=inclusive_levels(11), n_members=7)
    found = pce_test(ranks, exponent=2, levels=inclusive_levels(11), n_replicates=19)
    assert float(found.projection_expected_pce[0]) == pytest.approx(expected.mean)
    assert float(found.p_value[0]) == pytest.approx(float(expected.p_value(float(found.statistic[0]))))


def test_replicates_of_known_laws_have_their_spread():
    """Uniform numbers and equally probable ranks: the mean error of 2,000 replicates is that of the null."""
    for pit, null in (
        (ProjectedPIT.of_values(uniform(30, 1, seed=5)), pce_null(30)),
        (
            projected_pit(normal(30, 1, seed=6), Ensemble(normal(30, 4, 1, seed=7)), Marginal()),
            pce_null(30, n_members=4),
        ),
        (
            projected_pit(normal(30, 1, seed=6), Ensemble(normal(30, 4, 1, seed=7)), Marginal(), EmpiricalRank()),
            pce_null(30, n_members=4, unrandomised=True),
        ),
    ):
        replicates = pce_test(pit, n_replicates=2000).replicates[:, 0].numpy()
        error = null.sample.std() / 2000**0.5
        assert abs(replicates.mean() - null.mean) < 5 * error
        assert abs(np.median(replicates) - np.median(null.sample)) < 8 * error


def test_levels_are_asked_for_by_number_or_by_hand():
    pit = ranked()
    for test in (pce_test, pce_interval):
        options = {"n_replicates": 9} | ({"null": torch.zeros(9)} if test is pce_interval else {})
        by_number, by_hand = test(pit, n_levels=7, **options), test(pit, levels=centred_levels(7), **options)
        for one, other in zip(by_number, by_hand, strict=True):
            if isinstance(one, torch.Tensor):
                torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
            else:
                assert one == other
        default, hundred = test(pit, **options), test(pit, n_levels=100, **options)
        assert float(default[1][0] if test is pce_test else default[0]) == float(
            hundred[1][0] if test is pce_test else hundred[0]
        )


@pytest.mark.slow
@pytest.mark.parametrize("count", [254, 255, 256, 257, 258])
def test_small_whole_numbers_hold_as_many_levels_and_ranks_as_there_are(count):
    z = torch.tensor([[0.0], [0.37], [0.9999], [1.0]]).double()
    assert float(pce_test(z, n_levels=count, n_replicates=1).statistic) == pytest.approx(float(pce(z, n_levels=count)))
    members = torch.arange(count).double().expand(3, count)[..., None]
    y = torch.tensor([[-1.0], [100.5], [count + 1.0]]).double()
    pit = projected_pit(y, Ensemble(members), Marginal(), exchangeable=True)
    assert float(pce_test(pit, n_replicates=1).statistic) == pytest.approx(float(pce(pit)))
    last = ProjectedPIT((pit.parts[0],), pit.case_ids)
    spread = pce_test(last, n_replicates=1).spread[:, 0]
    torch.testing.assert_close(spread, rank_spread(centred_levels(), count) / 3**0.5)


def test_the_ends_of_the_unit_interval_can_never_be_wrong():
    """With levels 0 and 1 no maximum and no band changes, though unrandomised ranks are often 0 or 1."""
    inner = inclusive_levels(11)[1:-1]
    for how, preranks, decimals in (
        (None, [Marginal(), Location()], 0),
        (EmpiricalRank(), [Marginal()], None),
        (EmpiricalRank(), [Location()], 0),
    ):
        pit = ranked(n_members=3, how=how, preranks=preranks, decimals=decimals)
        without, within = (pce_test(pit, levels=levels, n_replicates=39) for levels in (inner, inclusive_levels(11)))
        torch.testing.assert_close(within.band_width, without.band_width)
        torch.testing.assert_close(within.maximum_p_value, without.maximum_p_value)
        assert (within.spread[[0, -1]] < 1e-6).all() or how is not None
        torch.testing.assert_close(within.spread[1:-1], without.spread)


@pytest.mark.parametrize("n_members", [1, 2, 3, 6, 10, 49, 299])
def test_spreads_are_those_of_equally_probable_ranks_also_at_the_ends(n_members):
    for levels in (inclusive_levels(11), inclusive_levels(50), centred_levels(30)):
        found = rank_spread(levels, n_members)
        units = levels * (n_members + 1)
        whole = (units + 1e-9).floor()
        variance = (whole + (units - whole).square()) / (n_members + 1) - levels.square()
        torch.testing.assert_close(found, variance.clamp_min(0).sqrt(), rtol=1e-6, atol=1e-7)


def test_a_projection_that_always_ties_has_no_spread_and_no_deviation():
    pit = projected_pit(torch.ones(20, 2), Ensemble(torch.ones(20, 5, 2)), [Marginal()], exchangeable=True)
    test = pce_test(pit, n_replicates=19)
    assert (test.spread < 1e-6).all()
    assert (test.statistic < 1e-12).all()
    assert float(test.p_value[0]) == 1.0
    for blocks in (None, torch.arange(20) // 4):
        assert pce_test(pit, n_replicates=19, blocks=blocks).projection_power.tolist() == pytest.approx([0.05, 0.05])


def test_replicates_depend_on_the_seed():
    pit = ranked(n_cases=12, decimals=0)
    default, given = pce_test(pit), pce_test(pit, n_replicates=999, exponent=1, seed=0)
    assert default.nulls == ("signs", "points")
    assert default.replicates.shape == (999, 2)
    assert torch.equal(default.replicates, given.replicates)
    other = pce_test(pit, seed=1).replicates
    assert not (other == default.replicates).all(0).any()


def test_points_are_picked_as_often_as_they_weigh():
    """One case whose points all have another error: the errors of replicates tell which point was picked."""
    y, members = torch.tensor([[2.5]]).double(), torch.tensor([[[1.0], [2.0], [3.0]]]).double()
    weights, own = torch.tensor([[1.0, 2.0, 4.0]]).double(), torch.tensor([3.0]).double()
    weighted = projected_pit(y, Ensemble(members, weights), [Marginal()], observation_weights=own, exchangeable=True)
    equal = projected_pit(y, Ensemble(members), [Marginal()], exchangeable=True)
    for pit, shares in ((weighted, [0.3, 0.1, 0.2, 0.4]), (equal, [0.25] * 4)):
        lower, upper = pit.points.lower[0, :, 0], pit.points.upper[0, :, 0]
        levels = torch.tensor([0.4, 0.9]).double()  # at which no two points add the same
        ramps = ((levels[:, None] - lower) / (upper - lower)).clamp(0, 1)
        errors = (ramps - levels[:, None]).abs().mean(0)
        found = picked(pit, 4000, levels)[0][1:]
        for error in errors.unique():
            share = sum(s for s, e in zip(shares, errors.tolist(), strict=True) if abs(e - error) < 1e-12)
            assert abs(float(((found - error).abs() < 1e-9).double().mean()) - share) < 5 * 0.5 / 4000**0.5


def test_every_projection_whose_law_is_known_has_its_expected_error():
    x = normal(30, 6, 3, seed=24)
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), [Marginal(), Location(), Scale()], exchangeable=True)
    test = pce_test(pit, n_replicates=9)
    assert test.projection_expected_pce.tolist() == [pce_null(30, n_members=5).mean] * 5
    assert test.expected_pce.tolist() == [pce_null(30, n_members=5).mean] * 3


def test_classical_tests_take_pits_with_gradients_in_any_precision():
    z = torch.rand(60, 2, generator=torch.Generator().manual_seed(11))
    for test in (ks_test, chi_square_test):
        torch.testing.assert_close(test(z.clone().requires_grad_()), test(z.double()), rtol=1e-12, atol=0)
    counts = np.histogram(z[:, 0].numpy(), bins=10, range=(0, 1))[0]
    assert float(chi_square_test(z)[0]) == pytest.approx(stats.chisquare(counts).pvalue)


# -- power against a tilt


@pytest.mark.parametrize("weighted_members", [False, True])
@pytest.mark.parametrize("weighted_cases", [False, True])
@pytest.mark.parametrize("blocks", [None, torch.arange(12) // 3, torch.tensor([0, 5, 5, 2, 2, 2, 0, 7, 7, 7, 7, 1])])
def test_the_stated_power_is_that_of_a_normal_test_of_tilted_ranks(weighted_members, weighted_cases, blocks):
    """Blocks do not change by how much the tilt moves the mean PIT, only how much it varies: as it does between them."""
    x = normal(12, 6, 2, seed=12).round()
    members = uniform(12, 5, seed=13) if weighted_members else None
    cases = uniform(12, seed=14) if weighted_cases else None
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:], members), [Marginal()], exchangeable=True)
    middles = (0.5 * (pit.points.lower + pit.points.upper)).numpy()
    chance = np.full((12, 6), 1 / 6) if pit.pick is None else pit.pick.numpy()
    weights = np.full(12, 1 / 12) if cases is None else (cases / cases.sum()).numpy()
    found = pce_test(pit, n_replicates=19, case_weights=cases, blocks=blocks).projection_power
    levels = centred_levels()[:, None, None]
    below = (levels - pit.lower) / torch.where(pit.upper > pit.lower, pit.upper - pit.lower, 1e-300)
    moved_pits = (below.clamp(0, 1) - levels).mean(0).numpy()
    for k in range(2):
        effective = 1 / (chance**2).sum(-1)
        variance = (chance * (middles[..., k] - 0.5) ** 2).sum(-1)
        moved = (effective / (effective - 1) * variance).mean()
        if blocks is None:
            noise = variance.mean() * (weights**2).sum()
        else:
            sums = np.array([(weights * moved_pits[:, k])[blocks.numpy() == b].sum() for b in blocks.unique().numpy()])
            noise = ((sums - sums.mean()) ** 2).sum()
        distance = moved / noise**0.5
        expected = stats.norm.cdf(distance - stats.norm.ppf(0.975)) + stats.norm.cdf(-distance - stats.norm.ppf(0.975))
        assert float(found[k]) == pytest.approx(expected, rel=1e-6)


def test_a_case_in_which_one_member_has_all_the_weight_leaves_the_power_a_number():
    x = normal(8, 4, 1, seed=26)
    weights = torch.rand(8, 3, generator=torch.Generator().manual_seed(27)).double()
    weights[2] = torch.tensor([0.0, 0.0, 1.0])
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:], weights), [Marginal()], exchangeable=True)
    assert 0.05 <= float(projection_power(pit, 8.0)) <= 1.0


# -- nulls, bands, corrected errors


@pytest.mark.parametrize("n_members", [1, 3, 7, 49, 300, 999])
@pytest.mark.parametrize("levels", [centred_levels(9), inclusive_levels(8), inclusive_levels(50)], ids=len)
def test_the_mean_error_of_one_case_is_a_sum_over_its_ranks(n_members, levels):
    alpha = levels.numpy()
    k = np.arange(n_members + 1)[:, None]
    steps = k / n_members <= alpha + 1e-12
    assert pce_null(1, levels=levels, n_members=n_members, unrandomised=True).mean == pytest.approx(
        np.abs(alpha - steps).mean()
    )
    ramps = np.clip(alpha * (n_members + 1) - k, 0, 1)
    assert pce_null(1, exponent=2, levels=levels, n_members=n_members).mean == pytest.approx(
        ((alpha - ramps) ** 2).mean(), rel=1e-9
    )
    spread = np.sqrt((ramps**2).mean(0) - alpha**2 + 1e-18)
    assert pce_null(1, levels=levels, n_members=n_members).mean == pytest.approx(
        np.abs(alpha - ramps).mean(), abs=5 * spread.max() / 50_000**0.5
    )


@pytest.mark.parametrize("exponent", [1, 2])
@pytest.mark.parametrize("n_cases", [1, 4, 30])
def test_the_mean_error_of_unrandomised_ranks_is_a_binomial_sum(n_cases, exponent):
    for n_members in (1, 4, 9):
        for levels in (centred_levels(7), inclusive_levels(10)):
            total = 0.0
            for level in levels.tolist():
                chance = (math.floor(level * n_members + 1e-9) + 1) / (n_members + 1)
                counts = np.arange(n_cases + 1)
                law = stats.binom.pmf(counts, n_cases, chance)
                total += (law * np.abs(level - counts / n_cases) ** exponent).sum()
            found = pce_null(n_cases, exponent=exponent, levels=levels, n_members=n_members, unrandomised=True)
            assert found.mean == pytest.approx(total / len(levels))
            assert found.mean == pytest.approx(found.sample.mean(), abs=5 * found.sample.std() / 50_000**0.5 + 1e-12)


def test_a_value_of_the_null_counts_itself_and_all_that_equal_it_but_for_rounding():
    null = pce_null(3, n_members=2)
    assert float(null.p_value(null.sample[0])) == 1.0
    assert float(null.p_value(null.sample[0] * (1 + 1e-12))) == 1.0
    largest = null.sample[-1]
    share = (null.sample >= largest * (1 - 1e-9)).sum()
    assert float(null.p_value(largest)) == pytest.approx((1 + share) / (len(null.sample) + 1))
    assert float(null.p_value(2 * largest)) == pytest.approx(1 / (len(null.sample) + 1))
    both = null.p_value(np.array([null.sample[0], 2 * largest]))
    assert both.shape == (2,)


def test_nulls_of_too_few_are_refused_and_of_one_are_not():
    for n_cases in (0, -1):
        for function in (pce_null, reliability_band):
            with pytest.raises(ValueError, match="at least one is needed"):
                function(n_cases)
    assert reliability_band(1).levels.shape == (100,)
    for coverage in (0, 1, 1.5, -0.1):
        with pytest.raises(ValueError, match="a probability between 0 and 1"):
            reliability_band(5, coverage)
    with pytest.raises(ValueError, match="at least one member"):
        pce_null(5, n_members=0)


def test_a_band_ends_where_its_levels_do():
    for n_members in (None, 4):
        band = reliability_band(20, levels=inclusive_levels(6), n_members=n_members)
        assert band.lower[0] == band.upper[0] == 0.0
        assert float(band.lower[-1]) == pytest.approx(1.0, abs=1e-6)
        assert float(band.upper[-1]) == pytest.approx(1.0, abs=1e-6)
        inner = reliability_band(20, levels=inclusive_levels(6)[1:-1], n_members=n_members)
        assert ((band.lower >= 0) & (band.upper <= 1)).all()
        assert (inner.lower < inner.levels).all()
        assert (inner.upper > inner.levels).all()
    few = reliability_band(2, levels=centred_levels(20), n_members=4)
    assert (float(few.lower.min()), float(few.upper.max())) == (0.0, 1.0)


def test_the_corrected_error_subtracts_what_is_expected_of_that_many_members():
    x = normal(25, 7, 2, seed=15)
    y, forecast = x[:, 0], Ensemble(x[:, 1:])
    preranks = [Marginal(), Location()]
    for how, unrandomised in ((None, False), (EmpiricalRank(), True)):
        pit = projected_pit(y, forecast, preranks, how)
        for given in ({}, {"n_levels": 9}, {"levels": inclusive_levels(7)}):
            null = pce_null(25, **given, n_members=6, unrandomised=unrandomised)
            torch.testing.assert_close(corrected_pce(pit, **given), in_quadrature(pce(pit, **given), null.mean))
    z = uniform(25, 2, seed=16)
    torch.testing.assert_close(corrected_pce(z), in_quadrature(pce(z), pce_null(25).mean))
    tied = projected_pit(y.round(), Ensemble(x[:, 1:].round()), preranks)
    weighted = projected_pit(y, Ensemble(x[:, 1:], uniform(25, 6)), preranks)
    for pit in (tied, weighted):
        with pytest.raises(ValueError, match="depends on the data"):
            corrected_pce(pit)
    with pytest.raises(ValueError, match="exponents 1 and 2, not 3"):
        corrected_pce(z, exponent=3)
    with pytest.raises(ValueError, match="at least two cases"):
        corrected_pce(z[:1])
    assert corrected_pce(z[:2], exponent=2).shape == (2,)


def test_the_corrected_error_of_power_two_subtracts_the_sample_variance():
    z, blocks = uniform(9, 1, seed=17), torch.tensor([3, 3, 3, 1, 1, 7, 7, 7, 7])
    levels = centred_levels(5)
    steps = (z <= levels).double()  # (N, J)
    error = (levels - steps.mean(0)).square()
    torch.testing.assert_close(corrected_pce(z, 5, exponent=2)[0], (error - steps.var(0) / 9).mean())
    sums = torch.stack([(steps[blocks == b] - steps.mean(0)).sum(0) for b in (1, 3, 7)])
    variance = sums.square().sum(0) * 3 / 2 / 81
    torch.testing.assert_close(corrected_pce(z, 5, exponent=2, blocks=blocks)[0], (error - variance).mean())
    with pytest.raises(ValueError, match="pass expected_pce="):
        corrected_pce(z, blocks=blocks)


def test_a_curve_never_leaves_the_unit_interval_whatever_the_weights():
    y, members = normal(11, 2, seed=18), Ensemble(normal(11, 3, 2, seed=19))
    ranks = projected_pit(y, members, Marginal())
    for seed in range(200):
        weights = uniform(11, seed=seed)
        for pit in (torch.full((11, 1), 0.3).double(), ranks):
            frequency = reliability_curve(pit, levels=inclusive_levels(9), case_weights=weights).frequency
            assert frequency.min() >= 0
            assert frequency.max() <= 1
            assert frequency[-1].tolist() == pytest.approx([1.0] * frequency.shape[-1])


# -- intervals


def test_intervals_are_cut_at_zero_and_one():
    pit = uniform(30, 1, seed=20)
    wide = pce_interval(pit, null=torch.full((99,), 0.99), n_replicates=9)
    assert (wide.low, wide.high) == (0.0, 1.0)
    single = pce_interval(pit[:1], n_replicates=9)
    assert 0.0 <= single.low <= single.estimate <= single.high <= 1.0


def test_the_default_interval_covers_95_percent_with_999_replicates_of_seed_zero():
    pit = uniform(30, 1, seed=21).square()
    default = pce_interval(pit)
    assert default == pce_interval(pit, coverage=0.95, n_levels=100, n_replicates=999, seed=0)
    assert default != pce_interval(pit, seed=1)
    assert default != pce_interval(pit, n_replicates=998)
    narrow, wide = pce_interval(pit, coverage=0.5), pce_interval(pit, coverage=0.99)
    assert narrow.high - narrow.estimate < default.high - default.estimate < wide.high - wide.estimate
    for coverage in (0, 1, 2.0):
        with pytest.raises(ValueError, match="a probability between 0 and 1"):
            pce_interval(pit, coverage=coverage)
    with pytest.raises(ValueError, match=r"shape \(N, K\)"):
        pce_interval(pit[None])


def test_an_interval_with_blocks_is_that_of_resampled_blocks():
    """Equal cases within a block: only the number of blocks counts."""
    z = uniform(40, 1, seed=22).square()
    once = pce_interval(z, null=torch.zeros(9), blocks=torch.arange(40))
    thrice = pce_interval(z.repeat_interleave(3, 0), null=torch.zeros(9), blocks=torch.arange(40).repeat_interleave(3))
    assert thrice == pytest.approx(once)
    alone = pce_interval(z.repeat_interleave(3, 0), null=torch.zeros(9))
    assert alone.high - alone.estimate < 0.75 * (thrice.high - thrice.estimate)


def test_points_that_a_result_kept_do_not_change_its_interval():
    x = normal(25, 6, 2, seed=25).round(decimals=1) + 0.3
    y, forecast = x[:, 0], Ensemble(x[:, 1:])
    for blocks in (None, torch.arange(25)):
        kept, plain = (
            pce_interval(projected_pit(y, forecast, Marginal(), exchangeable=keep), null=torch.zeros(9), blocks=blocks)
            for keep in (True, False)
        )
        assert kept == pytest.approx(plain)


@pytest.mark.parametrize("units", [2, 3, 21, 400])
def test_intervals_of_few_units_are_wider(units, monkeypatch):
    """By Student's law, and by the spread of units whose mean was estimated from themselves."""
    pit = ProjectedPIT.of_values(torch.linspace(0.2, 0.6, 60).double()[:, None])
    monkeypatch.setattr(interval, "_bootstrap", lambda *_: (torch.full((99, 1), 0.001).double(), units))
    found = pce_interval(pit, coverage=0.8, null=torch.zeros(99))
    expected = 0.001 * (units / (units - 1)) ** 0.5 * stats.t.ppf(0.9, units - 1) / stats.norm.ppf(0.9)
    assert found.high - found.estimate == pytest.approx(expected)


# -- large numbers


def test_ranks_among_more_members_than_a_short_integer_holds():
    n_members = 41_000
    members = torch.arange(n_members).double()[None, :, None]
    for share in (0.1, 0.9, 0.99):
        y = torch.tensor([[share * n_members + 0.5]]).double()
        pit = projected_pit(y, Ensemble(members), Marginal(), exchangeable=True)
        assert float(pit.lower[0, 0]) == pytest.approx(share, abs=1e-3)
        assert float(pit.upper[0, 0] - pit.lower[0, 0]) == pytest.approx(1 / (n_members - 249))
        assert (pit.points.lower >= 0).all()
        assert float(pit.points.upper.max()) == 1.0
