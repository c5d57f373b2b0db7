"""evaluate: the true forecast passes, a wrong one does not, and every number is that of the function it comes from."""

import pytest
import torch

from prerank.calibration import pce, pce_null, projected_pit
from prerank.datasets import Bimodal
from prerank.forecasts import GaussianMixture
from prerank.preranks import HDR, Location, Marginal, Scale, paper_preranks
from prerank.scores import Fair, energy_score
from prerank.training import evaluate


@pytest.fixture(scope="module")
def truth():
    table = Bimodal(3).table(700, seed=3)
    return Bimodal(3).law(table.x), torch.from_numpy(table.y)


@pytest.mark.slow
def test_a_true_forecast_has_no_small_p_value_and_pces_near_their_expected_pce(truth):
    law, y = truth
    records = evaluate(y, law, n_replicates=199)
    errors = records[records.metric == "pce"]
    assert list(errors.prerank) == [item.name for item in paper_preranks(3)]
    assert (errors.adjusted_p_value > 0.01).all()
    assert (errors.value < 1.1 / 700**0.5).all()  # the mean absolute Brownian bridge exceeds 1.1 once in a thousand
    assert (errors.expected_pce - pce_null(700).mean).abs().max() < 0.004


def test_a_forecast_that_is_too_narrow_is_caught(truth):
    law, y = truth
    narrow = GaussianMixture(law.logits, law.loc, 0.5 * law.scale_tril)
    records = evaluate(y, narrow, [Marginal(), HDR()], n_replicates=199)
    errors = records[records.metric == "pce"]
    assert (errors.p_value <= 0.01).all()
    assert (errors.value > 2 * errors.expected_pce).all()
    assert (errors.corrected > 0).all()


def test_every_number_is_that_of_the_function_it_comes_from(truth):
    law, y = truth
    preranks = [Marginal(), Scale()]
    records = evaluate(y, law, preranks, n_replicates=99, seed=5)
    assert list(zip(records.metric, records.prerank.fillna(""), strict=True)) == [
        ("nll", ""), ("energy score", ""), ("pce", "marginal"), ("pce", "scale"),
    ]  # fmt: skip
    nll, energy, *errors = records.value
    assert nll == pytest.approx(-float(law.log_prob(y).mean()))
    assert energy == pytest.approx(float(energy_score(y, law.ensemble(100, 5, "energy score"), Fair()).mean()))
    for found, item in zip(errors, preranks, strict=True):
        assert found == pytest.approx(float(pce(projected_pit(y, law, item, seed=5)).mean()), abs=1e-9)


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
