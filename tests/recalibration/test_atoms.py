"""Targets with atoms: ties have a defined outcome, atoms stay where they are, and the summary says what it means."""

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Poisson

from prerank import Contrast, Ensemble, GaussianMixture, Location, Marginal, Recalibrator, Scale, energy_score
from prerank.forecasts import Moved
from prerank.recalibration import Affine, Dressing, Tilt
from prerank.recalibration.atoms import has_atoms, tied_shares
from prerank.recalibration.folds import mean_and_error
from prerank.recalibration.pit_coordinates import OldPITs

SMALL = Tilt(n_draws=64, n_reference=100, pool=500)
N = 400


def counts(rate, n=N):
    return Independent(Poisson(torch.full((n, 2), float(rate), dtype=torch.float64)), 1)


def observed(rate, seed, n=N):
    return torch.as_tensor(np.random.default_rng(seed).poisson(rate, size=(n, 2))).double()


def test_points_that_tie_have_the_middle_of_their_interval():
    forecast = counts(1.0, 3)
    old = OldPITs((Marginal(),), 200, 0)
    points = torch.tensor([0.0, 0.0, 1.0, 9.0]).double()[None, :, None].expand(3, 4, 2)
    found = old(forecast, points, torch.arange(3))
    assert torch.equal(found[:, 0], found[:, 1])
    # 0 has probability 0.37: its middle is 0.18, give or take the error of 200 draws, and half a place
    assert ((found[:, 0] - 0.184).abs() < 4.5 * 0.5 * (0.37 * 0.63 / 200) ** 0.5 + 0.005).all()
    torch.testing.assert_close(found[:, 3], torch.full((3, 2), 200.5 / 201).double())


@pytest.mark.slow
def test_a_wrong_count_is_corrected_and_stays_a_count():
    forecast = counts(2.0)
    y = observed(2.0, 1)
    y[np.random.default_rng(2).random(N) < 0.3] = 0.0  # zeros that the forecast does not know of
    recalibrator = Recalibrator([Marginal(), Location(), Scale()], [Affine(), SMALL]).fit(forecast, y)
    drawn = recalibrator.transform(forecast).ensemble(100, seed=3).members
    assert torch.equal(drawn, drawn.round())
    expected, before = 0.3 + 0.7 * np.exp(-2.0), np.exp(-2.0)
    for target in range(2):
        share = float((drawn[..., target] == 0).double().mean())
        # most of the way from the old probability to the new one, whose error is that of 400 cases
        assert share > before + 0.7 * (expected - before) - 3 * (expected * (1 - expected) / N) ** 0.5
    said = recalibrator.summary()
    assert "the forecast is discrete" in said
    assert "observations of targets 1 (100%), 2 (100%) repeat others" in said


def test_a_right_count_is_usually_left_alone():
    changed = 0
    for seed in range(6):
        forecast = counts(2.0, 200)
        recalibrator = Recalibrator([Marginal(), Location()], [Affine(), SMALL], seed=seed)
        changed += recalibrator.fit(forecast, observed(2.0, seed, 200)).changed_
    assert changed <= 4  # all but impossible at a rate of 0.2


def test_members_that_are_counts_are_dressed_and_tilted():
    members = torch.as_tensor(np.random.default_rng(0).poisson(2.0, size=(N, 8, 2))).double()
    y = observed(3.0, 1)
    recalibrator = Recalibrator([Marginal(), Contrast()], [Dressing(), SMALL]).fit(members, y)
    corrected = recalibrator.transform(members)
    assert "repeat others" in recalibrator.summary()
    later = observed(3.0, 2)
    gain, error = mean_and_error(
        energy_score(later, Ensemble(members)) - energy_score(later, corrected), torch.ones(N), torch.arange(N)
    )
    assert gain > 3 * error


def test_a_continuous_forecast_of_rounded_observations_gets_better():
    generator = torch.Generator().manual_seed(0)
    loc = torch.randn(N, 1, 3, generator=generator, dtype=torch.float64)
    forecast = GaussianMixture(torch.zeros(N, 1), loc, torch.eye(3).double().expand(N, 1, 3, 3))
    y, later = ((loc[:, 0] + torch.randn(N, 3, generator=generator, dtype=torch.float64)).floor() for _ in range(2))
    recalibrator = Recalibrator([Marginal(), Location()], [Affine(), SMALL]).fit(forecast, y)
    corrected = recalibrator.transform(forecast)
    loss, error = mean_and_error(
        energy_score(later, corrected) - energy_score(later, forecast), torch.ones(N), torch.arange(N)
    )
    assert loss < -3 * error  # a floor is half a unit too low
    assert "repeat others" in recalibrator.summary()


def test_what_is_discrete_is_known_and_ties_are_counted():
    assert has_atoms(counts(1.0))
    mixture = GaussianMixture(torch.zeros(2, 1), torch.zeros(2, 1, 2), torch.eye(2).expand(2, 1, 2, 2))
    assert not has_atoms(mixture)
    assert not has_atoms(Ensemble(torch.zeros(2, 3, 2)))
    assert not has_atoms(Moved(mixture, torch.zeros(2, 2), torch.zeros(2), torch.ones(2)))
    y = torch.tensor([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [1.0, 3.0, 3.0], [1.0, 4.0, 7.0]])
    assert tied_shares(y).tolist() == [1.0, 0.0, 0.5]
    assert tied_shares(y[:1]).tolist() == [0.0, 0.0, 0.0]


def test_continuous_observations_are_not_said_to_repeat(standard, observed):
    forecast = standard(100)
    recalibrator = Recalibrator(steps=[Affine()]).fit(forecast, observed(forecast, 1))
    assert "repeat" not in recalibrator.summary()
    assert recalibrator.tied_.tolist() == [0.0, 0.0]


def test_ties_are_kept_in_the_file(tmp_path):
    forecast = counts(2.0, 100)
    recalibrator = Recalibrator([Marginal()], [Affine()]).fit(forecast, observed(2.0, 1, 100))
    recalibrator.save(tmp_path / "learnt")
    assert Recalibrator.load(tmp_path / "learnt").summary() == recalibrator.summary()


@pytest.mark.parametrize("steps", [[Affine()], [SMALL]], ids=["affine", "tilt"])
def test_a_constant_observation_is_no_crash(steps):
    forecast = GaussianMixture(torch.zeros(60, 1), torch.zeros(60, 1, 2), torch.eye(2).expand(60, 1, 2, 2))
    y = torch.zeros(60, 2)
    y[:, 1] = torch.linspace(-2, 2, 60)
    corrected = Recalibrator([Marginal()], steps).fit(forecast, y).transform(forecast)
    assert corrected.ensemble(5).members.isfinite().all()
