"""Replicates of single projections against their definition, and the smallest p-value that a test can give."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from prerank import Ensemble, Location, Marginal, Scale, check, corrected_pce, pce_interval, pce_test, projected_pit
from prerank.calibration import centred_levels, chi_square_test, ks_test
from prerank.calibration.confidence import pce_intervals
from prerank.calibration.null import maximum_null
from prerank.calibration.projected_pits import ProjectedPIT
from prerank.randomness import bits_of_steps, case_keys

EXPONENTS = [1, 2, 3]


def tied_pit(n_cases=40, n_members=4, seed=0):
    """Ranks of one target that tie often, with all points of every case."""
    x = torch.randn(n_cases, n_members + 1, 1, generator=torch.Generator().manual_seed(seed)).round()
    return projected_pit(x[:, 0], Ensemble(x[:, 1:]), Marginal(), exchangeable=True)


def error_by_definition(lower, upper, exponent):
    """The PCE of intervals (N,): the mean over a uniform number in each, level by level."""
    levels = (np.arange(100) + 0.5) / 100
    below = np.clip((levels[:, None] - lower) / (upper - lower), 0, 1)
    return (np.abs(below.mean(1) - levels) ** exponent).mean()


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_replicates_are_the_errors_of_the_points_they_pick(exponent):
    pit, n_replicates, seed = tied_pit(), 19, 5
    points, n_points = pit.points, pit.points.lower.shape[1]
    chosen = (bits_of_steps(case_keys(seed, pit.case_ids, "exchange"), 0, n_replicates) * n_points) >> 31
    expected = [
        error_by_definition(
            *(
                ends[torch.arange(pit.n_cases), chosen[:, b], 0].double().numpy()
                for ends in (points.lower, points.upper)
            ),
            exponent,
        )
        for b in range(n_replicates)
    ]
    test = pce_test(pit, 100, exponent, n_replicates=n_replicates, seed=seed)
    assert test.nulls == ("points",)
    np.testing.assert_allclose(test.replicates[:, 0], np.sort(expected), rtol=1e-9)
    own = error_by_definition(pit.lower[:, 0].double().numpy(), pit.upper[:, 0].double().numpy(), exponent)
    assert float(test.statistic) == pytest.approx(own, rel=1e-9)
    assert float(test.p_value) == (1 + sum(e >= own * (1 - 1e-9) for e in expected)) / (n_replicates + 1)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize(("n_cases", "n_members"), [(2, 1), (3, 2), (4, 3)])
def test_the_smallest_p_value_is_that_of_observations_below_all_members(n_cases, n_members, exponent):
    """Of a few cases every data set can be listed: none has a smaller p-value than the one with all ranks at one end."""
    members = torch.arange(1.0, n_members + 1).expand(n_cases, -1)[..., None]

    def tested(ranks):
        return pce_test(projected_pit(torch.tensor(ranks)[:, None] + 0.5, Ensemble(members), Marginal()), 100, exponent)

    listed = [tested(ranks) for ranks in itertools.combinations_with_replacement(range(n_members + 1), n_cases)]
    worst = tested((0,) * n_cases)
    assert float(worst.p_value) == min(float(test.p_value) for test in listed)
    assert {float(test.attainable) for test in listed} == {float(worst.p_value)}


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame, torch.as_tensor], ids=["numpy", "pandas", "torch"])
def test_the_corrected_error_takes_arrays_of_every_kind(kind):
    values = np.random.default_rng(0).random((50, 2))
    given = corrected_pce(kind(values))
    np.testing.assert_array_equal(np.asarray(given), corrected_pce(torch.as_tensor(values)).numpy())


def test_chunks_put_end_to_end_have_the_share_of_ties_of_all_cases():
    """A part's share of tied points counts by its cases, and is zero where no chunk has ties."""
    pit = tied_pit(60)
    cuts = [slice(0, 10), slice(10, 60)]
    pieces = [(cases, pit.of_cases(torch.arange(60)[cases])) for cases in cuts]
    joined = ProjectedPIT.end_to_end(pieces, pit.case_ids)
    shares = [piece.parts[0].ties for _, piece in pieces]
    torch.testing.assert_close(joined.parts[0].ties, (10 * shares[0] + 50 * shares[1]) / 60)
    torch.testing.assert_close(joined.parts[0].ties, pit.parts[0].ties)
    assert float(joined.parts[0].ties) > 0.2


