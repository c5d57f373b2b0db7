"""Small claims, each of which a small fault would break."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats

from builders import normal
from prerank import (
    HDR,
    PCA,
    Contrast,
    Copula,
    Custom,
    Dependency,
    Ensemble,
    GaussianMixture,
    Location,
    Marginal,
    Scale,
    pce,
    pce_interval,
    pce_null,
    pce_test,
    projected_pit,
    reliability_band,
)
from prerank.calibration import ClosedForm, EmpiricalRank, SmoothRank, centred_levels, chi_square_test, ks_test
from prerank.calibration import confidence as interval
from prerank.calibration.histogram_shapes import describe_shape, shape
from prerank.calibration.projected_pits import ProjectedPIT
from prerank.calibration.rank_intervals import Intervals
from prerank.calibration.testing import NEARLY_BLIND, projection_power
from prerank.preranks import SquaredDifference
from prerank.preranks.exchangeable_points import canonical_points, reference_subset, spread_matrix
from prerank.preranks.joint_cdf import smooth_log_joint_cdf
from prerank.preranks.point_density import bandwidths, joint_cdf, log_kernel_density
from prerank.preranks.rounding import power_of_two_above, rounded

# -- the order of points


def test_points_are_ordered_by_every_target_also_where_there_are_few_points():
    points = torch.tensor([[[1.0, 2.0, 9.0], [1.0, 2.0, 3.0]]])
    assert canonical_points(points).ordered[0, :, 2].tolist() == [3.0, 9.0]
    for seed in range(20):
        x = torch.randint(0, 2, (4, 5, 6), generator=torch.Generator().manual_seed(seed)).double()
        expected = [sorted(map(tuple, case)) for case in x.tolist()]
        assert [list(map(tuple, case)) for case in canonical_points(x).ordered.tolist()] == expected


def test_points_stand_where_they_are_said_to_stand():
    x = torch.randint(0, 3, (6, 9, 2), generator=torch.Generator().manual_seed(1)).double()
    points = canonical_points(x)
    assert torch.equal(points.as_given(points.ordered), x)
    same = (x[:, :, None] == x[:, None]).all(-1)
    assert ((points.place[:, :, None] == points.place[:, None]) == same).all()


@pytest.mark.parametrize("n_members", [1001, 1250, 50_000])
def test_the_reference_of_a_large_ensemble_is_spread_over_it(n_members):
    chosen = reference_subset(n_members)
    assert len(set(chosen.tolist())) == 250
    assert chosen.min() >= 0
    assert chosen.max() < n_members
    gaps = chosen.diff()
    assert gaps.max() - gaps.min() <= 1
    assert reference_subset(1000) is None


def test_covariances_of_pooled_points_are_those_of_the_definition_in_a_unit_of_their_own():
    x, weights = normal(3, 7, 2, seed=2) * 1e200, torch.rand(3, 7, generator=torch.Generator().manual_seed(3)).double()
    for w in (None, weights):
        for case in range(3):
            expected = np.cov((x[case] / 1e200).T.numpy(), aweights=None if w is None else w[case].numpy(), bias=True)
            found = spread_matrix(x, w)[case].numpy()
            np.testing.assert_allclose(found / found[0, 0], expected / expected[0, 0], rtol=1e-9)
    assert (spread_matrix(torch.full((1, 4, 3), 0.1)) == 0).all()


# -- densities and joint CDFs of points


def test_kernel_densities_are_the_same_with_and_without_gradients():
    points, centres = normal(2, 5, 3, seed=4), normal(2, 6, 3, seed=5)
    weights = torch.rand(2, 6, generator=torch.Generator().manual_seed(6)).double()
    for w in (None, weights):
        plain = log_kernel_density(points, centres, w)
        learnt = log_kernel_density(points.clone().requires_grad_(), centres, w)
        assert learnt.requires_grad
        torch.testing.assert_close(learnt.detach(), plain)
        share = torch.full((2, 6), 1.0).double() if w is None else w / w.sum(-1, keepdim=True)
        width = bandwidths(centres, w)
        distance = ((points[:, :, None] - centres[:, None]) / width[:, None]).square().sum(-1)
        expected = (share[:, None] * (-0.5 * distance).exp()).sum(-1).log()
        difference = plain - expected
        torch.testing.assert_close(difference - difference[:1, :1], torch.zeros_like(difference), rtol=0, atol=1e-9)


def test_a_point_far_from_all_centres_has_a_density_that_still_ranks():
    centres = normal(1, 6, 2, seed=7)
    points = torch.tensor([[[1e3, 0.0], [2e3, 0.0], [0.0, 0.0]]], dtype=torch.float64)
    first, second, near = log_kernel_density(points, centres)[0].tolist()
    assert second < first < near
    assert np.isfinite(second)


def test_joint_cdfs_count_centres_and_weigh_them():
    points, centres = torch.tensor([[[0.0, 0.0], [2.0, 2.0]]]), torch.tensor([[[-1.0, 0.0], [1.0, -1.0], [3.0, 3.0]]])
    assert joint_cdf(points, centres)[0].tolist() == pytest.approx([1 / 3, 2 / 3])
    weights = torch.tensor([[1.0, 2.0, 5.0]])
    assert joint_cdf(points, centres, weights)[0].tolist() == pytest.approx([1 / 8, 3 / 8])


# -- rounding


def test_rounding_keeps_what_is_different_and_joins_what_differs_by_rounding():
    x = torch.tensor([[1.0], [1.0 + 2**-40], [1.0 + 2**-30]], dtype=torch.float64)
    found = rounded(x)[:, 0].tolist()
    assert found[0] == found[1] != found[2]
    zeros = torch.zeros(4, 2).double()
    assert torch.equal(rounded(zeros), zeros)
    assert power_of_two_above(torch.tensor([0.0, 1.0, 3.0, -0.75])).tolist() == [1.0, 2.0, 4.0, 1.0]
    infinite = torch.tensor([[float("inf")], [1.0 + 1e-15]]).double()
    assert torch.equal(rounded(infinite), infinite)


# -- nulls, bands, intervals


def test_bands_say_their_pointwise_level():
    for band in (reliability_band(60), reliability_band(60, n_members=5)):
        assert 0.95 < band.pointwise < 1.0
    wide, narrow = reliability_band(60, 0.99, n_members=5), reliability_band(60, 0.8, n_members=5)
    assert wide.pointwise > narrow.pointwise
    assert (wide.upper >= narrow.upper).all()
    half = ((narrow.upper - narrow.levels) / (narrow.levels - narrow.lower))[20:80]
    torch.testing.assert_close(half, torch.ones_like(half))


def test_intervals_of_few_units_are_widened_as_students_law_has_it(monkeypatch):
    pit = ProjectedPIT.of_values(torch.linspace(0.2, 0.6, 60).double()[:, None])
    monkeypatch.setattr(interval, "_bootstrap", lambda *_: (torch.full((99, 1), 0.01).double(), 21))
    found = pce_interval(pit, null=torch.zeros(99))
    expected = 0.01 * (21 / 20) ** 0.5 * stats.t.ppf(0.975, 20) / stats.norm.ppf(0.975)
    assert found.high - found.estimate == pytest.approx(expected)
    assert found.estimate - found.low == pytest.approx(expected)


def test_the_interval_of_one_projection_is_as_wide_as_the_null_of_its_members():
    x = torch.full((200, 3, 1), 0.5).double() + 0.001 * normal(200, 3, 1, seed=8)
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), Marginal())
    found = pce_interval(pit, n_replicates=19)
    assert found.high - found.estimate >= pce_null(200, n_members=2).quantile(0.95) - 1e-12
    assert found.high <= 1.0


def test_a_null_is_a_value_and_its_sample_is_drawn_once():
    null = pce_null(31)
    assert null.sample is null.sample
    with pytest.raises(dataclasses.FrozenInstanceError):
        null.mean = 0.0
    assert null.quantile(0.5) == pytest.approx(float(np.median(null.sample)))
    assert (np.diff(null.sample) >= 0).all()
    powers = [pce_null(31, exponent=p).mean for p in (1, 2, 3)]
    assert powers[0] > powers[1] > powers[2] > 0


def test_errors_of_p_values_are_those_of_their_replicates():
    x = normal(60, 8, 2, seed=9)
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), [Marginal(), Location()], exchangeable=True)
    test = pce_test(pit, n_replicates=99)
    several, single = test.p_value.tolist()
    assert test.p_value_error.tolist() == pytest.approx(
        [(several * (1 - several) / 99) ** 0.5, (single * (1 - single) / 50_000) ** 0.5]
    )
    assert test.projection_pce.shape == test.projection_expected_pce.shape == test.projection_p_value.shape == (3,)
    assert test.spread.shape == (100, 3)
    # eight equally probable ranks: those below the level count, the one at the level in part
    whole, part = (8 * centred_levels()).floor(), (8 * centred_levels()) % 1
    variance = (whole + part.square()) / 8 - centred_levels().square()
    torch.testing.assert_close(test.spread, (variance / 60).sqrt()[:, None].expand(100, 3))


# -- power and words


def test_the_power_of_known_ranks_needs_no_points():
    x = normal(40, 6, 1, seed=10)
    forecast = Ensemble(x[:, 1:])
    alone = projection_power(projected_pit(x[:, 0], forecast, Marginal()), 40.0)
    points = projection_power(projected_pit(x[:, 0], forecast, Marginal(), exchangeable=True), 40.0)
    torch.testing.assert_close(alone, points, rtol=1e-9, atol=0)
    many = x.repeat(60, 1, 1)  # more cases than are looked at
    pit = projected_pit(many[:, 0], Ensemble(many[:, 1:]), Marginal(), exchangeable=True)
    assert float(projection_power(pit, 40.0)[0]) == pytest.approx(float(alone[0]), rel=1e-9)
    assert float(projection_power(pit, 2400.0)[0]) == pytest.approx(1.0, abs=1e-6)
    weighted = Ensemble(x[:, 1:], torch.ones(40, 5).double())
    assert projection_power(projected_pit(x[:, 0], weighted, Marginal()), 40.0).isnan().all()
    assert NEARLY_BLIND == 0.2


def test_case_weights_of_one_change_no_power_and_zero_weights_leave_cases_out():
    x = normal(30, 6, 1, seed=11)
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), Marginal(), exchangeable=True)
    power = {
        name: pce_test(chosen, n_replicates=9, case_weights=weights).projection_power
        for name, chosen, weights in (
            ("none", pit, None),
            ("ones", pit, torch.ones(30)),
            ("ten", pit, (torch.arange(30) < 10).double()),
            ("alone", pit.select(slice(0, 10)), None),
        )
    }
    torch.testing.assert_close(power["ones"], power["none"])
    torch.testing.assert_close(power["ten"], power["alone"])


@pytest.mark.slow
def test_scores_of_a_shape_are_standard_normal_under_calibration():
    z = torch.rand(4000, 50, generator=torch.Generator().manual_seed(12)).double()
    scores = np.array([shape(row)[:4] for row in z])
    assert np.abs(scores.mean(0)).max() < 5 / 4000**0.5
    assert np.abs(scores.std(0) - 1).max() < 0.1
    members = 3
    ranks = torch.randint(0, members + 1, (4000, 50), generator=torch.Generator().manual_seed(13))
    every = torch.arange(members + 1).expand(50, members + 1)
    points = Intervals(every, every + 1, members + 1)
    scores = np.array([shape(Intervals(row, row + 1, members + 1), points=points)[:4] for row in ranks])
    assert np.abs(scores.mean(0)).max() < 5 / 4000**0.5
    assert np.abs(scores.std(0) - 1).max() < 0.1


@pytest.mark.parametrize(
    ("pits", "words"),
    [
        (lambda z: z**0.6, "biased low"),
        (lambda z: z**1.7, "biased high"),
        (lambda z: 0.5 + 0.5 * (2 * z - 1).sign() * (2 * z - 1).abs() ** 0.5, "under-dispersed"),
        (lambda z: 0.5 + 0.5 * (2 * z - 1).sign() * (2 * z - 1).abs() ** 2, "over-dispersed"),
        (lambda z: torch.where(z > 0.9, 0.99 + 0.01 * z, z / 0.9 * 0.99), "heavy upper tail"),
        (lambda z: torch.where(z < 0.1, 0.1 * z, 0.01 + 0.99 * (z - 0.1) / 0.9), "heavy lower tail"),
    ],
)
def test_words_follow_the_shape(pits, words):
    z = (torch.arange(2000).double() + 0.5) / 2000
    assert words in describe_shape(pits(z), 0.001)
    assert describe_shape(pits(z), 0.06) == "flat"
    as_weights = describe_shape(pits(z), 0.001, case_weights=torch.ones(2000))
    assert as_weights == describe_shape(pits(z), 0.001)


# -- results that are cut and joined


def test_parts_of_a_result_are_what_they_say():
    x = normal(12, 5, 3, seed=14)
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), [Marginal(), Location(), Scale()], exchangeable=True)
    assert pit.groups == ("marginal",) * 3 + ("location", "scale")
    assert pit.of("location").names == ("mean",)
    some = pit.select(torch.tensor([7, 2]))
    assert torch.equal(some.lower, pit.lower[[7, 2]])
    assert some.case_ids.tolist() == [7, 2]
    sets = pit.in_sets(3)
    assert sets.lead == (3,)
    assert torch.equal(sets.lower.reshape(12, 5), pit.lower)
    assert torch.equal(sets.model(1).lower, pit.lower[4:8])
    assert sets.n_cases == 4
    renamed = pit.renamed("marginal", ["a", "b", "c"])
    assert renamed.names == ("a", "b", "c", "mean", "variance")
    joined = ProjectedPIT.end_to_end(
        [(slice(0, 5), pit.select(slice(0, 5))), (slice(5, 12), pit.select(slice(5, 12)))], pit.case_ids
    )
    assert torch.equal(joined.lower, pit.lower)
    assert torch.equal(joined.points.upper, pit.points.upper)
    torch.testing.assert_close(joined.tied, pit.tied)
    values = ProjectedPIT.of_values(torch.rand(4, 2))
    assert values.names == ("pit 1", "pit 2")
    assert values.are_values
    assert not values.has_points
    assert not pit.are_values


def test_a_mixture_has_numbers_where_they_are_known_and_intervals_elsewhere():
    law = GaussianMixture(torch.zeros(6, 1), torch.zeros(6, 1, 3), torch.eye(3).expand(6, 1, 3, 3))
    pit = projected_pit(torch.zeros(6, 3), law, [Location(), Scale()], n_draws=9, exchangeable=True)
    assert torch.equal(pit.lower[:, 0], pit.upper[:, 0])
    torch.testing.assert_close(pit.upper[:, 1] - pit.lower[:, 1], torch.full((6,), 0.1).double())
    assert pit.parts[0].points is None  # a closed form needs no others
    assert pit.parts[1].points.lower.shape == (6, 10, 1)
    assert [part.n_members for part in pit.parts] == [None, 9]


# -- options and refusals


def test_weights_that_are_all_zero_or_too_many_are_refused():
    z = torch.rand(5, 1)
    for weights in (torch.zeros(5), torch.ones(6), -torch.ones(5), torch.full((5,), torch.inf)):
        with pytest.raises(ValueError, match=r"negative, NaN or infinite|are zero|one number per case"):
            pce(z, case_weights=weights)


@pytest.mark.parametrize("diagonal", [0.0, -0.5])
def test_factors_without_a_positive_diagonal_are_refused(diagonal):
    factor = torch.diag(torch.tensor([1.0, diagonal])).expand(4, 1, 2, 2)
    law = GaussianMixture(torch.zeros(4, 1), torch.zeros(4, 1, 2), factor)
    with pytest.raises(ValueError, match="Cholesky factors"):
        projected_pit(torch.zeros(4, 2), law, Location())


def test_the_null_of_an_interval_is_never_interpolated_downwards():
    pit = ProjectedPIT.of_values(torch.linspace(0.001, 0.999, 50).double()[:, None])
    null = torch.cat([torch.zeros(90), torch.full((10,), 0.3)]).double()
    found = pce_interval(pit, coverage=0.899, null=null, n_replicates=9)
    assert found.high - found.estimate == pytest.approx(0.3)


def test_arrays_are_taken_by_the_classical_tests():
    z = np.random.default_rng(0).uniform(size=(80, 2))
    for test in (ks_test, chi_square_test):
        assert isinstance(test(z), np.ndarray)
        np.testing.assert_allclose(test(z), test(torch.from_numpy(z)).numpy())


def test_custom_projections_are_called_by_their_name():
    x = normal(4, 5, 3, seed=20)
    one = projected_pit(x[:, 0], Ensemble(x[:, 1:]), Custom(lambda y: y.amax(-1), name="maximum"))
    two = projected_pit(x[:, 0], Ensemble(x[:, 1:]), Custom(lambda y: y[..., :2], name="pair"))
    assert one.names == ("maximum",)
    assert two.names == ("pair 1", "pair 2")


def test_given_members_are_projected_in_double_precision():
    seen = []

    def look(points):
        seen.append(points.dtype)
        return points[..., 0]

    projected_pit(torch.ones(3, 2), Ensemble(torch.zeros(3, 4, 2)), Custom(look))
    assert seen[-1] == torch.float64


def test_smooth_ranks_of_a_bare_ensemble_learn_from_members_and_observation():
    pit = projected_pit(normal(4, 2, seed=22), Ensemble(normal(4, 5, 2, seed=21)), HDR(), SmoothRank())
    assert pit.notes["HDR"].startswith("kernel density of 6 points")


def test_a_sharp_smooth_joint_cdf_is_the_joint_cdf():
    points, centres = normal(3, 7, 2, seed=23), normal(3, 40, 2, seed=24)
    share = torch.full((3, 40), 1 / 40).double()
    hard = joint_cdf(points, centres)
    for width in (1e-4, 3e-5):
        smooth = smooth_log_joint_cdf(points, centres, share, torch.full((3, 1, 2), width).double()).exp()
        torch.testing.assert_close(torch.where(hard > 0, smooth, 0.0), hard, rtol=1e-3, atol=1e-3)


def test_words_name_bias_and_spread_together():
    z = (torch.arange(3000).double() + 0.5) / 3000
    wide_and_low = torch.where(z < 0.3, 0.1 * z, torch.where(z > 0.5, 0.9 + 0.1 * z, z))
    assert describe_shape(wide_and_low, 0.001) == "biased low, under-dispersed"


# -- defaults, exponents, weights


def test_the_default_seed_of_a_test_is_zero_and_its_power_one():
    x = normal(25, 6, 2, seed=30)
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), [Marginal()], exchangeable=True)
    given = pce_test(pit, n_replicates=19, seed=0, exponent=1)
    assert torch.equal(pce_test(pit, n_replicates=19).replicates, given.replicates)
    assert not torch.equal(pce_test(pit, n_replicates=19, seed=1).replicates, given.replicates)


@pytest.mark.parametrize("exponent", [1, 2, 3.5])
def test_the_statistic_is_the_mean_error_of_that_exponent(exponent):
    x = normal(25, 6, 2, seed=31)
    pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), [Marginal(), Location()], exchangeable=True)
    test = pce_test(pit, n_replicates=19, exponent=exponent)
    errors = pce(pit, exponent=exponent)
    torch.testing.assert_close(test.projection_pce, errors)
    torch.testing.assert_close(test.statistic, torch.stack([errors[:2].mean(), errors[2]]))
    assert (test.replicates > 0).all()


def test_a_member_with_all_the_weight_is_always_picked():
    y, members = torch.zeros(9, 1).double(), torch.tensor([[-1.0], [1.0], [2.0]]).double().expand(9, 3, 1)
    weights = torch.tensor([0.0, 0.0, 1.0]).double().expand(9, 3)
    pit = projected_pit(y, Ensemble(members, weights), Marginal(), exchangeable=True)
    replicates = pce_test(pit, n_replicates=19).replicates
    last = pce(with_point(pit, 3))
    torch.testing.assert_close(replicates, last.expand_as(replicates))


def with_point(pit, point):
    """The result in which a point of every case plays the observation."""
    part = pit.parts[0]
    chosen = Intervals(part.points.lower[:, point], part.points.upper[:, point])
    return ProjectedPIT((dataclasses.replace(part, observed=chosen, points=None),), pit.case_ids)


def test_empirical_ranks_of_weighted_members_leave_the_member_itself_out():
    y = torch.tensor([[1.5]]).double()
    members = torch.tensor([[[1.0], [2.0], [3.0]]]).double()
    weights = torch.tensor([[1.0, 2.0, 3.0]]).double()
    pit = projected_pit(y, Ensemble(members, weights), Marginal(), EmpiricalRank(), exchangeable=True)
    assert pit.points.lower[0, :, 0].tolist() == pytest.approx([1 / 6, 0.0, 1 / 4, 1.0])


@pytest.mark.parametrize("relative", [False, True])
def test_smooth_ranks_rise_with_the_observation(relative):
    members = normal(1, 40, 1, seed=32).expand(3, 40, 1)
    y = torch.tensor([[-9.0], [0.0], [9.0]]).double()
    low, middle, high = projected_pit(y, Ensemble(members), Marginal(), SmoothRank(relative=relative)).values[:, 0]
    assert low < 1e-3 < 0.2 < middle < 0.8 < 1 - 1e-3 < high


@pytest.mark.parametrize(
    "value",
    [Marginal(), Location(), Scale(), Dependency(), PCA(), HDR(), Copula(), Contrast(), SquaredDifference(), ClosedForm(),
     EmpiricalRank(), SmoothRank()],
    ids=repr,
)  # fmt: skip
def test_every_prerank_and_way_is_a_value(value):
    assert value == type(value)()
    assert hash(value) == hash(type(value)())
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.name = "another"
