"""A case whose pool is worth fewer draws than are asked for gets a larger one, and no other case notices."""

import pytest
import torch
from torch.distributions import Independent, Normal

from prerank import Location, energy_score
from prerank.recalibration import Tilted, tilted
from prerank.recalibration.pit_coordinates import OldPITs

STEEP = 20.0  # the weight of the location's PIT z is exp(69 z): of many draws three in a hundred count


@pytest.fixture
def asked(monkeypatch):
    """How many draws were made for which cases, call by call."""
    calls, draw = [], tilted.equally_weighted_draws

    def noted(root, n_draws, seed, stream, ids):
        calls.append((n_draws, ids.tolist()))
        return draw(root, n_draws, seed, stream, ids)

    monkeypatch.setattr(tilted, "equally_weighted_draws", noted)
    return calls


def some_steep(law, steep, pool=200, largest=None):
    theta = torch.zeros(len(steep), 1, 1, dtype=torch.float64)
    theta[:, 0, 0] = STEEP * torch.tensor(steep, dtype=torch.float64)
    return Tilted(law, OldPITs((Location(),), 40, 0), theta, pool, largest=largest)


def test_only_cases_that_lack_draws_are_drawn_again_up_to_the_largest_pool(standard, asked):
    drawn = some_steep(standard(3), [False, True, False], largest=1000).ensemble(50).members
    assert asked == [(200, [0, 1, 2]), (800, [1]), (1000, [1])]
    few = [len(case.unique(dim=0)) for case in drawn]
    assert few[0] == few[2] == 50
    # 200 draws were worth 6
    assert 15 < few[1] < 50


def test_a_pool_that_is_worth_as_many_draws_as_are_asked_for_is_enough(standard, asked):
    some_steep(standard(2), [False, False]).ensemble(100)
    some_steep(standard(2), [True, True]).ensemble(2)  # of 200 six count
    assert [n for n, _ in asked] == [200, 200]


def test_draws_of_a_case_do_not_depend_on_the_others(standard, monkeypatch):
    forecast = some_steep(standard(4), [True, False, True, False])
    whole = forecast.ensemble(60, seed=3).members
    for cases in (torch.tensor([2]), torch.tensor([3, 0]), slice(1, 3)):
        assert torch.equal(forecast.select(cases).ensemble(60, seed=3).members, whole[cases])
    monkeypatch.setattr("prerank._chunks.ELEMENTS", 1)
    assert torch.equal(forecast.ensemble(60, seed=3).members, whole)


def test_a_root_that_cannot_be_cut_is_drawn_once(asked, opaque):
    law = opaque(Independent(Normal(torch.zeros(2, 2, dtype=torch.float64), 1.0), 1))
    assert some_steep(law, [True, True]).ensemble(50).members.shape == (2, 50, 2)
    assert len(asked) == 1


def test_copies_no_longer_cost_energy_score(standard):
    """A fair score takes draws for independent; where most are copies of a few it is too large."""
    n_cases = 300
    law = standard(n_cases)
    y = some_steep(law, [True] * n_cases).ensemble(1, seed=9, stream="observations").members[:, 0]
    scores = {}
    for largest in (400, 20_000):
        forecast = some_steep(law, [True] * n_cases, largest=largest)
        scores[largest] = float(energy_score(y, forecast.ensemble(200)).mean())
    # pairs of 12 draws that count are the same draw once in 12: the half spread is 8 % too small
    half_spread = scores[20_000]
    assert scores[400] > scores[20_000] + 0.04 * half_spread
