"""The scores agree with software that nobody here wrote: stored values, and scoringrules called live."""

from pathlib import Path

import numpy as np
import pytest
import scoringrules as sr

from prerank.scores import Fair, Paper, TwoSets, crps, energy_score, variogram_score

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = ["gauss_d2", "gauss_d5", "gauss_d10", "ties_d5", "skew_d5", "long_d2"]


@pytest.fixture(params=CASES)
def golden(request):
    with np.load(GOLDEN / f"case_{request.param}.npz") as stored:
        return {
            name: stored[name].astype(np.float64) if stored[name].dtype == np.float32 else stored[name]
            for name in stored.files
        }


def agree(ours, theirs):
    # 1e-10 relative, four orders below what is asked; the absolute part is for scores that cancel to nearly zero
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "estimator", "weighted"),
    [
        ("sr_es_nrg", Paper(), False),
        ("r_es", Paper(), False),
        ("epp_es", Paper(), False),
        ("sr_es_fair", Fair(), False),
        ("sr_es_nrg_ensw", Paper(), True),
        ("r_es_w", Paper(), True),
        ("sr_es_fair_ensw", Fair(), True),
    ],
)
def test_energy_score_agrees_with_other_software(golden, name, estimator, weighted):
    weights = golden["ens_w"] if weighted else None
    agree(energy_score(golden["obs"], golden["ens"], estimator, weights=weights), golden[name])


def test_energy_score_of_exact_and_split_pairs_agrees_with_forecastcalibration(golden):
    agree(energy_score(golden["obs"], golden["ens"], Paper()), golden["fc_es_exact"][:, 2])
    agree(energy_score(golden["obs"], golden["ens"], Paper()), golden["mc_energy_score"][:, 0])
    _, d, es = golden["fc_es_split"].T
    error, spread = 2 * es - d, 2 * (es - d)
    # for odd M the stored spread is divided by the size of the second half where the first is meant
    members = golden["ens"].shape[1]
    first, second = members // 2, members - members // 2
    agree(energy_score(golden["obs"], golden["ens"], TwoSets()), error - 0.5 * spread * second / first)


@pytest.mark.parametrize(("label", "exponent"), [("p05", 0.5), ("p1", 1.0), ("p2", 2.0)])
def test_variogram_score_agrees_for_every_exponent(golden, label, exponent):
    plain = variogram_score(golden["obs"], golden["ens"], exponent, estimator=Paper())
    agree(plain, golden[f"sr_vs_nrg_{label}"])
    agree(plain, golden[f"r_vs_{label}"])
    agree(variogram_score(golden["obs"], golden["ens"], exponent), golden[f"sr_vs_fair_{label}"])


@pytest.mark.parametrize(
    ("name", "pairs", "weighted"),
    [
        ("sr_vs_nrg_w_p05", True, False),
        ("r_vs_wvs_p05", True, False),
        ("sr_vs_nrg_ensw_p05", False, True),
        ("r_vs_ensw_p05", False, True),
        ("sr_vs_nrg_w_ensw_p05", True, True),
    ],
)
def test_variogram_score_agrees_with_weights_of_pairs_and_members(golden, name, pairs, weighted):
    pair_weights = golden["w"] if pairs else None
    weights = golden["ens_w"] if weighted else None
    ours = variogram_score(golden["obs"], golden["ens"], 0.5, pair_weights, Paper(), weights=weights)
    agree(ours, golden[name])


@pytest.mark.parametrize(("estimator", "theirs"), [(Paper(), "nrg"), (Fair(), "fair")])
def test_crps_agrees_with_scoringrules(golden, estimator, theirs):
    y, members, weights = golden["obs"], golden["ens"], golden["ens_w"]
    agree(crps(y, members, estimator=estimator), sr.crps_ensemble(y, members.swapaxes(1, 2), estimator=theirs))
    per_target = np.broadcast_to(weights[:, None, :], members.swapaxes(1, 2).shape)
    agree(
        crps(y, members, estimator, weights=weights),
        sr.crps_ensemble(y, members.swapaxes(1, 2), ens_w=per_target, estimator=theirs),
    )


@pytest.mark.parametrize(("estimator", "theirs"), [(Paper(), "nrg"), (Fair(), "fair")])
def test_scores_agree_with_scoringrules_on_fresh_members(estimator, theirs):
    rng = np.random.default_rng(3)
    y, members, weights = rng.normal(size=(9, 4)), rng.normal(size=(9, 7, 4)), rng.uniform(size=(9, 7))
    agree(energy_score(y, members, estimator), sr.es_ensemble(y, members, estimator=theirs))
    agree(
        energy_score(y, members, estimator, weights=weights),
        sr.es_ensemble(y, members, ens_w=weights, estimator=theirs),
    )
    agree(
        variogram_score(y, members, 1.5, estimator=estimator),
        sr.vs_ensemble(y, members, p=1.5, estimator=theirs),
    )
