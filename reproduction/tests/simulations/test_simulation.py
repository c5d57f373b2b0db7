"""The exact study is flat for a true forecast and not for a wrong one; the published way is not even for a true one."""

import numpy as np
import pytest
import torch
from scipy import stats

from prerank.calibration import pce_test
from prerank_paper.simulations.diagnostics import exact_diagnostics, power_diagnostics
from prerank_paper.simulations.draws import draw_noise, scenario_pits
from prerank_paper.simulations.power import FULL_POWER, PowerDesign, repetitions_of, run_power
from prerank_paper.simulations.scenarios import Form, Simulation, gaussian_field, gaussian_vector
from prerank_paper.simulations.simulation import AS_PUBLISHED, EXACT, histogram_band, rank_counts, run_simulation


def only(simulation: Simulation, *errors: str) -> Simulation:
    chosen = tuple(s for s in simulation.scenarios if s.error in errors and s.form is Form.PAPER)
    return Simulation(simulation.name, simulation.title, simulation.covariance, chosen)


@pytest.fixture(scope="module")
def first():
    return run_simulation(only(gaussian_vector(), "well specified", "variance ×1.75", "range 1.7"), 1000, seed=1)


def test_p_values_of_a_true_forecast_are_uniform_for_every_prerank():
    repetitions, cases = 80, 50
    simulation = only(gaussian_vector(), "well specified").to("cpu", torch.float64)
    noise = draw_noise(simulation, torch.arange(repetitions * cases), 20, seed=3)
    diagnostics = exact_diagnostics(10)
    pits = scenario_pits(simulation, simulation.scenarios[0], noise, diagnostics, 3)
    for name, pit in pits.items():
        test = pce_test(repetitions_of(pit, cases, slice(0, repetitions)), n_replicates=99)
        p_values = test.p_value[:, 0].numpy()
        # seven pre-ranks: each is tested at 0.1 % / 7, so that a correct build fails once in a thousand seeds
        assert stats.kstest(p_values, "uniform").pvalue > 0.001 / len(diagnostics), name


def test_exact_study_is_flat_where_it_should_be(first):
    exact = first.tests[first.tests["protocol"] == EXACT].set_index(["scenario", "prerank"])["p_value"]
    assert (exact["well specified"] > 0.001).all()
    assert exact["variance ×1.75", "scale"] < 0.01
    assert exact["variance ×1.75", "dependency"] == exact["well specified", "dependency"]  # blind to a common scale
    assert exact["range 1.7", "dependency"] < 0.01


def test_published_way_makes_a_true_forecast_look_wrong(first):
    published = first.tests[first.tests["protocol"] == AS_PUBLISHED].set_index(["scenario", "prerank"])
    true = published.loc["well specified"]
    assert true.loc["PCA", "p_value"] < 0.001
    assert true.loc["copula", "p_value"] < 0.001
    assert true.loc["copula", "pce"] > 0.4  # against 0.42 known for D = 10 and M = 20
    assert true.loc[["marginal", "location", "scale", "dependency", "HDR"], "p_value"].min() > 0.001


def test_histograms_count_every_case_once(first):
    totals = first.histograms.groupby(["protocol", "scenario", "prerank", "projection"])["count"].sum()
    assert (totals == 1000).all()
    assert first.histograms["bin"].max() == 20


def test_numbers_do_not_depend_on_other_scenarios(first):
    alone = run_simulation(only(gaussian_vector(), "range 1.7"), 1000, seed=1).tests
    together = first.tests[first.tests["scenario"] == "range 1.7"].reset_index(drop=True)
    assert np.allclose(alone["pce"], together["pce"], rtol=0, atol=1e-12)


def test_randomised_and_empirical_ranks_fill_the_same_bins():
    ranks = torch.arange(21, dtype=torch.float32)[:, None]
    assert (rank_counts((ranks + 0.5) / 21, 20) == 1).all()
    assert (rank_counts(ranks / 20, 20, randomised=False) == 1).all()


def test_band_holds_together_as_often_as_it_says():
    lower, upper = histogram_band(1000, 21)
    counts = np.random.default_rng(7).multinomial(1000, np.full(21, 1 / 21), size=2000) * 21 / 1000
    covered = ((counts >= lower) & (counts <= upper)).all(1).sum()
    # discreteness makes the band a little wide, never narrow: three standard errors below 95 %
    assert covered / 2000 > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 2000)
    assert histogram_band(1000, 21, 25)[1] > upper


def test_power_is_the_share_of_repetitions_that_the_test_rejects():
    simulation = only(gaussian_vector(), "well specified", "PCA scramble")
    design = PowerDesign(sizes=(100, 300), n_cases=4000, repetitions=30, n_null=99, block=2000)
    power = run_power(simulation, design, seed=2)
    rates = power.set_index(["scenario", "prerank", "n_cases"])["rejection_rate"]
    assert set(power["repetitions"]) == {30, 12}  # at most 15 and 6 of each block
    moved = simulation.to("cpu", torch.get_default_dtype())
    chosen = [diagnostic for diagnostic in power_diagnostics(10) if diagnostic.name in ("PCA", "scale")]
    blocks = [draw_noise(moved, torch.arange(2000) + start, 20, 2) for start in (0, 2000)]
    for scenario in moved.scenarios:
        for name in ("PCA", "scale"):
            pits = [scenario_pits(moved, scenario, noise, chosen, 2)[name] for noise in blocks]
            for size, count in ((100, 15), (300, 6)):
                sets = [repetitions_of(pit, size, slice(0, count)) for pit in pits]
                tests = [pce_test(both, n_replicates=99, seed=2) for both in sets]
                rejected = torch.cat([test.p_value for test in tests]) <= 0.05
                assert rates[scenario.name, name, size] == float(rejected.double().mean())
    # nine diagnostics at two sizes: a true forecast is rejected more often in one of a thousand seeds
    for size, count in ((100, 30), (300, 12)):
        assert rates["well specified", :, size].max() <= stats.binom.ppf(1 - 0.001 / 18, count, 0.05) / count
    assert rates["PCA scramble", "dependency", 300] == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: run_simulation(s, 0), "0 cases"),
        (lambda s: run_simulation(s, 10, n_members=1), "1 members"),
        (lambda s: run_simulation(s, 10, n_replicates=9), "cannot reject"),
        (lambda s: run_power(s, FULL_POWER._replace(n_cases=500)), "N = 10000 is larger"),
        (lambda s: run_power(s, FULL_POWER._replace(n_null=5)), "at least 1 and 19"),
    ],
)
def test_sizes_that_cannot_work_are_refused_early(call, message):
    with pytest.raises(ValueError, match=message):
        call(gaussian_vector())


def test_both_simulations_have_every_scenario_in_both_forms():
    one, two = gaussian_vector(), gaussian_field()
    assert [len(one.scenarios), len(two.scenarios)] == [13, 14]
    for simulation in (one, two):
        for scenario in simulation.scenarios:
            kept = torch.equal(scenario.covariance.diagonal(), simulation.covariance.diagonal())
            assert kept or scenario.form is Form.PAPER
