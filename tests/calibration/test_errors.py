"""PCE, its smooth version, its null, its corrected version, its interval, and the words for a histogram."""

import numpy as np
import pytest
import torch

from builders import uniform
from prerank import (
    Ensemble,
    Location,
    corrected_pce,
    pce,
    pce_interval,
    pce_null,
    pce_test,
    projected_pit,
    reliability_curve,
)
from prerank.calibration import centred_levels, describe_shape, inclusive_levels, pce_kde

# -- the error itself


def test_pce_of_laws_that_are_known():
    assert pce(torch.full((1000, 1), 0.5)).item() == pytest.approx(0.25)
    assert pce(torch.tensor([[0.0], [1.0]])).item() == pytest.approx(0.25)
    assert pce(torch.zeros(10, 1)).item() == pytest.approx(0.5)
    assert pce(((torch.arange(1000) + 0.5) / 1000)[:, None]).item() == pytest.approx(0.0, abs=1e-3)
    assert pce(torch.full((10, 1), 0.5), exponent=2).item() == pytest.approx(1 / 12, abs=1e-3)


def test_million_pits_in_single_precision_keep_their_digits():
    assert pce(torch.full((1_000_000, 1), 0.5)).item() == pytest.approx(0.25, abs=1e-6)
    curve = reliability_curve(torch.full((1_000_000, 1), 0.001), levels=torch.tensor([0.5, 1.0])).frequency
    assert (curve == 1).all()


