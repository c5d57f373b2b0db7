"""The engine of nulls: what it holds at a time."""

import torch

from prerank import Ensemble, Marginal, projected_pit
from prerank.calibration import centred_levels
from prerank.calibration.curve_table import Coded
from prerank.calibration.exchange import points_of


def test_few_cases_with_many_tied_members_count_their_intervals_in_the_size_of_a_chunk():
    members = torch.arange(50).repeat(5, 1).unsqueeze(-1).div(3, rounding_mode="floor").double()
    members[1:] = members[1:].div(2, rounding_mode="floor")
    pit = projected_pit(torch.full((5, 1), 3.0).double(), Ensemble(members), Marginal(), exchangeable=True)
    ((_, table),) = points_of(pit, centred_levels()).tables
    assert isinstance(table, Coded)
    assert table.numbers_of_a_set(n_cases=5) == len(table.curves) > 5
    assert table.numbers_of_a_set(n_cases=10_000) == 10_000
