"""The test of several projections by random signs of whole cases: its definition, its size, and what it sees."""

import numpy as np
import pytest
import torch
from scipy import stats

from builders import normal, uniform
from prerank.calibration import (
    EmpiricalRank,
    ProjectedPIT,
    centred_levels,
    holm,
    pce_null,
    pce_test,
    projected_pit,
    reliability_curve,
    testing,
)
from prerank.calibration import random_signs as signs
from prerank.calibration import row_test as rowtests
from prerank.calibration.evidence import Accumulated, Chunk, Plan, enough_replicates
from prerank.calibration.exchange import Replicates
from prerank.calibration.random_signs import Setting, at_levels, calibrated_spread, sign_sums, signs_of
from prerank.calibration.row_test import exceedance
from prerank.calibration.testing import pce_test_of
from prerank.forecasts import Ensemble, GaussianMixture
from prerank.preranks import PCA, Copula, Custom, Location, Marginal, paper_preranks
from prerank.randomness import bits_of_steps, case_keys

LEVEL = 1e-4  # of each statistical check
LEVELS = centred_levels()


def ranked(x, preranks=None, **options):
    """PITs of x[..., 0, :] among the others."""
    return projected_pit(x[..., 0, :], Ensemble(x[..., 1:, :]), preranks or [Marginal()], **options)


def equicorrelated(correlation, *size, seed):
    common, own = normal(*size[:-1], 1, seed=seed), normal(*size, seed=seed + 1)
    return correlation**0.5 * common + (1 - correlation) ** 0.5 * own


def at_most(level, count):
    """Rejections that a test of this size exceeds with probability 1e-4."""
    return stats.binom.ppf(1 - LEVEL, count, level)


def rejections(p_values, level=0.05):
    return int((p_values <= level * (1 + 1e-9)).sum())


def prepared(pit, blocks=None, weights=None, seed=0, levels=LEVELS):
    """The sums of a test, ready for replicates, and its setting."""
    shares = None if weights is None else weights / weights.sum()
    numbers = None if blocks is None else torch.unique(blocks, return_inverse=True)[1]
    n_blocks = None if blocks is None else int(numbers.max()) + 1
    setting = Setting(pit.n_cases, levels, seed, n_blocks, None if shares is None else float(shares.square().sum()))
    sums = sign_sums(pit, torch.arange(pit.n_cases), setting, numbers, shares)
    return signs_of(pit, sums, setting, calibrated_spread(pit, setting, shares)), setting


def contributions(pit):
    """Mean shares of the intervals below the levels, less the levels: (N, J, K)."""
    lower, upper = pit.lower[:, None, :], pit.upper[:, None, :]
    levels = LEVELS[:, None]
    width = torch.where(upper > lower, upper - lower, 1.0)
    below = torch.where(upper > lower, ((levels - lower) / width).clamp(0, 1), (levels >= lower).double())
    return below - levels


