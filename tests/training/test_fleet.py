"""A fleet of E equals E fleets of one; nobody in it notices who else is there, who leaves, or who breaks."""

from dataclasses import replace

import pytest
import torch

from prerank.preranks import HDR, PCA, Copula, Custom, Dependency, Location, Marginal, Scale
from prerank.training import EnergyScore, FitOptions, PreRankPenalty, Run, TrainingSet, fit, loop
from prerank.training import cuda_graph as capture
from prerank.training.fleet import Architecture, adam, new_fleet, note_scores

PENALTIES = [
    PreRankPenalty(Marginal(), n_draws=20),
    PreRankPenalty(Location(), n_draws=20),
    PreRankPenalty(Scale(), n_draws=20),
    PreRankPenalty(Dependency(), n_draws=20),
    PreRankPenalty(PCA(), n_draws=20),
    PreRankPenalty(HDR(), n_draws=20),
    PreRankPenalty(Copula(), n_draws=20),
    PreRankPenalty((Location(), Scale(), Copula()), n_draws=20),
]


def assert_same_models(fleet, places, one, tolerance):
    for together, alone in zip(fleet.weights, one.weights, strict=True):
        torch.testing.assert_close(together[places], alone, rtol=0, atol=tolerance)
    assert torch.equal(fleet.best_epoch[places], one.best_epoch)
    assert torch.equal(fleet.diverged[places], one.diverged)


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda penalty: penalty.name)
def test_a_model_of_a_fleet_is_the_model_trained_alone(penalty, tiny, small):
    """Both last to the same bits in exact arithmetic; rounding of batched products leaves 1e-9 after a few steps."""
    data = {0: tiny(seed=0), 5: tiny(seed=5)}
    runs = [Run(0), Run(5, penalty, 3.0), Run(0, penalty, 10.0)]
    fleet = fit(runs, data, small())
    for place, run in enumerate(runs):
        assert_same_models(fleet, [place], fit([run], data, small()), 1e-9)


@pytest.mark.slow
def test_a_fleet_that_loses_models_over_300_steps_equals_its_models_alone(tiny, small):
    """All penalties in one fleet, in no order, two seeds; one without stands among them.

    The validation rows of seed 1 are spread six times as wide, so that its models only get worse and soon leave.
    """
    wide = tiny(seed=1)
    data = {0: tiny(seed=0), 1: wide._replace(y_validation=6 * wide.y_validation)}
    options = small(max_epochs=100, patience=10, learning_rate=1e-3)
    runs = [Run(k % 2, penalty, 5.0) for k, penalty in enumerate(PENALTIES)]
    runs.insert(4, Run(1))
    fleet = fit(runs, data, options)
    assert fleet.steps == 300
    early = fleet.best_epoch + options.patience < 99
    assert early.any(), "some must leave on the way, or the test shows nothing"
    assert not early.all(), "and some must stay"
    for place in range(len(runs)):
        assert_same_models(fleet, [place], fit([runs[place]], data, options), 1e-9)


def test_the_order_of_runs_and_strangers_beside_them_change_nothing(tiny, small):
    penalty = PENALTIES[2]
    runs = [Run(0, penalty, 1.0), Run(0), Run(0, penalty, 10.0), Run(0, PENALTIES[1], 1.0)]
    there = fit(runs, tiny(), small())
    back = fit(runs[::-1], tiny(), small())
    for first, second in zip(there.weights, back.weights, strict=True):
        torch.testing.assert_close(first, second.flip(0), rtol=0, atol=1e-12)
    assert there.runs == tuple(runs)


def test_a_penalty_of_strength_zero_is_no_penalty(tiny, small):
    fleet = fit([Run(0), Run(0, PENALTIES[0], 0.0)], tiny(), small())
    assert all(torch.equal(weight[0], weight[1]) for weight in fleet.weights)


