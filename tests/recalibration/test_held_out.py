"""What steps are given, by numbers worked by hand: folds, standard errors, the cautious choice, features, moments."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Cauchy, Distribution, Independent, Laplace, StudentT, constraints

from prerank import Ensemble
from prerank.forecasts import equally_weighted_draws
from prerank.inputs import Cases
from prerank.randomness import numpy_generator
from prerank.recalibration.atoms import has_atoms, in_words, tied_shares
from prerank.recalibration.features import Features, raw_features, standardised
from prerank.recalibration.folds import best_if_any, folds_of, mean_and_error, most_cautious
from prerank.recalibration.order import Order
from prerank.recalibration.steps import FOR_MOMENTS, moments, require_spread

CPU = torch.device("cpu")


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_cases_are_dealt_in_turn_in_an_order_that_depends_on_the_seed():
    folds = folds_of(43, 3, None, 5, CPU)
    order = numpy_generator(5, "recalibration folds").permutation(43)
    assert folds.fold[order].tolist() == [place % 3 for place in range(43)]
    assert folds.block.tolist() == list(range(43))
    assert (folds.n_folds, folds.fold.dtype) == (3, torch.int64)
    assert not torch.equal(folds.fold, folds_of(43, 3, None, 6, CPU).fold)


def test_large_blocks_come_first_each_into_the_emptiest_fold():
    blocks = np.repeat(["e", "a", "d", "b"], [6, 3, 2, 2])
    folds = folds_of(13, 2, blocks, 0, CPU)
    assert folds.block.unique().tolist() == [0, 1, 2, 3]
    assert folds.block[[0, 6, 9, 11]].tolist() == [3, 0, 2, 1]  # in the order of their labels
    # six in the first, three and then one of the twos in the second, and the last into the second, with five
    assert sorted(torch.bincount(folds.fold).tolist()) == [6, 7]
    assert len(set(folds.fold[[6, 9, 11]].tolist())) == 1
    assert int(folds.fold[0]) == 0


def test_labels_of_any_kind_are_blocks():
    numbers, objects = np.repeat([3, 1, 2, 0], 2), np.repeat(np.array(["3", 1, "2", 0], dtype=object), 2)
    assert torch.equal(*(folds_of(8, 2, blocks, 0, CPU).block for blocks in (numbers, objects)))


def test_two_blocks_for_each_fold_are_the_least():
    assert folds_of(6, 3, None, 0, CPU).n_folds == 3
    with pytest.raises(ValueError, match=r"^5 cases are too few for 3-fold cross-validation, which needs at least 6"):
        folds_of(5, 3, None, 0, CPU)
    with pytest.raises(ValueError, match=r"^3 blocks are too few for 2-fold cross-validation, which needs at least 4"):
        folds_of(6, 2, [0, 0, 1, 1, 2, 2], 0, CPU)


def test_a_weighted_mean_and_its_error_by_hand():
    values, weights = torch.tensor([1.0, 2.0, 6.0]), double(1.0, 1.0, 2.0)
    mean, error = mean_and_error(values, weights, torch.arange(3))
    assert mean == 3.75
    # shares times deviations: -2.75 / 4, -1.75 / 4, 2.25 / 2
    squares = (2.75 / 4) ** 2 + (1.75 / 4) ** 2 + (2.25 / 2) ** 2
    assert error == pytest.approx(math.sqrt(squares * 3 / 2))
    mean, error = mean_and_error(values, weights, torch.tensor([0, 0, 1]))
    assert mean == 3.75
    assert error == pytest.approx(math.sqrt(2 * 1.125**2 * 2 / 1))


def test_one_block_has_no_error_and_empty_blocks_do_not_count():
    assert mean_and_error(double(1.0, 3.0), double(1.0, 1.0), torch.tensor([0, 0])) == (2.0, 0.0)
    mean, error = mean_and_error(double(1.0, 3.0), double(1.0, 1.0), torch.tensor([0, 5]))
    assert (mean, error) == (2.0, pytest.approx(1.0))


def test_a_gain_below_a_millionth_is_none_and_a_clear_one_is_taken():
    weights, block, one = torch.ones(4), torch.arange(4), torch.ones(4, dtype=torch.float64)
    assert most_cautious([1e-7 * one], weights, block) is None
    assert most_cautious([1e-5 * one], weights, block) == 0
    assert most_cautious([0.5 * one], weights, block) == 0
    assert most_cautious([0.5 * one, 0.5 * one + 1e-7], weights, block) == 0
    assert most_cautious([0.5 * one, 0.6 * one], weights, block) == 1


def test_the_candidate_that_gains_most_is_taken_only_if_some_change_is_supported():
    weights, block = torch.ones(100), torch.arange(100)
    noise = torch.linspace(-1, 1, 100, dtype=torch.float64)
    assert best_if_any([1.0 + noise, 1.05 + 3 * noise, 0.9 + noise], weights, block) == 1
    assert most_cautious([1.0 + noise, 1.05 + 3 * noise, 0.9 + noise], weights, block) == 0
    assert best_if_any([0.01 + noise, 0.02 + noise], weights, block) is None
    heavy = torch.ones(100)
    heavy[50:] = 0.0  # where the noise is negative
    assert best_if_any([0.8 + 0 * noise, 1.0 + noise], heavy, block) == 0
    assert best_if_any([0.8 + 0 * noise, 1.0 + noise], weights, block) == 1


def test_features_are_standardised_by_their_own_mean_and_standard_deviation():
    raw = torch.tensor([[1.0, 7.0], [3.0, 7.0], [5.0, 7.0]])
    found = Features.of(raw, 3, CPU)
    assert found.centre.tolist() == [3.0, 7.0]
    assert found.spread.tolist() == [2.0, 0.0]
    assert found.values.tolist() == [[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    assert torch.equal(found.raw, raw.double())
    assert found.values.dtype == torch.float64


def test_features_far_out_are_clipped_at_three_standard_deviations():
    raw = double(-50.0, -5.0, 6.9, 7.1, 50.0)[:, None]
    found = standardised(raw, double(1.0), double(2.0))[:, 0]
    torch.testing.assert_close(found, double(-3.0, -3.0, 2.95, 3.0, 3.0))


def test_features_need_a_row_of_numbers_for_each_case():
    assert raw_features([1, 2, 3], 3).tolist() == [[1.0], [2.0], [3.0]]
    assert raw_features(np.ones((3, 2), dtype=np.float32), 3).dtype == torch.float64
    for given in (torch.ones(2, 2), torch.ones(3, 0), torch.ones(3, 2, 1), torch.ones(4)):
        with pytest.raises(ValueError, match="a row for each of the 3 cases is needed"):
            raw_features(given, 3)
    bad = torch.ones(5, 2)
    bad[1, 1], bad[3, 0], bad[3, 1] = torch.nan, torch.inf, torch.nan
    with pytest.raises(ValueError, match="NaN or infinite in 2 of 5 cases, the first of them case 1;"):
        raw_features(bad, 5)


def test_moments_of_weighted_members_are_without_bias():
    members = torch.tensor([[[0.0], [4.0], [8.0]]]).double()
    mean, variance, size = moments(Ensemble(members), 0)
    assert (mean.tolist(), variance.tolist(), size.tolist()) == ([[4.0]], [[16.0]], [[pytest.approx(3.0)]])
    mean, variance, size = moments(Ensemble(members, torch.tensor([[2.0, 1.0, 1.0]])), 0)
    # shares 1/2, 1/4, 1/4: size 8 / 3, mean 3, biased variance 4.5 + 0.25 + 6.25
    assert float(mean) == pytest.approx(3.0)
    assert float(size) == pytest.approx(8 / 3)
    assert float(variance) == pytest.approx(11.0 * (8 / 3) / (5 / 3))


def test_a_distribution_that_knows_its_moments_is_not_drawn_from():
    law = Independent(Laplace(torch.zeros(3, 2), torch.ones(2)), 1)
    mean, variance, size = moments(law, 0)
    assert torch.equal(mean, law.mean)
    assert torch.equal(variance, law.variance)
    assert torch.equal(size, torch.full((3, 1), torch.inf))


class Silent(Distribution):
    """Knows nothing of itself but how to draw."""

    arg_constraints = {}  # noqa: RUF012

    def __init__(self, support=None):
        super().__init__(torch.Size((3,)), torch.Size((2,)), validate_args=False)
        self._said = support

    @property
    def support(self):
        if self._said is None:
            raise NotImplementedError
        return self._said[0]

    def sample(self, sample_shape=()):
        return torch.randn(*sample_shape, 3, 2)


ELSEWHERE = Independent(Cauchy(torch.zeros(3, 2), torch.ones(2)), 1)
HEAVY = Independent(StudentT(1.5, torch.zeros(3, 2), torch.ones(2)), 1)  # has a mean, but no variance


@pytest.mark.parametrize("law", [Silent(), ELSEWHERE, HEAVY])
def test_a_distribution_without_moments_is_drawn_from(law):
    assert FOR_MOMENTS == 1000
    mean, variance, size = moments(law, 4)
    drawn = equally_weighted_draws(law, FOR_MOMENTS, 4, "moments for recalibration").members
    torch.testing.assert_close(mean, drawn.mean(1))
    torch.testing.assert_close(variance, drawn.var(1), rtol=1e-3, atol=0)
    torch.testing.assert_close(size, torch.full((3, 1), float(FOR_MOMENTS)))


def test_one_target_without_spread_in_any_case_is_refused_by_its_number():
    members = torch.arange(12.0).reshape(2, 2, 3)
    require_spread(Ensemble(members), "Affine()")
    members[0, :, 2] = 5.0
    require_spread(Ensemble(members), "Affine()")
    members[1, :, 2] = 6.0
    with pytest.raises(ValueError, match=r"all members of target 3 agree in every case, so Affine\(\) has no spread"):
        require_spread(Ensemble(members), "Affine()")
    with pytest.raises(ValueError, match=r"^Affine\(\) needs at least 2 members"):
        require_spread(Ensemble(members[:, :1]), "Affine()")


def test_a_law_that_does_not_know_its_support_is_not_taken_for_discrete():
    assert has_atoms(Silent()) is False
    assert has_atoms(Silent((None,))) is False
    assert has_atoms(Silent((constraints.nonnegative_integer,))) is True
    assert has_atoms(Silent((constraints.real,))) is False
    assert has_atoms(Ensemble(torch.zeros(2, 3, 2))) is False


def test_six_targets_with_atoms_are_named_and_more_are_hinted_at():
    assert in_words(torch.full((6,), 0.5)).startswith("observations of targets 1 (50%), 2 (50%), 3 (50%), 4 (50%), 5 (")
    for count in (7, 8):
        said = in_words(torch.full((count,), 0.5))
        assert said.count("(50%)") == 6
        assert "6 (50%), ... repeat others" in said


def test_the_share_of_repeated_observations_is_counted_target_by_target():
    y = torch.tensor([[0.0, 1.0], [0.0, 2.0], [3.0, 4.0], [0.0, 1.0]])
    assert tied_shares(y).tolist() == [0.75, 0.5]
    assert tied_shares(y).dtype == torch.float64


def test_blocks_with_an_order_are_cut_into_runs():
    days = np.repeat(np.arange("2024-01-01", "2024-01-11", dtype="datetime64[D]"), 2)
    for blocks in (days, days.astype(str), np.repeat(np.arange(10), 2), np.repeat(np.arange(10), 2)[::-1]):
        folds = folds_of(20, 5, blocks, 3, CPU)
        by_time = folds.fold if blocks[0] < blocks[-1] else folds.fold.flip(0)
        assert by_time.tolist() == [place // 4 for place in range(20)]
    names = [f"place {n % 10}" for n in range(20)]
    assert folds_of(20, 5, names, 3, CPU).fold.tolist() != [place // 4 for place in range(20)]
    assert folds_of(20, 5, None, 3, CPU, in_order=True).fold.tolist() == [place // 4 for place in range(20)]


def test_a_block_that_fills_several_runs_leaves_none_empty():
    folds = folds_of(24, 3, [0] * 14 + list(range(1, 11)), 0, CPU)
    assert folds.fold.unique().tolist() == [0, 1, 2]


def test_cases_within_the_gap_are_not_learnt_from():
    folds = folds_of(20, 4, None, 0, CPU, in_order=True, gap=2)
    assert folds.without[1].nonzero()[:, 0].tolist() == [0, 1, 2, *range(12, 20)]
    assert folds_of(20, 4, None, 0, CPU).without.sum(1).tolist() == [15] * 4
    with pytest.raises(ValueError, match="gap=2 is for cases in an order, and these have none"):
        folds_of(20, 4, None, 0, CPU, gap=2)
    with pytest.raises(ValueError, match="gap=15 leaves nothing to learn from beside fold 1 of 4"):
        folds_of(20, 4, None, 0, CPU, in_order=True, gap=15)


@pytest.mark.parametrize(
    ("cases", "targets", "order"),
    [
        (pd.date_range("2024-01-01", periods=4), [1, 2, 3], (True, True)),
        (pd.date_range("2024-01-04", periods=4, freq="-1D"), [3, 1, 2], (False, False)),
        (["a", "b", "c", "d"], ["h1", "h2", "h3"], (False, False)),
        (pd.RangeIndex(4), pd.to_timedelta([6, 12, 18], "h"), (False, True)),
    ],
)
def test_labels_say_whether_there_is_an_order(cases, targets, order):
    assert Order.of(Cases.of(pd.DataFrame(np.zeros((4, 3)), cases, targets), np.zeros((4, 5, 3)))) == order
    assert Order.of(Cases.of(np.zeros((4, 3)), np.zeros((4, 5, 3)))) == (False, False)
