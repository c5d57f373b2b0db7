"""Both protocols in one table: every number is that of the function it comes from, and the published ones mislead."""

import pytest
import torch

from prerank.calibration import pce, pce_null, projected_pit
from prerank.datasets import Bimodal
from prerank.forecasts import GaussianMixture
from prerank.preranks import HDR, PCA, Copula, Location, Marginal, Scale
from prerank.scores import Fair, TwoSets, energy_score
from prerank.training import evaluate
from prerank_paper.evaluation import evaluate_both, exact_tests
from prerank_paper.published import published_expected_pce, published_pce, published_pits


@pytest.fixture(scope="module")
def truth():
    table = Bimodal(3).table(700, seed=3)
    return Bimodal(3).law(table.x), torch.from_numpy(table.y)


def test_every_number_is_that_of_the_function_it_comes_from(truth):
    law, y = truth
    preranks = [Marginal(), Scale()]
    records = evaluate_both(y, law, preranks, n_replicates=99, seed=5)

    def found(protocol, metric, prerank=None, column="value"):
        rows = records[(records.protocol == protocol) & (records.metric == metric)]
        rows = rows if prerank is None else rows[rows.prerank == prerank]
        assert len(rows) == 1
        return rows[column].iloc[0]

    assert found("exact", "nll") == found("as published", "nll") == pytest.approx(-float(law.log_prob(y).mean()))
    fair = energy_score(y, law.ensemble(100, 5, "energy score"), Fair()).mean()
    assert found("exact", "energy score") == pytest.approx(float(fair))
    two = energy_score(y, law.ensemble(200, 5, "energy score"), TwoSets()).mean()
    assert found("as published", "energy score") == pytest.approx(float(two))
    published = published_pce(y, law, preranks, 100, 5)
    for place, item in enumerate(preranks):
        pit = projected_pit(y, law, item, seed=5)
        assert found("exact", "pce", item.name) == pytest.approx(float(pce(pit).mean()), abs=1e-9)
        per_batch = [float(pce(pit.select(slice(i, i + 256))).mean()) for i in range(0, 700, 256)]
        assert found("exact", "pce per 256", item.name) == pytest.approx(sum(per_batch) / 3, abs=1e-9)
        level = sum(pce_null(n, n_members=pit.parts[0].n_members).mean for n in (256, 256, 188)) / 3
        assert found("exact", "pce per 256", item.name, "expected_pce") == pytest.approx(level)
        assert found("as published", "pce per 256", item.name) == pytest.approx(float(published[place]))
        assert found("as published", "pce per 256", item.name, "expected_pce") == published_expected_pce(700)


def test_the_published_protocol_calls_a_perfect_mixture_miscalibrated():
    """Five equal N(0, 1) components: about 0.0735 as published, the null level 0.3133 / sqrt(N) exactly."""
    cases = 3840  # fifteen whole minibatches
    law = GaussianMixture(torch.zeros(cases, 5), torch.zeros(cases, 5, 2), torch.eye(2).expand(cases, 5, 2, 2))
    y = law.ensemble(1, seed=1).members[:, 0]
    records = evaluate_both(y, law, [Marginal()], n_replicates=99)
    exact = records[(records.protocol == "exact") & (records.metric == "pce")].value.iloc[0]
    published = records[(records.protocol == "as published") & (records.metric == "pce per 256")].value.iloc[0]
    assert published == pytest.approx(0.0735, abs=0.006)
    assert exact == pytest.approx(0.005, abs=0.004)


def test_the_exact_half_is_what_evaluate_says(truth):
    law, y = truth
    preranks = [Marginal(), HDR()]
    records = evaluate_both(y, law, preranks, [], n_replicates=399)
    exact = records[(records.protocol == "exact") & (records.metric != "pce per 256")]
    alone = evaluate(y, law, preranks, n_replicates=399)
    assert exact[alone.columns].reset_index(drop=True).equals(alone)
    tests = exact_tests(y, law, preranks, n_replicates=399).drop(columns="protocol")
    assert tests.equals(alone[alone.metric == "pce"].reset_index(drop=True)[tests.columns])
    assert set(records[records.protocol == "as published"].metric) == {"nll", "energy score"}  # no pre-rank was named


def test_small_p_values_of_several_projections_are_resolved_for_a_hundred_tests(truth):
    law, y = truth
    observed = torch.stack([y + 3.0, y])  # far off for the first of two models
    laws, preranks = law.expand((2, 700)), [Marginal(), Location()]
    before, found = (
        table[table.metric == "pce"].set_index(["model", "prerank"]).p_value
        for table in (find(observed, laws, preranks, n_replicates=39) for find in (evaluate, exact_tests))
    )
    assert before[0, "marginal"] == 1 / 40
    assert found[0, "marginal"] == 1 / 4000
    assert found[0, "location"] == before[0, "location"] < 1 / 4000  # one projection: its null is no simulation of 39
    assert (before[1] > 10 / 40).all()
    assert found[1].equals(before[1])


def test_minibatches_taken_together_are_those_taken_one_by_one(truth, monkeypatch):
    """On a GPU several go through the pre-ranks at once; each has the random numbers that it has alone."""
    law, y = truth
    preranks = [Marginal(), Scale(), PCA(), HDR(), Copula()]
    monkeypatch.setattr("prerank._chunks.ELEMENTS", 1)
    one_by_one = list(published_pits(y, law, preranks, 20, 5))
    assert [part[0].shape[-3:-1] for part in one_by_one] == [(1, 256), (1, 256), (1, 188)]
    monkeypatch.setattr("prerank._chunks.ELEMENTS", 1 << 26)
    together = list(published_pits(y, law, preranks, 20, 5))
    assert [part[0].shape[-3:-1] for part in together] == [(2, 256), (1, 188)]
    for alone, joined in zip(zip(*one_by_one, strict=True), zip(*together, strict=True), strict=True):
        torch.testing.assert_close(torch.cat(joined[:1], -3), torch.cat(alone[:2], -3), rtol=0, atol=1e-12)
        assert torch.equal(joined[1], alone[2])
