"""What the shape of a PIT histogram is called, by its four standard scores."""

import numpy as np
import pytest
import torch
from scipy import stats

from prerank.calibration import histogram_shapes as reading
from prerank.calibration.histogram_shapes import ShapeScores, describe_shape, shape
from prerank.calibration.rank_intervals import Intervals

ANY = torch.full((5,), 0.5)


def scores_of(pit, *given, **more) -> np.ndarray:
    """The four scores, without the deviation of the first."""
    return np.array(shape(pit, *given, **more)[:4])


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        # bias, dispersion, lower tail, upper tail
        (ShapeScores(2.6, 0.0, 0.0, 0.0), "biased low"),
        (ShapeScores(-2.6, 0.0, 0.0, 0.0), "biased high"),
        (ShapeScores(2.5, 0.0, 0.0, 0.0), "no clear shape"),  # a score must exceed 2.5
        (ShapeScores(-2.5, 0.0, 0.0, 0.0), "no clear shape"),
        (ShapeScores(0.0, -2.6, 0.0, 0.0), "over-dispersed"),
        (ShapeScores(0.0, -2.5, 0.0, 0.0), "no clear shape"),
        (ShapeScores(0.0, 2.6, 2.0, 2.0), "under-dispersed"),
        (ShapeScores(0.0, 2.5, 2.0, 2.0), "no clear shape"),
        # a spread below three tenths of the bias is its consequence
        (ShapeScores(9.0, -2.69, 0.0, 0.0), "biased low"),
        (ShapeScores(9.0, -2.71, 0.0, 0.0), "biased low, over-dispersed"),
        (ShapeScores(-9.0, -2.71, 0.0, 0.0), "biased high, over-dispersed"),
        (ShapeScores(10.0, -3.0, 0.0, 0.0), "biased low"),
        (ShapeScores(9.0, 2.69, 1.5, 1.5), "biased low"),
        (ShapeScores(9.0, 2.71, 1.5, 1.5), "biased low, under-dispersed"),
        (ShapeScores(-9.0, 2.71, 1.5, 1.5), "biased high, under-dispersed"),
        (ShapeScores(10.0, 3.0, 1.5, 1.5), "biased low"),
        # and so is a bias below 0.15 of the spread
        (ShapeScores(2.69, 18.0, 3.0, 3.0), "under-dispersed"),
        (ShapeScores(2.71, 18.0, 3.0, 3.0), "biased low, under-dispersed"),
        (ShapeScores(-2.69, -18.0, 0.0, 0.0), "over-dispersed"),
        # and the mean of PITs that lie far apart varies more
        (ShapeScores(2.9, 3.0, 1.5, 1.5, 1.2), "under-dispersed"),
        (ShapeScores(3.1, 3.0, 1.5, 1.5, 1.2), "biased low, under-dispersed"),
        # one tail alone
        (ShapeScores(0.0, 3.0, 0.9, 2.6), "heavy upper tail"),
        (ShapeScores(0.0, 3.0, 2.6, 0.9), "heavy lower tail"),
        (ShapeScores(0.0, 3.0, 0.9, 2.5), "under-dispersed"),
        (ShapeScores(0.0, 3.0, 1.0, 2.6), "under-dispersed"),
        (ShapeScores(0.0, 3.0, 1.1, 2.6), "under-dispersed"),
        (ShapeScores(2.9, 3.0, 0.9, 2.6), "biased low, heavy upper tail"),
        (ShapeScores(-2.9, 3.0, 2.6, 0.9), "biased high, heavy lower tail"),
        (ShapeScores(3.1, 3.0, 0.9, 2.6), "biased low, under-dispersed"),
        (ShapeScores(3.0, 3.0, 0.9, 2.6), "biased low, under-dispersed"),
        # a bias explains a spread to one side: under-dispersed only if both tails are heavy
        (ShapeScores(3.1, 3.0, -0.5, 2.6), "biased low"),
        (ShapeScores(3.1, 3.0, 0.0, 2.6), "biased low"),
        (ShapeScores(3.1, 3.0, 0.5, 2.6), "biased low, under-dispersed"),
        (ShapeScores(0.0, 3.0, -0.5, 2.4), "under-dispersed"),
        # tails without a spread
        (ShapeScores(0.0, 0.0, 2.6, 0.0), "heavy lower tail"),
        (ShapeScores(0.0, 0.0, 0.0, 2.6), "heavy upper tail"),
        (ShapeScores(0.0, 0.0, 2.6, 2.7), "heavy upper tail"),
        (ShapeScores(0.0, 0.0, 2.7, 2.6), "heavy lower tail"),
        (ShapeScores(0.0, 0.0, 2.5, 0.0), "no clear shape"),
        (ShapeScores(0.0, 0.0, -9.0, -9.0), "no clear shape"),
    ],
    ids=str,
)
def test_words_follow_the_scores(scores, words, monkeypatch):
    monkeypatch.setattr(reading, "shape", lambda *_: scores)
    assert describe_shape(ANY, 0.001) == words


