"""Steps recover errors that are known, and leave alone what is right."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

from prerank import (
    Contrast,
    Ensemble,
    GaussianMixture,
    Location,
    Marginal,
    Recalibrator,
    energy_score,
    nll,
    pce,
    pce_null,
    projected_pit,
)
from prerank.forecasts import Moved
from prerank.recalibration import Affine, Dressing, Tilt, Tilted
from prerank.recalibration.folds import folds_of, mean_and_error, most_cautious

SMALL = Tilt(n_draws=64, n_reference=100, pool=500)


def judged(corrected, y, preranks):
    """PCE by plain ranks among equally weighted draws, the largest over projections."""
    draws = Ensemble(corrected.ensemble(100, seed=9).members, reference=None)
    return float(pce(projected_pit(y, draws, preranks)).max())


def test_the_affine_step_recovers_bias_and_spread(standard, observed):
    n = 2000
    forecast = standard(n, 3)
    y = (
        forecast.mean
        + torch.tensor([0.5, 0.0, -0.3])
        + torch.tensor([1.4, 1.0, 0.7]) * (observed(forecast, 1) - forecast.mean)
    )
    step = Recalibrator(steps=[Affine()]).fit(forecast, y).steps_[0]
    # standard errors s / sqrt(n) and s / sqrt(2 n); the weakest ridge takes a thousandth
    error = torch.tensor([1.4, 1.0, 0.7]) / math.sqrt(n)
    assert ((step.shift - torch.tensor([0.5, 0.0, -0.3])).abs() < 4.5 * error + 0.002).all()
    assert ((step.scale - torch.tensor([1.4, 1.0, 0.7])).abs() < 4.5 * error / math.sqrt(2) + 0.002).all()
    assert step.gain > 10 * step.gain_error


@pytest.mark.parametrize("kind", ["mixture", "normal", "other", "members"])
def test_every_kind_of_forecast_is_moved_alike(kind, standard, observed):
    n = 1500
    mixture = standard(n)
    y = mixture.mean + 0.6 + 1.5 * (observed(mixture, 1) - mixture.mean)
    forecast = {
        "mixture": mixture,
        "normal": torch.distributions.MultivariateNormal(mixture.mean, scale_tril=mixture.scale_tril[:, 0]),
        "other": torch.distributions.Independent(torch.distributions.Normal(mixture.mean, torch.ones(2).double()), 1),
        "members": mixture.ensemble(8, seed=2),  # few, so that their spread is uncertain
    }[kind]
    corrected = Recalibrator(steps=[Affine()]).fit(forecast, y).transform(forecast)
    expected = {"members": Ensemble, "other": Moved}.get(kind, GaussianMixture)
    assert type(corrected) is expected
    drawn = corrected if kind == "members" else Ensemble(corrected.sample((200,)).movedim(0, 1))
    moved = (drawn.mean - (forecast.mean)).mean(0)
    # the error of a mean of n residuals, half as large again for the mean of 8 members, and of 200 draws
    assert ((moved - 0.6).abs() < 4.5 * 1.5 * 1.2 / math.sqrt(n) + 0.01).all()
    if kind != "members":
        torch.testing.assert_close(
            corrected.log_prob(y).mean(),
            torch.distributions.Normal(mixture.mean + 0.6, 1.5).log_prob(y).sum(-1).mean(),
            atol=0.01,  # four parameters cost 2 / n nats, and the ridge a thousandth
            rtol=0,
        )


def test_dressing_recovers_a_kernel_and_gives_a_mixture_of_the_members():
    n, m, d = 1500, 5, 2
    generator = torch.Generator().manual_seed(0)
    factor = torch.tensor([[0.5, 0.0], [0.3, 0.4]], dtype=torch.float64)
    # members far apart, and the observation about one of them: the kernel is known
    members = 10 * torch.randn(n, m, d, generator=generator, dtype=torch.float64)
    pick = torch.randint(m, (n,), generator=generator)
    noise = torch.randn(n, d, generator=generator, dtype=torch.float64) @ factor.mT
    y = members[torch.arange(n), pick] + torch.tensor([0.4, -0.2]) + noise
    recalibrator = Recalibrator(steps=[Dressing()]).fit(members, y)
    step = recalibrator.steps_[0]
    assert ((step.shift - torch.tensor([0.4, -0.2])).abs() < 4.5 * 0.5 / math.sqrt(n)).all()
    torch.testing.assert_close(step.scale, torch.ones(2, dtype=torch.float64), atol=0.005, rtol=0)
    # variances have the relative error sqrt(2 / n) = 0.037
    torch.testing.assert_close(
        step.kernel_tril @ step.kernel_tril.mT, factor @ factor.mT, atol=0.25 * 4.5 * 0.037, rtol=0
    )
    dressed = recalibrator.transform(members)
    assert (dressed.n_components, dressed.n_targets) == (m, d)
    assert "kernels with standard deviations" in recalibrator.summary()


def test_a_repeated_observation_does_not_collapse_the_kernel():
    members = torch.randn(200, 6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = members[:, 0].clone()  # each observation is a member
    step = Recalibrator(steps=[Dressing()]).fit(members, y).steps_[0]
    assert (step.kernel_tril.diagonal() > 1e-3).all()


@pytest.mark.slow
def test_a_calibrated_forecast_usually_comes_out_unchanged(standard, observed):
    repetitions, changed = 25, 0
    for seed in range(repetitions):
        forecast = standard(200, seed=seed)
        recalibrator = Recalibrator(steps=[Affine(), SMALL], seed=seed).fit(forecast, observed(forecast, seed))
        changed += recalibrator.changed_
        if not recalibrator.changed_:
            assert recalibrator.transform(forecast) is forecast
            assert "Nothing was changed" in recalibrator.summary()
    assert changed <= binom.ppf(0.9999, repetitions, 0.3)


@pytest.mark.parametrize("error", ["bias", "spread", "correlation"])
def test_known_errors_are_cured_on_fresh_cases(error, standard):
    n_cal, n_test = 1000, 1000

    def data(n, seed):
        forecast = standard(n, 2, seed=seed)
        noise = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
        if error == "bias":
            noise = noise + 0.5
        elif error == "spread":
            noise = 1.4 * noise
        else:
            noise = noise @ torch.tensor([[1.0, 0.8], [0.0, 0.6]], dtype=torch.float64)
        return forecast, forecast.mean + noise

    recalibrator = Recalibrator(steps=[Affine(), SMALL]).fit(*data(n_cal, 0))
    forecast, y = data(n_test, 100)
    corrected = recalibrator.transform(forecast)
    # errors of estimation and of testing add up as if there were 1 / (1 / n_cal + 1 / n_test) cases; four projections
    bound = pce_null(round(1 / (1 / n_cal + 1 / n_test))).quantile(1 - 0.001 / 4)
    preranks = [Marginal(), Location(), Contrast()]
    before, after = (judged(law, y, preranks) for law in (forecast, corrected))
    assert after < bound < before
    assert nll(y, corrected).mean() < nll(y, forecast).mean() - 0.05


@pytest.mark.slow
def test_what_nobody_can_represent_is_left_alone(standard, observed):
    """A forecast five times too narrow, without transport: a tilt fits well and has no draws to be made of."""
    forecast = standard(200, 3, spread=0.2)
    wide = standard(200, 3)
    recalibrator = Recalibrator(steps=[SMALL]).fit(forecast, observed(wide, 1))
    after, before = (
        energy_score(observed(wide, 2), law, seed=3) for law in (recalibrator.transform(forecast), forecast)
    )
    gain, error = mean_and_error(before - after, torch.ones(200), torch.arange(200))
    assert gain > -3 * error
    step = recalibrator.steps_[0]
    assert step.changed or (step.refused and "would do harm" in recalibrator.summary())


def test_blocks_stay_together():
    blocks = np.repeat(np.arange(30), 7)
    folds = folds_of(210, 5, blocks, 0, torch.device("cpu"))
    for block in range(30):
        assert len(folds.fold[torch.as_tensor(blocks == block)].unique()) == 1
    assert torch.bincount(folds.fold).tolist() == [42] * 5


def test_cases_of_a_block_count_as_one():
    values = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    alone = mean_and_error(values, torch.ones(50), torch.arange(50))
    copies = mean_and_error(values.repeat_interleave(4), torch.ones(200), torch.arange(50).repeat_interleave(4))
    assert copies == pytest.approx(alone)
    assert alone[1] == pytest.approx(float(values.std() / math.sqrt(50)))


def test_the_most_cautious_candidate_within_an_error_is_taken():
    noise = torch.linspace(-1, 1, 100, dtype=torch.float64)
    weights, block = torch.ones(100), torch.arange(100)
    clear, equal, worse = 1 + noise, 1 + 1.5 * noise, -1 + noise
    assert most_cautious([worse, equal, clear], weights, block) == 1
    assert most_cautious([clear, equal], weights, block) == 0
    assert most_cautious([worse], weights, block) is None
    assert most_cautious([0.01 + noise], weights, block) is None
    assert most_cautious([], weights, block) is None


def test_case_weights_of_zero_leave_cases_out(standard, observed):
    forecast = standard(400)
    y = observed(forecast, 1) + 0.5
    y[200:] += 5.0
    weights = torch.ones(400)
    weights[200:] = 0.0
    step = Recalibrator(steps=[Affine()]).fit(forecast, y, case_weights=weights).steps_[0]
    assert ((step.shift - 0.5).abs() < 4.5 / math.sqrt(200) + 0.01).all()


def test_a_second_tilt_starts_from_the_corrected_law(standard):
    forecast = standard(200)
    y = forecast.mean + torch.randn(200, 2, generator=torch.Generator().manual_seed(0)).exp() - 1.0
    tilt = Tilt(n_draws=32, n_reference=50, pool=100, ridges=(1.0, 0.1))
    recalibrator = Recalibrator(preranks=[Marginal()], steps=[tilt, tilt]).fit(forecast, y)
    assert recalibrator.steps_[0].changed
    corrected = recalibrator.transform(forecast)
    assert isinstance(corrected, Tilted)
    assert isinstance(corrected.base, Tilted) == recalibrator.steps_[1].changed
