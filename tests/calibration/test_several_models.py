"""Leading axes hold several models: each gets what it gets alone."""

import pytest
import torch

from builders import uniform
from prerank.calibration import (
    EmpiricalRank,
    RandomisedRank,
    SmoothRank,
    centred_levels,
    corrected_pce,
    inclusive_levels,
    pce,
    pce_kde,
    pce_test,
    projected_pit,
    reliability_curve,
)
from prerank.calibration.confidence import pce_intervals
from prerank.calibration.null import in_quadrature
from prerank.calibration.rank_intervals import Intervals, curve_sums
from prerank.calibration.testing import projection_power
from prerank.forecasts import Ensemble, GaussianMixture
from prerank.preranks import HDR, PCA, Contrast, Copula, Dependency, Location, Marginal, Scale
from prerank.preranks.exchangeable_points import canonical_points, spread_matrix
from prerank.preranks.point_density import bandwidths, joint_cdf, log_kernel_density
from prerank.preranks.rank_counts import all_weights_below_and_at, weight_below_and_at
from prerank.preranks.rounding import rounded

LEAD = (2, 3)
EVERY = [(i, j) for i in range(2) for j in range(3)]
N, M, D = 7, 6, 4
PRERANKS = [Marginal(), Location(), Scale(), Dependency(), PCA(), HDR(), Copula(), Contrast()]
BLOCKS = torch.tensor([4, 4, 1, 1, 1, 9, 9])


def points(seed=1, decimals=None):
    x = torch.randn(*LEAD, N, M + 1, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x if decimals is None else x.round(decimals=decimals)


def same(found, expected, rtol=1e-9, atol=1e-12):
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)


def ensembles(kind):
    """Observations and members of all models, and of one."""
    x = points(decimals=0 if kind == "tied" else None)
    weights = uniform(*LEAD, N, M, seed=2) if "weighted" in kind else None
    reference = Ensemble(points(seed=3)) if kind == "reference" else None

    def one(e):
        own = None if reference is None else Ensemble(reference.members[e])
        return x[e][:, 0], Ensemble(x[e][:, 1:], None if weights is None else weights[e], own)

    return x[..., 0, :], Ensemble(x[..., 1:, :], weights, reference), one


def options(kind, e=...):
    return {"observation_weights": uniform(*LEAD, N, seed=4)[e]} if kind == "weighted exactly" else {}


@pytest.mark.parametrize("kind", ["plain", "tied", "weighted", "weighted exactly", "reference"])
@pytest.mark.parametrize("how", [None, EmpiricalRank(), RandomisedRank(), SmoothRank()], ids=str)
def test_pits_of_ensembles(kind, how):
    y, forecast, one = ensembles(kind)
    exchangeable = not isinstance(how, SmoothRank)
    found = projected_pit(y, forecast, PRERANKS, how, exchangeable=exchangeable, **options(kind))
    for e in EVERY:
        alone = projected_pit(*one(e), PRERANKS, how, exchangeable=exchangeable, **options(kind, e))
        same(found.lower[e], alone.lower)
        same(found.upper[e], alone.upper)
        same(found.tied[e], alone.tied)
        if exchangeable:
            same(found.points.lower[e], alone.points.lower)
            same(found.points.upper[e], alone.points.upper)
        assert (found.pick is None) == (alone.pick is None)
        if alone.pick is not None:
            same(found.pick[e], alone.pick)


@pytest.mark.parametrize("how", [None, SmoothRank()], ids=str)
def test_pits_of_mixtures(how):
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(*LEAD, N, 2, generator=generator).double()
    loc = torch.randn(*LEAD, N, 2, D, generator=generator).double()
    tril = torch.randn(*LEAD, N, 2, D, D, generator=generator).double().tril(-1) + torch.eye(D)
    y = torch.randn(*LEAD, N, D, generator=generator).double()
    found = projected_pit(y, GaussianMixture(logits, loc, tril), PRERANKS, how, n_draws=15)
    for e in EVERY:
        alone = projected_pit(y[e], GaussianMixture(logits[e], loc[e], tril[e]), PRERANKS, how, n_draws=15)
        same(found.lower[e], alone.lower)
        same(found.upper[e], alone.upper)


