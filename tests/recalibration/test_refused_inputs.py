"""Inputs that no recalibration can use: none is accepted without a word, and none ends in an error from the inside."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from torch.distributions import Independent, Laplace, LogNormal, MultivariateNormal, Normal, Poisson

from prerank import PCA, Ensemble, GaussianMixture, Location, Marginal, Recalibrator
from prerank.recalibration import (
    Affine,
    Dressing,
    EnsembleCopulaCoupling,
    HDRRecalibration,
    HighestDensityRegions,
    LatentRecalibration,
    RecalibratedMargins,
    SchaakeShuffle,
    Tilt,
    marginal_quantiles,
)

N, M, D = 40, 6, 2
NAN, INF, FILL = float("nan"), float("inf"), 9.96921e36
rng = np.random.default_rng(0)
E, Y, F = rng.normal(size=(N, M, D)), rng.normal(size=(N, D)), rng.normal(size=(N, 3))
ZERO = torch.zeros(N, D)
BOTH = (TypeError, ValueError)


def law(n_cases: int = N, loc: float = 0.0, spread: float = 1.0) -> GaussianMixture:
    factor = spread * torch.eye(D, dtype=torch.float64)
    return GaussianMixture(torch.zeros(n_cases, 1), torch.full((n_cases, 1, D), loc), factor.expand(n_cases, 1, D, D))


def put(array: np.ndarray, value: Any, *where: int) -> np.ndarray:
    result = array.copy()
    result[where] = value
    return result


def affine(**options: Any) -> Recalibrator:
    return Recalibrator(steps=[Affine()], **options)


SMALL = {"degree": 1, "n_draws": 10, "n_reference": 10, "pool": 50}

# the forecast, y, and what is said: the same by everything that is fitted on held-out cases
FIT: dict[str, tuple[Any, Any, str]] = {
    "y None": (E, None, "y is None; pass an array"),
    "y text": (E, "y", "y is a str; pass an array"),
    "y complex": (E, Y + 0j, "y has dtype complex128; prerank needs real"),
    "y of one axis": (E, Y[:, 0], r"y has shape \(40,\); it needs two axes"),
    "y of three axes": (E, Y[None], "one model"),
    "y missing": (E, NAN * Y, "no case is left: y has 40 cases and each has a missing value"),
    "y infinite": (E, put(Y, INF, 0, 0), "y has 1 infinite values; NaN marks a missing one"),
    "y with a fill value": (E, put(Y, FILL, 0, 0), "netCDF's fill value"),
    "y of objects": (E, Y.astype(object), "y has dtype object"),
    "y of dates": (E, pd.date_range("2020-01-01", periods=N), "y has dtype datetime64"),
    "y enormous": (E, 1e300 * Y, r"values of y go up to .*e\+300, and their squares"),
    "y tiny": (E, 1e-300 * Y, "values of y go up to .*e-300, and their squares"),
    "y a forecast": (E, law(), r"y is a GaussianMixture, .* fit\(forecast, y\)"),
    "forecast None": (None, Y, "the forecast is None; pass an array"),
    "forecast text": ("f.nc", Y, "the forecast is a str"),
    "forecast complex": (E + 0j, Y, "the forecast has dtype complex128"),
    "forecast a dict": ({"a": E}, Y, "the forecast is a dict"),
    "forecast a class": (LogNormal, Y, "the forecast is the class LogNormal"),
    "forecast fitted": (Recalibrator(), Y, "the forecast is a Recalibrator"),
    "forecast sparse": (torch.as_tensor(E).to_sparse(), Y, "a sparse tensor"),
    "forecast ragged": ([[1.0, 2.0], [3.0]], Y, "rows of different lengths"),
    "members missing": (NAN * E, Y, "no case is left: every member of every case has a missing value"),
    "members infinite": (put(E, INF, 0, 0, 0), Y, "members have 1 infinite values; NaN marks a missing one"),
    "members with a fill value": (put(E, FILL, 0, 0, 0), Y, "netCDF's fill value"),
    "members enormous": (1e300 * E, Y, "values of the forecast go up to"),
    "members tiny": (1e-300 * E, Y, "values of the forecast go up to"),
    "no cases": (E[:0], Y[:0], "holds no case or no target"),
    "no members": (E[:, :0], Y, "at least one of each is needed"),
    "no targets": (E[..., :0], Y[:, :0], "holds no case or no target"),
    "sample-first": (E.swapaxes(0, 1), Y, "it looks sample-first: pass .*axes="),
    "member-last": (np.moveaxis(E, 1, 2), Y, "it looks member-last: pass .*axes="),
    "other cases": (E[:30], Y, r"shape \(30, 6, 2\) does not match y of shape \(40, 2\)"),
    "other targets": (E, Y[:, :1], r"does not match y of shape \(40, 1\)"),
    "swapped": (Y, E, "so they look swapped"),
    "weights of zero": (Ensemble(E, np.zeros((N, M))), Y, "all weights of the forecast are zero in 40 of 40"),
    "negative weights": (Ensemble(E, -np.ones((N, M))), Y, "240 weights of the forecast are negative"),
    "weights of NaN": (Ensemble(E, np.full((N, M), NAN)), Y, "values of the weights of the forecast are NaN"),
    "a law of scalars": (Normal(ZERO, 1.0), Y, r"event shape \(\)"),
    "a law of matrices": (Independent(Normal(torch.zeros(N, D, 2), 1.0), 2), Y, r"event shape \(2, 2\)"),
    "a law without cases": (MultivariateNormal(torch.zeros(D), torch.eye(D)), Y, "no axis of cases"),
    "a law of other cases": (law(30), Y, "30 cases and 2 targets"),
    "a law of NaN": (law(loc=NAN), Y, "loc of the GaussianMixture are NaN"),
    "a law of negative spread": (law(spread=-1.0), Y, "diagonal entries down to -1"),
}
FITTED: dict[str, Any] = {
    "Recalibrator": affine,
    "Recalibrator at its defaults": lambda: Recalibrator([Marginal()]),
    "margins": RecalibratedMargins,
    "ECC": EnsembleCopulaCoupling,
    "Schaake": SchaakeShuffle,
    "HDR": HDRRecalibration,
    "latent": LatentRecalibration,
    "regions": HighestDensityRegions,
}


@pytest.mark.parametrize("what", FITTED)
@pytest.mark.parametrize("name", FIT)
def test_what_cannot_be_learnt_from_is_refused_by_all_alike(what: str, name: str) -> None:
    forecast, y, message = FIT[name]
    with pytest.raises(BOTH, match=message):
        FITTED[what]().fit(forecast, y)


OPAQUE_NAN = Independent(Normal(torch.full((N, D), NAN), 1.0, validate_args=False), 1, validate_args=False)


@pytest.mark.parametrize("what", ["Recalibrator", "HDR", "regions"])
def test_a_distribution_whose_draws_are_no_numbers_is_refused(what: str) -> None:
    with pytest.raises(
        ValueError, match=r"draws of an Independent are NaN or infinite in 40 of 40 cases|cannot be drawn"
    ):
        FITTED[what]().fit(OPAQUE_NAN, Y)


TRANSFORM: dict[str, tuple[Any, str]] = {
    "None": (None, "the forecast is None"),
    "text": ("x", "the forecast is a str"),
    "a list": ([1, 2], "members need three axes"),
    "one value per case": (Y, "members need three axes"),
    "a case without members": (put(E, NAN, 0), "1 of 40 cases have no member without a missing value; leave them out"),
    "infinity": (put(E, INF, 0, 0, 0), "members have 1 infinite values"),
    "a fill value": (put(E, FILL, 0, 0, 0), "netCDF's fill value"),
    "enormous": (1e300 * E, "go up to"),
    "other targets": (E[..., :1], "fitted on 2"),
    "complex": (E + 0j, "the forecast has dtype complex128"),
    "no cases": (E[:0], r"has shape \(0, 6, 2\) \(cases, members, targets\): no cases; at least one of each"),
    "no members": (E[:, :0], "at least one of each is needed"),
    "leading axes": (E[None], r"leading axes \(1,\)"),
    "a class": (Ensemble, "is the class Ensemble"),
    "a law of scalars": (Normal(ZERO, 1.0), r"event shape \(\)"),
    "a law without cases": (MultivariateNormal(torch.zeros(D), torch.eye(D)), "no axis of cases"),
    "two models": (law().expand((2, N)), r"leading axes \(2,\)"),
    "sample-first": (
        np.zeros((M, N, D)),
        "40 members for each of 6 cases, and in fit there were 6 members: it looks sample",
    ),
    "a law of NaN": (law(loc=NAN), "are NaN"),
}


def use(fitted: Any, forecast: Any) -> Any:
    if isinstance(fitted, HighestDensityRegions):
        return fitted.region(forecast, 0.9)
    return fitted.quantiles(forecast, 5) if isinstance(fitted, RecalibratedMargins) else fitted.transform(forecast)


@pytest.fixture(scope="module")
def ready() -> dict[str, Any]:
    small = {"HDR": HDRRecalibration(5, 20), "regions": HighestDensityRegions(20)}
    kinds = {name: small.get(name) or make() for name, make in FITTED.items() if "defaults" not in name}
    return {name: kind.fit(E, Y + 1) for name, kind in kinds.items()}


@pytest.mark.parametrize("what", [name for name in FITTED if "defaults" not in name])
@pytest.mark.parametrize("name", TRANSFORM)
def test_what_cannot_be_corrected_is_refused_by_all_alike(what: str, name: str, ready: dict[str, Any]) -> None:
    forecast, message = TRANSFORM[name]
    with pytest.raises(BOTH, match=message):
        use(ready[what], forecast)


@pytest.mark.parametrize("what", FITTED)
def test_what_is_not_fitted_says_so(what: str) -> None:
    with pytest.raises((ValueError, NotFittedError), match="is not fitted yet"):
        use(FITTED[what](), E)


def fit_with(**more: Any) -> Any:
    return lambda: affine().fit(E, Y, **more)


def by_features(features: Any) -> Any:
    return lambda: Recalibrator(Location(), steps=[Tilt(by_features=True, **SMALL)]).fit(law(), Y, features=features)


OPTIONS: dict[str, tuple[Any, str]] = {
    **{f"n_folds={v!r}": (lambda v=v: affine(n_folds=v).fit(E, Y), r"^n_folds=.*: a whole number of at least 2")
       for v in (None, 2.5, "five", NAN, True, 0, -2, 5j)},
    "more folds than cases allow": (lambda: affine(n_folds=10**9).fit(E, Y), "40 cases are too few for 1000000000-fold"),
    **{f"seed={v!r}": (lambda v=v: affine(seed=v).fit(E, Y), r"^seed=.*: a whole number")
       for v in (1.5, "0", None, False, 1j, INF)},
    **{f"preranks={v!r}": (lambda v=v: Recalibrator(v, steps=[Affine()]).fit(E, Y), "not a pre-rank|is a class|no pre-rank")
       for v in ("pca", PCA, 3, (), ("hdr",), True)},
    **{f"steps={v!r}": (lambda v=v: Recalibrator(steps=v).fit(E, Y), "is no step|nothing would be learnt")
       for v in ("affine", {"a": 1}, (None,), 1, ((Affine(),),), (Ridge(),), (Recalibrator(),), (HDRRecalibration(),), ())},
    "axes text": (fit_with(axes="case"), "name the axes one by one"),
    "axes twice": (fit_with(axes=("case", "case", "target")), "exactly once"),
    "axes too few": (fit_with(axes=("case", "member")), "exactly once"),
    "axes a number": (fit_with(axes=3), "name the axes one by one"),
    "axes of a law": (lambda: affine().fit(law(), Y, axes=("case", "member", "target")), "leave axes= out"),
    "axes of a law to transform": (
        lambda: affine().fit(E, Y).transform(law(), axes=("case", "member", "target")), "leave axes= out"),
    "weights text": (fit_with(case_weights="w"), "case_weights is a str, 'w'"),
    "weights short": (fit_with(case_weights=np.ones(3)), r"case_weights has shape \(3,\)"),
    "weights of NaN": (fit_with(case_weights=put(np.ones(N), NAN, 0)), "1 of 40 case_weights"),
    "weights infinite": (fit_with(case_weights=put(np.ones(N), INF, 0)), "1 of 40 case_weights"),
    "weights negative": (fit_with(case_weights=-np.ones(N)), "40 of 40 case_weights"),
    "weights zero": (fit_with(case_weights=np.zeros(N)), "all 40 case_weights are zero; at least one must be positive"),
    "weights complex": (fit_with(case_weights=1j * np.ones(N)), "case_weights has dtype complex128"),
    "weights whose sum overflows": (fit_with(case_weights=np.full(N, 1e308)), "sum to more than the largest number"),
    "blocks text": (fit_with(blocks="b"), "blocks is a str"),
    "blocks short": (fit_with(blocks=np.ones(3)), r"blocks has shape \(3,\)"),
    "blocks with NaN": (fit_with(blocks=put(np.arange(N) * 1.0, NAN, 0)), "blocks has 1 missing labels"),
    "one block": (fit_with(blocks=np.zeros(N)), "1 blocks are too few"),
    "features unused": (fit_with(features=F), "no step uses them"),
    "features text": (by_features("f"), "features is a str"),
    "features short": (by_features(F[:3]), "a row for each of the 40 cases"),
    "features of three axes": (by_features(F[None]), "a row for each of the 40 cases"),
    "features with NaN": (by_features(put(F, NAN, 0, 0)), "features are NaN or infinite in 1 of 40"),
    "features complex": (by_features(F + 0j), "features has dtype complex128"),
    "features none": (by_features(None), "needs features; pass fit"),
    "features empty": (by_features(F[:, :0]), "a row for each"),
    "features enormous": (by_features(1e300 * F), "features go up to .*rescale them"),
    "a members' step for a law": (lambda: Recalibrator(steps=[Dressing()]).fit(law(), Y), r"use Affine\(\) instead"),
    "a law's step for members": (lambda: Recalibrator(steps=[Tilt()]).fit(E, Y), r"put ErrorLaw\(\) before it"),
    "one member": (lambda: affine().fit(E[:, :1], Y), "at least 2 members"),
    "members that agree": (lambda: affine().fit(0 * E, Y), "agree in every case"),
    "one case": (lambda: affine().fit(E[:1], Y[:1]), "1 cases are too few"),
    "one case for margins": (lambda: RecalibratedMargins().fit(E[:1], Y[:1]), "1 held-out cases; at least 2"),
    "observations that cannot be": (
        lambda: affine().fit(Independent(LogNormal(ZERO, 1.0), 1), -abs(Y)),
        "y lies outside the support of the LogNormal forecast in 40 of 40 cases.*pass draws as an Ensemble"),
    "observations that are no counts": (
        lambda: Recalibrator().fit(Independent(Poisson(ZERO + 1), 1), Y), "outside the support of the Poisson forecast"),
    "an unfitted summary": (lambda: Recalibrator().summary(), "not fitted yet"),
    "an unfitted file": (lambda: Recalibrator().save("nowhere"), "not fitted yet"),
    "a file called None": (lambda: affine().fit(E, Y).save(None), "not NoneType"),
    "a folder": (lambda: Recalibrator.load("/"), "is a folder; a saved Recalibrator is one file"),
    "draws without end": (lambda: HDRRecalibration(n_draws=10**12), "n_draws=1000000000000: a whole .*at most 1,000,000"),
    "a pool without end": (lambda: HDRRecalibration(n_pool=10**12), "n_pool=1000000000000"),
    "draws of a region without end": (lambda: HighestDensityRegions(n_draws=10**12), "at most 1,000,000"),
    "draws of a latent vector without end": (lambda: LatentRecalibration(n_draws=10**12), "at most 1,000,000"),
    "no quantiles": (lambda: RecalibratedMargins().fit(E, Y).quantiles(E, 0), "n_levels=0: a whole number"),
    "a history of text": (lambda: SchaakeShuffle(history="h").fit(E, Y), "y is a str"),
    "a history of one axis": (lambda: SchaakeShuffle(history=Y[:, 0]).fit(E, Y), "needs two axes"),
    "a history of other targets": (lambda: SchaakeShuffle(history=Y[:, :1]).fit(E, Y), r"the history has shape \(40, 1\)"),
    "no history": (lambda: SchaakeShuffle(history=Y[:0]).fit(E, Y), r"the history has shape \(0, 2\); .* at least one"),
    "more members than history": (lambda: SchaakeShuffle(n_draws=41).fit(E, Y), "the history has 40"),
    **{f"quantiles at {v!r}": (lambda v=v: marginal_quantiles(law(), v), r"^levels=.*: a list of probabilities")
       for v in ("a", [NAN], [1.0], [0.0], [], [[0.5]], None, [0.5j], 0.5)},
    "quantiles of members": (lambda: marginal_quantiles(Ensemble(E), [0.5]), "the forecast is an Ensemble; take them"),
    "quantiles of another law": (
        lambda: marginal_quantiles(Independent(Laplace(ZERO, 1.0), 1), [0.5]), "the forecast is an Independent"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_options_and_what_goes_with_them_are_refused(name: str) -> None:
    act, message = OPTIONS[name]
    with pytest.raises((*BOTH, NotFittedError), match=message):
        act()


@pytest.mark.parametrize("level", [None, ".9", NAN, 1.0, 0, True, 90, 0.9j, -0.1, INF, np.array([0.5, 0.9])])
def test_levels_are_shares(level: Any, ready: dict[str, Any]) -> None:
    with pytest.raises(BOTH, match=r"^level=.*: the share of observations"):
        ready["regions"].region(E, level)
    with pytest.raises(BOTH, match=r"^confidence=.*: a probability between 0 and 1"):
        ready["regions"].region(E, 0.9).coverage(confidence=level)


CONTAINS: dict[str, tuple[Any, str]] = {
    "None": (None, "y is None"),
    "text": ("a", "y is a str"),
    "one axis": (Y[:, 0], "needs two axes"),
    "other cases": (Y[:5], "both must be the same"),
    "other targets": (Y[:, :1], "both must be the same"),
    "NaN": (put(Y, NAN, 0, 0), "values of y are NaN"),
    "several models": (Y[None], "give one model at a time"),
    "complex": (Y + 0j, "y has dtype complex128"),
    "members": (E, "give one model at a time"),
    "a law": (law(), "y is a GaussianMixture, which is a forecast"),
}


@pytest.mark.parametrize("name", CONTAINS)
def test_what_no_region_contains(name: str, ready: dict[str, Any]) -> None:
    y, message = CONTAINS[name]
    with pytest.raises(BOTH, match=message):
        ready["regions"].region(E, 0.9).contains(y)


@pytest.mark.parametrize("count", [0, 1.5, "a", 10**14])
def test_numbers_of_cases_and_draws_of_a_region(count: Any, ready: dict[str, Any]) -> None:
    region = ready["regions"].region(E, 0.9)
    with pytest.raises(BOTH, match=r"^n_cases=.*: a whole number of at least 1 and at most 10,000,000"):
        region.coverage(count)
    with pytest.raises(BOTH, match=r"^n_draws=.*: a whole number of at least 1 and at most 1,000,000"):
        region.volume(count)
    with pytest.raises(TypeError, match=r"^seed=0\.5: a whole number"):
        region.volume(10, seed=0.5)


FEATURES: dict[str, tuple[Any, str]] = {
    "none": (None, "was fitted on 3 features, and none are given"),
    "fewer": (F[:, :2], "2 features are given, but the Recalibrator was fitted on 3"),
    "of other cases": (F[:5], "a row for each of the 40 cases"),
    "NaN": (put(F, NAN, 0, 0), "features are NaN"),
    "text": ("a", "features is a str"),
    "complex": (F + 0j, "features has dtype complex128"),
    "one": (F[:, 0], "1 feature are given|1 feature is given"),
    "enormous": (1e300 * F, "features go up to"),
}


@pytest.mark.parametrize("name", FEATURES)
def test_features_of_other_cases(name: str) -> None:
    fitted = Recalibrator(Location(), steps=[Tilt(by_features=True, **SMALL)]).fit(law(), Y, features=F)
    features, message = FEATURES[name]
    with pytest.raises(BOTH, match=message):
        fitted.transform(law(), features)


def test_axes_that_are_named_are_taken() -> None:
    first, plain = affine().fit(E.swapaxes(0, 1), Y + 1, axes=("member", "case", "target")), affine().fit(E, Y + 1)
    torch.testing.assert_close(first.steps_[0].shift, plain.steps_[0].shift)
    moved = first.transform(E.swapaxes(0, 1), axes=("member", "case", "target"))
    torch.testing.assert_close(moved.members, plain.transform(E).members)
