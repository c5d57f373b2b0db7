"""A joint forecast from margins: each target keeps the law that was given, and the dependence is that of the past."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import Gamma, Normal, Poisson

from prerank import Location, Scale, check
from prerank.preranks import Contrast
from prerank.recalibration import (
    DistributionMargins,
    EmpiricalCopula,
    GaussianCopula,
    Independence,
    JointFromMargins,
    QuantileMargins,
    margins_kept,
)

LEVELS = torch.tensor([0.01, 0.025, *np.arange(0.05, 0.951, 0.05), 0.975, 0.99]).double()  # those of forecast hubs
SCORES = torch.special.ndtri(LEVELS)


def cases(n_cases: int, correlation: float, seed: int, n_targets: int = 3) -> tuple[QuantileMargins, torch.Tensor]:
    """Gaussian quantiles of a mean and a spread that change from case to case, and observations of that law."""
    rng = np.random.default_rng(seed)
    mean, spread = rng.normal(size=(n_cases, n_targets)), np.exp(0.3 * rng.normal(size=(n_cases, n_targets)))
    apart = np.abs(np.subtract.outer(np.arange(n_targets), np.arange(n_targets)))
    errors = rng.multivariate_normal(np.zeros(n_targets), correlation**apart, n_cases, method="cholesky")
    quantiles = mean[:, None] + spread[:, None] * SCORES.numpy()[None, :, None]
    return QuantileMargins(quantiles, LEVELS), torch.tensor(mean + spread * errors)


def largest_by_chance(n_numbers: int) -> float:
    """What the largest of so many standard normal numbers exceeds once in a million."""
    return float(stats.norm.isf(1e-6 / (2 * n_numbers)))


@pytest.mark.parametrize("dependence", [GaussianCopula(), EmpiricalCopula(), EmpiricalCopula(of_observations=True)])
def test_the_margins_are_kept_whatever_the_dependence(dependence):
    past, y = cases(150, 0.9, 1)
    new, _ = cases(200, 0.9, 2)
    kept = margins_kept(JointFromMargins(dependence).fit(past, y).transform(new), new)
    assert kept.shares.shape == (23, 3)
    assert kept.largest < largest_by_chance(69)


def test_the_true_margins_with_the_dependence_of_the_past_are_calibrated_and_independent_ones_are_not():
    past, y = cases(1500, 0.8, 3)
    new, seen = cases(400, 0.8, 4)
    preranks = [Location(), Scale(), Contrast(0, 2)]
    p_values = {
        type(dependence).__name__: check(
            seen, JointFromMargins(dependence, 40).fit(past, y).transform(new), preranks
        ).p_value
        for dependence in (GaussianCopula(), EmpiricalCopula(), Independence())
    }
    assert p_values["Independence"] <= 0.001
    # what was learnt from 1,500 cases is not the truth to the last digit: no test of 5 %, but of gross errors
    assert min(p_values["GaussianCopula"], p_values["EmpiricalCopula"]) > 0.002


def test_correlations_are_those_of_the_errors_even_where_margins_are_wrong():
    n_cases = 4000
    past, y = cases(n_cases, 0.7, 5)
    for margins in (past, QuantileMargins(past.quantiles, LEVELS**1.5)):  # the second biased and of the wrong spread
        found = JointFromMargins().fit(margins, y).dependence_.correlation
        for pair, truth in (((0, 1), 0.7), ((0, 2), 0.49), ((1, 2), 0.7)):
            assert abs(float(found[pair]) - truth) < 5 * (1 - truth**2) / n_cases**0.5 + 0.01


def test_the_shrinkage_is_the_published_one():
    """Schäfer and Strimmer (2005), written out for one matrix."""
    generator = torch.Generator().manual_seed(6)
    levels = torch.rand(30, 4, generator=generator, dtype=torch.float64)
    fitted = GaussianCopula().fit(levels, levels)
    ranks = stats.rankdata(levels.numpy(), axis=0)
    x = stats.norm.ppf(ranks / 31)
    x = (x - x.mean(0)) / x.std(0)
    above, below = 0.0, 0.0
    for i in range(4):
        for j in range(4):
            if i != j:
                products = x[:, i] * x[:, j]
                above += 30 / 29**3 * ((products - products.mean()) ** 2).sum()
                below += products.mean() ** 2
    assert fitted.shrinkage == pytest.approx(min(1.0, above / below))
    assert float(fitted.correlation[0, 1]) == pytest.approx((1 - fitted.shrinkage) * (x[:, 0] * x[:, 1]).mean())


def test_a_dependence_without_correlation_is_seen_by_ranks_only():
    rng = np.random.default_rng(7)
    first = rng.normal(size=2000)
    y = np.stack([first, stats.norm.ppf(2 * np.abs(stats.norm.cdf(first) - 0.5))], 1)  # uncorrelated, both normal
    law = Normal(torch.zeros(2000, 2), 1.0)
    new = Normal(torch.zeros(4000, 2), 1.0)
    by_ranks, by_correlation = (
        JointFromMargins(dependence, 2).fit(law, y).transform(new).members[:, 0].numpy()
        for dependence in (EmpiricalCopula(), GaussianCopula())
    )
    true = stats.spearmanr(np.abs(y[:, 0]), y[:, 1]).statistic
    assert stats.spearmanr(np.abs(by_ranks[:, 0]), by_ranks[:, 1]).statistic > true - 0.05
    assert abs(stats.spearmanr(np.abs(by_correlation[:, 0]), by_correlation[:, 1]).statistic) < 5 / 4000**0.5


def test_the_schaake_shuffle_takes_the_ranks_of_observations():
    """Past observations that rise together give draws that do, whatever their errors."""
    mean = torch.arange(50.0).double()[:, None].expand(-1, 2)
    y = mean + torch.tensor([0.3, -0.3]) * torch.tensor([1.0, -1.0]).repeat(25)[:, None]  # errors of opposite sign
    law = Normal(mean, 0.1)
    errors, observations = (
        JointFromMargins(EmpiricalCopula(of_observations=own), 60).fit(law, y).dependence_.ranks
        for own in (False, True)
    )
    assert torch.equal(observations[:, 0], torch.arange(50))
    assert float(torch.corrcoef(observations.double().mT)[0, 1]) > 0.99
    assert float(torch.corrcoef(errors.double().mT)[0, 1]) < -0.7


def test_gaussian_quantiles_give_a_gaussian_with_its_tails():
    margins = QuantileMargins(SCORES[None, :, None] * 2 + 5, LEVELS)
    probabilities = torch.tensor([1e-6, 0.003, 0.01, 0.3, 0.97, 0.9999]).double()[None, :, None]
    assert margins.values(probabilities) == pytest.approx(5 + 2 * torch.special.ndtri(probabilities))
    y = torch.tensor([[-7.0]])
    below, up_to = margins.levels_of(y)
    assert float(below) == float(up_to) == pytest.approx(stats.norm.cdf(-6))


def test_values_and_levels_are_inverse_also_at_atoms_and_bounds():
    rng = np.random.default_rng(8)
    quantiles = np.sort(np.round(rng.normal(1.0, 2.0, size=(40, 23, 2))), axis=1).clip(0)  # many equal, many zero
    for bounds in ({}, {"lower": 0.0}, {"lower": 0.0, "upper": 3.0}):
        margins = QuantileMargins(quantiles, LEVELS, **bounds)
        u = torch.rand(40, 30, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        values = margins.values(u)
        for k in range(30):
            below, up_to = margins.levels_of(values[:, k])
            assert bool((below <= u[:, k] + 1e-9).all())
            assert bool((u[:, k] <= up_to + 1e-9).all())
    assert float(values.min()) == 0.0
    assert float(values.max()) == 3.0
    assert torch.equal(
        QuantileMargins(quantiles[:, ::-1].copy(), LEVELS).quantiles, QuantileMargins(quantiles, LEVELS).quantiles
    )


def test_margins_with_atoms_are_kept_too():
    rng = np.random.default_rng(9)
    rate = rng.gamma(2.0, 1.0, size=(300, 2))
    y = rng.poisson(rate)
    law = stats.poisson(rate)
    joint = JointFromMargins(EmpiricalCopula(), 50).fit(law, y).transform(law)
    assert bool((joint.members == joint.members.round()).all())
    assert margins_kept(joint, law).largest < largest_by_chance(18)


def test_distributions_of_torch_and_scipy_are_the_same_margins():
    mean = torch.randn(60, 2, generator=torch.Generator().manual_seed(2)).double()
    y = mean + 1.0
    joints = [
        JointFromMargins(seed=3).fit(law, y).transform(law)
        for law in (Normal(mean, 2.0), stats.norm(mean.numpy(), 2.0))
    ]
    assert torch.allclose(joints[0].members, joints[1].members)


def test_the_seed_and_nothing_else_decides_the_draws():
    past, y = cases(60, 0.5, 10)
    state = torch.get_rng_state()
    first, again, other = (JointFromMargins(seed=seed).fit(past, y).transform(past).members for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_cases_without_an_observation_are_left_out():
    past, y = cases(80, 0.5, 11)
    y[10:30, 1] = torch.nan
    fitted = JointFromMargins().fit(past, y)
    assert fitted.dependence_.n_cases == 60
    assert "60 cases" in fitted.summary()


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda p, y: QuantileMargins(p.quantiles.movedim(1, 2), LEVELS), ValueError, "put the axis of levels second"),
        (lambda p, y: QuantileMargins(p.quantiles, LEVELS.flip(0)), ValueError, "each above the one before"),
        (lambda p, y: QuantileMargins(p.quantiles[:, :1], [0.5]), ValueError, "at least two"),
        (lambda p, y: QuantileMargins(p.quantiles * torch.nan, LEVELS), ValueError, "are missing or infinite"),
        (lambda p, y: QuantileMargins(p.quantiles, LEVELS, 1.0, 0.0), ValueError, "lower=1.0 is not below upper=0.0"),
        (lambda p, y: JointFromMargins().fit(p.quantiles, y), TypeError, "has no levels"),
        (lambda p, y: JointFromMargins().fit(p, y[:, :2]), ValueError, "the margins have 80 cases and 3 targets"),
        (lambda p, y: JointFromMargins().fit(p, y * torch.nan), ValueError, "0 complete past cases"),
        (lambda p, y: JointFromMargins().transform(p), ValueError, "not fitted yet"),
        (
            lambda p, y: JointFromMargins().fit(p, y).transform(Normal(torch.zeros(5, 2), 1.0)),
            ValueError,
            "have 2 targets",
        ),
        (lambda p, y: JointFromMargins("gaussian"), TypeError, "GaussianCopula()"),
        (lambda p, y: DistributionMargins(Normal(torch.zeros(5), 1.0)), ValueError, "batch shape (5,)"),
        (lambda p, y: DistributionMargins(Poisson(torch.ones(5, 2))), TypeError, "SciPy"),
        (lambda p, y: DistributionMargins(Gamma(torch.ones(5, 2), 1.0)), TypeError, "no quantile function in torch"),
        (lambda p, y: DistributionMargins(stats.norm(0, 1)), ValueError, "(cases, targets)"),
        (lambda p, y: DistributionMargins("normal"), TypeError, "no cdf"),
    ],
)
def test_what_does_not_fit_is_refused(wrong, error, words):
    past, y = cases(80, 0.5, 12)
    with pytest.raises(error) as raised:
        wrong(past, y)
    assert words in str(raised.value)