def curves_by_hand(pit, n_replicates, seed=0):
    """The data's deviation from the diagonal (row 0) and replicates, by the formula: (B + 1, J, K).

    Replicates are scaled, so that their standard deviation is on average that of calibrated curves of five members.
    """
    words = bits_of_steps(case_keys(seed, pit.case_ids, "sign"), 0, n_replicates // 31 + 1)
    signed = [[1 if int(word) >> place & 1 else -1 for word in row for place in range(31)] for row in words]
    chosen = torch.cat([torch.ones(1, pit.n_cases), torch.tensor(signed).T[:n_replicates]]).double()
    curves = torch.einsum("bi,ijk->bjk", chosen, contributions(pit)) / pit.n_cases
    seen = contributions(pit).square().sum(0).sqrt().mean(0)  # (K,)
    ranks = torch.arange(6).double() / 6
    of_ranks = ((LEVELS - ranks[:, None]) * 6).clamp(0, 1) - LEVELS
    calibrated = (pit.n_cases * of_ranks.square().mean(0)).sqrt().mean()
    curves[1:] *= calibrated / seen
    return curves


def dense(test):
    """Sums of the units at all levels, (S, units, K, J)."""
    return at_levels(test.sums, test.spread.shape[-1])


def stepped_down(strengths, p_values, within=0.0):
    """Adjusted p-values of one data set by the definition: strengths (B + 1, G), the data first, and p-values (G,)."""
    rows, found, largest = strengths.tolist(), [0.0] * len(p_values), 0.0
    left = sorted(range(len(p_values)), key=lambda g: rows[0][g])
    while left:
        g = left[0]
        as_small = sum(min(row[h] for h in left) <= rows[0][g] + within for row in rows)
        found[g] = largest = max(largest, as_small / len(rows), float(p_values[g]))
        left = left[1:]
    return torch.tensor(found, dtype=torch.float64)


# -- the definition


@pytest.mark.parametrize("rounded", [False, True])
def test_the_curve_of_the_data_is_the_reliability_curve_less_the_level(rounded):
    x = normal(50, 7, 3, seed=1)
    pit = ranked(x.round() if rounded else x)
    test, _ = prepared(pit)
    expected = reliability_curve(pit).frequency - LEVELS[:, None]
    torch.testing.assert_close(dense(test)[0].sum(0).mT / test.total, expected, rtol=0, atol=1e-9)
    found = test.statistics(0, 1)
    torch.testing.assert_close(found.pce[0, 0], expected.abs().mean(0), rtol=0, atol=1e-9)


def test_p_values_bands_and_replicates_are_those_of_the_formulas():
    """Written out: errors over the expected one, their mean and maximum, that of the mean curve, the smallest p-value."""
    pit, n_replicates = ranked(equicorrelated(0.5, 40, 6, 4, seed=2)), 59
    test = pce_test(pit, n_replicates=n_replicates)
    assert test.nulls == ("signs",)
    curves = curves_by_hand(pit, n_replicates)
    errors = curves.abs().mean(1)
    torch.testing.assert_close(test.replicates[:, 0], errors[1:].mean(-1), rtol=1e-6, atol=0)
    torch.testing.assert_close(test.projection_pce, errors[0], rtol=0, atol=1e-9)
    expected = pce_null(40, n_members=5).mean
    assert test.projection_expected_pce.tolist() == [expected] * 4
    mean, largest, pooled = errors.mean(-1) / expected, errors.amax(-1) / expected, curves.mean(-1).abs().mean(1)

    def places(values):  # how many are at or above each, and the remainder that breaks ties between the statistics
        above = (values[None, :] >= values[:, None] - 1e-12).sum(1).double()
        score = (values - values.mean()) / values.std(correction=0)
        return above - 0.5 * (1 + score / (1 + score.abs()))

    smallest = torch.minimum(torch.minimum(places(mean) / 2, places(largest)), places(pooled))
    p_value = float((smallest <= smallest[0] + 1e-5).double().mean())  # one step of the tie-break is 1e-6
    assert float(test.p_value[0]) == pytest.approx(p_value)
    # single projections: the data's place by the exact law, that of every replicate among all, adjusted in steps
    exact = torch.from_numpy(pce_null(40, n_members=5).p_value(errors[0].numpy()))
    strengths = torch.stack([places(column) for column in errors.T], -1)
    strengths[0] = (n_replicates + 1) * exact
    torch.testing.assert_close(test.projection_p_value, stepped_down(strengths, exact, 1e-5))
    assert (test.projection_p_value > exact).any()
    maxima = (curves.abs() / test.spread).amax((1, 2))
    assert float(test.maximum_p_value[0]) == pytest.approx(float((maxima >= maxima[0] - 1e-9).double().mean()))
    band = float(maxima[1:].sort().values[int(np.ceil(0.95 * 59)) - 1])
    assert float(test.band_width[0]) == pytest.approx(band, rel=1e-5)


def test_signed_sums_have_mean_zero_and_the_sum_of_squares_as_their_variance():
    """Given the data; with B replicates the mean lies within 5 standard errors and the variance within 5 of its own."""
    pit, n_replicates = ranked(normal(80, 4, 2, seed=3)), 4000
    test, _ = prepared(pit)
    keyed = signs_of_replicates(test, n_replicates)
    curves = (keyed @ dense(test)[0].flatten(1)).reshape(n_replicates, 2, -1) / test.total
    squares = contributions(pit).square().sum(0).mT / 80**2
    inside = slice(5, 95)
    error = (squares / n_replicates).sqrt()
    assert (curves.mean(0).abs() <= 5 * error)[:, inside].all()
    variance = curves.square().mean(0)
    # sums of 80 signs are nearly normal, with a kurtosis below 3: the variance's relative error is below sqrt(2 / B)
    assert ((variance / squares - 1).abs() <= 5 * (2 / n_replicates) ** 0.5)[:, inside].all()


def signs_of_replicates(test, n_replicates):
    return torch.cat([test._signs(start, start + 100) for start in range(0, n_replicates, 100)])


def test_the_two_signs_of_a_case_are_equally_frequent_and_cases_have_signs_of_their_own():
    test, _ = prepared(ranked(normal(60, 4, 2, seed=4)))
    keyed = signs_of_replicates(test, 1000)
    assert set(keyed.unique().tolist()) == {-1.0, 1.0}
    products = keyed.T @ keyed / 1000
    products.fill_diagonal_(0.0)
    # 60 means and 1770 products of pairs, each normal with standard error 1000^-1/2
    limit = float(stats.norm.isf(LEVEL / 2 / 1830)) / 1000**0.5
    assert keyed.mean(0).abs().max() < limit
    assert products.abs().max() < limit


def test_unrandomised_ranks_are_measured_from_the_curve_expected_of_them():
    x = normal(200 * 40, 5, 4, seed=5)
    pit = ranked(x, [Marginal()], how=EmpiricalRank()).in_sets(200)
    test = pce_test(pit, n_replicates=99)
    assert test.nulls == ("signs",)
    expected = pce_null(40, n_members=4, unrandomised=True).mean
    assert (test.projection_expected_pce == expected).all()
    # four projections of 200 data sets: their mean is the expected one
    error = float(test.projection_pce.std()) / 800**0.5
    assert float(test.projection_pce.mean()) == pytest.approx(expected, abs=4 * error)
    assert rejections(test.p_value) <= at_most(0.05, 200)
    assert rejections(test.p_value) >= stats.binom.ppf(LEVEL, 200, 0.05)


def test_a_power_of_two_is_the_mean_squared_deviation():
    pit = ranked(equicorrelated(0.5, 40, 6, 3, seed=6))
    test = pce_test(pit, n_replicates=39, exponent=2)
    errors = curves_by_hand(pit, 39).square().mean(1)
    torch.testing.assert_close(test.projection_pce, errors[0], rtol=0, atol=1e-9)
    torch.testing.assert_close(test.replicates[:, 0], errors[1:].mean(-1), rtol=1e-6, atol=0)
    assert test.projection_expected_pce.tolist() == [pce_null(40, exponent=2, n_members=5).mean] * 3
    x = normal(300 * 40, 6, 3, seed=7)
    assert rejections(pce_test(ranked(x).in_sets(300), n_replicates=99, exponent=2).p_value) <= at_most(0.05, 300)


# -- size and power


@pytest.mark.parametrize(("truth", "forecast"), [(0.95, 0.0), (0.0, 0.95)])
def test_right_margins_are_not_rejected_where_the_dependence_is_wrong(truth, forecast):
    """Picking points for ten projections at once rejects a fifth of these; 5 % hold here, give or take the binomial law."""
    repetitions, n_cases, n_targets = 150, 100, 10
    y = equicorrelated(truth, repetitions, n_cases, n_targets, seed=8)
    members = equicorrelated(forecast, repetitions, n_cases, 20, n_targets, seed=10)
    p_values = pce_test(projected_pit(y, Ensemble(members), Marginal()), n_replicates=199).p_value
    assert stats.binom.ppf(LEVEL, repetitions, 0.05) <= rejections(p_values) <= at_most(0.05, repetitions)


def test_one_biased_target_of_ten_is_found():
    """A quarter of a standard deviation, 200 cases, 20 members, correlations .5: four times as often as by the mean."""
    repetitions = 60
    x = equicorrelated(0.5, repetitions, 200, 21, 10, seed=12)
    x[:, :, 0, 3] += 0.25
    pit = ranked(x)
    test = pce_test(pit, n_replicates=199)
    together = torch.cat([test.statistic[None], test.replicates])
    by_mean = rejections(exceedance(together)[0])
    assert rejections(test.p_value) >= max(0.5 * repetitions, 4 * by_mean)
    # where the row is rejected the single target is named, and of nine right ones at most 5 % of the data sets have any
    named = test.projection_p_value <= 0.05
    assert int(named[:, 3].sum()) >= 0.5 * repetitions
    others = named[:, [k for k in range(10) if k != 3]].any(-1)
    assert int(others.sum()) <= at_most(0.05, repetitions)


def test_an_error_that_all_targets_share_is_found_by_the_mean_curve():
    """A tenth of a standard deviation in each of ten independent targets: the mean PCE finds it in half of the data sets."""
    repetitions = 100
    x = normal(repetitions, 200, 21, 10, seed=13)
    x[:, :, 0] += 0.1
    test = pce_test(ranked(x), n_replicates=199)
    by_mean = rejections(exceedance(torch.cat([test.statistic[None], test.replicates]))[0])
    assert rejections(test.p_value) >= max(0.9 * repetitions, by_mean)


def test_opposite_errors_of_all_targets_are_found_by_the_mean():
    """They cancel in the mean curve. Three statistics cost less than a fifth of the power that one has."""
    repetitions = 100
    x = normal(repetitions, 200, 21, 10, seed=13)
    x[:, :, 0] += 0.15 * (-1) ** torch.arange(10)
    test = pce_test(ranked(x), n_replicates=199)
    by_mean = rejections(exceedance(torch.cat([test.statistic[None], test.replicates]))[0])
    assert by_mean >= stats.binom.ppf(LEVEL, repetitions, 0.8)
    assert rejections(test.p_value) >= 0.8 * by_mean


def test_two_members_find_spreads_that_are_too_small_everywhere():
    """Ranks at both ends make signed sums too large; scaled, replicates vary as calibrated curves do."""
    x = normal(40, 50, 3, 10, seed=65)
    x[..., 1:, :] *= 0.4
    test = pce_test(ranked(x), n_replicates=199)
    assert rejections(test.p_value) >= 0.9 * 40
    expected = pce_null(50, n_members=2).mean
    assert float(test.replicates.mean()) == pytest.approx(expected, rel=0.05)


def test_one_tied_wrong_target_among_nine_continuous_ones_is_found():
    """Poisson of mean 0.285 forecast with mean 0.15: divided by what its ties leave to expect, the error stands out."""
    repetitions, n_cases = 40, 200
    rng = np.random.default_rng(14)
    x = rng.normal(size=(repetitions, n_cases, 21, 10))
    x[..., 0] = rng.poisson(0.15, size=x.shape[:-1])
    right = torch.from_numpy(x.copy())
    x[:, :, 0, 0] = rng.poisson(0.285, size=(repetitions, n_cases))
    wrong = pce_test(ranked(torch.from_numpy(x), exchangeable=True), n_replicates=199)
    assert rejections(wrong.p_value) > 0.8 * repetitions
    assert (wrong.projection_expected_pce[:, 0] < 0.5 * wrong.projection_expected_pce[:, 1]).all()
    calibrated = pce_test(ranked(right, exchangeable=True), n_replicates=199)
    assert rejections(calibrated.p_value) <= at_most(0.05, repetitions)


def test_the_expected_error_of_tied_ranks_is_that_of_their_spread():
    """A normal curve's mean absolute value, beside the mean over 400 data sets."""
    x = (normal(400, 100, 9, 2, seed=15) > 1).double()
    test = pce_test(ranked(x, exchangeable=True), n_replicates=39)
    error = test.projection_pce.std(0) / 400**0.5
    # 1 % for the normal law in place of that of 100 cases
    assert (
        (test.projection_expected_pce.mean(0) - test.projection_pce.mean(0)).abs()
        <= 4 * error + 0.01 * test.projection_expected_pce.mean(0)
    ).all()


def test_a_projection_in_which_all_points_are_equal_counts_for_nothing():
    x = normal(60, 8, 2, seed=16)
    constant = torch.cat([x, torch.ones(60, 8, 1)], -1)
    for exchangeable in (True, False):
        test = pce_test(ranked(torch.ones(60, 8, 2), exchangeable=exchangeable), n_replicates=39)
        assert test.p_value.tolist() == [1.0]
        assert test.projection_p_value.tolist() == [1.0, 1.0]
        mixed = pce_test(ranked(constant, exchangeable=exchangeable), n_replicates=39)
        assert mixed.projection_p_value[2] == 1.0
        for one in (test, mixed):
            numbers = [value for name, value in one._asdict().items() if name not in ("groups", "nulls")]
            known = [value for value in numbers if value is not one.projection_power]
            assert all(bool(value.isfinite().all()) for value in known)


def test_tensors_with_several_columns_are_one_row_of_projections():
    z = uniform(60, 3, seed=17)
    test = pce_test(z, n_replicates=99)
    assert test.nulls == ("signs",)
    assert test.p_value.shape == (1,)
    assert test.projection_p_value.shape == (3,)
    assert pce_test(z**2, n_replicates=99).p_value[0] <= 0.01
    numbers = projected_pit(normal(60, 3, seed=18), gaussians(60, 3), Marginal())
    assert torch.equal(
        pce_test(numbers, n_replicates=99).replicates, pce_test(numbers.values, n_replicates=99).replicates
    )


# -- the smallest of three p-values, recalibrated


def test_of_one_member_the_test_is_exact_and_its_p_values_are_discrete_uniform():
    """With M = 1 a contribution changes sign when observation and member change places: data are one of the replicates.

    Weights make all sums of signs different, but for those of two opposite patterns, one pair in 2^15. The signs of a seed
    are the same for all its data sets, and p-values are uniform over seeds.
    """
    n_seeds, each, n_replicates = 100, 25, 39
    weights = 1 + uniform(16, seed=19)
    p_values = []
    for seed in range(n_seeds):
        pit = ranked(equicorrelated(0.5, each, 16, 2, 3, seed=2 * seed + 1000))
        p_values.append(
            pce_test(pit, n_replicates=n_replicates, seed=seed, case_weights=weights, n_groups=1).p_value[:, 0]
        )
    places = (torch.cat(p_values) * (n_replicates + 1)).round().long() - 1
    counts = torch.bincount(places, minlength=n_replicates + 1)
    assert stats.chisquare(counts.numpy()).pvalue > LEVEL
    assert stats.binom.ppf(LEVEL, n_seeds * each, 0.05) <= int(counts[:2].sum()) <= at_most(0.05, n_seeds * each)


def test_the_smallest_p_value_is_ranked_among_those_of_all_replicates():
    """Any row could have been the data: over all rows p-values are 1, 2, ... over their number."""
    test, setting = prepared(ProjectedPIT.of_values(uniform(60, 6, seed=20)), weights=uniform(60, seed=52))  # no ties
    found = test.statistics(199, 1)
    (pooled,) = found.pooled.values()

    def p_value_of(row):
        single = Replicates(found.pce.roll(-row, 0), found.maximum.roll(-row, 0))
        return float(rowtests._by_signs(single, pooled.roll(-row, 0), torch.ones(6), None, setting, 60).p_value)

    p_values = [p_value_of(row) for row in range(200)]
    assert sorted(round(200 * p) for p in p_values) == list(range(1, 201))
    # none is below the smallest of the three, that of the mean halved, or above four times that
    shares = [exceedance(values)[:, 0] for values in (found.pce.mean(-1), found.pce.amax(-1), pooled)]
    shares[0] = shares[0] / 2
    smallest = torch.stack(shares).amin(0)
    assert (torch.tensor(p_values) >= smallest - 1e-9).all()
    assert (torch.tensor(p_values) <= 4 * smallest + 1e-9).all()


# -- blocks


def test_blocks_keep_the_size_where_observations_depend_and_members_do_not():
    """Twenty blocks of ten days that share a season, of which the members know nothing."""
    repetitions, blocks = 200, torch.arange(20).repeat_interleave(10)
    y = normal(repetitions, 20, 1, 2, seed=21).expand(-1, -1, 10, -1).flatten(1, 2) * 0.7
    y = y + 0.51**0.5 * normal(repetitions, 200, 2, seed=22)
    members = normal(repetitions, 200, 12, 2, seed=23)
    pit = projected_pit(y, Ensemble(members), [Location(), Marginal()])
    kept = pce_test(pit, n_replicates=99, blocks=blocks)
    assert kept.nulls == ("signs", "signs")
    for g in range(2):
        assert rejections(kept.p_value[:, g]) <= at_most(0.05, repetitions)
    plain = pce_test(pit, n_replicates=99)
    assert plain.nulls == ("exact", "signs")
    for g in range(2):
        assert rejections(plain.p_value[:, g]) > at_most(0.05, repetitions)


def test_the_labels_of_blocks_are_names():
    pit = ranked(normal(60, 6, 2, seed=24))
    plain = torch.arange(60) // 3
    other = (7 * plain + 5) % 23
    same = [pce_test(pit, n_replicates=99, blocks=blocks) for blocks in (plain, 1000 * plain - 7)]
    assert torch.equal(same[0].replicates, same[1].replicates)
    turned = pce_test(pit, n_replicates=99, blocks=other)
    assert torch.equal(turned.statistic, same[0].statistic)
    alone = pce_test(pit, n_replicates=99, blocks=torch.arange(60))
    assert not torch.equal(alone.replicates, same[0].replicates)


def test_blocks_expect_what_dependent_cases_vary_by():
    """All ten cases of a block are one: the curve varies as that of a tenth of the cases."""
    x = normal(300, 30, 1, 6, 2, seed=25).expand(-1, -1, 10, -1, -1).flatten(1, 2)
    blocks = torch.arange(30).repeat_interleave(10)
    test = pce_test(ranked(x), n_replicates=99, blocks=blocks)
    null = pce_null(30, n_members=5)
    # means over 300 x 2 projections, two of a data set independent, each with the null's own spread
    assert float(test.projection_expected_pce.mean()) == pytest.approx(null.mean, rel=0.02)
    assert float(test.projection_pce.mean()) == pytest.approx(null.mean, abs=4 * null.sample.std() / 600**0.5)


def test_five_blocks_give_no_p_value_below_a_sixteenth():
    """Of 32 patterns of signs two give any statistic: p is at least 1/16, as far as replicates can tell."""
    x = normal(50, 6, 2, seed=26)
    x[:, 0] += 5
    test = pce_test(ranked(x), n_replicates=999, blocks=torch.arange(50) // 10)
    limit = 4 * (1 / 16 * 15 / 16 / 999) ** 0.5
    assert float(test.p_value) == pytest.approx(1 / 16, abs=limit)
    assert float(test.attainable) == pytest.approx(1 / 16, abs=limit)
    assert float(test.attainable) > 0.05 - limit


# -- few cases


@pytest.mark.parametrize("n_cases", [1, 5, 9])
def test_fewer_than_ten_cases_are_tested_one_by_one(n_cases):
    pit = ranked(normal(n_cases, 8, 3, seed=27))
    test = pce_test(pit, n_replicates=99)
    assert test.nulls == ("exact",)
    null = pce_null(n_cases, n_members=7)
    own = torch.from_numpy(null.p_value(test.projection_pce.numpy()))
    torch.testing.assert_close(test.projection_p_value, holm(own))
    assert float(test.p_value[0]) == pytest.approx(min(1.0, 3 * float(own.min())))
    assert pce_test(ranked(normal(10, 8, 3, seed=27)), n_replicates=99).nulls == ("signs",)


def test_few_cases_with_ties_or_weights_pick_points_one_by_one():
    pit = ranked(normal(6, 8, 2, seed=28).round(), exchangeable=True)
    test = pce_test(pit, n_replicates=99)
    assert test.nulls == ("points",)
    alone = [float(pce_test(one, n_replicates=99).p_value[0]) for one in (pit_of_column(pit, 0), pit_of_column(pit, 1))]
    torch.testing.assert_close(test.projection_p_value, holm(torch.tensor(alone).double()))
    # twenty cases that know as much as four
    weights = torch.tensor([1.0] * 4 + [1e-3] * 16)
    weighted = pce_test(ranked(normal(20, 8, 2, seed=29), exchangeable=True), n_replicates=99, case_weights=weights)
    assert weighted.nulls == ("points",)


def pit_of_column(pit, k):
    part = pit.parts[0]

    def cut(intervals):
        return type(intervals)(intervals.lower[..., k : k + 1], intervals.upper[..., k : k + 1], intervals.unit)

    column = slice(k, k + 1)
    own = type(part)(
        part.prerank, part.names[column], cut(part.observed), part.method, part.exact, part.tied[column],
        part.ties[column], n_members=part.n_members, points=cut(part.points),
    )  # fmt: skip
    return ProjectedPIT((own,), pit.case_ids)


def test_five_cases_hold_their_size():
    x = equicorrelated(0.8, 1000, 5, 7, 4, seed=30)
    assert rejections(pce_test(ranked(x), n_replicates=99).p_value) <= at_most(0.05, 1000)


# -- laws


def gaussians(n_cases, n_targets):
    factors = torch.eye(n_targets, dtype=torch.float64).expand(n_cases, 1, n_targets, n_targets)
    return GaussianMixture(factors.new_zeros(n_cases, 1), factors.new_zeros(n_cases, 1, n_targets), factors)


def test_closed_forms_need_no_draws(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("drawn")

    monkeypatch.setattr("prerank.calibration.pit.equally_weighted_draws", refuse)
    law, y = gaussians(60, 4), normal(60, 4, seed=31)
    pit = projected_pit(y, law, [Marginal(), PCA(), Location()], exchangeable=True)
    assert not pit.has_points
    for blocks in (None, torch.arange(60) // 2):
        test = pce_test(pit, n_replicates=99, blocks=blocks)
        assert test.nulls == ("signs", "signs", "exact" if blocks is None else "signs")
        assert test.p_value.isfinite().all()
    assert pce_test(pit, n_replicates=99, case_weights=uniform(60, seed=32)).nulls[0] == "signs"
    with pytest.raises(AssertionError, match="drawn"):
        projected_pit(y, law, Copula())


def test_rows_of_laws_hold_their_size_in_blocks():
    repetitions, blocks = 200, torch.arange(25).repeat_interleave(4)
    season = normal(repetitions, 25, 1, 3, seed=33).expand(-1, -1, 4, -1).flatten(1, 2)
    y = 0.8 * season + 0.6 * normal(repetitions, 100, 3, seed=34)
    pit = projected_pit(y, gaussians(100, 3).expand((repetitions, 100)), [Marginal(), PCA(), Location()])
    test = pce_test(pit, n_replicates=99, blocks=blocks)
    for g in range(3):
        assert rejections(test.p_value[:, g]) <= at_most(0.05, repetitions)


# -- whole numbers: no order, no chunk and no companion changes a p-value


def tallied(pit, sizes, n_replicates=99, blocks=None, weights=None):
    """The test of chunks of cases, joined."""
    shares = None if weights is None else weights / weights.sum()
    plan = Plan.of(pit.n_cases, LEVELS, 0, blocks, shares, n_replicates)
    accumulated = Accumulated(plan, pit.case_ids)
    for places in torch.arange(pit.n_cases).split(sizes):
        own = (None if values is None else values[places] for values in (blocks, shares))
        accumulated.add(Chunk(plan, pit.select(places), places, *own).tally())
    return pce_test_of(accumulated)


OPTIONS = {
    "plain": lambda n: {},
    "weights": lambda n: {"weights": uniform(n, seed=35)},
    "blocks": lambda n: {"blocks": torch.arange(n) // 2},
    "weighted blocks": lambda n: {"blocks": torch.arange(n) // 2, "weights": uniform(n, seed=36)},
}


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("n_cases", [40, 2500])
def test_chunks_of_cases_change_no_bit(kind, n_cases):
    x = normal(n_cases, 6, 3, seed=37)
    x[..., 0] = x[..., 0].round()
    pit = ranked(x, [Marginal(), PCA()], exchangeable=True, case_ids=torch.arange(n_cases) * 5 + 2)
    options = OPTIONS[kind](n_cases)
    half = n_cases // 2
    parts = [tallied(pit, sizes, **options) for sizes in ([n_cases], [half, half], [7, half, half - 7])]
    renamed = {"case_weights" if name == "weights" else name: value for name, value in options.items()}
    whole = pce_test(pit, n_replicates=99, **renamed)
    assert whole.nulls == ("signs", "signs")
    for one in parts:
        for name in ("p_value", "adjusted_p_value", "statistic", "replicates", "projection_pce", "attainable"):
            assert torch.equal(getattr(one, name), getattr(whole, name)), name


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("n_cases", [60, 2500])
def test_the_order_of_the_cases_changes_no_bit_given_their_names(kind, n_cases):
    x, ids = normal(n_cases, 6, 3, seed=38), torch.arange(n_cases) * 3 + 1
    order = torch.randperm(n_cases, generator=torch.Generator().manual_seed(39))
    options = {"case_weights" if k == "weights" else k: v for k, v in OPTIONS[kind](n_cases).items()}
    first = pce_test(ranked(x, case_ids=ids), n_replicates=99, **options)
    turned = {name: value[order] for name, value in options.items()}
    second = pce_test(ranked(x[order], case_ids=ids[order]), n_replicates=99, **turned)
    for name in ("p_value", "replicates", "projection_p_value"):
        assert torch.equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize("kind", OPTIONS)
def test_sums_are_whole_numbers_that_double_precision_holds(kind):
    pit = ranked(normal(300, 6, 3, seed=40))
    test, setting = prepared(pit, **OPTIONS[kind](300))
    for part in test.sums:
        assert torch.equal(part.sums, part.sums.round())
        assert part.curves is None or torch.equal(part.curves, part.curves.round())
    # any sum over units, whatever the signs, stays below 2^53
    assert torch.equal(dense(test), dense(test).round())
    assert float(dense(test).abs().sum(1).max()) < 2.0**53
    assert test.total <= 2.0**53
    largest = Setting(10**9, LEVELS, 0)
    assert largest.total * 2.0**largest.digits <= 2.0**53
    assert setting.digits >= 20


def test_more_than_1024_cases_or_blocks_share_signs_in_1024_sets():
    n_cases = 5000
    pit = ranked(normal(n_cases, 4, 2, seed=41))
    for blocks, counted in ((None, n_cases), (torch.arange(n_cases) // 2, n_cases // 2)):
        test, setting = prepared(pit, blocks=blocks)
        assert setting.n_units == signs.UNITS == dense(test).shape[1]
        units = setting.units(torch.arange(n_cases), pit.case_ids, blocks)
        sizes = torch.bincount(units[:: 1 if blocks is None else 2], minlength=signs.UNITS)
        # dealt at random: the largest of 1,024 Poisson numbers
        assert int(sizes.max()) <= stats.poisson.isf(LEVEL / signs.UNITS, counted / signs.UNITS)
        if blocks is not None:
            assert torch.equal(units[::2], units[1::2])
    test, _ = prepared(ranked(normal(1024, 4, 2, seed=42)))
    assert dense(test).shape[1] == 1024


def test_shared_signs_keep_the_size():
    repetitions = 100
    x = equicorrelated(0.7, repetitions, 1500, 4, 3, seed=43)
    assert rejections(pce_test(ranked(x), n_replicates=99).p_value) <= at_most(0.05, repetitions)


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_model_beside_others_gets_to_the_last_bit_what_it_gets_alone(kind):
    x = normal(3, 40, 6, 3, seed=44)
    options = {"case_weights" if k == "weights" else k: v for k, v in OPTIONS[kind](40).items()}
    together = pce_test(ranked(x, [Marginal(), PCA()], exchangeable=True), n_replicates=99, **options)
    for e in range(3):
        alone = pce_test(ranked(x[e], [Marginal(), PCA()], exchangeable=True), n_replicates=99, **options)
        assert alone.nulls == together.nulls == ("signs", "signs")
        for name in (n for n in alone._fields if n not in ("groups", "nulls")):
            value, own = getattr(alone, name), getattr(together, name)
            own = own[:, e] if name == "replicates" else own[e]
            assert torch.equal(own.nan_to_num(), value.nan_to_num()), name


def test_the_size_of_a_temporary_changes_no_bit(monkeypatch):
    pit = ranked(normal(50, 6, 4, seed=46), [Marginal(), PCA()])
    whole = pce_test(pit, n_replicates=99)
    monkeypatch.setattr(signs, "at_once", lambda *_: 3)
    monkeypatch.setattr(signs, "chunks", lambda count, *_: (slice(k, k + 1) for k in range(count)))
    parts = pce_test(pit, n_replicates=99)
    assert torch.equal(parts.replicates, whole.replicates)
    assert torch.equal(parts.p_value, whole.p_value)


# -- several rows


@pytest.mark.parametrize("n_tests", [1, 2, 6])
def test_steps_are_those_of_the_definition(n_tests):
    """Several data sets at once, with ties between tests and between replicates."""
    strengths = (12 * uniform(40, 7, n_tests, seed=53)).round()
    p_values = 0.3 * uniform(7, n_tests, seed=54)
    found = rowtests.step_down(strengths, p_values)
    for s in range(7):
        torch.testing.assert_close(found[s], stepped_down(strengths[:, s], p_values[s]), rtol=0, atol=1e-12)


def test_adjusted_p_values_are_those_of_the_steps_and_never_below_the_p_value(monkeypatch):
    given = []

    def kept(strengths, p_values, of=rowtests.step_down):
        given.append((strengths, p_values))
        return of(strengths, p_values)

    monkeypatch.setattr(testing, "step_down", kept)
    for seed in range(10):
        pit = ranked(normal(2, 40, 9, 3, seed=50 + seed), paper_preranks(3), exchangeable=True)
        test = pce_test(pit, n_replicates=39)
        strengths, p_values = given[-1]
        assert torch.equal(p_values, test.p_value)
        assert strengths.shape == (40, 2, len(test.groups))
        for s in range(2):
            expected = stepped_down(strengths[:, s], p_values[s], 1e-8)
            torch.testing.assert_close(test.adjusted_p_value[s], expected, rtol=0, atol=1e-12)
        assert (test.adjusted_p_value >= test.p_value).all()
        assert (test.adjusted_p_value.amin(-1) >= test.attainable).all()
        for g, null in enumerate(test.nulls):  # the data's strength is its p-value, up to the tie-break
            if null != "points":
                assert ((strengths[0, :, g] - 40 * p_values[:, g]).abs() <= 1).all()


def test_one_row_is_not_adjusted():
    for item in (Marginal(), Location()):
        test = pce_test(ranked(normal(40, 9, 3, seed=55), [item]), n_replicates=39)
        assert torch.equal(test.adjusted_p_value, test.p_value)


def test_fewer_than_thirty_cases_are_adjusted_by_holm():
    for n_cases, options in ((9, {}), (29, {}), (20, {"case_weights": torch.tensor([1.0] * 4 + [1e-3] * 16)})):
        pit = ranked(normal(n_cases, 9, 2, seed=56), [Marginal(), Location(), PCA()], exchangeable=True)
        test = pce_test(pit, n_replicates=39, **options)
        assert torch.equal(test.adjusted_p_value, holm(test.p_value))
    thirty = pce_test(ranked(normal(30, 9, 2, seed=57), [Marginal(), Location(), PCA()]), n_replicates=39)
    assert not torch.equal(thirty.adjusted_p_value, holm(thirty.p_value))


def single_targets(count):
    return [Custom(lambda y, k=k: y[..., k], name=f"target {k}") for k in range(count)]


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_rows_that_are_right_among_wrong_ones_hold_their_level(correlation):
    """Two of five rows are wrong beyond doubt: of the others any is rejected in at most 5 % of the data sets."""
    repetitions, level = 400, 0.05
    x = equicorrelated(correlation, repetitions, 60, 9, 5, seed=57)
    x[..., 0, :2] += 1.5
    test = pce_test(ranked(x, single_targets(5)), n_replicates=199)
    assert (test.adjusted_p_value[:, :2] <= level).all()
    wrongly = (test.adjusted_p_value[:, 2:] <= level).any(-1)
    assert int(wrongly.sum()) <= at_most(level, repetitions)
    # adjusted for the three that are left, not for five, and for less where these go together: by Holm's method
    # three rows with a common correlation of .8 are rejected in about 3 %
    assert int(wrongly.sum()) >= stats.binom.ppf(LEVEL, repetitions, 0.75 * level)
    if correlation:
        assert int(wrongly.sum()) >= int((holm(test.p_value)[:, 2:] <= level).any(-1).sum())


def test_rows_of_several_projections_hold_their_level_together():
    repetitions = 200
    x = equicorrelated(0.5, repetitions, 40, 9, 3, seed=58)
    test = pce_test(ranked(x, paper_preranks(3), exchangeable=True), n_replicates=99)
    assert rejections(test.adjusted_p_value.amin(-1)) <= at_most(0.05, repetitions)
    x[..., 0, :] *= 2  # seen by some rows, not by "dependency"
    wrong = pce_test(ranked(x, paper_preranks(3), exchangeable=True), n_replicates=99)
    assert rejections(wrong.adjusted_p_value.amin(-1)) >= 0.99 * repetitions


def test_targets_with_too_small_spreads_are_named():
    """Ranks at both ends make the signs of a row vary more; each projection's own p-value is that of its law."""
    members = normal(20, 60, 20, 10, seed=59)
    y = normal(20, 60, 10, seed=60)
    test = pce_test(projected_pit(y, Ensemble(0.3 * members), Marginal()))
    assert float((test.projection_p_value <= 0.05).double().mean()) > 0.9
    right = pce_test(projected_pit(y, Ensemble(members), Marginal()))
    assert int((right.projection_p_value <= 0.05).any(-1).sum()) <= at_most(0.05, 20)


def test_threads_change_no_bit(monkeypatch):
    pit = ranked(normal(2, 50, 6, 4, seed=61).round(decimals=1), [Marginal(), PCA(), Location()], exchangeable=True)
    first = pce_test(pit, n_replicates=199)
    monkeypatch.setattr(signs, "in_threads", lambda work, parts, spread: [work(part) for part in reversed(list(parts))])
    second = pce_test(pit, n_replicates=199)
    for name in ("p_value", "adjusted_p_value", "projection_p_value", "replicates", "band_width"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name


def test_more_replicates_are_those_of_all_rows_together():
    """A model with one small p-value has all its rows from the finer stage; a model without keeps those of the first."""
    x = normal(2, 80, 8, 3, seed=62)
    x[0, :, 0, 0] += 2
    pit = ranked(x, [Marginal(), PCA()])
    few, many = (pce_test(pit, n_replicates=99, n_groups=n) for n in (1, 200))
    finer = pce_test(pit, n_replicates=enough_replicates(200))
    for name in ("p_value", "adjusted_p_value", "projection_p_value", "maximum_p_value"):
        assert torch.equal(getattr(many, name)[0], getattr(finer, name)[0]), name
        assert torch.equal(getattr(many, name)[1], getattr(few, name)[1]), name


def test_many_groups_ask_for_more_replicates_only_where_p_values_are_small():
    x = normal(2, 80, 8, 3, seed=47)
    x[0, :, 0] += 2
    pit = ranked(x)
    few, many = (pce_test(pit, n_replicates=99, n_groups=n) for n in (1, 200))
    assert few.p_value[0] == 1 / 100
    assert many.p_value[0] == 1 / 8000  # 200 groups: 1 / 8000 times 200 is 0.025
    assert many.p_value[1] == few.p_value[1] > 10 / 100
    assert torch.equal(many.replicates, few.replicates)
    single = ranked(x, [Location()])
    exact = [pce_test(single, n_replicates=99, n_groups=n).p_value for n in (1, 200)]
    assert torch.equal(*exact)


@pytest.mark.slow
def test_p_values_in_two_stages_hold_their_size_at_every_level():
    repetitions = 2000
    x = equicorrelated(0.5, repetitions, 12, 3, 2, seed=48)
    p_values = pce_test(ranked(x), n_replicates=39, n_groups=10).p_value
    for level in (0.01, 0.05, 0.1, 0.25, 0.3):
        assert rejections(p_values, level) <= at_most(level, repetitions), level


def test_a_row_of_one_projection_may_stand_beside_rows_of_several():
    """Each row has the p-value that it has alone, whatever its null."""
    x = normal(60, 9, 3, seed=49)
    x[..., 2] = x[..., 2].round()
    sign = Custom(lambda points: (points[..., 0] > 0).to(points.dtype), name="sign")
    preranks = [Marginal(), Location(), sign, PCA()]
    together = pce_test(ranked(x, preranks, exchangeable=True), n_replicates=199)
    assert together.nulls == ("signs", "exact", "points", "signs")
    for g, item in enumerate(preranks):
        alone = pce_test(ranked(x, [item], exchangeable=True), n_replicates=199)
        assert torch.equal(alone.p_value[0], together.p_value[g])


def test_a_curve_that_cannot_vary_has_a_spread_of_zero_and_not_of_a_rounding_error():
    setting = Setting(7, LEVELS, 0)
    squares = (LEVELS.square() / 7)[:, None] * (1 - 1e-15)
    assert (signs.spread_from(squares, setting) == 0).all()
