"""The rule for weighted forecasts: own-weight PITs are shown beside the own weight, and warned of where they hide error."""

import warnings

import pytest
import torch

from prerank import Ensemble, Location, Marginal, check, energy_score, pce, projected_pit
from prerank.calibration import hidden_error
from prerank.scores import Fair

N, M, D = 400, 200, 3


def weighted(share: float):
    """Members weighing the same, and an observation with a share of everything; the forecast is wrong by a bias of one."""
    generator = torch.Generator().manual_seed(0)
    y = 1.0 + torch.randn(N, D, generator=generator, dtype=torch.float64)
    members = torch.randn(N, M, D, generator=generator, dtype=torch.float64)
    return y, Ensemble(members, torch.ones(N, M)), torch.full((N,), M * share / (1 - share))


def test_a_heavy_observation_hides_error_and_brings_a_warning():
    y, forecast, own = weighted(0.9)
    with pytest.warns(UserWarning, match=r"own weight is 0\.9 on average.*rank among equally weighted draws"):
        hidden = projected_pit(y, forecast, Marginal(), observation_weights=own)
    honest = projected_pit(y, Ensemble(forecast.members), Marginal())
    assert hidden.own_weight == pytest.approx(0.9)
    # nine tenths of the interval are the observation's own: a tenth of the error is left, and its sampling error
    assert pce(hidden).max() < 0.2 * pce(honest).min()


def test_a_light_observation_brings_none():
    for share in (1 / (M + 1), 0.0199):
        y, forecast, own = weighted(share)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pit = projected_pit(y, forecast, Marginal(), observation_weights=own)
        assert pit.own_weight == pytest.approx(share)
        assert hidden_error(pit) is None
    y, forecast, own = weighted(0.0201)
    with pytest.warns(UserWarning, match="own weight is 0.02 on average"):
        projected_pit(y, forecast, Marginal(), observation_weights=own)


def test_few_equal_members_are_no_cause_for_a_warning():
    """One of nine is 11 % of them: the rank is coarse, as everybody can see, but hides nothing else."""
    y, forecast, _ = weighted(0.5)
    few = Ensemble(forecast.members[:, :8], torch.ones(N, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert projected_pit(y, few, Marginal(), observation_weights=torch.ones(N)).own_weight == pytest.approx(1 / 9)
    with pytest.warns(UserWarning, match="own weight is 0.2"):
        projected_pit(y, few, Marginal(), observation_weights=torch.full((N,), 2.3))


def test_equal_or_unknown_weights_have_no_own_weight():
    y, forecast, _ = weighted(0.5)
    assert projected_pit(y, Ensemble(forecast.members), Marginal()).own_weight is None
    assert projected_pit(y, forecast, Marginal()).own_weight is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the observation's own weight")
def test_check_prints_the_own_weight_beside_own_weight_pits():
    for share, words in ((0.01, "the observation has a weight of 0.01 on average"), (0.3, "hides error")):
        y, forecast, own = weighted(share)
        notes = " ".join(check(y, forecast, [Location()], observation_weights=own, n_replicates=19).notes)
        assert words in notes
        assert "own weight" not in " ".join(check(y, forecast.members, [Location()], n_replicates=19).notes)


def test_the_fair_score_of_weights_that_depend_on_the_members_is_biased_and_that_of_equal_draws_is_not():
    """Draws of a law too narrow by 0.8, weighted to the true one by exact density ratios, as `Fair` says."""
    n, m, d, narrow = 8000, 20, 4, 0.8
    generator = torch.Generator().manual_seed(1)
    y, noise = (torch.randn(n, size, d, generator=generator, dtype=torch.float64) for size in (1, m))
    members = narrow * noise
    log_ratio = 0.5 * (noise.square() - members.square()).sum(-1)
    weighted_score = energy_score(y[:, 0], Ensemble(members, log_ratio.exp()), Fair())
    equal = energy_score(y[:, 0], Ensemble(noise), Fair())
    gap = weighted_score - equal
    error = float(gap.std()) / n**0.5
    assert float(gap.mean()) > 5 * error
    # the expected score of the law against itself is half the mean distance of two draws
    pairs = torch.randn(200_000, d, generator=generator, dtype=torch.float64) * 2**0.5
    exact = float(pairs.norm(dim=-1).mean()) / 2
    assert abs(float(equal.mean()) - exact) < 4.5 * float(equal.std()) / n**0.5 + 0.003