def test_a_model_that_diverges_is_stopped_and_reported_and_the_others_do_not_notice(tiny, small):
    """Features of seed 1 are so large that its outputs overflow: its loss, covariances and eigenvectors do not exist.

    D = 4 in single precision: there torch's eigh refuses a whole batch for one matrix that is not finite.
    """
    healthy = tiny(4, 0, dtype=torch.float32)
    poisoned = healthy._replace(x=healthy.x * 1e30)
    for penalty in (PENALTIES[4], PENALTIES[6]):
        runs = [Run(0, penalty, 1.0), Run(1, penalty, 1.0), Run(0)]
        broken = fit(runs, {0: healthy, 1: poisoned}, small())
        sound = fit(runs, {0: healthy, 1: healthy}, small())
        assert broken.diverged.tolist() == [False, True, False]
        assert not sound.diverged.any()
        for with_it, without in zip(broken.weights, sound.weights, strict=True):
            assert torch.equal(with_it[[0, 2]], without[[0, 2]])
            assert with_it.isfinite().all()


def test_a_learning_rate_that_blows_models_up_leaves_finite_weights_and_a_report(tiny, small):
    fleet = fit([Run(0), Run(1)], tiny(dtype=torch.float32), small(learning_rate=1e18))
    assert fleet.diverged.all()
    assert all(weight.isfinite().all() for weight in fleet.weights)


def test_a_model_without_a_finite_validation_score_is_reported_too(tiny, small):
    healthy = tiny(dtype=torch.float32)
    poisoned = healthy._replace(x_validation=healthy.x_validation * 1e38)
    fleet = fit([Run(0), Run(1)], {0: healthy, 1: poisoned}, small())
    assert fleet.diverged.tolist() == [False, True]
    assert fleet.best_score.isfinite().tolist() == [True, False]


def test_early_stopping_keeps_the_best_weights_and_waits_its_patience():
    fleet = new_fleet([Run(0), Run(1)], Architecture(1, 1, 1, (2,)), torch.float64, torch.device("cpu"))
    scores = [[3.0, 3.0], [2.0, 2.99995], [2.5, 3.5], [2.5, 3.5], [1.0, 3.5]]
    for epoch, score in enumerate(scores):
        for weight in fleet.weights:
            weight.fill_(epoch)
        note_scores(fleet, torch.tensor(score, dtype=torch.float64), epoch, 1e-4, patience=3)
    assert fleet.best_score.tolist() == [1.0, 3.0]  # 2.99995 is no improvement of 1e-4
    assert fleet.best_epoch.tolist() == [4, 0]
    assert fleet.active.tolist() == [True, False]  # the second waited three epochs and left; the last row is not its
    assert fleet.best_weights[0][:, 0, 0].tolist() == [4.0, 0.0]


