"""The oracle of a synthetic table is its true law: its PITs are uniform, and those of a wrong law are not."""

import numpy as np
import pytest
import torch
from scipy.integrate import dblquad
from scipy.stats import chi2, kendalltau, kstest, norm

from prerank.datasets import Bimodal, ClaytonDependent, Heteroscedastic
from prerank.datasets.clayton import ClaytonExponential
from prerank.io import DataError

LEVEL = 1e-3  # seeds are fixed, so each test passes for ever; a correct law fails one seed in a thousand
MIXTURES = [Heteroscedastic(1), Heteroscedastic(2), Heteroscedastic(5), Bimodal(1), Bimodal(2), Bimodal(4)]


def location_pit(law, y: np.ndarray, widen: float = 1.0) -> np.ndarray:  # type: ignore[no-untyped-def, type-arg]
    """P(sum of Y <= sum of y) under a Gaussian mixture: the sum is a univariate mixture."""
    weights = torch.softmax(law.logits, -1).numpy()
    mean = law.loc.sum(-1).numpy()
    sd = widen * np.linalg.norm(law.scale_tril.sum(-2).numpy(), axis=-1)
    return (weights * norm.cdf((y.sum(-1, keepdims=True) - mean) / sd)).sum(-1)


@pytest.mark.parametrize("recipe", MIXTURES, ids=str)
def test_the_oracle_of_a_mixture_is_calibrated_and_a_wider_one_is_not(recipe: Heteroscedastic | Bimodal) -> None:
    table = recipe.table(n_cases=4000, seed=1)
    law = recipe.law(table.x)
    assert kstest(location_pit(law, table.y), "uniform").pvalue > LEVEL
    assert kstest(location_pit(law, table.y, widen=1.5), "uniform").pvalue < LEVEL


@pytest.mark.parametrize("n_targets", [2, 5])
def test_whitened_residuals_are_independent_standard_normals(n_targets: int) -> None:
    recipe = Heteroscedastic(n_targets)
    table = recipe.table(n_cases=4000, seed=2)
    _, loc, factor = recipe.parameters(table.x)
    residuals = np.linalg.solve(factor[:, 0], (table.y - loc[:, 0])[..., None])[..., 0]
    assert kstest((residuals**2).sum(axis=1), chi2(n_targets).cdf).pvalue > LEVEL
    correlations = np.corrcoef(residuals.T)[np.triu_indices(n_targets, 1)]
    bound = norm.ppf(1 - LEVEL / (2 * len(correlations))) / np.sqrt(4000)
    assert np.abs(correlations).max() < bound


def test_a_row_of_the_table_has_the_density_of_the_law() -> None:
    recipe = Bimodal(3)
    x = recipe.table(10, seed=0).x
    law = recipe.law(x)
    assert law.log_prob(torch.as_tensor(recipe.table(10, seed=0).y)).shape == (10,)
    assert law.loc.shape == (10, 2, 3)
    assert torch.linalg.cholesky(law.scale_tril @ law.scale_tril.mT).allclose(law.scale_tril)


def test_the_same_seed_gives_the_same_table_and_rows_do_not_depend_on_how_many_there_are() -> None:
    for recipe in (Heteroscedastic(3), Bimodal(3), ClaytonDependent(3)):
        first, again, longer = recipe.table(50, 7), recipe.table(50, 7), recipe.table(80, 7)
        np.testing.assert_array_equal(first.y, again.y)
        np.testing.assert_array_equal(first.y, longer.y[:50])
        assert (first.y != recipe.table(50, 8).y).any()


def test_clayton_margins_are_exponential_and_ranks_follow_kendall() -> None:
    recipe = ClaytonDependent(2)
    table = recipe.table(4000, seed=3)
    law = recipe.law(table.x)
    for levels in law.marginal_cdf(table.y).T:
        assert kstest(levels, "uniform").pvalue > LEVEL
    # Kendall's distribution: P(C(U) <= v) = v + v (1 - v^theta) / theta, so this is uniform if the copula is right
    v, theta = law.cdf(table.y), law.theta
    assert kstest(v + v * (1 - v**theta) / theta, "uniform").pvalue > LEVEL
    wrong = theta / 2
    assert kstest(v + v * (1 - v**wrong) / wrong, "uniform").pvalue < LEVEL


def test_clayton_members_have_the_copulas_tau() -> None:
    law = ClaytonExponential(np.array([2.0]), np.array([[1.0, 3.0, 0.5]]))
    members = law.members(4000, seed=0)
    assert members.shape == (1, 4000, 3)
    tau = kendalltau(members[0, :, 0], members[0, :, 2]).statistic
    assert abs(tau - 0.5) < norm.ppf(1 - LEVEL / 2) * 2 / np.sqrt(4000)  # the sd of tau is below 2 / sqrt(n)


def test_clayton_density_is_the_derivative_of_its_cdf() -> None:
    law = ClaytonExponential(np.array([1.5]), np.array([[1.0, 2.0]]))
    corner, size = np.array([0.7, 1.1]), np.array([0.6, 0.9])
    inside = dblquad(
        lambda b, a: np.exp(law.log_prob([[a, b]]))[0], corner[0], corner[0] + size[0], corner[1], corner[1] + size[1]
    )[0]
    signs = [(1, 1, 1), (1, 0, -1), (0, 1, -1), (0, 0, 1)]
    box = sum(sign * law.cdf([corner + size * (i, j)])[0] for i, j, sign in signs)
    assert inside == pytest.approx(box, rel=1e-7)


def test_clayton_at_its_borders() -> None:
    law = ClaytonExponential(np.array([2.0, 30.0]), np.ones((2, 3)))
    assert law.cdf(np.zeros((2, 3))).tolist() == [0.0, 0.0]
    assert law.cdf(np.full((2, 3), np.inf)).tolist() == [1.0, 1.0]
    assert law.log_prob(np.full((2, 3), -1.0)).tolist() == [-np.inf, -np.inf]
    assert np.isfinite(law.log_prob(np.full((2, 3), 1e-12))).all()


def test_refusals() -> None:
    with pytest.raises(DataError, match=r"x of shape \(N, 2\), unscaled; got \(5, 3\)"):
        Bimodal().law(np.zeros((5, 3)))
    with pytest.raises(DataError, match="n_targets=0"):
        Heteroscedastic(0).table()
    with pytest.raises(DataError, match="n_cases=0"):
        ClaytonDependent().table(0)
    with pytest.raises(DataError, match="must be positive"):
        ClaytonExponential(np.array([0.0]), np.ones((1, 2)))
