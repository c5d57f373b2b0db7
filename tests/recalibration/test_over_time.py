"""Forecasts that are corrected as time goes on know nothing of what had not been observed."""

from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
import torch

from prerank import Ensemble, GaussianMixture, Recalibrator, check, energy_score
from prerank.recalibration import Affine, ErrorLaw, Tilt, recalibrate_over_time

DAYS = pd.date_range("2024-01-01", periods=80)
SHIFTED = Recalibrator(steps=[Affine()])  # quick, and what a walk does is the same for every step


def biased(n_cases, seed=0, bias=1.0):
    """Members and observations that lie above them."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n_cases, 1, 2)) + 0.5 * rng.normal(size=(n_cases, 6, 2))
    return truth[:, 1:], truth[:, 0] + np.broadcast_to(bias, (n_cases,))[:, None]


def as_mixture(members):
    centre = torch.as_tensor(members).mean(1, keepdim=True)
    return GaussianMixture(
        torch.zeros(len(members), 1), centre, 0.5 * torch.eye(2).double().expand(len(members), 1, 2, 2)
    )


def numbers(forecast):
    """All numbers of a forecast: draws as well as what they come from."""
    own = [forecast.members] if isinstance(forecast, Ensemble) else []
    return [*own, *(value for value in vars(forecast).values() if isinstance(value, torch.Tensor))]


def same(one, other):
    pairs = list(zip(numbers(one), numbers(other), strict=True))
    return bool(pairs) and all(torch.equal(*pair) for pair in pairs)


@pytest.mark.parametrize("window", [None, 30])
@pytest.mark.parametrize(("delay", "unknown"), [(0, 0), (4, 4), (timedelta(days=5), 4)])
@pytest.mark.parametrize("kind", ["members", "mixture"])
def test_what_was_not_yet_observed_changes_no_bit(kind, delay, unknown, window):
    members, y = biased(80)
    forecast = members if kind == "members" else as_mixture(members)
    options = {"recalibrator": SHIFTED, "every": 10, "delay": delay, "window": window, "first": 40}
    before = recalibrate_over_time(y, forecast, DAYS, **options).issues
    for start, place in ((60, 2), (50, 1)):
        other = y.copy()
        other[start - unknown :] += np.random.default_rng(1).normal(size=other[start - unknown :].shape)
        after = recalibrate_over_time(other, forecast, DAYS, **options).issues
        assert all(same(before[k].forecast, after[k].forecast) for k in range(place + 1))
        other[start - unknown - 1] += 1  # the last that was known
        later = recalibrate_over_time(other, forecast, DAYS, **options).issues
        assert not same(before[place].forecast, later[place].forecast)
        assert all(same(before[k].forecast, later[k].forecast) for k in range(place))


@pytest.mark.parametrize(
    ("window", "first_known", "step"),
    [(None, 0, ErrorLaw(always=True)), (25, 33, Affine()), (timedelta(days=25), 33, Affine())],
)
def test_every_fit_is_the_plain_fit_on_the_past(window, first_known, step):
    members, y = biased(80)
    recalibrator = Recalibrator(steps=[step])
    issued = recalibrate_over_time(
        y, members, DAYS, recalibrator=recalibrator, every=20, delay=2, window=window, first=40
    )
    issue = issued.issues[1]
    assert issue.first == DAYS[60]
    assert issue.last == DAYS[79]
    past = slice(first_known, 58)
    plain = Recalibrator(steps=[step]).fit(members[past], y[past], blocks=np.arange(80)[past])
    assert issue.n_learnt == 58 - first_known
    assert same(issue.forecast, plain.transform(members[60:]))


def test_on_stationary_cases_it_comes_near_the_fit_on_all():
    members, y = biased(1500)
    forecast = as_mixture(members)
    whole = SHIFTED.fit(forecast, y).steps_[0]
    distances = []
    for issue in recalibrate_over_time(y, forecast, range(1500), recalibrator=SHIFTED, every=350, first=50).issues:
        step = issue.recalibrator.steps_[0]
        # a mean of n errors, all of which but the last ones are in the other: 4.5 standard errors of two targets and 5 fits
        error = 0.55 * (1 / issue.n_learnt - 1 / 1500) ** 0.5
        assert bool(((step.shift - whole.shift).abs() < 4.5 * error).all())
        distances.append(float((step.shift - whole.shift).abs().max()))
    assert distances[-1] < distances[0]


def test_a_signal_that_only_the_future_has_gains_nothing():
    rng = np.random.default_rng(3)
    signs = np.repeat(
        rng.permutation(np.repeat([-1.0, 1.0], 20)), 12
    )  # a bias of each block that says nothing of the next
    members, y = biased(480, bias=signs)
    own = SHIFTED.fit(as_mixture(members[:12]), y[:12])  # the signal is there for whoever looks ahead
    assert float((own.steps_[0].shift - signs[0]).abs().max()) < 0.6
    issued = recalibrate_over_time(
        y, as_mixture(members), range(480), recalibrator=SHIFTED, every=12, window=12, first=12
    )
    observed = y[issued.cases]
    values = energy_score(observed, as_mixture(members[issued.cases])) - energy_score(observed, issued.ensemble(50))
    by_block = values.reshape(-1, 12).mean(1)
    assert float(by_block.mean()) < 2 * float(by_block.std()) / len(by_block) ** 0.5


def test_a_drift_is_followed():
    members, y = biased(400, bias=np.linspace(0, 4, 400))
    law = as_mixture(members)
    issued = {
        window: recalibrate_over_time(y, law, range(400), recalibrator=SHIFTED, every=25, window=window, first=100)
        for window in (None, 50)
    }
    once = SHIFTED.fit(as_mixture(members[:100]), y[:100]).transform(as_mixture(members[100:]))
    scores = {window: energy_score(y[100:], part.ensemble(50)) for window, part in issued.items()}
    scores["once"] = energy_score(y[100:], once, n_draws=50)
    for better, worse in ((50, None), (None, "once")):
        less = scores[worse] - scores[better]
        assert float(less.mean()) > 3 * float(less.std()) / len(less) ** 0.5
    errors = (y[100:] - issued[50].ensemble().mean.numpy()).mean(0)
    assert np.all(np.abs(errors) < 0.6)  # half a window and half a step behind: 37.5 cases of a hundredth each


class Stopped(Exception):
    """As if the process had been killed."""


def counting(monkeypatch, at_most=1000):
    """Counts fits, and stops after some."""
    done = []
    learn = Recalibrator._learn

    def counted(self, *given):
        if len(done) == at_most:
            raise Stopped
        done.append(1)
        return learn(self, *given)

    monkeypatch.setattr(Recalibrator, "_learn", counted)
    return done


@pytest.mark.parametrize("kind", ["members", "mixture"])
def test_interrupted_and_called_again_nothing_is_lost(kind, tmp_path, monkeypatch):
    members, y = biased(80)
    options = {"recalibrator": SHIFTED, "every": 10, "first": 40, "case_weights": np.linspace(1, 2, 80)}
    forecast = members
    if kind == "mixture":
        tilt = Tilt(n_draws=32, n_reference=40, pool=60, by_features=True, degree=2)
        options |= {"recalibrator": Recalibrator(steps=[Affine(), tilt]), "features": np.sin(np.arange(80.0))}
        forecast = as_mixture(members)
    whole = recalibrate_over_time(y, forecast, DAYS, **options)
    with monkeypatch.context() as patched:
        counting(patched, at_most=2)
        with pytest.raises(Stopped):
            recalibrate_over_time(y, forecast, DAYS, folder=tmp_path, **options)
    assert len(list(tmp_path.iterdir())) == 2
    done = counting(monkeypatch)
    again = recalibrate_over_time(y, forecast, DAYS, folder=tmp_path, **options)
    assert len(done) == 2
    assert torch.equal(again.ensemble().members, whole.ensemble().members)
    for one, other in zip(again.issues, whole.issues, strict=True):
        assert same(one.forecast, other.forecast)
    if kind == "mixture":
        assert torch.equal(again.log_prob(y[again.cases]), whole.log_prob(y[again.cases]))
    recalibrate_over_time(y, forecast, DAYS, folder=tmp_path, **{**options, "case_weights": np.ones(80)})
    assert len(done) == 6  # none of those fits was kept


def test_a_later_call_with_more_cases_makes_only_new_fits(tmp_path, monkeypatch):
    members, y = biased(80)
    seen = y.copy()
    seen[55:] = np.nan  # as it was on the day of the 56th
    options = {"recalibrator": SHIFTED, "every": 5, "first": 40, "folder": tmp_path}
    done = counting(monkeypatch)
    then = recalibrate_over_time(seen[:60], members[:60], DAYS[:60], **options)
    assert len(done) == 4
    now = recalibrate_over_time(y, members, DAYS, **options)
    assert len(done) == 8
    for earlier, later in zip(then.issues, now.issues, strict=False):
        assert same(earlier.forecast, later.forecast)
    assert then.issues[-1].last == DAYS[59]  # not observed, and corrected


def test_order_labels_and_missing_values_are_taken_as_elsewhere():
    members, y = biased(80)
    shuffled = np.random.default_rng(4).permutation(80)
    plain = recalibrate_over_time(y, members, DAYS, recalibrator=SHIFTED, every=20, first=40)
    table = pd.DataFrame(y[shuffled], index=DAYS[shuffled], columns=["a", "b"])
    mixed = recalibrate_over_time(table, members[shuffled], table.index, recalibrator=SHIFTED, every=20, first=40)
    assert np.array_equal(shuffled[mixed.cases], plain.cases)
    assert all(same(one.forecast, other.forecast) for one, other in zip(plain.issues, mixed.issues, strict=True))
    named = xarray_of(members, y)
    labelled = recalibrate_over_time(*reversed(named), "season_day", recalibrator=SHIFTED, every=20, first=40)
    assert all(same(one.forecast, other.forecast) for one, other in zip(plain.issues, labelled.issues, strict=True))
    holes = members.copy()
    holes[70] = np.nan
    holes[10, 0] = np.nan
    issued = recalibrate_over_time(y, holes, DAYS, recalibrator=SHIFTED, every=20, first=40)
    assert 70 not in issued.cases
    assert len(issued.cases) == 39
    assert any("all their members are missing" in note for note in issued.notes)


def xarray_of(members, y):
    xarray = pytest.importorskip("xarray")
    place = {"case": DAYS, "season_day": ("case", np.arange(80))}
    return (
        xarray.DataArray(members, dims=("case", "member", "target"), coords=place),
        xarray.DataArray(y, dims=("case", "target"), coords=place),
    )


def test_while_too_little_is_known_the_last_fit_stays_in_use():
    members, y = biased(80)
    y[45:70] = np.nan  # an outage
    issued = recalibrate_over_time(y, members, DAYS, recalibrator=SHIFTED, every=10, first=40, window=15)
    fits = [issue.recalibrator for issue in issued.issues]
    assert fits[2] is fits[1]
    assert list(issued.table["learnt from"]) == [15, 10, 10, 10]
    assert list(issued.table["cases"]) == [10] * 4


def test_cases_of_one_time_are_corrected_together():
    members, y = biased(80)
    days = DAYS[np.arange(80) // 4]
    issued = recalibrate_over_time(y, members, days, recalibrator=SHIFTED, every=3)
    assert issued.issues[0].n_learnt == 40  # ten times, two for each fold
    assert list(issued.table["cases"]) == [12, 12, 12, 4]


def test_calibrated_members_stay_as_they_are():
    members, y = biased(200, bias=0.0)
    issued = recalibrate_over_time(y, members, range(200), recalibrator=SHIFTED, every=50, first=100)
    assert not issued.table["changed"].any()
    assert np.array_equal(issued.ensemble().members, members[100:])
    assert bool(issued.log_prob(y[100:]).isnan().all())
    with pytest.raises(ValueError, match=r"n_draws=50: 2 of 2 issues stayed ensembles of 5 members.*always=True"):
        issued.ensemble(50)


def test_draws_of_different_fits_do_not_share_random_numbers():
    members, y = biased(80)
    same_case = as_mixture(np.repeat(members[:1], 80, 0))
    issued = recalibrate_over_time(y, same_case, DAYS, recalibrator=SHIFTED, every=10, first=40)
    drawn = issued.ensemble(4).members.reshape(40, -1)
    scaled = (drawn - drawn.mean(1, keepdim=True)) / drawn.std(1, keepdim=True)
    assert float(torch.pdist(scaled).min()) > 1e-6


def test_a_drifting_ensemble_is_nearer_to_calibration():
    members, y = biased(400, bias=np.linspace(0, 2, 400))
    issued = recalibrate_over_time(y, members, range(400), every=20, window=60, first=100)
    before, after = (check(y[100:], forecast).table["PCE"].mean() for forecast in (members[100:], issued.ensemble()))
    assert after < 0.5 * before


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"first": 5}, ValueError, "first=5: 5 blocks observed by then, and a fit needs 10"),
        ({"first": 80}, ValueError, "first=80 of 80 times leaves none to correct"),
        ({"delay": 75}, ValueError, "there never are before the last of 80 times"),
        ({"window": 4}, ValueError, "a fit needs 10 blocks"),
        ({"delay": -1}, ValueError, "delay"),
        ({"every": 0}, ValueError, "every"),
        ({"delay": "2 days"}, TypeError, "a number of times, or a timedelta"),
        ({"recalibrator": Affine()}, TypeError, r"recalibrator is a Affine; pass a Recalibrator\(\)"),
    ],
)
def test_what_cannot_be_is_refused(options, error, said):
    members, y = biased(80)
    with pytest.raises(error, match=said):
        recalibrate_over_time(y, members, DAYS, **{"recalibrator": SHIFTED, **options})


def test_delays_in_days_need_dates(opaque):
    members, y = biased(80)
    with pytest.raises(TypeError, match="these are numbers; give a number of times"):
        recalibrate_over_time(y, members, range(80), delay=timedelta(days=1))
    with pytest.raises(TypeError, match="the first of these is 'run 0'"):
        recalibrate_over_time(y, members, [f"run {k}" for k in range(80)], window=timedelta(days=1))
    with pytest.raises(TypeError, match="cannot be cut into cases"):
        recalibrate_over_time(y, opaque(as_mixture(members)), DAYS)