def test_adam_is_torchs_adam_and_skips_models_that_are_off():
    architecture = Architecture(2, 2, 2, (4,))
    fleet = new_fleet([Run(0), Run(1)], architecture, torch.float64, torch.device("cpu"), 1e-2)
    twin = [weight[:1].clone().requires_grad_() for weight in fleet.weights]
    start = [weight[1].clone() for weight in fleet.weights]
    optimiser = torch.optim.Adam(twin, lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    on = torch.tensor([True, False])
    for _ in range(30):
        gradients = [torch.randn(weight.shape, generator=generator, dtype=torch.float64) for weight in fleet.weights]
        for parameter, gradient in zip(twin, gradients, strict=True):
            parameter.grad = gradient[:1].clone()
        gradients = [torch.where(on[:, None, None], gradient, torch.nan) for gradient in gradients]
        adam(fleet, gradients, on)
        optimiser.step()
    for weight, parameter, before in zip(fleet.weights, twin, start, strict=True):
        torch.testing.assert_close(weight[:1], parameter.detach(), rtol=1e-12, atol=1e-14)
        assert torch.equal(weight[1], before)


def test_weights_of_rows_count_like_repeated_rows(tiny, small):
    """Weight 2 for some rows is those rows twice, in one batch that holds all of them."""
    data = tiny()
    twice = torch.arange(96) % 3 == 0
    repeated = data._replace(x=torch.cat([data.x, data.x[twice]]), y=torch.cat([data.y, data.y[twice]]))
    weighted = data._replace(weights=1.0 + twice.double())
    options = small(batch_size=500, max_epochs=10)
    runs = [Run(0), Run(0, PreRankPenalty(Marginal()), 5.0)]  # closed form: no draws that differ with the rows
    one, other = fit(runs, repeated, options), fit(runs, weighted, options)
    for first, second in zip(one.weights, other.weights, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=1e-10)


def test_a_minibatch_whose_rows_weigh_nothing_teaches_nothing_and_breaks_nothing(tiny, small):
    data = tiny()._replace(weights=(torch.arange(96) < 2).double())
    fleet = fit([Run(0), Run(0, PENALTIES[4], 1.0)], data, small())
    assert not fleet.diverged.any()
    assert fleet.best_score.isfinite().all()


def test_rows_that_fill_up_the_last_minibatch_do_not_count(tiny, small):
    """A penalty of 24 rows is that of the same 24 among 32 of which eight weigh nothing, whatever those hold."""
    data = tiny(rows=40)
    penalty = PreRankPenalty(PCA())
    short = penalty(*_rows_and_forecast(data, 24), case_weights=None, noise=_noise(penalty, data, 24))
    y, forecast = _rows_and_forecast(data, 32)
    y = torch.where(torch.arange(32)[:, None] < 24, y, 1e3)
    padded = penalty(y, forecast, case_weights=(torch.arange(32) < 24).double(), noise=_noise(penalty, data, 32))
    torch.testing.assert_close(short, padded, rtol=1e-9, atol=1e-12)


def _rows_and_forecast(data, rows):
    from prerank.models import MixtureNetwork

    network = MixtureNetwork(2, 3, 3, (8,), dtype=torch.float64)
    law = network(data.x[:rows])
    return data.y[:rows], type(law)(law.logits[0], law.loc[0], law.scale_tril[0])


def _noise(penalty, data, rows):
    _, law = _rows_and_forecast(data, 32)
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(stream.shape, generator=generator, dtype=torch.float64)[:rows]
        for name, stream in penalty.streams(law, 32).items()
    }


@pytest.mark.parametrize("score", [EnergyScore(20)], ids=str)
def test_other_scores_train_and_stop_too(score, tiny, small):
    options = small(score=score, monitor=score, max_epochs=10)
    fleet = fit([Run(0), Run(1, PENALTIES[1], 1.0)], tiny(), options)
    start = fit([Run(0), Run(1, PENALTIES[1], 1.0)], tiny(), replace(options, max_epochs=1))
    assert (fleet.best_score < start.best_score).all()
    assert_same_models(fleet, [1], fit([Run(1, PENALTIES[1], 1.0)], tiny(), options), 1e-9)


def test_the_energy_score_of_training_draws_is_unbiased():
    """Against the fair score of many equally weighted draws: five standard errors, distant components, few draws."""
    from prerank.forecasts import GaussianMixture
    from prerank.scores import energy_score

    generator = torch.Generator().manual_seed(0)
    cases, components = 3000, 5
    loc = 3 * torch.randn(1, components, 2, generator=generator, dtype=torch.float64)
    factor = 0.3 * torch.eye(2, dtype=torch.float64)
    logits = torch.randn(1, components, generator=generator, dtype=torch.float64)
    law = GaussianMixture(logits.expand(cases, -1), loc.expand(cases, -1, -1), factor.expand(cases, components, 2, 2))
    y = torch.zeros(cases, 2, dtype=torch.float64)
    noise = torch.randn(cases, 20, 2, generator=generator, dtype=torch.float64)
    found, reference = EnergyScore(20)(y, law, noise), energy_score(y, law.ensemble(200))
    spread = (found.var() / cases + reference.var() / cases).sqrt()
    assert (found.mean() - reference.mean()).abs() < 5 * spread


