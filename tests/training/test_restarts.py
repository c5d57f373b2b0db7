"""A model that has stopped may go on from its best weights, more slowly; Ctrl-C may end a fit and keep what it has."""

import signal
import threading
from dataclasses import replace

import pytest
import torch

from prerank.preranks import Location
from prerank.training import PreRankPenalty, Run, Silent, fit
from prerank.training.fleet import Architecture, new_fleet, note_scores, start_again


def test_a_model_that_waited_goes_on_from_its_best_weights_at_a_lower_rate():
    fleet = new_fleet([Run(0), Run(1)], Architecture(1, 1, 1, (2,)), torch.float64, torch.device("cpu"), 0.1)
    scores = [[3.0, 9.0], [4.0, 8.0], [5.0, 7.0], [6.0, 6.0], [7.0, 5.0], [7.0, 4.0]]
    seen = []
    for epoch, score in enumerate(scores):
        for weight in fleet.weights:
            weight[:] = epoch
        for moment in (*fleet.first_moments, *fleet.second_moments):
            moment[:] = 1.0
        note_scores(fleet, torch.tensor(score, dtype=torch.float64), epoch, 1e-4, patience=2)
        start_again(fleet, 1, 0.3)
        seen.append([float(fleet.weights[0][0, 0, 0]), float(fleet.rate[0]), bool(fleet.active[0])])
    # waits after epochs 1 and 2, starts again from the weights of epoch 0, waits twice more and is done
    assert seen == [
        [0, 0.1, True],
        [1, 0.1, True],
        [0, 0.03, True],
        [3, 0.03, True],
        [4, 0.03, False],
        [5, 0.03, False],
    ]
    assert fleet.restarts.tolist() == [1, 0]
    assert float(fleet.first_moments[0][0].abs().max()) == 1.0  # set again after the restart
    assert fleet.rate.tolist() == [0.03, 0.1]


def test_what_adam_remembers_is_forgotten_at_a_restart():
    fleet = new_fleet([Run(0), Run(1)], Architecture(1, 1, 1, (2,)), torch.float64, torch.device("cpu"), 0.1)
    for tensor in (*fleet.first_moments, *fleet.second_moments, fleet.updates):
        tensor.fill_(2.0)
    fleet.active[0], fleet.diverged[0] = False, True
    start_again(fleet, 1, 0.3)
    for moment in (*fleet.first_moments, *fleet.second_moments):
        assert (moment[0] == 0).all()
        assert (moment[1] == 2).all()
    assert fleet.updates.tolist() == [0.0, 2.0]
    assert fleet.diverged.tolist() == [False, False]
    assert fleet.active.all()


def test_a_model_that_diverges_is_cured_by_a_lower_rate(tiny, small):
    data = tiny(dtype=torch.float32)
    lost = fit([Run(0)], data, small(learning_rate=1e18))
    cured = fit([Run(0)], data, small(learning_rate=1e18, n_restarts=1, cooling=1e-20, max_epochs=6))
    assert lost.diverged.item()
    assert not cured.diverged.item()
    assert cured.best_score.isfinite().item()


@pytest.mark.parametrize("common", [True, False])
def test_a_fleet_of_anchored_models_that_restart_is_what_each_is_alone(tiny, small, common):
    options = small(
        anchored=True, common_correlations=common, n_restarts=2, patience=1, max_epochs=12, learning_rate=0.1
    )
    data = {seed: tiny(seed=seed) for seed in (0, 1)}
    runs = [Run(0), Run(1), Run(0, PreRankPenalty(Location()), 1.0)]
    together = fit(runs, data, options)
    for place, run in enumerate(runs):
        alone = fit([run], data, options)
        assert alone.best_epoch.item() == together.best_epoch[place].item()
        for one, other in zip(alone.weights, together.weights, strict=True):
            torch.testing.assert_close(one[0], other[place], rtol=0, atol=1e-9)


def test_a_fit_with_restarts_that_was_interrupted_ends_where_the_whole_one_does(tiny, small, tmp_path):
    whole = small(anchored=True, n_restarts=1, patience=1, max_epochs=10, learning_rate=0.1)
    part = replace(whole, checkpoint=tmp_path / "fit", max_steps=11)
    fit([Run(0)], tiny(), part)
    resumed = fit([Run(0)], tiny(), replace(part, max_steps=None))
    for one, other in zip(resumed.weights, fit([Run(0)], tiny(), whole).weights, strict=True):
        assert torch.equal(one, other)


def test_an_anchored_model_learns_a_linear_law_in_its_first_epoch(tiny, small):
    """96 rows of y = x with little noise: the start is the reference, a plain network is far from it."""
    x = tiny().x
    data = tiny()._replace(x=x, y=x.repeat(1, 2)[:, :3] + 0.01 * tiny().y, x_validation=x[:40])
    data = data._replace(y_validation=data.y[:40])
    plain, anchored = (
        fit([Run(0)], data, small(max_epochs=1, learning_rate=1e-4, anchored=way)) for way in (False, True)
    )
    assert anchored.best_score.item() < plain.best_score.item() - 3


class PressesCtrlC(Silent):
    """Presses Ctrl-C after an epoch, once or twice."""

    def __init__(self, times: int) -> None:
        self.times = times

    def advance(self, epoch: int, active: int, best: torch.Tensor) -> None:
        if epoch == 2:
            for _ in range(self.times):
                signal.raise_signal(signal.SIGINT)


def test_ctrl_c_keeps_the_best_so_far_where_that_is_wanted(tiny, small):
    before = signal.getsignal(signal.SIGINT)
    options = small(max_epochs=50, patience=50, keep_on_interrupt=True)
    fleet = fit([Run(0)], tiny(), options, PressesCtrlC(1))
    assert fleet.interrupted
    assert fleet.epochs == 2
    two = fit([Run(0)], tiny(), replace(options, max_epochs=2))
    for one, other in zip(fleet.weights, two.weights, strict=True):
        assert torch.equal(one, other)
    assert not two.interrupted
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def heard():
    """Ctrl-C is a KeyboardInterrupt, also in a process that was started in the background, where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_a_second_ctrl_c_or_one_that_is_not_wanted_is_an_interrupt(tiny, small):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fit([Run(0)], tiny(), small(max_epochs=50, patience=50, keep_on_interrupt=True), PressesCtrlC(2))
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        fit([Run(0)], tiny(), small(max_epochs=50, patience=50), PressesCtrlC(1))


def test_outside_the_main_thread_a_fit_leaves_signals_alone(tiny, small):
    found = []
    work = threading.Thread(target=lambda: found.append(fit([Run(0)], tiny(), small(keep_on_interrupt=True))))
    work.start()
    work.join()
    assert not found[0].interrupted
