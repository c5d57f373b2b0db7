"""Forecasts of transformed targets are corrected by rows that were not fitted on, densities, draws and all."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from torch.distributions import ExpTransform, Independent, Laplace, Poisson, Uniform

from prerank import GaussianMixture, Marginal, Recalibrator
from prerank.forecasts import case_by_case, equally_weighted_draws, select_cases
from prerank.forecasts.equal_mixture import equal_mixture, side_by_side
from prerank.recalibration import Affine, Tilt
from prerank.recalibration.atoms import has_atoms
from prerank.regression import CalibratedRegressorCV, TransformedTargets


class Narrow(RegressorMixin, BaseEstimator):
    """Forecasts that are too narrow by half."""

    def fit(self, X: Any, y: Any) -> "Narrow":
        self.n_features_in_ = X.shape[1]
        return self

    def predict_distribution(self, X: Any) -> GaussianMixture:
        n = len(X)
        factor = 0.5 * torch.eye(2, dtype=torch.float64).expand(n, 1, 2, 2)
        return GaussianMixture(torch.zeros(n, 1), torch.zeros(n, 1, 2), factor)


@pytest.mark.parametrize("ensemble", [True, False])
def test_transformed_targets_are_corrected_and_stay_in_their_range(ensemble: bool) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 1)), np.exp(0.8 * rng.normal(size=(300, 2)))
    steps = [Affine(), Tilt(n_draws=64, n_reference=100, pool=300)]
    learns = Recalibrator(Marginal(), steps=steps)
    model = CalibratedRegressorCV(
        TransformedTargets(Narrow(), ExpTransform()), cv=3, ensemble=ensemble, recalibrator=learns, random_state=0
    ).fit(x, y)
    assert [step.changed for step in model.recalibrator_.steps_] == [False, True]  # nothing is moved below zero
    assert "bounds within reach" in model.summary()
    drawn = model.sample(x[:20], 50)
    assert drawn.min() > 0
    plain = TransformedTargets(Narrow(), ExpTransform()).fit(x, y)
    assert model.score(x, y) > plain.score(x, y)
    one = model.predict(x[:1])
    assert (model.predict(x[:5])[:1] == one).all()  # whatever rows are beside it


def test_distributions_side_by_side_are_cut_across_their_parts() -> None:
    loc = torch.arange(14.0, dtype=torch.float64).reshape(7, 2)
    law = side_by_side([Independent(Laplace(part, 1.0), 1) for part in loc.split((3, 4))])
    cases = torch.tensor([5, 0, 1, 4, 6])
    part = select_cases(law, cases)
    assert torch.equal(part.mean, loc[cases])
    torch.testing.assert_close(part.log_prob(loc[cases] + 1), law.log_prob(loc + 1)[cases])
    assert select_cases(law, slice(2, 4)).mean.tolist() == loc[2:4].tolist()
    assert equally_weighted_draws(case_by_case(law), 5).members.shape == (7, 5, 2)


def test_a_mixture_may_lie_where_any_of_its_parts_may() -> None:
    low, high = (Independent(Uniform(torch.full((4, 2), at).double(), at + 1.0), 1) for at in (0.0, 5.0))
    y = torch.full((4, 2), 0.5, dtype=torch.float64)
    both = equal_mixture([low, high])
    assert [bool(both.support.check(y + shift).all()) for shift in (0.0, 5.0, 2.0)] == [True, True, False]
    beside = side_by_side([low, high])
    values = torch.cat([y, y])
    assert beside.support.check(values).tolist() == [True] * 4 + [False] * 4
    assert not has_atoms(both)
    assert has_atoms(equal_mixture([Independent(Poisson(y), 1)] * 2))
    assert has_atoms(side_by_side([Independent(Poisson(y), 1)] * 2))
