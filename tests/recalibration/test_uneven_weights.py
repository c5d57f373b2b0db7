"""Cases of weight zero do not count, and weights that leave too few cases in effect are refused with their number."""

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from prerank import Location, Recalibrator
from prerank.recalibration.folds import folds_of

N_CASES = 60


def with_positive(count: int, rest: float = 0.0) -> np.ndarray:
    weights = np.full(N_CASES, rest)
    weights[np.random.default_rng(1).permutation(N_CASES)[:count]] = 2.0
    return weights


@pytest.mark.parametrize("rest", [0.0, 1e-300, 1e-3])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("kind", ["ensemble", "distribution"])
def test_so_few_cases_of_weight_are_refused(kind, count, rest):
    points = np.random.default_rng(0).normal(size=(N_CASES, 6, 2))
    law = MultivariateNormal(torch.zeros(N_CASES, 2).double(), torch.eye(2).double())
    forecast = points[:, 1:] if kind == "ensemble" else law
    words = rf"of positive weight, are worth {count}\.\d equally weighted ones, too few for 5-fold"
    with pytest.raises(ValueError, match=words):
        Recalibrator([Location()]).fit(forecast, points[:, 0], case_weights=with_positive(count, rest))


def test_every_fold_has_cases_that_count():
    weights = torch.as_tensor(with_positive(12))
    for seed in range(50):
        folds = folds_of(N_CASES, 5, None, seed, torch.device("cpu"), weights)
        sizes = torch.bincount(folds.fold[weights > 0], minlength=5)
        assert sizes.min() >= 2
        assert sizes.max() <= 3


def test_a_case_of_weight_zero_changes_nothing_that_is_learnt():
    points = np.random.default_rng(0).normal(size=(N_CASES, 6, 2))
    points[:, 0] += 1.0
    weights = with_positive(30)
    first = Recalibrator([Location()]).fit(points[:, 1:], points[:, 0], case_weights=weights)
    points[weights == 0] *= -50.0
    again = Recalibrator([Location()]).fit(points[:, 1:], points[:, 0], case_weights=weights)
    new = np.random.default_rng(2).normal(size=(3, 5, 2))
    laws = [one.transform(new) for one in (first, again)]
    torch.testing.assert_close(laws[0].loc, laws[1].loc)
    torch.testing.assert_close(laws[0].scale_tril, laws[1].scale_tril)


def test_blocks_of_uneven_sizes_are_no_uneven_weights():
    blocks = np.minimum(np.arange(N_CASES), 11)
    assert folds_of(N_CASES, 5, blocks, 0, torch.device("cpu"), torch.ones(N_CASES)).n_folds == 5
