"""Agreement with values that other software computed (tests/golden/README.md says which, and how exact they are)."""

import numpy as np
import pytest
import torch
from scipy import stats

from prerank import (
    HDR,
    PCA,
    Copula,
    Dependency,
    Ensemble,
    GaussianMixture,
    Location,
    Marginal,
    Scale,
    pce_null,
    projected_pit,
    reliability_band,
)
from prerank.calibration import RandomisedRank, centred_levels, chi_square_test, inclusive_levels, ks_test
from prerank.preranks import DistributionView, principal_directions
from prerank.preranks.point_density import joint_cdf
from prerank.preranks.rank_counts import weight_below_and_at

EXACT = {"rtol": 1e-10, "atol": 1e-12}
STANDARD_ERRORS = 4
CASES = ["case_gauss_d2", "case_gauss_d5", "case_gauss_d10", "case_ties_d5", "case_skew_d5", "case_long_d2"]


@pytest.fixture(scope="module")
def closed(golden):
    return {name: torch.from_numpy(value) for name, value in golden("closed_form.npz").items()}


def mixture(closed, prefix):
    return GaussianMixture(closed[f"{prefix}_w"].log(), closed[f"{prefix}_mu"], closed[f"{prefix}_L"])


@pytest.fixture(scope="module")
def mix(closed):
    return mixture(closed, "mix")


@pytest.fixture(scope="module")
def draws(mix):
    return mix.ensemble(40_000, seed=1).members


def share_at_or_below(projection, draws, y):
    return (projection(draws) <= projection(y[:, None])).double().mean(-2)[..., 0]


def assert_within_standard_errors(found, expected, n_draws, other_error=0.0):
    error = (expected * (1 - expected) / n_draws + other_error**2).sqrt()
    assert ((found - expected).abs() <= STANDARD_ERRORS * error + 1.0 / n_draws).all()


# -- closed forms of a Gaussian mixture


def test_moments_density_and_principal_directions(closed, mix):
    torch.testing.assert_close(mix.mean, closed["mix_mean"], **EXACT)
    torch.testing.assert_close(mix.covariance_matrix, closed["mix_cov"], **EXACT)
    torch.testing.assert_close(mix.log_prob(closed["mix_y"]), closed["mix_logpdf"], **EXACT)
    torch.testing.assert_close(principal_directions(mix.covariance_matrix), closed["mix_pca_vec"], **EXACT)


@pytest.mark.parametrize(
    ("prerank", "name"),
    [(Marginal(), "marginal"), (Location(), "location"), (PCA(), "pca")],
    ids=lambda value: str(value),
)
def test_pits_of_linear_preranks(closed, mix, prerank, name):
    pit = projected_pit(closed["mix_y"], mix, prerank)
    assert pit.method == "closed form"
    torch.testing.assert_close(pit.values, closed[f"mix_pit_{name}"].reshape(pit.values.shape), **EXACT)


def test_pit_along_any_direction(closed, mix):
    direction = closed["mix_direction"][..., None]
    values = mix.cdf_along(direction, closed["mix_y"][:, None] @ direction)
    torch.testing.assert_close(values[:, 0, 0], closed["mix_pit_direction"], **EXACT)


@pytest.mark.parametrize(("prerank", "name"), [(Scale(), "scale"), (Dependency(), "dependency")], ids=lambda v: str(v))
def test_quadratic_preranks_and_their_pits(closed, mix, draws, prerank, name):
    projection = prerank.given(mix)
    torch.testing.assert_close(projection(closed["mix_y"][:, None])[:, 0, 0], closed[f"mix_{name}"], **EXACT)
    found = share_at_or_below(projection, draws, closed["mix_y"])
    assert_within_standard_errors(found, closed[f"mix_pit_{name}"], draws.shape[1])


def test_density_pits_of_a_mixture(closed, mix, draws):
    found = share_at_or_below(HDR().given(mix), draws, closed["mix_y"])
    assert_within_standard_errors(found, closed["mix_pit_hdr_mc"], draws.shape[1], closed["mix_pit_hdr_mc_se"])


def test_density_pits_of_a_gaussian_are_chi_square(closed):
    law = GaussianMixture(torch.zeros(20, 1), closed["g_mu"][:, None], closed["g_L"][:, None])
    torch.testing.assert_close(law.log_prob(closed["g_y"]), closed["g_logpdf"], **EXACT)
    found = share_at_or_below(HDR().given(law), law.ensemble(40_000, seed=2).members, closed["g_y"])
    assert_within_standard_errors(found, closed["g_pit_hdr"], 40_000)


def test_joint_cdf_of_two_targets(closed):
    law = mixture(closed, "biv")
    found = joint_cdf(closed["biv_y"][:, None], law.ensemble(100_000, seed=3).members)[:, 0]
    assert_within_standard_errors(found, closed["biv_cdf"], 100_000)


