"""Nothing random but the seed: the same seed gives the same models, and the caller's generator is left alone."""

import pytest
import torch

from prerank.preranks import Copula, Scale
from prerank.randomness import key, normals_of_step
from prerank.training import EnergyScore, PreRankPenalty, Run, fit
from prerank.training.batches import Batches
from prerank.training.fleet import Architecture, new_fleet

STORED_FIRST = [-0.3945762515068054, -0.4854079484939575, 0.1705545037984848, -0.09500590711832047]
STORED_SUM = 2.9431268237531185


def test_the_same_seed_trains_the_same_model_and_another_another(tiny, small):
    run, other = Run(3, PreRankPenalty(Copula(), n_draws=20), 5.0), Run(4, PreRankPenalty(Copula(), n_draws=20), 5.0)
    first = fit([run, run, other], tiny(), small())
    torch.manual_seed(7)
    second = fit([run, run, other], tiny(), small())
    for one, two in zip(first.weights, second.weights, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one[0], one[1])
        assert not torch.equal(one[0], one[2])


def test_initialisation_zero_has_the_weights_of_the_seed_alone():
    """Stored values: no release may change where a seed starts."""
    architecture, single = Architecture(3, 2, 2, (4,)), torch.float32
    weights = new_fleet([Run(42), Run(42, initialisation=0)], architecture, single, torch.device("cpu")).weights
    assert torch.equal(weights[0][0], weights[0][1])
    assert weights[0][0, 0].tolist() == STORED_FIRST
    assert float(weights[-1][0].double().abs().sum()) == STORED_SUM


def test_another_initialisation_changes_the_first_weights_and_nothing_else(tiny, small):
    runs = [Run(3), Run(3, initialisation=1), Run(3, initialisation=2)]
    start = new_fleet(runs, Architecture(3, 2), torch.float32, torch.device("cpu")).weights[0]
    assert not torch.equal(start[0], start[1])
    assert not torch.equal(start[1], start[2])
    assert len({run.seed for run in runs}) == 1  # one set of data, one order of batches
    fitted = fit(runs, tiny(), small())
    alone = fit([runs[2]], tiny(), small())
    for together, single in zip(fitted.weights, alone.weights, strict=True):
        assert torch.equal(together[2], single[0])
        assert not torch.equal(together[0], together[2])


def test_a_negative_initialisation_is_refused():
    with pytest.raises(ValueError, match="initialisation=-1: initialisations are numbered from 0"):
        Run(0, initialisation=-1)


def test_the_global_generator_is_left_as_it_was(tiny, small):
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    fit([Run(0, PreRankPenalty(Scale(), n_draws=20), 1.0)], tiny(), small(score=EnergyScore(20)))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_numbers_of_a_step_depend_on_seed_stream_and_step_alone():
    def numbers(seeds, stream, step):
        keys = torch.tensor([key(seed, stream) for seed in seeds])
        return normals_of_step(keys, torch.tensor(step), (50, 2), torch.float64)

    alone = numbers([5], "ranked", 12)[0]
    assert torch.equal(numbers([0, 5, 9], "ranked", 12)[1], alone)
    for other in (numbers([5], "learnt", 12), numbers([5], "ranked", 13), numbers([6], "ranked", 12)):
        assert torch.corrcoef(torch.stack([alone.flatten(), other.flatten()]))[0, 1].abs() < 0.39  # 1e-4 for n = 100


def test_minibatches_hold_every_row_once_and_depend_on_seed_and_epoch_alone(tiny):
    data = tiny(rows=70)
    both, one = Batches([data, data], [0, 5], 32), Batches([data], [5], 32)
    for epoch in (0, 1, 17):
        order = both.order(epoch)
        assert torch.equal(order[1], one.order(epoch)[0])
        assert order.shape == (2, 96)  # three batches of 32; the last lacks 26 rows
        assert torch.equal(order[0][:70].sort().values, torch.arange(70))
        assert (order[:, 70:] == -1).all()
    assert not torch.equal(both.order(0), both.order(1))
    rows = both.order(0)[:, 64:96]
    x, y, weights = both.take(rows, torch.tensor([1, 0, 1]))
    assert weights.sum(-1).tolist() == [6.0, 6.0, 6.0]
    assert torch.equal(x[2, :6], data.x[rows[1, :6]])
    assert torch.equal(y[1, :6], data.y[rows[0, :6]])