@pytest.mark.parametrize("exponent", [1, 2])
def test_smooth_error_tends_to_the_hard_one_as_the_temperature_grows(exponent):
    z = uniform(300, 3) ** 1.5
    gaps = [
        (pce_kde(z, t, exponent=exponent) - pce(z, exponent=exponent)).abs().max().item()
        for t in (10, 100, 1000, 1e4, 1e12)
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-9


def test_case_weights_count_cases():
    z = uniform(30, 2)
    weights = torch.arange(30, dtype=torch.float64)
    repeated = z.repeat_interleave(torch.arange(30), 0)
    torch.testing.assert_close(pce(z, case_weights=weights), pce(repeated))
    torch.testing.assert_close(pce_kde(z, case_weights=weights), pce_kde(repeated))


def test_levels_at_unrandomised_ranks_count_the_tie():
    """A PIT of k / M is at or below the level k / M, in any precision and on both grids."""
    for n_members in (200, 100, 99, 33, 10):
        ranks = torch.arange(n_members + 1)
        for dtype in (torch.float32, torch.float64):
            pit = (ranks.to(dtype) / n_members)[:, None]
            for levels in (centred_levels(100), inclusive_levels(100)):
                below = (levels * n_members + 1e-9).floor() + 1
                expected = (below / (n_members + 1)).to(dtype)
                torch.testing.assert_close(reliability_curve(pit, levels=levels).frequency[:, 0], expected)


# -- what chance makes of it


def test_null_error_shrinks_like_one_over_the_root_of_the_cases():
    levels = [pce_null(n).mean * n**0.5 for n in (100, 400, 1600, 6400)]
    assert levels == pytest.approx([0.3133] * 4, rel=0.02)


def test_null_of_one_case_is_known():
    z = torch.linspace(0, 1, 20_001, dtype=torch.float64)[:, None, None]
    assert pce_null(1).mean == pytest.approx(pce(z).mean().item(), rel=1e-3)


def test_corrected_error_is_unbiased_for_power_two():
    """Mean over repetitions within four standard errors of the population value, calibrated or not."""
    levels = centred_levels()
    for exponent in (1.0, 1.3):
        z = uniform(4000, 50, 1, seed=5) ** exponent
        estimates = corrected_pce(z, exponent=2)[:, 0]
        exact = (levels - levels ** (1 / exponent)).square().mean()
        assert abs(estimates.mean() - exact) < 4 * estimates.std() / 4000**0.5


def test_corrected_error_of_power_one_removes_most_of_the_chance():
    calibrated = uniform(2000, 100, 1, seed=6)
    assert corrected_pce(calibrated).median().abs() < 0.5 * pce(calibrated).mean()
    far = uniform(200, 100, 1, seed=7) ** 4
    assert corrected_pce(far).mean() == pytest.approx(pce(far).mean().item(), rel=0.02)


def test_p_values_of_one_projection_are_uniform():
    z = uniform(2000, 60, 1, seed=8)
    p = pce_test(z, n_replicates=99).p_value[:, 0]
    for level in (0.01, 0.05, 0.2, 0.5):
        share = (p <= level).double().mean().item()
        # binomial at level 1e-4 per check, and the null's own 50,000 replicates
        error = 3.9 * (level * (1 - level) * (1 / 2000 + 1 / 50_000)) ** 0.5
        assert abs(share - level) < error + 0.01 * level


# -- the interval


@pytest.mark.slow
def test_interval_holds_the_population_error(benchmark_script):
    coverage = benchmark_script("interval")
    cells = [("biased", 0.0, 100), ("biased", 0.02, 100), ("U-shaped", 0.005, 1000), ("hump", 0.1, 100)]
    for family, error, n_cases in cells:
        share, width = coverage.coverage(family, error, n_cases, 200, seed=1)
        assert coverage.acceptable(share, 200, len(cells)), (family, error, n_cases, share)
        assert width < 3 * pce_null(n_cases).quantile(0.95)  # twice the margin, and room for the bootstrap


@pytest.mark.slow
def test_interval_of_several_projections_holds_zero_for_the_true_forecast():
    """Coverage at zero with dependent projections: replicates of the test stand in for the null."""
    from prerank import Marginal

    held = 0
    for seed in range(200):
        x = torch.randn(60, 10, 3, generator=torch.Generator().manual_seed(seed)) + torch.randn(
            60, 10, 1, generator=torch.Generator().manual_seed(seed + 10_000)
        )
        pit = projected_pit(x[:, 0], Ensemble(x[:, 1:]), Marginal(), seed=seed, exchangeable=True)
        null = pce_test(pit, n_replicates=199, seed=seed).replicates[:, 0]
        held += pce_interval(pit, null=null, n_replicates=99, seed=seed).low == 0
    assert held >= 200 * 0.95 - 3.7 * (200 * 0.95 * 0.05) ** 0.5  # binomial, level 1e-4


# -- words


@pytest.mark.parametrize(
    ("stretch", "shift", "words"),
    [
        (1.0, 0.0, "flat"),
        (1.6, 0.0, "over-dispersed"),
        (0.6, 0.0, "under-dispersed"),
        (1.0, 0.5, "biased high"),
        (1.0, -0.5, "biased low"),
    ],
)
def test_trio_exact_too_wide_too_narrow_read_as_flat_hump_and_u(stretch, shift, words):
    generator = torch.Generator().manual_seed(4)
    y, members = torch.randn(800, 3, generator=generator), torch.randn(800, 30, 3, generator=generator)
    pit = projected_pit(y, Ensemble(stretch * members + shift / 3**0.5), Location())
    p_value = float(pce_test(pit).p_value[0])
    assert describe_shape(pit.values[:, 0], p_value) == words
    counts = np.histogram(pit.values[:, 0], bins=5, range=(0, 1))[0]
    if words == "over-dispersed":
        assert counts[2] > counts[0] + 50
    if words == "under-dispersed":
        assert counts[0] > counts[2] + 50
        assert counts[4] > counts[2] + 50


def test_one_heavy_tail_is_named():
    z = uniform(2000, seed=3)
    z[:150] = 0.99 + 0.01 * z[:150]
    assert "upper" in describe_shape(z, 1e-6) or describe_shape(z, 1e-6) == "biased low"


# -- refusals


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pce(torch.rand(5)), r"use pit\[:, None\]"),
        (lambda: pce(torch.rand(0, 2)), "at least one case"),
        (lambda: pce(torch.tensor([[0.5], [float("nan")]])), "1 of 2 PITs are NaN or outside"),
        (lambda: pce(torch.tensor([[1.5]])), "1 of 1 PITs"),
        (lambda: pce(torch.rand(5, 1), case_weights=torch.ones(4)), r"shape \(4,\); one number per case is \(5,\)"),
        (lambda: pce(torch.rand(5, 1), case_weights=-torch.ones(5)), "5 of 5 case_weights are negative"),
        (lambda: pce(torch.rand(5, 1), levels=torch.tensor([0.9, 0.1])), "ascending order"),
        (lambda: centred_levels(0), "at least one"),
        (lambda: inclusive_levels(1), "at least two"),
        (lambda: pce_null(0), "at least one"),
        (lambda: corrected_pce(torch.rand(1, 1)), "at least two cases"),
        (lambda: corrected_pce(torch.rand(5, 1), exponent=3), "exponents 1 and 2, not 3"),
        (lambda: pce_interval(torch.rand(5)), r"shape \(N, K\)"),
        (lambda: pce_interval(torch.rand(5, 1), coverage=95), "coverage=95"),
    ],
)
def test_what_is_not_a_pit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_one_case_has_an_error_a_null_and_an_interval():
    z = torch.tensor([[0.3]])
    assert 0 <= pce(z).item() <= 0.5
    assert 0 < pce_test(z, n_replicates=99).p_value.item() <= 1
    interval = pce_interval(z)
    assert interval.low == 0
    assert interval.high >= interval.estimate
