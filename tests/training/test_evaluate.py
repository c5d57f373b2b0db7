"""evaluate: the true forecast passes, a wrong one does not, and every number is that of the function it comes from."""

import pytest
import torch

from prerank.calibration import HDR, Location, Marginal, Scale, paper_preranks, pce, pce_null, projected_pit
from prerank.data import Bimodal
from prerank.forecast import GaussianMixture
from prerank.scores import Fair, TwoSets, energy_score
from prerank.training import evaluate, published_pce


@pytest.fixture(scope="module")
def truth():
    table = Bimodal(3).table(700, seed=3)
    return Bimodal(3).law(table.x), torch.from_numpy(table.y)


def test_a_true_forecast_has_no_small_p_value_and_pces_near_their_null_level(truth):
    law, y = truth
    records = evaluate(y, law, n_replicates=199)
    errors = records[(records.protocol == "exact") & (records.metric == "pce")]
    assert list(errors.prerank) == [item.name for item in paper_preranks(3)]
    assert (errors.corrected_p_value > 0.01).all()
    assert (errors.value < 1.1 / 700**0.5).all()  # the mean absolute Brownian bridge exceeds 1.1 once in a thousand
    assert (errors.null_level - pce_null(700).mean).abs().max() < 0.004


def test_a_forecast_that_is_too_narrow_is_caught(truth):
    law, y = truth
    narrow = GaussianMixture(law.logits, law.loc, 0.5 * law.scale_tril)
    records = evaluate(y, narrow, [Marginal(), HDR()], n_replicates=199)
    errors = records[(records.protocol == "exact") & (records.metric == "pce")]
    assert (errors.p_value <= 0.01).all()
    assert (errors.value > 2 * errors.null_level).all()
    assert (errors.corrected > 0).all()


def test_every_number_is_that_of_the_function_it_comes_from(truth):
    law, y = truth
    preranks = [Marginal(), Scale()]
    records = evaluate(y, law, preranks, n_replicates=99, seed=5)

    def found(protocol, metric, prerank=None):
        rows = records[(records.protocol == protocol) & (records.metric == metric)]
        rows = rows if prerank is None else rows[rows.prerank == prerank]
        assert len(rows) == 1
        return rows.value.iloc[0]

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
        assert found("as published", "pce per 256", item.name) == pytest.approx(float(published[place]))


def test_the_published_protocol_calls_a_perfect_mixture_miscalibrated():
    """Five equal N(0, 1) components: about 0.0735 as published, the null level 0.3133 / sqrt(N) exactly."""
    cases = 3840  # fifteen whole minibatches
    law = GaussianMixture(torch.zeros(cases, 5), torch.zeros(cases, 5, 2), torch.eye(2).expand(cases, 5, 2, 2))
    y = law.ensemble(1, seed=1).members[:, 0]
    records = evaluate(y, law, [Marginal()], n_replicates=99)
    exact = records[(records.protocol == "exact") & (records.metric == "pce")].value.iloc[0]
    published = records[(records.protocol == "as published") & (records.metric == "pce per 256")].value.iloc[0]
    assert published == pytest.approx(0.0735, abs=0.006)
    assert exact == pytest.approx(0.005, abs=0.004)


def test_several_models_are_each_evaluated(truth):
    law, y = truth
    few = slice(0, 100)
    law, y = law.select(few), y[few]
    stacked = GaussianMixture(*(torch.stack([part, part]) for part in (law.logits, law.loc, law.scale_tril)))
    both = evaluate(y, stacked, [Location()], n_replicates=39)
    alone = evaluate(y, law, [Location()], n_replicates=39)
    for model in (0, 1):
        part = both[both.model == model].drop(columns="model").reset_index(drop=True)
        assert part.equals(alone.drop(columns="model"))
    with pytest.raises(ValueError, match=r"batch shape \(N,\) or \(E, N\), got \(1, 2, 100\)"):
        evaluate(y, stacked.expand((1, 2, 100)))