def kendall(covariance, levels, expected, n_points=4_000, n_reference=20_000):
    """Our P(F(Y) <= t) against the exact one: points and reference draws both add error, the latter through dK/dt."""
    law = GaussianMixture(
        torch.zeros(1, 1), torch.zeros(1, 1, len(covariance)), torch.linalg.cholesky(covariance)[None, None]
    )
    projection = Copula(n_reference).given(DistributionView(law, seed=4))
    values = projection(law.ensemble(n_points, seed=5).members)[0, :, 0]
    found = (values[:, None] <= levels + 0.5 / n_reference).double().mean(0)
    slope = torch.gradient(expected, spacing=(levels,))[0]
    reference_error = slope * (levels * (1 - levels) / n_reference).sqrt()
    assert_within_standard_errors(found, expected, n_points, reference_error)


@pytest.mark.parametrize("row", range(4))
def test_law_of_the_copula_prerank_for_correlated_normals(closed, row):
    rho = float(closed["kendall_rho"][row])
    covariance = torch.tensor([[1.0, rho], [rho, 1.0]], dtype=torch.float64)
    kendall(covariance, closed["kendall_t"], closed["kendall_bvn"][row])


@pytest.mark.parametrize("row", range(4))
def test_law_of_the_copula_prerank_for_independent_targets(closed, row):
    covariance = torch.eye(int(closed["kendall_indep_D"][row]), dtype=torch.float64)
    kendall(covariance, closed["kendall_t"], closed["kendall_indep"][row])


# -- pre-ranks and ranks of ensembles


@pytest.fixture(params=CASES)
def case(request, golden):
    arrays = golden(f"{request.param}.npz")
    y, members = torch.from_numpy(arrays["obs"]).double(), torch.from_numpy(arrays["ens"]).double()
    return arrays, y, members


def prerank_values(arrays, name):
    return torch.from_numpy(np.asarray(arrays[f"mc_{name}"], dtype=float))


def test_location_scale_and_dependency_are_those_of_multivcalibration(case):
    arrays, y, members = case
    points = torch.cat([y[:, None], members], 1)
    law = Ensemble(points)
    d = law.n_targets
    torch.testing.assert_close(
        Location().given(law)(points)[..., 0], prerank_values(arrays, "mean"), rtol=1e-9, atol=1e-12
    )
    torch.testing.assert_close(
        Scale().given(law)(points)[..., 0] * d / (d - 1), prerank_values(arrays, "variance"), rtol=1e-9, atol=1e-12
    )
    if d > 2:
        expected = prerank_values(arrays, "variogram_h1")
        defined = expected.isfinite()  # 0 / 0 there; ours is 0 by convention
        # the package's sum is 8 (D - 1) times the paper's, and its variance has divisor D - 1
        found = Dependency().given(law)(points)[..., 0] * 8 * (d - 1) * (d - 1) / d
        torch.testing.assert_close(found[defined], expected[defined], rtol=1e-9, atol=1e-9)
        assert (found[~defined] == 0).all()


def test_pooled_joint_cdf_is_the_multivariate_rank(case):
    arrays, y, members = case
    points = torch.cat([y[:, None], members], 1)
    torch.testing.assert_close(
        joint_cdf(points, points) * points.shape[1], prerank_values(arrays, "multivariate_rank"), rtol=0, atol=1e-9
    )


def test_joint_cdf_of_the_members_is_that_of_forecastcalibration(case):
    arrays, y, members = case
    found = joint_cdf(y[:, None], members)[:, 0]
    torch.testing.assert_close(found, torch.from_numpy(arrays["fc_copula_Hy"]).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("prerank", "name"),
    [(Location(), "mean"), (Scale(), "variance"), (Dependency(), "variogram_h1"), (Copula(), "multivariate_rank")],
    ids=lambda value: str(value),
)
def test_randomised_ranks_lie_between_the_lowest_and_the_highest_rank_that_ties_allow(case, prerank, name, seed):
    arrays, y, members = case
    if isinstance(prerank, Dependency) and y.shape[-1] == 2:
        return  # refused for two targets
    lowest, highest = torch.from_numpy(arrays[f"mcrank_{name}"]).long().T
    z = projected_pit(y, Ensemble(members), prerank, RandomisedRank(), seed=seed).values[:, 0]
    rank = (z * (members.shape[1] + 1)).ceil().long()
    defined = lowest > 0
    assert ((lowest <= rank) & (rank <= highest))[defined].all()
    # without a draw the rank is the interval itself
    pit = projected_pit(y, Ensemble(members), prerank)
    ends = torch.stack([pit.lower[:, 0], pit.upper[:, 0]]) * (members.shape[1] + 1)
    torch.testing.assert_close(ends[0][defined], lowest[defined].double() - 1)
    torch.testing.assert_close(ends[1][defined], highest[defined].double())