@pytest.mark.parametrize("kind", ["plain", "tied", "weighted"])
@pytest.mark.parametrize("setting", ["plain", "blocks", "case weights", "ends", "squares"])
def test_tests(kind, setting):
    y, forecast, one = ensembles(kind)
    given = {
        "plain": {},
        "blocks": {"blocks": BLOCKS},
        "case weights": {"case_weights": uniform(N, seed=7)},
        "ends": {"levels": inclusive_levels(11)},
        "squares": {"exponent": 2},
    }[setting]
    preranks = [Marginal(), Location(), PCA()]
    found = pce_test(projected_pit(y, forecast, preranks, exchangeable=True), n_replicates=39, **given)
    for e in EVERY:
        alone = pce_test(projected_pit(*one(e), preranks, exchangeable=True), n_replicates=39, **given)
        for name in found._fields:
            if name in ("groups", "nulls"):
                assert getattr(found, name) == getattr(alone, name)
                continue
            together, single = getattr(found, name), getattr(alone, name)
            same(together[:, *e] if name == "replicates" else together[e], single)


@pytest.mark.parametrize("exchangeable", [False, True])
@pytest.mark.parametrize("kind", ["plain", "tied", "weighted"])
def test_power(kind, exchangeable):
    y, forecast, one = ensembles(kind)
    found = projection_power(projected_pit(y, forecast, PRERANKS, exchangeable=exchangeable), 7.0)
    assert found.shape == (*LEAD, 14)
    for e in EVERY:
        alone = projection_power(projected_pit(*one(e), PRERANKS, exchangeable=exchangeable), 7.0)
        if exchangeable or kind != "tied":  # whether ranks tie is asked of all models together
            same(found[e], alone)


@pytest.mark.parametrize("weighted", [False, True])
def test_curves_and_errors_of_numbers_and_of_intervals(weighted):
    weights = uniform(N, seed=8) if weighted else None
    y, forecast, one = ensembles("tied")
    z, ranks = uniform(*LEAD, N, 3, seed=9), projected_pit(y, forecast, PRERANKS)
    for e in EVERY:
        for function in (reliability_curve, pce):
            for together, alone in ((z, z[e]), (ranks, projected_pit(*one(e), PRERANKS))):
                for given in ({}, {"n_levels": 7}, {"levels": inclusive_levels(5)}):
                    found = function(together, case_weights=weights, **given)
                    expected = function(alone, case_weights=weights, **given)
                    if function is reliability_curve:
                        found, expected = found.frequency, expected.frequency
                    same(found[e], expected)
        same(pce_kde(z, 30.0, case_weights=weights)[e], pce_kde(z[e], 30.0, case_weights=weights))


def test_smooth_errors_with_weights_of_their_own():
    z, weights = uniform(*LEAD, N, 3, seed=10), uniform(*LEAD, N, seed=11)
    found = pce_kde(z, 30.0, n_levels=9, exponent=2, case_weights=weights)
    for e in EVERY:
        same(found[e], pce_kde(z[e], 30.0, n_levels=9, exponent=2, case_weights=weights[e]))


@pytest.mark.parametrize("blocks", [None, BLOCKS])
def test_corrected_errors(blocks):
    y, forecast, one = ensembles("tied")
    z, ranks = uniform(*LEAD, N, 3, seed=12), projected_pit(y, forecast, PRERANKS)
    for e in EVERY:
        for together, alone in ((z, z[e]), (ranks, projected_pit(*one(e), PRERANKS))):
            same(corrected_pce(together, exponent=2, blocks=blocks)[e], corrected_pce(alone, exponent=2, blocks=blocks))
            same(corrected_pce(together, expected_pce=0.1)[e], corrected_pce(alone, expected_pce=0.1))
        if blocks is None:
            same(corrected_pce(z)[e], corrected_pce(z[e]))
    assert in_quadrature(torch.tensor([0.5, 0.3]), 0.4).tolist() == pytest.approx([0.3, -(0.07**0.5)])


