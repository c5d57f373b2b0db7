"""Between the protocols: each end is the protocol itself, and the steps are what they are called."""

import pytest
import torch

from prerank.forecasts import GaussianMixture
from prerank.preranks import HDR, PCA, Copula, Location, Marginal, Scale
from prerank.training import PreRankPenalty
from prerank_paper.ablations import (
    CLOSED_POOLED,
    SOFT_RELATIVE,
    TRUE_OWN,
    TRUE_RAW,
    TRUE_RELATIVE,
    VARIANTS,
    PooledPCA,
    Ranked,
    evaluation_table,
    trained_with,
    variant_penalty,
)
from prerank_paper.benchmark.plan import Ablation
from prerank_paper.published import PublishedPenalty, published_pce

LAW = GaussianMixture(torch.zeros(600, 5), torch.zeros(600, 5, 3), torch.eye(3).expand(600, 5, 3, 3))
Y = LAW.ensemble(1, seed=1).members[:, 0]  # a true forecast: five equal components, which soft draws make too narrow


@pytest.fixture(scope="module")
def table():
    found = evaluation_table(Y, LAW, [Location(), Scale(), Copula()])
    return found.set_index(["draws", "rank", "cases", "prerank"])["value"].sort_index()


def test_one_end_of_the_evaluation_is_the_published_one(table):
    published = published_pce(Y, LAW, [Location(), Scale(), Copula()])
    assert table["soft", "sigmoid", "per 256"][["location", "scale", "copula"]].to_numpy() == pytest.approx(
        published.numpy(), rel=1e-5
    )


def test_only_soft_draws_call_a_true_forecast_miscalibrated(table):
    """0.3133 / √n under calibration: 0.013 for all 600 cases, and about 0.021 for batches of 256 and a last one of 88."""
    for prerank in ("location", "scale"):
        assert table["true", "rank", "whole", prerank] < 0.03
        assert table["true", "sigmoid", "per 256", prerank] < 0.045
        assert table["soft", "rank", "whole", prerank] > 0.06


def test_the_ends_of_training_are_the_protocols_own_penalties():
    assert variant_penalty("exact", [Scale()]) == PreRankPenalty(Scale())
    assert variant_penalty("as published", [Scale()]) == PublishedPenalty(Scale())
    assert variant_penalty(SOFT_RELATIVE, [Scale()]).rank.relative
    with pytest.raises(ValueError, match="there is no way to train called 'other'"):
        variant_penalty("other", [Scale()])


def test_draws_instead_of_closed_forms_and_pooled_directions_are_used_where_they_are_named():
    (ranked,) = variant_penalty(TRUE_RELATIVE, [PCA()]).preranks
    assert ranked == Ranked(PooledPCA())
    assert variant_penalty(TRUE_OWN, [PCA()]).preranks == (Ranked(PCA()),)
    assert variant_penalty(CLOSED_POOLED, [PCA()]).preranks == (PooledPCA(),)
    assert not variant_penalty(TRUE_RAW, [Marginal()]).rank.relative


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("prerank", [Location(), PCA(), HDR()], ids=lambda item: item.name)
def test_every_variant_has_a_gradient(variant, prerank):
    if not trained_with(variant, prerank.name):
        return
    loc = torch.zeros(64, 5, 3, requires_grad=True)
    law = GaussianMixture(torch.zeros(64, 5), loc + torch.linspace(-1, 1, 5)[:, None], LAW.scale_tril[:64])
    variant_penalty(variant, [prerank], n_draws=20)(Y[:64] + 0.3, law, case_weights=torch.ones(64)).backward()
    assert loc.grad is not None
    assert float(loc.grad.abs().sum()) > 0


def test_ranks_among_draws_approach_the_closed_form():
    """With 4,000 draws a rank is known to 0.008 and the sigmoid is sharp: the same PITs up to that."""
    drawn = next(iter(PreRankPenalty(Ranked(Location()), n_draws=4000).pits(Y[:50], LAW.select(slice(0, 50)))))
    closed = next(iter(PreRankPenalty(Location()).pits(Y[:50], LAW.select(slice(0, 50)))))
    assert float((drawn - closed).abs().max()) < 5 * 0.008


def test_pooled_directions_are_common_to_all_cases_and_those_of_the_spread_between_them():
    """Cases whose means differ along one axis only: their pooled first component is that axis."""
    loc = torch.zeros(200, 1, 3)
    loc[:, 0, 1] = torch.linspace(-20, 20, 200)
    law = GaussianMixture(torch.zeros(200, 1), loc, torch.eye(3).expand(200, 1, 3, 3))
    directions = PooledPCA().given(law).directions
    assert directions.shape[-3:] == (1, 3, 3)
    assert float(directions.reshape(3, 3)[1, 0].abs()) > 0.99


def test_an_ablation_has_every_way_once_and_a_baseline_for_each_seed():
    (fleet,) = Ablation(("any",), seeds=(0, 42)).fleets({"any": 4})
    assert fleet.name == "any.ablation"
    assert len(set(fleet.models)) == len(fleet.models) == 2 * (1 + 5 * 7 + 2)
    assert sum(model.penalty == "none" for model in fleet.models) == 2