@pytest.mark.parametrize("name", ["case_long_d2", "case_ties_d5"])
def test_members_strictly_below_are_those_of_sbi(golden, name):
    arrays = golden(f"{name}.npz")
    y, members = torch.from_numpy(arrays["obs"]).double(), torch.from_numpy(arrays["ens"]).double()
    below, _ = weight_below_and_at(y, members, None)
    assert torch.equal(below.long(), torch.from_numpy(arrays["sbi_rank_marginals"]).long())


# -- null distributions, bands and tests


GRIDS = {"centred": centred_levels(100), "linspace": inclusive_levels(100)}
QUANTILES = {"q50": 0.5, "q90": 0.1, "q95": 0.05, "q99": 0.01}


def assert_null(null, expected):
    assert null.mean == pytest.approx(expected["expected"], rel=1e-9)
    for name, tail in QUANTILES.items():
        # the share of our replicates beyond their quantile; both samples err, and a discrete law has atoms there
        q = expected[name]
        above, at = (null.sample > q + 1e-9).mean(), (np.abs(null.sample - q) <= 1e-9).mean()
        error = (tail * (1 - tail) * (1 / len(null.sample) + 1 / 200_000)) ** 0.5
        assert above - STANDARD_ERRORS * error <= tail <= above + at + STANDARD_ERRORS * error


@pytest.mark.slow
@pytest.mark.parametrize("grid", list(GRIDS))
def test_null_of_continuous_pits(golden, grid):
    for n_cases, expected in golden("pce_null.json")["continuous"][grid].items():
        assert_null(pce_null(int(n_cases), levels=GRIDS[grid]), expected)


@pytest.mark.parametrize("grid", list(GRIDS))
def test_null_of_unrandomised_ranks(golden, grid):
    for n_cases, expected in golden("pce_null.json")["discrete"][grid]["M=20"]["k/M"].items():
        if n_cases != "limit_n_infinite":
            assert_null(pce_null(int(n_cases), levels=GRIDS[grid], n_members=20, unrandomised=True), expected)


@pytest.mark.parametrize("coverage", [90, 95, 99])
@pytest.mark.parametrize("n_cases", [50, 100, 250])
def test_simultaneous_bands_are_those_of_arviz(golden, n_cases, coverage):
    """Limits differ by one count at most, and where they do ours are the wider ones.

    arviz-stats counts the curve that touches a limit as outside when it tunes the pointwise level, so that its band
    holds 0.5 to 1.5 points less often than stated (60,000 fresh curves); ours holds as often as stated.
    """
    arrays = golden("sequences.npz")
    points, lower, upper = arrays[f"arviz_band_n{n_cases}_ci{coverage}"]
    band = reliability_band(n_cases, coverage / 100, levels=torch.from_numpy(points))
    inside = slice(1, -1)  # at 0 and 1 every curve is right
    for wider in ((lower - band.lower.numpy())[inside], (band.upper.numpy() - upper)[inside]):
        assert wider.min() >= -1e-9
        assert wider.max() <= 1 / n_cases + 1e-9
    curves = np.random.default_rng(n_cases).multinomial(n_cases, np.full(n_cases, 1 / n_cases), 20_000).cumsum(1)
    frequency = curves[:, :-1] / n_cases
    held = ((frequency >= band.lower.numpy()[inside] - 1e-9) & (frequency <= band.upper.numpy()[inside] + 1e-9)).all(1)
    nominal = coverage / 100
    error = (nominal * (1 - nominal) * (1 / 20_000 + 1 / 50_000)) ** 0.5
    assert held.mean() >= nominal - STANDARD_ERRORS * error


def test_kolmogorov_smirnov_and_chi_square_are_those_of_scipy(golden):
    arrays = golden("sequences.npz")
    names = [name.removeprefix("scipy_ks_") for name in arrays if name.startswith("scipy_ks_")]
    assert len(names) > 5
    for name in names:
        pit = torch.from_numpy(arrays[f"z_{name}"])[:, None]
        assert ks_test(pit).item() == pytest.approx(arrays[f"scipy_ks_{name}"][1], rel=1e-6, abs=1e-300)
        expected = arrays[f"scipy_chi2_10bins_{name}"][1]
        assert chi_square_test(pit).item() == pytest.approx(expected, rel=1e-6, abs=1e-300)


def test_ranks_of_counts_agree_with_scipys_chi_square(golden):
    arrays = golden("sequences.npz")
    for name in ("unif", "skew", "u"):
        pit = torch.from_numpy((arrays[f"r_{name}"] - 0.5) / 21)[:, None]
        found = chi_square_test(pit, n_bins=21).item()
        assert found == pytest.approx(stats.chisquare(arrays[f"counts_r_{name}"]).pvalue, rel=1e-9, abs=1e-300)