@pytest.mark.parametrize("blocks", [None, torch.arange(40) // 2])
def test_intervals(blocks):
    x = points()[..., 0, :].repeat(1, 1, 6, 1)[..., :40, :]
    members = torch.randn(*LEAD, 40, 5, D, generator=torch.Generator().manual_seed(13)).double()
    grid, null = centred_levels(20), uniform(19, *LEAD, seed=14) * 0.02
    for preranks in ([Marginal()], [Location()]):
        together = projected_pit(x, Ensemble(members), preranks)
        found = pce_intervals(together, null[..., None], blocks, 0.9, grid, 29, 3)
        for e in EVERY:
            alone = projected_pit(x[e], Ensemble(members[e]), preranks)
            single_model = pce_intervals(alone, null[:, *e, None], blocks, 0.9, grid, 29, 3)
            for several, single in zip(found, single_model, strict=True):
                same(several[e], single)


def test_points_densities_and_ranks():
    x = points(decimals=0)
    weights = uniform(*LEAD, N, M + 1, seed=15)
    pooled = canonical_points(x)
    below, at = all_weights_below_and_at(x, None)
    share_below, share_at = all_weights_below_and_at(x, weights)
    under, tied = weight_below_and_at(x[..., 0, :], x, weights)
    some = x[..., :3, :]
    for e in EVERY:
        assert torch.equal(pooled.ordered[e], canonical_points(x[e]).ordered)
        assert torch.equal(pooled.place[e], canonical_points(x[e]).place)
        assert torch.equal(rounded(x / 3)[e], rounded(x[e] / 3))
        assert torch.equal(below[e], all_weights_below_and_at(x[e], None)[0])
        assert torch.equal(at[e], all_weights_below_and_at(x[e], None)[1])
        same(share_below[e], all_weights_below_and_at(x[e], weights[e])[0])
        same(share_at[e], all_weights_below_and_at(x[e], weights[e])[1])
        same(under[e], weight_below_and_at(x[e][:, 0], x[e], weights[e])[0])
        same(tied[e], weight_below_and_at(x[e][:, 0], x[e], weights[e])[1])
        for own, alone in ((None, None), (weights, weights[e])):
            same(spread_matrix(x, own)[e], spread_matrix(x[e], alone))
            same(bandwidths(x, own)[e], bandwidths(x[e], alone))
            same(log_kernel_density(some, x, own)[e], log_kernel_density(some[e], x[e], alone))
            same(joint_cdf(some, x, own)[e], joint_cdf(some[e], x[e], alone))


def test_one_set_of_centres_serves_the_points_of_several_models():
    x, centres, weights = points(), points(seed=17)[0, 0], uniform(N, M + 1, seed=16)
    for e in EVERY:
        same(log_kernel_density(x, centres, weights)[e], log_kernel_density(x[e], centres, weights))
        same(joint_cdf(x, centres, weights)[e], joint_cdf(x[e], centres, weights))


def test_sums_of_contributions():
    lower = uniform(*LEAD, N, 3, seed=18)
    upper = lower + (1 - lower) * uniform(*LEAD, N, 3, seed=19)
    upper[..., :2, :] = lower[..., :2, :]
    weights, levels = uniform(*LEAD, N, seed=20), inclusive_levels(9)
    for e in EVERY:
        same(curve_sums(lower, upper, levels, weights)[e], curve_sums(lower[e], upper[e], levels, weights[e]))
    cut = Intervals(lower, upper).select(torch.tensor([5, 0]), -2)
    assert torch.equal(cut.lower, lower[..., [5, 0], :])
    assert torch.equal(cut.upper, upper[..., [5, 0], :])