def test_one_target_works(tiny, small):
    penalties = [PreRankPenalty(Marginal()), PreRankPenalty(HDR(), n_draws=20), PreRankPenalty(Copula(), n_draws=20)]
    fleet = fit([Run(0), *(Run(0, penalty, 1.0) for penalty in penalties)], tiny(1), small())
    assert fleet.best_score.isfinite().all()
    assert fleet.forecast(tiny(1).x).batch_shape == (4, 96)


def test_any_function_can_be_trained_along(tiny, small):
    largest = PreRankPenalty(Custom(lambda y: y.amax(-1), name="maximum"), n_draws=20)
    assert not fit([Run(0, largest, 5.0)], tiny(), small()).diverged.any()


def test_training_learns(tiny):
    """The likelihood of fresh rows comes near the oracle's: within a tenth of the way from the start."""
    from prerank.datasets import Heteroscedastic

    data = tiny(2, rows=800)
    options = FitOptions(n_components=1, hidden=(32,), learning_rate=1e-2, max_epochs=80, batch_size=200)
    fleet = fit([Run(0)], data, options)
    fresh = Heteroscedastic(2).table(2000, seed=9)
    x, y = torch.from_numpy(fresh.x), torch.from_numpy(fresh.y)
    oracle = -Heteroscedastic(2).law(fresh.x).log_prob(y).mean()
    naive = -torch.distributions.MultivariateNormal(data.y.mean(0), data.y.T.cov()).log_prob(y).mean()
    trained = -fleet.forecast(x).log_prob(y[None]).mean()
    assert trained - oracle < 0.25 * (naive - oracle)


def test_validation_rows_count_by_their_weights():
    """A row of weight two stops a model as two rows do, and rows of weight zero as if they were not there."""
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randn(60, width, generator=generator, dtype=torch.float64) for width in (2, 2))
    twice = torch.cat([torch.arange(40, 60), torch.arange(40, 45)])
    weights = torch.ones(20, dtype=torch.float64)
    weights[:5] = 2.0
    options = FitOptions(max_epochs=4, hidden=(8,))
    repeated = fit([Run(0)], TrainingSet(x[:40], y[:40], x[twice], y[twice]), options)
    weighted = fit([Run(0)], TrainingSet(x[:40], y[:40], x[40:], y[40:], validation_weights=weights), options)
    torch.testing.assert_close(weighted.best_score, repeated.best_score)
    with pytest.raises(ValueError, match="weights have shape \\(3,\\) for 20 validation rows"):
        fit([Run(0)], TrainingSet(x[:40], y[:40], x[40:], y[40:], validation_weights=weights[:3]), options)


def test_finished_models_stay_until_they_have_cost_what_letting_them_go_costs(tiny, small, monkeypatch):
    """Letting go takes no time on a CPU; if it took an hour, they would stay to the end, and no number would differ."""
    data, options = {0: tiny(seed=0), 1: tiny(seed=1)}, small(max_epochs=60, patience=5)
    runs = [Run(0), Run(1), Run(0, PENALTIES[1], 5.0), Run(1, PENALTIES[1], 5.0)]
    sizes, grouped = [], loop.grouped

    def counted(runs, *more, **options):
        sizes.append(len(runs))
        return grouped(runs, *more, **options)

    monkeypatch.setattr(loop, "grouped", counted)
    at_once = fit(runs, data, options)
    assert sizes[0] == 4
    assert len(sizes) > 2  # they left one after the other
    sizes.clear()
    monkeypatch.setattr(capture.Plain, "seconds", 3600.0)
    at_the_end = fit(runs, data, options)
    assert sizes[:1] == [4]
    assert not any(sizes[1:])
    assert torch.equal(at_once.best_epoch, at_the_end.best_epoch)
    for a, b in zip(at_once.weights, at_the_end.weights, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
