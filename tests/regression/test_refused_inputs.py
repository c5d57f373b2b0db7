"""Inputs that no estimator can use: none is accepted without a word, and none ends in an error from the inside."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from torch.distributions import AbsTransform, AffineTransform, ExpTransform, Independent, Laplace, SoftmaxTransform

from prerank import Ensemble, GaussianMixture, Recalibrator
from prerank.forecasts import equal_mixture
from prerank.recalibration import Affine
from prerank.regression import (
    CalibratedRegressorCV,
    MixtureRegressor,
    NegativeEnergyScore,
    NegativePCE,
    StackedFeatures,
    TransformedTargets,
    predict_distribution,
    predict_quantiles,
    sample,
)

N, D = 40, 2
NAN, INF = float("nan"), float("inf")
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(N, 3)), rng.normal(size=(N, D))
BOTH = (TypeError, ValueError)


def law(n_cases: int, n_targets: int = D) -> GaussianMixture:
    factor = torch.eye(n_targets, dtype=torch.float64).expand(n_cases, 1, n_targets, n_targets)
    return GaussianMixture(torch.zeros(n_cases, 1), torch.zeros(n_cases, 1, n_targets), factor)


def laplace(n_cases: int) -> Independent:
    return Independent(Laplace(torch.zeros(n_cases, D), 1.0), 1)


def put(array: np.ndarray, value: Any, *where: int) -> np.ndarray:
    result = array.copy()
    result[where] = value
    return result


class Standard(Ridge):
    """Says standard normal, whatever the features."""

    def predict_distribution(self, X: Any) -> GaussianMixture:
        return law(len(X))


def network(**options: Any) -> MixtureRegressor:
    return MixtureRegressor(max_epochs=1, hidden=(4,), n_components=1, random_state=0, **options)


def calibrated(estimator: Any = None, **options: Any) -> CalibratedRegressorCV:
    estimator = Standard() if estimator is None else estimator
    return CalibratedRegressorCV(estimator, **{"recalibrator": Recalibrator(steps=[Affine()]), "cv": 4, **options})


MODELS: dict[str, Any] = {
    "network": network,
    "calibrated": calibrated,
    "calibrated network": lambda: calibrated(network(), cv=3),
    "stacked": lambda: StackedFeatures(Ridge(), cv=3),
    "transformed": lambda: TransformedTargets(network(), AffineTransform(0.0, 2.0)),
}
FIT: dict[str, tuple[Any, Any, str]] = {
    "y None": (X, None, "requires y to be passed, but the target y is None"),
    "X None": (None, Y, "X has shape|Expected 2D array"),
    "X text": ("x", Y, "X has shape|X is a str"),
    "X a dict": ({"a": 1}, Y, "X has shape|X is a dict"),
    "y text": (X, "y", r"y is a str|y has shape \(\)"),
    "y a forecast": (X, law(N), r"y is a GaussianMixture|y has shape \(\)"),
    "X of one axis": (X[:, 0], Y, r"X has shape \(40,\)|Expected 2D array"),
    "X of three axes": (X[None], Y, "X has shape|dim 3"),
    "y of three axes": (X, Y[None], r"y has shape \(1, 40, 2\)|dim 3"),
    "NaN in X": (put(X, NAN, 0, 0), Y, "Input X contains NaN"),
    "NaN in y": (X, put(Y, NAN, 0, 0), "1 of 80 values of y are NaN"),
    "infinity in X": (put(X, INF, 0, 0), Y, "Input X contains infinity"),
    "infinity in y": (X, put(Y, INF, 0, 0), "values of y are NaN or infinite"),
    "X complex": (X + 0j, Y, "Complex data not supported"),
    "y complex": (X, Y + 0j, "Complex data not supported"),
    "other rows": (X[:5], Y, "inconsistent numbers of samples|X has 5 rows"),
    "no rows": (X[:0], Y[:0], "n_samples=0|0 sample|at least"),
    "no features": (X[:, :0], Y, "0 feature"),
    "no targets": (X, Y[:, :0], r"0 feature|y has shape \(40, 0\)"),
    "y of letters": (X, np.full((N, D), "a"), "could not convert string to float|other things than numbers"),
}


@pytest.mark.parametrize("what", MODELS)
@pytest.mark.parametrize("name", FIT)
def test_what_cannot_be_learnt_from_is_refused(what: str, name: str) -> None:
    x, y, message = FIT[name]
    with pytest.raises(BOTH, match=message):
        MODELS[what]().fit(x, y)


@pytest.fixture(scope="module")
def ready() -> dict[str, Any]:
    return {name: make().fit(X, Y) for name, make in MODELS.items()}


USE: dict[str, tuple[Any, str]] = {
    "None": (None, "X has shape|Expected 2D array"),
    "text": ("a", "X has shape|X is a str"),
    "one axis": (X[:, 0], "X has shape|Expected 2D array"),
    "other features": (X[:, :2], "X has 2 features"),
    "three axes": (X[None], "X has shape|dim 3"),
}


def use(model: Any, x: Any) -> Any:
    return model.transform(x) if isinstance(model, StackedFeatures) else model.predict_distribution(x)


@pytest.mark.parametrize("what", MODELS)
@pytest.mark.parametrize("name", USE)
def test_what_cannot_be_forecast_is_refused(what: str, name: str, ready: dict[str, Any]) -> None:
    x, message = USE[name]
    with pytest.raises(BOTH, match=message):
        use(ready[what], x)


@pytest.mark.parametrize("what", MODELS)
def test_what_is_not_fitted_says_so(what: str) -> None:
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        use(MODELS[what](), X)


@pytest.mark.parametrize("what", [name for name in MODELS if name != "stacked"])
@pytest.mark.parametrize("count", [0, 1.5, "a", True, None, -3])
def test_numbers_of_draws_are_whole(what: str, count: Any, ready: dict[str, Any]) -> None:
    with pytest.raises(BOTH, match=r"^n_draws=.*a whole number of at least 1"):
        ready[what].sample(X, count)


@pytest.mark.parametrize("what", [name for name in MODELS if name != "stacked"])
@pytest.mark.parametrize("seed", [1.5, "a", None, NAN])
def test_seeds_of_draws_are_whole(what: str, seed: Any, ready: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"^seed=.*: a whole number"):
        ready[what].sample(X, 5, seed=seed)


SCORED: dict[str, tuple[Any, str]] = {
    "other rows": (Y[:5], "both must be the same|inconsistent numbers"),
    "other targets": (Y[:, :1], "both must be the same|y has 1 targets"),
    "NaN": (put(Y, NAN, 0, 0), "NaN"),
    "None": (None, "two axes|y is None|target y is None"),
    "text": ("a", "y is a str|could not convert"),
}


@pytest.mark.parametrize("what", ["network", "calibrated"])
@pytest.mark.parametrize("name", SCORED)
def test_what_cannot_be_scored_is_refused(what: str, name: str, ready: dict[str, Any]) -> None:
    y, message = SCORED[name]
    with pytest.raises(BOTH, match=message):
        ready[what].score(X, y)


def search(refit: bool) -> GridSearchCV:
    return GridSearchCV(network(), {"patience": [1, 2]}, scoring=NegativeEnergyScore(n_draws=5), refit=refit, cv=2)


OPTIONS: dict[str, tuple[Any, str]] = {
    **{f"ensemble={v!r}": (lambda v=v: calibrated(ensemble=v).fit(X, Y), r"^ensemble=.*: True, False or")
       for v in ("yes", None, 3, np.array([True, False]))},
    **{f"max_held_out={v!r}": (lambda v=v: calibrated(max_held_out=v).fit(X, Y), r"^max_held_out=.*: a whole number")
       for v in (0, 2.5, "a", -1, True)},
    **{f"recalibrator={v!r}": (lambda v=v: calibrated(recalibrator=v).fit(X, Y), "^recalibrator is .*; pass a Recalibrator")
       for v in ("a", Recalibrator, Ridge(), 3)},
    **{f"estimator={v!r}": (lambda v=v: calibrated(v).fit(X, Y), "^estimator is .*; pass an estimator such as")
       for v in ("a", Ridge, 3)},
    **{f"stacked {v!r}": (lambda v=v: StackedFeatures(v).fit(X, Y), "^estimator is .*; pass a regressor|instance")
       for v in ("a", Ridge, 3)},
    "an estimator without a law": (lambda: calibrated(Ridge()).fit(X, Y), "Ridge has no predict_distribution"),
    **{f"random_state={v!r}": (lambda v=v: calibrated(random_state=v).fit(X, Y), "cannot be used to seed")
       for v in ("a", 1.5, [1])},
    "weights short": (lambda: calibrated().fit(X, Y, sample_weight=np.ones(3)), "inconsistent numbers"),
    "weights negative": (lambda: calibrated().fit(X, Y, sample_weight=-np.ones(N)), "sample_weight are negative"),
    "weights of NaN": (lambda: calibrated().fit(X, Y, sample_weight=np.full(N, NAN)), "sample_weight are negative, NaN"),
    "weights zero": (lambda: calibrated().fit(X, Y, sample_weight=np.zeros(N)), "sample_weight are zero"),
    "weights of two axes": (lambda: calibrated().fit(X, Y, sample_weight=np.ones((N, 2))), "one number per case"),
    "groups short": (lambda: calibrated().fit(X, Y, groups=np.ones(3)), "inconsistent numbers"),
    "groups of NaN": (lambda: calibrated().fit(X, Y, groups=np.full(N, NAN)), "groups has 40 missing labels"),
    "groups of two axes": (lambda: calibrated().fit(X, Y, groups=np.ones((N, 2))), r"groups has shape \(40, 2\); one label"),
    "groups of two axes, stacked": (
        lambda: StackedFeatures(Ridge()).fit(X, Y, groups=np.ones((N, 2))), r"groups has shape \(40, 2\); one label"),
    "one group": (lambda: calibrated().fit(X, Y, groups=np.zeros(N)), "greater than the number of groups"),
    **{f"transforms={v!r}": (lambda v=v: TransformedTargets(network(), v).fit(X, Y), "transforms|monotone|range of")
       for v in ("exp", ExpTransform, [None], [None, "a"], SoftmaxTransform(), AffineTransform(0.0, 0.0), AbsTransform(),
                 AffineTransform(0.0, NAN), ExpTransform(), [], {"a": None}, 3)},
    **{f"scales={v!r}": (lambda v=v: NegativeEnergyScore(scales=v), r"^scales=.*: one positive, finite number")
       for v in ((INF, 1.0), (0.0, 1.0), (NAN, 1.0), (-1.0, 1.0), "ab", 3, (None, 1.0), (True, 1.0))},
    "scales of other targets": (lambda: NegativeEnergyScore(scales=(1.0,))(Standard().fit(X, Y), X, Y), "of the 2 targets"),
    **{f"energy score of {v!r} draws": (lambda v=v: NegativeEnergyScore(n_draws=v), r"^n_draws=.*: a whole number")
       for v in (0, 1, "a", 1.5)},
    **{f"PCE of {v!r} draws": (lambda v=v: NegativePCE(n_draws=v), r"^n_draws=.*: a whole number") for v in (0, "a", 1.5)},
    "a score's seed": (lambda: NegativePCE(seed=1.5), r"^seed=1.5: a whole number"),
    "a mixture of none": (lambda: equal_mixture([]), "no forecast to mix"),
    "a mixture of a number": (lambda: equal_mixture(3), "an int is no forecast"),
    "a mixture of arrays": (lambda: equal_mixture([Y, Y]), "an ndarray is no forecast"),
    "mixtures of other cases": (lambda: equal_mixture([law(3), law(4)]), "3 cases and 2 targets, 4 cases and 2 targets"),
    "mixtures of other targets": (lambda: equal_mixture([law(3, 1), law(3, 2)]), "3 cases and 1 targets, 3 cases and 2"),
    "laws of other cases": (lambda: equal_mixture([laplace(3), law(4)]), "3 cases and 2 targets, 4 cases and 2 targets"),
    "ensembles of other cases": (
        lambda: equal_mixture([Ensemble(torch.zeros(n, 5, 2)) for n in (3, 4)]), "3 cases and 2 targets, 4 cases"),
    "an ensemble and a law": (lambda: equal_mixture([Ensemble(torch.zeros(3, 5, 2)), law(3)]), "give one kind"),
    "a search that kept nothing": (lambda: predict_distribution(search(False).fit(X, Y), X), "fitted with refit=False"),
    "draws of a search that kept nothing": (lambda: sample(search(False).fit(X, Y), X), "fitted with refit=False"),
    "a search that is not fitted": (lambda: predict_distribution(search(True), X), "is not fitted yet"),
    "a forecast of text": (lambda: predict_distribution("a", X), "str has no predict_distribution"),
    "quantiles beyond one": (lambda: predict_quantiles(Standard().fit(X, Y), X, [2.0]), r"^levels=\[2.0\]: a list"),
    "quantiles of text": (lambda: predict_quantiles(Standard().fit(X, Y), X, "a"), "^levels='a': a list"),
    "no quantiles": (lambda: predict_quantiles(Standard().fit(X, Y), X, []), r"^levels=\[\]: a list"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_options_and_what_goes_with_them_are_refused(name: str) -> None:
    act, message = OPTIONS[name]
    with pytest.raises((*BOTH, NotFittedError), match=message):
        act()
