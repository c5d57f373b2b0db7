"""Small claims about steps, each of which a small fault would break."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Gamma, Independent

from prerank import Ensemble, Recalibrator, energy_score
from prerank.forecasts import Moved
from prerank.recalibration import Affine, Dressing, HighestDensityRegions
from prerank.recalibration.atoms import in_words


def ensembles(n_cases, heavy, seed=0):
    """Members about a signal; the errors of every tenth case are six times as large, if they are heavy."""
    rng = np.random.default_rng(seed)
    signal = 3 * rng.normal(size=(n_cases, 1, 2))
    size = np.where((np.arange(n_cases) % 10 == 0) & heavy, 6.0, 1.0)[:, None]
    return signal + 0.3 * rng.normal(size=(n_cases, 5, 2)), signal[:, 0] + size * rng.normal(size=(n_cases, 2))


def test_errors_of_two_sizes_give_kernels_of_two_widths():
    members, y = ensembles(400, heavy=True)
    step = Recalibrator(steps=[Dressing()]).fit(members, y).steps_[0]
    assert 0.03 < step.tail_share < 0.25  # a tenth, of which not all are told apart
    assert 3 < step.tail_factor < 10
    dressed = step.transform(Ensemble(members))
    assert dressed.n_components == 10
    wide = dressed.scale_tril[0, 5:, 0, 0] / dressed.scale_tril[0, :5, 0, 0]
    torch.testing.assert_close(wide, torch.full_like(wide, step.tail_factor))
    share = dressed.log_weights[0].exp()
    assert float(share[5:].sum()) == pytest.approx(step.tail_share)
    assert f"{step.tail_share:.0%} of them {step.tail_factor:.2g} times as wide" in step.summary()


def test_errors_of_one_size_give_one_kernel():
    members, y = ensembles(400, heavy=False, seed=1)
    step = Recalibrator(steps=[Dressing()]).fit(members, y).steps_[0]
    assert step.tail_share == 0.0
    assert step.tail_factor == 1.0
    assert step.transform(Ensemble(members)).n_components == 5
    assert "times as wide" not in step.summary()


def test_the_gain_of_a_dressing_is_what_the_energy_score_gains():
    members, y = ensembles(400, heavy=False, seed=2)
    y = y + 2.0
    step = Recalibrator(steps=[Dressing()]).fit(members, y).steps_[0]
    before, after = (
        energy_score(torch.as_tensor(y), law) for law in (Ensemble(members), step.transform(Ensemble(members)))
    )
    assert step.score == pytest.approx(float(before.mean()))
    # the parameters of a fold differ from those of all cases by their error, far below that of the gain
    assert step.gain == pytest.approx(float((before - after).mean()), abs=step.gain_error)
    assert step.gain > 5 * step.gain_error


def test_with_blocks_a_shift_is_pulled_harder():
    members, y = ensembles(400, heavy=False, seed=3)
    y = y + 1.0
    alone = Recalibrator(steps=[Dressing()]).fit(members, y).steps_[0].shift
    blocks = Recalibrator(steps=[Dressing()]).fit(members, y, blocks=np.arange(400) // 40).steps_[0].shift
    assert (blocks.abs() < alone.abs()).all()


def test_the_spread_of_a_wide_forecast_is_known(standard, observed):
    forecast = standard(800, spread=2.0)
    y = forecast.mean + 1.5 * (observed(forecast, 1) - forecast.mean)
    step = Recalibrator(steps=[Affine()]).fit(forecast, y).steps_[0]
    assert ((step.scale - 1.5).abs() < 4.5 * 1.5 / math.sqrt(1600) + 0.01).all()


def test_a_ridge_of_one_halves_a_small_shift(standard, observed):
    """Per case the information on a shift is one over the variance, here one: as much as the ridge."""
    forecast = standard(2000)
    y = observed(forecast, 1) + 0.4
    step = Recalibrator(steps=[Affine(ridges=(1.0,))]).fit(forecast, y).steps_[0]
    assert ((step.shift - 0.2).abs() < 0.04).all()


def test_folds_are_judged_by_what_was_learnt_without_them(standard, observed):
    """Eight cases teach noise: judged by themselves they would nearly always support it."""
    changed = 0
    for seed in range(12):
        forecast = standard(40, 3, seed=seed)
        changed += Recalibrator(steps=[Affine()], seed=seed).fit(forecast, observed(forecast, seed)).changed_
    assert changed <= 6


def test_a_moved_law_has_no_density_outside_its_moved_support():
    base = Independent(Gamma(torch.full((3, 2), 2.0), torch.ones(2)), 1)
    moved = Moved(base, base.mean, torch.full((2,), 1.0), torch.full((2,), 0.5))
    # zero goes to 2 + 1 - 1 = 2
    assert torch.isinf(moved.log_prob(torch.full((3, 2), 1.9))).all()
    inside = moved.log_prob(torch.full((3, 2), 3.0))
    torch.testing.assert_close(inside, base.log_prob(torch.full((3, 2), 2.0)) - 2 * math.log(0.5))


def test_a_region_says_how_many_cases_and_targets_it_is_for(standard, observed):
    forecast = standard(50, 3)
    region = HighestDensityRegions().fit(forecast, observed(forecast, 1)).region(forecast, level=0.5)
    assert repr(region).startswith("PredictionRegion(50 cases, 3 targets, level 0.5: covers ")


def test_many_targets_with_atoms_are_cut_short():
    assert in_words(torch.full((6,), 0.5)).count("(50%)") == 6
    assert "..." not in in_words(torch.full((6,), 0.5))
    assert ", ... repeat" in in_words(torch.full((7,), 0.5))
    assert "of target 2 (10%) repeat" in in_words(torch.tensor([0.09, 0.1]))
    assert in_words(torch.tensor([0.09, 0.05])) is None
