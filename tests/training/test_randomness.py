"""Nothing random but the seed: the same seed gives the same models, and the caller's generator is left alone."""

import torch

from prerank.calibration import Copula, Scale
from prerank.randomness import key, normals_of_step
from prerank.training import EnergyScore, PreRankPenalty, Run, fit
from prerank.training.batches import Batches


def test_the_same_seed_trains_the_same_model_and_another_another(tiny, small):
    run, other = Run(3, PreRankPenalty(Copula(), n_draws=20), 5.0), Run(4, PreRankPenalty(Copula(), n_draws=20), 5.0)
    first = fit([run, run, other], tiny(), small())
    torch.manual_seed(7)
    second = fit([run, run, other], tiny(), small())
    for one, two in zip(first.weights, second.weights, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one[0], one[1])
        assert not torch.equal(one[0], one[2])


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
    _, _, weights = both.take(both.order(0)[:, 64:96])
    assert weights.sum(-1).tolist() == [6.0, 6.0]
