"""The variogram score as its formula reads: a sum over ordered pairs, each with a weight of its own."""

import itertools

import pytest
import torch

from prerank.scores import Fair, Paper, variogram_score

LOPSIDED = torch.tensor([[5.0, 1.0, 0.0], [0.25, 7.0, 2.0], [3.0, 0.5, 9.0]], dtype=torch.float64)


def by_hand(y, members, exponent, pair_weights, fair):
    """Scheuerer and Hamill's double sum for one case; the fair one subtracts the sampling variance of the mean."""
    total = 0.0
    for i, j in itertools.product(range(len(y)), repeat=2):
        moments = [abs(float(member[i] - member[j])) ** exponent for member in members]
        mean = sum(moments) / len(moments)
        variance = sum((moment - mean) ** 2 for moment in moments) / (len(moments) - 1)
        error = (abs(float(y[i] - y[j])) ** exponent - mean) ** 2 - (variance / len(moments) if fair else 0.0)
        total += float(pair_weights[i, j]) * error
    return total


@pytest.mark.parametrize("estimator", [Paper(), Fair()])
@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_a_pair_counts_with_the_weights_of_both_its_orders(estimator, exponent):
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    members = torch.randn(4, 6, 3, generator=generator, dtype=torch.float64)
    ours = variogram_score(y, members, exponent, LOPSIDED, estimator)
    fair = isinstance(estimator, Fair)
    theirs = [by_hand(y[n], members[n], exponent, LOPSIDED, fair) for n in range(4)]
    assert ours.tolist() == pytest.approx(theirs, rel=1e-11)
    # only the sum of the two orders matters, and the diagonal does not
    assert variogram_score(y, members, exponent, LOPSIDED.mT, estimator).tolist() == pytest.approx(theirs, rel=1e-11)
    hollow = LOPSIDED - torch.diag(LOPSIDED.diagonal())
    assert variogram_score(y, members, exponent, hollow, estimator).tolist() == pytest.approx(theirs, rel=1e-11)
