"""Models that are trained as the published ones were, in a fleet: alone, beside others, padded, captured."""

import pytest
import torch

from builders import small_options, tiny_training_set
from prerank.models import MixtureNetwork
from prerank.preranks import PCA, Copula, Location, Marginal, Scale, paper_preranks
from prerank.training import NegativeLogLikelihood, PreRankPenalty, Run, declares_capture, fit
from prerank_paper.published import PublishedPenalty, published_pce

PENALTIES = [PublishedPenalty(item, n_draws=10) for item in (Marginal(), PCA(), Copula())]


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda penalty: penalty.name)
def test_a_model_of_a_fleet_is_the_model_trained_alone(penalty):
    """As for other penalties: rounding of batched products leaves 1e-9 after a few steps."""
    data, options = {seed: tiny_training_set(seed=seed) for seed in (0, 5)}, small_options()
    runs = [Run(0), Run(5, penalty, 3.0), Run(0, penalty, 10.0), Run(5, PreRankPenalty(Scale(), n_draws=20), 3.0)]
    fleet = fit(runs, data, options)
    for place, run in enumerate(runs):
        one = fit([run], data, options)
        for together, alone in zip(fleet.weights, one.weights, strict=True):
            torch.testing.assert_close(together[[place]], alone, rtol=0, atol=1e-9)
        assert torch.equal(fleet.best_epoch[[place]], one.best_epoch)


def test_a_model_that_diverges_is_stopped_and_the_others_do_not_notice():
    """Features of seed 1 are so large that covariances and eigenvectors of its draws do not exist."""
    healthy = tiny_training_set(4, 0, dtype=torch.float32)
    data = {0: healthy, 1: healthy._replace(x=healthy.x * 1e30)}
    runs = [Run(0, PENALTIES[1], 1.0), Run(1, PENALTIES[1], 1.0), Run(0)]
    broken, sound = fit(runs, data, small_options()), fit(runs, {0: healthy, 1: healthy}, small_options())
    assert broken.diverged.tolist() == [False, True, False]
    assert not sound.diverged.any()
    for with_it, without in zip(broken.weights, sound.weights, strict=True):
        assert torch.equal(with_it[[0, 2]], without[[0, 2]])


def test_rows_that_fill_up_the_last_minibatch_do_not_count():
    """A penalty of 24 rows is that of the same 24 among 32 of which eight weigh nothing, whatever those hold."""
    data, penalty = tiny_training_set(rows=40), PENALTIES[1]
    law = MixtureNetwork(2, 3, 3, (8,), dtype=torch.float64)(data.x[:32])
    law = type(law)(law.logits[0], law.loc[0], law.scale_tril[0])
    generator = torch.Generator().manual_seed(0)
    noise = {
        name: torch.randn(stream.shape, generator=generator, dtype=torch.float64)
        for name, stream in penalty.streams(law, 32).items()
    }
    y, counted = data.y[:32], torch.arange(32) < 24
    short = penalty(y[:24], law.select(slice(0, 24)), noise={name: numbers[:24] for name, numbers in noise.items()})
    padded = penalty(torch.where(counted[:, None], y, 1e3), law, case_weights=counted.double(), noise=noise)
    torch.testing.assert_close(short, padded, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("prerank", paper_preranks(3), ids=lambda prerank: prerank.name)
def test_its_steps_may_be_captured(prerank):
    assert declares_capture(PublishedPenalty(prerank))
    assert declares_capture(NegativeLogLikelihood())


def test_the_order_of_arguments_is_that_of_the_library():
    forecast = MixtureNetwork(2, 2, 1, (4,))(torch.zeros(8, 2))
    law, y = type(forecast)(forecast.logits[0], forecast.loc[0], forecast.scale_tril[0]), torch.zeros(8, 2)
    for swapped in (lambda: PublishedPenalty(Location())(law, y), lambda: published_pce([Location()], law, y)):
        with pytest.raises(
            (TypeError, ValueError), match=r"order is \(y, forecast|look swapped|pass an array of numbers"
        ):
            swapped()