def test_words_are_given_where_the_test_rejects_at_its_level(monkeypatch):
    monkeypatch.setattr(reading, "shape", lambda *_: ShapeScores(9.0, 0.0, 0.0, 0.0))
    assert describe_shape(ANY, 0.05) == "biased low"
    assert describe_shape(ANY, 0.0501) == "flat"
    assert describe_shape(ANY, 0.02, level=0.01) == "flat"
    assert describe_shape(ANY, 0.1, level=0.1) == "biased low"


def test_scores_of_known_pits_are_those_of_the_definition():
    z = torch.tensor([0.01, 0.04, 0.3, 0.7, 0.97, 0.02, 0.049, 0.2, 0.951, 0.5]).double()
    found = shape(z)
    x = 2 * z.numpy() - 1
    root = 10**0.5
    assert found.bias == pytest.approx(3**0.5 * x.mean() * root)
    assert found.dispersion == pytest.approx(5**0.5 * (1.5 * x**2 - 0.5).mean() * root)
    deviation = (0.05 * 0.95) ** 0.5
    assert found.lower_tail == pytest.approx((0.4 - 0.05) / deviation * root)
    assert found.upper_tail == pytest.approx((0.2 - 0.05) / deviation * root)


@pytest.mark.parametrize("spread", [1.6, 2.5])
def test_a_wrong_spread_alone_is_not_called_a_bias(spread):
    """Under-dispersed PITs without a bias: the word comes no more often than a standard normal number exceeds 2.5."""
    generator = torch.Generator().manual_seed(4)
    z = torch.special.ndtr(spread * torch.randn(1000, 200, generator=generator, dtype=torch.float64))
    found = sum("biased" in describe_shape(own, 0.001) for own in z)
    assert found <= stats.binom(1000, 2 * stats.norm.sf(2.5)).isf(1e-4)


def test_a_pit_at_the_edge_of_a_tail_is_outside_it():
    inside = shape(torch.tensor([0.05, 0.95], dtype=torch.float64))
    assert inside.lower_tail == inside.upper_tail == shape(torch.tensor([0.5, 0.5]).double()).lower_tail


def test_scores_of_ranks_are_means_over_their_intervals():
    """Against a fine grid of numbers in each interval."""
    lower = torch.tensor([0.0, 0.02, 0.3, 0.9, 0.96])
    upper = torch.tensor([0.1, 0.03, 0.8, 1.0, 0.99])
    grid = (torch.arange(4000).double() + 0.5) / 4000
    numbers = (lower.double()[:, None] + (upper - lower).double()[:, None] * grid).flatten()
    expected = scores_of(numbers) / 4000**0.5
    np.testing.assert_allclose(scores_of(Intervals(lower, upper)), expected, atol=2e-3)


def test_weights_of_cases_count_cases_and_their_unit_does_not_matter():
    z = torch.tensor([0.1, 0.6, 0.9]).double()
    twice = torch.tensor([0.1, 0.6, 0.6, 0.9, 0.9, 0.9, 0.9]).double()
    weights = torch.tensor([1.0, 2.0, 4.0])
    effective = 49 / (1 + 4 + 16)
    found = scores_of(z, weights) / effective**0.5
    np.testing.assert_allclose(found, scores_of(twice) / 7**0.5)
    np.testing.assert_allclose(scores_of(z, 0.01 * weights), scores_of(z, weights))


def test_scores_are_measured_in_the_spread_of_the_points():
    first = torch.zeros(3500, dtype=torch.long)
    every = torch.arange(4).expand(3500, 4)
    points = Intervals(every, every + 1, 4)
    middles = 2 * (torch.arange(4).double() + 0.5) / 4 - 1
    deviation = float((3 * middles.square()).mean() ** 0.5)
    for rank in (first, first + 3):
        edge = Intervals(rank, rank + 1, 4)
        assert shape(edge).bias / shape(edge, points=points).bias == pytest.approx(deviation)
    numbers = torch.rand(5, 4, generator=torch.Generator().manual_seed(1))
    assert shape(ANY, points=Intervals(numbers, numbers)) == shape(ANY)  # numbers have the spread that is known


def test_points_that_all_tie_have_no_spread_to_measure_in():
    whole = torch.zeros(6, 4)
    found = scores_of(Intervals(whole[:, 0], whole[:, 0] + 1), points=Intervals(whole, whole + 1))
    assert np.abs(found).max() < 1e-12


def test_gradients_do_not_disturb_a_reading():
    z = torch.rand(20, generator=torch.Generator().manual_seed(0))
    assert shape(z.clone().requires_grad_()) == shape(z)