def test_an_interval_depends_on_its_replicates_and_seed_as_its_definition_says():
    uniform = torch.rand(80, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    values = torch.where(uniform < 0.4, 0.1 * uniform, 1 - 0.1 * uniform)  # at both ends: curves vary the most
    found = {
        (count, seed): pce_interval(values, 0.9, n_replicates=count, seed=seed)
        for count in (99, 199)
        for seed in (0, 1)
    }
    assert len({interval.high for interval in found.values()}) == 4
    assert len({interval.estimate for interval in found.values()}) == 1
    # by hand: bootstrapped curves and their mean distance from the observed one
    levels = centred_levels().double().numpy()
    below = (values.numpy() <= levels).astype(float)  # (N, J)
    keys = case_keys(1, torch.arange(80), "bootstrap")
    chosen = ((bits_of_steps(keys, 0, 99) * 80) >> 31).numpy()
    distances = [np.abs(below[chosen[:, b]].mean(0) - below.mean(0)).mean() for b in range(99)]
    inflation = np.sqrt(80 / 79) * stats.t.ppf(0.95, 79) / stats.norm.ppf(0.95)
    interval = found[99, 1]
    margin = np.quantile(distances, 0.9) * inflation
    assert interval.estimate == pytest.approx(np.abs(below.mean(0) - levels).mean(), rel=1e-12)
    assert interval.high - interval.estimate == pytest.approx(margin, rel=1e-9)


def test_intervals_of_groups_are_those_of_each_group_for_any_replicates_and_seed():
    x = torch.randn(60, 6, 3, generator=torch.Generator().manual_seed(3))
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), [Marginal(), Scale()])
    null = torch.zeros(9, 2, dtype=torch.float64)  # smaller than every bootstrapped distance
    own = [
        [
            pce_interval(pit.of(name), 0.9, null=null[:, g : g + 1], n_replicates=count, seed=seed)
            for g, name in enumerate(("marginal", "scale"))
        ]
        for count, seed in ((99, 0), (199, 0), (99, 4))
    ]
    together = [
        torch.stack(pce_intervals(pit, null, None, 0.9, n_replicates=count, seed=seed), -1).numpy()
        for count, seed in ((99, 0), (199, 0), (99, 4))
    ]
    np.testing.assert_allclose(np.array(own), np.array(together), rtol=1e-12)
    assert len({row[0, 2] for row in together}) == 3


@pytest.mark.parametrize("n_members", [4, None])
def test_untied_ranks_without_points_are_drawn_for_weighted_cases(n_members):
    """Every rank is as probable as another, and a rank is an interval; continuous PITs are even."""
    n_cases, n_replicates, seed = 30, 19, 3
    generator = torch.Generator().manual_seed(8)
    x = torch.randn(n_cases, 5, 2, dtype=torch.float64, generator=generator)
    if n_members is None:
        pit, n_codes = ProjectedPIT.of_values(torch.rand(n_cases, 1, generator=generator), ("a",), ("a",)), 1 << 18
    else:
        pit, n_codes = projected_pit(x[:, 0], Ensemble(x[:, 1:]), Location()), n_members + 1
    weights = torch.rand(n_cases, generator=generator, dtype=torch.float64) + 0.5
    test = pce_test(pit, n_replicates=n_replicates, seed=seed, case_weights=weights)
    assert test.nulls == ("points",)
    keys = case_keys(seed, torch.arange(n_cases), "uniform")
    chosen = ((bits_of_steps(keys, 0, n_replicates) * n_codes) >> 31).numpy()
    levels, share = (np.arange(100) + 0.5) / 100, (weights / weights.sum()).numpy()
    width = 1 / n_codes if n_members else 1e-12
    lower = chosen / n_codes if n_members else (chosen + 0.5) / n_codes
    below = np.clip((levels[:, None, None] - lower) / width, 0, 1)  # levels, cases, replicates
    expected = np.abs(np.einsum("jnb,n->jb", below, share) - levels[:, None]).mean(0)
    np.testing.assert_allclose(test.replicates[:, 0], np.sort(expected), rtol=1e-9)


def test_the_band_of_a_few_cases_is_bonferronis():
    """Of fewer than ten cases the largest deviation of each of K curves has a share of the five percent."""
    n_cases, n_targets = 6, 4
    values = torch.rand(n_cases, n_targets, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    test = pce_test(ProjectedPIT.of_values(values, tuple("abcd"), ("all",) * n_targets))
    assert test.nulls == ("exact",)
    largest = maximum_null(n_cases, centred_levels(100), None, False)
    width = float(test.band_width[0])
    assert (largest > width).mean() <= 0.05 / n_targets <= (largest > width * (1 - 1e-6)).mean()


def test_ties_of_unequal_cases_are_those_of_all_cases_together():
    """Four cases with three members that tie, twelve with five that do not."""
    points = torch.arange(6.0).expand(16, 6)[..., None].clone()
    members, y = points[:, 1:], points[:, 0]
    members[:4, :3] = y[:4, None]
    members[:4, 3:] = torch.nan
    part = check(y, members, [Marginal()]).pit.parts[0]
    assert part.tied.tolist() == [4 / 16]
    assert part.ties.tolist() == [4 / 16]
    assert "3 to 5 members" in part.method


def test_what_is_expected_of_ranks_that_tie_without_their_points_is_what_signs_give():
    x = torch.randn(60, 5, 3, generator=torch.Generator().manual_seed(4)).round()
    test = pce_test(projected_pit(x[:, 0], Ensemble(x[:, 1:]), Marginal()))
    assert test.nulls == ("signs",)
    assert float(test.expected_pce[0]) == pytest.approx(float(test.replicates[:, 0].mean()), rel=1e-9)


def test_other_tests_of_pits_in_single_precision_are_those_of_the_same_numbers():
    pit = torch.rand(200, 2, generator=torch.Generator().manual_seed(6))
    for other in (ks_test, chi_square_test):
        assert torch.equal(other(pit), other(pit.double()))
