"""Targets on another scale, and mixtures of forecasts: laws that are known in closed form."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from torch.distributions import (
    AffineTransform,
    ExpTransform,
    Independent,
    LogNormal,
    MultivariateNormal,
    Normal,
    SigmoidTransform,
    SoftmaxTransform,
)

from prerank import Ensemble, GaussianMixture, nll
from prerank.forecasts import Mixed, equal_mixture
from prerank.forecasts.equal_mixture import SideBySide, side_by_side
from prerank.regression import Transformed, TransformedTargets


def mixture(n_cases: int = 5, n_components: int = 2, shift: float = 0.0) -> GaussianMixture:
    generator = torch.Generator().manual_seed(int(10 * shift))
    loc = shift + torch.randn(n_cases, n_components, 2, generator=generator, dtype=torch.float64)
    factor = torch.eye(2, dtype=torch.float64) * 0.5 + 0.2 * torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    logits = torch.randn(n_cases, n_components, generator=generator, dtype=torch.float64)
    return GaussianMixture(logits, loc, factor.expand(n_cases, n_components, 2, 2))


class Normals(RegressorMixin, BaseEstimator):
    """The normal law of the targets that it was fitted to, for every row."""

    def fit(self, X: Any, y: Any) -> "Normals":
        values = np.asarray(y, dtype=float).reshape(len(y), -1)
        self.mean_, self.covariance_ = values.mean(0), np.cov(values.T).reshape(2 * [values.shape[1]])
        return self

    def predict_distribution(self, X: Any) -> GaussianMixture:
        law = MultivariateNormal(torch.from_numpy(self.mean_), torch.from_numpy(self.covariance_))
        return GaussianMixture.of_normal(law.expand((len(X),)))


def test_a_logarithm_makes_a_log_normal_forecast() -> None:
    law = GaussianMixture(torch.zeros(3, 1), torch.full((3, 1, 1), 0.3), torch.full((3, 1, 1, 1), 0.5))
    known, made = LogNormal(0.3, 0.5), Transformed(law, [ExpTransform()])
    y = torch.tensor([[0.5], [1.0], [4.0]])
    torch.testing.assert_close(made.log_prob(y), known.log_prob(y)[:, 0])
    torch.testing.assert_close(made.mean[0, 0], known.mean)
    torch.testing.assert_close(made.variance[0, 0], known.variance)
    assert (made.log_prob(torch.tensor([[-1.0], [0.0], [1.0]]))[:2] == -torch.inf).all()
    assert (made.ensemble(50).members > 0).all()
    assert (made.ensemble(9).members == law.ensemble(9).members.exp()).all()
    assert (made.select(slice(1, 3)).log_prob(y[1:]) == made.log_prob(y)[1:]).all()
    with pytest.raises(ValueError, match="support"):
        nll(-y, made)


def test_each_target_has_its_own_transform() -> None:
    law = mixture()
    made = Transformed(law, [ExpTransform(), AffineTransform(3.0, -2.0)])
    drawn = law.ensemble(2000, stream="moments").members
    torch.testing.assert_close(made.ensemble(2000, stream="moments").members[..., 1], 3 - 2 * drawn[..., 1])
    torch.testing.assert_close(made.mean[:, 1], 3 - 2 * law.mean[:, 1])
    torch.testing.assert_close(made.variance[:, 1], 4 * law.variance[:, 1])
    y = made.ensemble(1).members[:, 0]
    back = torch.stack([y[:, 0].log(), (y[:, 1] - 3) / -2], -1)
    torch.testing.assert_close(made.log_prob(y), law.log_prob(back) - y[:, 0].log() - math.log(2))


def test_units_leave_a_mixture_a_mixture_and_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 1)), rng.normal(size=(50, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]])
    plain = Normals().fit(x, y).predict_distribution(x)
    model = TransformedTargets(Normals(), [AffineTransform(10.0, 2.0), None]).fit(x, y)
    forecast = model.predict_distribution(x)
    assert isinstance(forecast, GaussianMixture)
    torch.testing.assert_close(forecast.mean, plain.mean)
    torch.testing.assert_close(forecast.covariance_matrix, plain.covariance_matrix)
    assert model.score(x, y) == pytest.approx(-float(nll(y, plain).mean()))


def test_a_model_of_logarithms_is_right_where_targets_are_log_normal() -> None:
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=(2000, 1)), rng.normal(size=(2000, 2))
    y = pd.DataFrame(np.exp(z), columns=["u", "v"], index=np.arange(2000) + 7)
    model = TransformedTargets(Normals(), ExpTransform()).fit(x, y)
    known = Independent(LogNormal(torch.zeros(2000, 2).double(), 1.0), 1)
    best = -float(nll(y.to_numpy(), known).mean())
    assert abs(model.score(x, y) - best) < 0.02  # five fitted numbers of 2,000 rows: about 5 / 4000
    assert model.score(x, y) > TransformedTargets(Normals()).fit(x, y).score(x, y) + 1
    frame = model.predict(pd.DataFrame(x[:3], index=[4, 5, 6]))
    assert list(frame.columns) == ["u", "v"]
    assert list(frame.index) == [4, 5, 6]
    assert np.abs(frame.to_numpy() / np.exp(0.5) - 1).max() < 0.25
    assert model.sample(x[:3], 5).shape == (3, 5, 2)


def test_members_of_an_ensemble_are_transformed() -> None:
    class Members(Normals):
        def predict_distribution(self, X: Any) -> Ensemble:
            return super().predict_distribution(X).ensemble(9)

    x, y = np.zeros((20, 1)), np.exp(np.random.default_rng(2).normal(size=(20, 2)))
    model = TransformedTargets(Members(), ExpTransform()).fit(x, y)
    assert (model.predict_distribution(x).members == model.estimator_.predict_distribution(x).members.exp()).all()
    assert model.sample(x).shape == (20, 9, 2)


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        ([ExpTransform()], "1 transforms for 2 targets"),
        ([ExpTransform(), "log"], "is no torch transform"),
        (SoftmaxTransform(), "SoftmaxTransform is no monotone map of single numbers"),
        (ExpTransform(), r"3 of 20 values of target 1 are not in the range of ExpTransform.*smallest -1"),
        (SigmoidTransform(), "not in the range of SigmoidTransform"),
    ],
)
def test_transforms_that_do_not_fit_are_refused(transforms: Any, message: str) -> None:
    y = np.full((20, 2), 2.0)
    y[:3, 0] = -1
    with pytest.raises((ValueError, TypeError), match=message):
        TransformedTargets(Normals(), transforms).fit(np.zeros((20, 1)), y)


def test_an_equal_mixture_of_mixtures_is_that_of_their_densities() -> None:
    parts = [mixture(), mixture(shift=1.0), mixture(n_components=4, shift=2.0)]
    made, general = equal_mixture(parts), Mixed(parts)
    assert made.n_components == 8
    y = torch.zeros(5, 2, dtype=torch.float64)
    density = torch.stack([part.log_prob(y).exp() for part in parts]).mean(0)
    for law in (made, general):
        torch.testing.assert_close(law.log_prob(y).exp(), density)
        torch.testing.assert_close(law.mean, torch.stack([part.mean for part in parts]).mean(0))
    torch.testing.assert_close(general.variance, made.variance)
    assert equal_mixture(parts[:1]) is parts[0]


def test_draws_of_a_mixture_of_any_distributions_come_from_all_of_them() -> None:
    far = [Independent(Normal(torch.full((4, 1), at).double(), 0.1), 1) for at in (-10.0, 0.0, 10.0)]
    law = equal_mixture(far)
    assert isinstance(law, Mixed)
    members = law.ensemble(3000, seed=1).members[..., 0]
    share = torch.stack([(members - at).abs().lt(5).double().mean(-1) for at in (-10, 0, 10)])
    assert (share - 1 / 3).abs().max() < 5 * math.sqrt(2 / 9 / 3000)
    assert (law.ensemble(5, seed=1).members == law.ensemble(5, seed=1).members).all()
    torch.manual_seed(0)
    assert law.sample((7, 2)).shape == (7, 2, 4, 1)
    assert law.select(slice(2)).batch_shape == (2,)


def test_ensembles_are_mixed_member_by_member_with_equal_shares() -> None:
    few, many = (Ensemble(torch.full((2, m, 1), float(m))) for m in (3, 6))
    assert equal_mixture([few, few]).weights is None
    both = equal_mixture([few, many])
    torch.testing.assert_close(both.mean, torch.full((2, 1), 4.5))
    with pytest.raises(TypeError, match="ensembles and others distributions"):
        equal_mixture([few, mixture(2)])


def test_forecasts_of_different_cases_stand_side_by_side() -> None:
    first, second = mixture(3), mixture(2, shift=1.0)
    y = torch.zeros(5, 2, dtype=torch.float64)
    expected = torch.cat([first.log_prob(y[:3]), second.log_prob(y[3:])])
    assert (side_by_side([first, second]).log_prob(y) == expected).all()
    more = mixture(2, n_components=4, shift=1.0)
    uneven = side_by_side([first, more])
    torch.testing.assert_close(uneven.log_prob(y), torch.cat([first.log_prob(y[:3]), more.log_prob(y[3:])]))
    torch.testing.assert_close(uneven.covariance_matrix[:3], first.covariance_matrix)
    assert (uneven.select(slice(3)).weights[:, 2:] == 0).all()
    general = SideBySide([first, second])
    assert (general.log_prob(y) == expected).all()
    assert (general.mean == torch.cat([first.mean, second.mean])).all()
    assert general.ensemble(4).members.shape == (5, 4, 2)
    assert general.sample((6,)).shape == (6, 5, 2)
    weighted = Ensemble(torch.zeros(2, 3, 1), torch.tensor([[1.0, 2.0, 3.0]] * 2))
    assert side_by_side([weighted, weighted]).members.shape == (4, 3, 1)
    with pytest.raises(TypeError, match="give one kind"):
        side_by_side([weighted, first])
