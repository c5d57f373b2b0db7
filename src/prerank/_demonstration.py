"""The demonstration: a misspecified model, plain, with a penalty and calibrated, beside the true distribution.

The truth has two modes and scales that move with the features; the model is a single Gaussian. Plain maximum likelihood
gets the second moments right and the shape wrong, which some pre-ranks see and others do not. The penalty buys
calibration with a little sharpness; calibration by cross-fitting corrects the shape itself. The oracle shows what the
true distribution scores on the same rows.
"""

from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from sklearn.base import clone
from torch.distributions import Distribution

from prerank.calibration import centred_levels, reliability_band, reliability_curve
from prerank.datasets import Bimodal
from prerank.diagnosis import Check, check
from prerank.forecasts import Ensemble, GaussianMixture, equally_weighted_draws
from prerank.plotting.demonstration import Panel, demonstration_figure
from prerank.preranks import PCA, Location, Marginal, Scale
from prerank.recalibration import Affine, Recalibrator, Tilt
from prerank.regression import CalibratedRegressorCV, MixtureRegressor
from prerank.scores import energy_score, nll

PENALISED = (Marginal(), Location(), Scale(), PCA())
"""What the demonstration penalises; the other pre-ranks of its table were never asked for."""

STRENGTHS = (0, 1, 5, 10)

LEARNT_FROM = 1000
"""Held-out rows that the correction is learnt from."""

POOL = 1000
"""Draws that corrected forecasts are resampled from: fewer than by default, to be quick."""


class Evaluated(NamedTuple):
    """A forecast of the test rows: its name, mean energy score and NLL, and the check of every pre-rank."""

    name: str
    energy_score: float
    nll: float
    check: Check


class Demonstration(NamedTuple):
    """Plain, penalised, calibrated and oracle, in this order, and the strength that tuning chose."""

    plain: Evaluated
    penalised: Evaluated
    calibrated: Evaluated
    oracle: Evaluated
    strength: float
    n_train: int
    n_test: int

    @property
    def forecasts(self) -> tuple[Evaluated, Evaluated, Evaluated, Evaluated]:
        return self.plain, self.penalised, self.calibrated, self.oracle


def demonstrate(n_train: int = 3000, n_test: int = 2000, seed: int = 0, verbose: bool = False) -> Demonstration:
    """Train where the truth is known, in three ways, and evaluate them beside the truth on held-out rows."""
    recipe = Bimodal()
    train, test = recipe.table(n_train, seed=2 * seed), recipe.table(n_test, seed=2 * seed + 1)
    plain = MixtureRegressor.paper(
        n_components=1, hidden=(32,), learning_rate=0.003, patience=10, random_state=seed, verbose=verbose
    )
    penalised = clone(plain).set_params(preranks=PENALISED, strengths=STRENGTHS)
    calibrated = CalibratedRegressorCV(
        clone(plain).set_params(verbose=False),
        max_held_out=LEARNT_FROM,
        recalibrator=Recalibrator(steps=(Affine(), Tilt(n_reference=POOL // 2, pool=POOL))),
    )
    fitted: list[Any] = [
        model.fit(train.x, train.y).predict_distribution(test.x) for model in (plain, penalised, calibrated)
    ]
    y = torch.as_tensor(test.y, dtype=torch.float64)
    names = ("plain NLL", "penalised", "calibrated", "oracle")
    first, second, third, fourth = (
        evaluate(name, forecast, y, seed) for name, forecast in zip(names, (*fitted, recipe.law(test.x)), strict=True)
    )
    return Demonstration(first, second, third, fourth, penalised.strength_, n_train, n_test)


def evaluate(name: str, forecast: Distribution, y: torch.Tensor, seed: int) -> Evaluated:
    """Scores and check of a forecast of y (N, D); one without closed forms is drawn once for all pre-ranks."""
    drawn = equally_weighted_draws(forecast, 100, seed, "energy score")
    score = energy_score(y, drawn).mean()
    closed = isinstance(forecast, GaussianMixture)
    checked = forecast if closed else Ensemble(drawn.members, reference=forecast)
    return Evaluated(name, float(score), float(nll(y, forecast).mean()), check(y, checked, seed=seed))


def panels(shown: Demonstration) -> list[Panel]:
    """Reliability curves of all forecasts, pre-rank by pre-rank."""
    levels = centred_levels()
    band = reliability_band(shown.n_test)
    made = []
    for group in shown.oracle.check.table.index:
        curves = []
        for forecast in shown.forecasts:
            pit = forecast.check.pit
            columns = [k for k, name in enumerate(pit.groups) if name == group]
            curves.append(reliability_curve(pit.values[:, columns].double(), levels=levels).frequency.numpy())
        errors = [float(forecast.check.table["PCE"].to_dict()[group]) for forecast in shown.forecasts]
        made.append(Panel(str(group), levels.numpy(), band.lower.numpy(), band.upper.numpy(), curves, errors))
    return made


def demonstration_picture(shown: Demonstration) -> Figure:
    """Reliability of every forecast for every pre-rank, their scores in the key."""
    return demonstration_figure(
        panels(shown),
        [
            "plain NLL",
            f"penalised, strength {shown.strength:g}",
            "calibrated by cross-fitting",
            "oracle: the true distribution",
        ],
        [f"energy score {item.energy_score:.3f}, NLL {item.nll:.3f}" for item in shown.forecasts],
        f"One Gaussian for a truth with two modes: {shown.n_test:,} held-out cases",
    )
