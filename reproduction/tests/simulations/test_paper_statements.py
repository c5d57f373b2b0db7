"""Statements of the paper that follow from mathematics: which hold, which hold in part, and which do not."""

import pytest
import torch

from builders import normal
from prerank.calibration import inclusive_levels, pce, projected_pit
from prerank.forecasts import Ensemble, GaussianMixture
from prerank.preranks import PCA, Copula, Location, Marginal, Scale
from prerank_paper.published.statistic import plotted_statistic, printed_statistic
from prerank_paper.simulations.claims import component_distortions
from prerank_paper.simulations.scenarios import RANGES, SCRAMBLE, STRUCTURE, gaussian_field, gaussian_vector


def mixture(n_cases, n_targets, seed=0):
    factor = 0.3 * normal(n_cases, 2, n_targets, n_targets, seed=seed).tril(-1) + torch.diag(
        torch.arange(1, n_targets + 1, dtype=torch.float64)
    )
    return GaussianMixture(normal(n_cases, 2, seed=seed + 1), normal(n_cases, 2, n_targets, seed=seed + 2), factor)


def mapped(law, matrix):
    """The law of A y."""
    covariance = matrix @ (law.scale_tril @ law.scale_tril.mT) @ matrix.mT
    return GaussianMixture(law.logits, law.loc @ matrix.mT, torch.linalg.cholesky(covariance))


def up_to_mirror(z, other):
    return float(torch.minimum((z - other).abs(), (1 - z - other).abs()).max())


ORDER = [2, 0, 3, 1]


class TestEquivarianceOfPCA:
    """Section 4: centring, linear rescaling, orthogonal maps, relabelling of coordinates."""

    law, y = mixture(40, 4), 2.0 * normal(40, 4, seed=5)
    z = projected_pit(y, law, PCA()).values

    def after(self, matrix):
        return projected_pit(self.y @ matrix.mT, mapped(self.law, matrix), PCA()).values

    def test_relabelling_the_targets_changes_nothing(self):
        permutation = torch.eye(4, dtype=torch.float64)[ORDER]
        assert up_to_mirror(self.z, self.after(permutation)) < 1e-8

    def test_rotating_the_targets_changes_nothing(self):
        rotation = torch.linalg.qr(normal(4, 4, seed=8)).Q
        assert up_to_mirror(self.z, self.after(rotation)) < 1e-8

    def test_a_common_unit_changes_nothing(self):
        assert up_to_mirror(self.z, self.after(7.0 * torch.eye(4, dtype=torch.float64))) < 1e-8

    def test_units_of_single_targets_do_change_it(self):
        """Principal components are not those of the correlation: "linear re-scaling" holds for a common factor only."""
        units = torch.diag(torch.tensor([1.0, 20.0, 0.1, 5.0], dtype=torch.float64))
        assert up_to_mirror(self.z, self.after(units)) > 0.1

    def test_the_directions_of_members_follow_a_relabelling_too(self):
        x = normal(30, 25, 4, seed=3) * torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)
        pits = [projected_pit(p[:, 0], Ensemble(p[:, 1:]), PCA()) for p in (x, x[..., ORDER])]
        ranks = [pit.values for pit in pits]
        assert up_to_mirror(*ranks) < 1e-12


@pytest.mark.parametrize("n_targets", [2, 5, 16])
def test_marginal_and_pca_have_as_many_projections_as_targets_and_the_others_one(n_targets):
    """Section 4 says so of marginal alone; PCA needs fewer only where one asks for fewer."""
    law = mixture(3, n_targets)
    y = normal(3, n_targets, seed=4)
    width = {item.name: projected_pit(y, law, item, n_draws=20).values.shape[-1] for item in (Marginal(), PCA())}
    assert width == {"marginal": n_targets, "PCA": n_targets}
    assert projected_pit(y, law, PCA(n_components=2)).values.shape[-1] == 2
    for item in (Location(), Scale(), Copula()):
        assert projected_pit(y, law, item, n_draws=20).values.shape[-1] == 1


def test_simulation_1_has_the_misspecifications_of_the_papers_table():
    """Mean ±0.5; variance 1 ± 0.75; range 1 ± 0.7; spectrum and structure with mean 0."""
    found = {scenario.name: scenario for scenario in gaussian_vector().scenarios}
    distance = (torch.arange(10)[:, None] - torch.arange(10)).abs().to(torch.float64)
    true = torch.exp(-distance)

    def close(name, mean, covariance):
        scenario = found[name]
        assert torch.allclose(scenario.mean.double(), torch.full((10,), mean, dtype=torch.float64))
        assert torch.allclose(scenario.covariance.double(), covariance, atol=1e-6)

    for name, mean in (("mean +0.5", 0.5), ("mean −0.5", -0.5)):
        close(name, mean, true)
    for name, variance in (("variance ×1.75", 1.75), ("variance ×0.25", 0.25)):
        close(name, 0.0, variance * true)
    for name, length in (("range 0.3", 0.3), ("range 1.7", 1.7)):
        close(name, 0.0, torch.exp(-distance / length))
    for name in ("PCA scramble", "PCA structure"):
        assert not found[name].mean.any()
        assert not torch.allclose(found[name].covariance.double(), true, atol=1e-2)
    scrambled = found["PCA scramble"].covariance.double()
    assert float(scrambled.trace()) == pytest.approx(10.0)


class TestPrintedStatistic:
    """Appendix D: the statistic as printed averages PCEs of single PITs."""

    u = torch.rand(4000, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def test_it_is_the_second_moment_about_the_middle(self):
        expected = 0.25 + (self.u - 0.5).square().mean(0)
        assert torch.allclose(printed_statistic(self.u), expected, atol=2e-4)

    def test_under_calibration_it_is_a_third_and_not_the_plotted_value(self):
        error = 0.0745 / 4000**0.5  # standard deviation of (u - 1/2)², over the root of the cases
        assert float(printed_statistic(self.u)) == pytest.approx(1 / 3, abs=4 * error + 2e-4)
        assert float(plotted_statistic(self.u)) < 0.02
        assert torch.equal(plotted_statistic(self.u), pce(self.u, levels=inclusive_levels()))

    def test_it_falls_for_a_forecast_that_is_too_wide_while_the_plotted_one_rises(self):
        too_wide = 0.5 + 0.5 * (self.u - 0.5)
        assert float(printed_statistic(too_wide)) < float(printed_statistic(self.u)) - 0.05
        assert float(plotted_statistic(too_wide)) > float(plotted_statistic(self.u)) + 0.05


def test_the_leading_component_alone_is_the_most_distorted_in_two_covariance_mistakes_of_eleven():
    """Section 4 says that leading components concentrate the directions of misspecification."""
    leading, tied, mistakes = [], [], 0
    for simulation in (gaussian_vector(), gaussian_field()):
        for error, own in component_distortions(simulation).groupby("error"):
            mistakes += 1
            first, largest = own["distortion"].iloc[0], own["distortion"].iloc[1:].max()
            if first > largest * (1 + 1e-3):
                leading.append((simulation.name, error))
            elif first == pytest.approx(largest, rel=1e-3):
                assert own["distortion"].iloc[-1] == pytest.approx(largest)  # with the last component
                tied.append(error)
    assert mistakes == 11
    assert set(leading) == {("simulation-2", error) for error in RANGES}
    assert sorted(tied) == sorted([SCRAMBLE, SCRAMBLE, STRUCTURE, STRUCTURE])
