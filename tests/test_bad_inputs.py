"""Every bad input gets one sentence that says what is wrong, with the numbers, and what to do instead."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from scipy import sparse, stats
from torch.distributions import Distribution, Independent, LogNormal, MultivariateNormal, Normal, Poisson

from prerank import (
    HDR,
    PCA,
    Contrast,
    Copula,
    Custom,
    Dependency,
    Ensemble,
    GaussianMixture,
    Location,
    Marginal,
    MixtureRegressor,
    PreRankPenalty,
    ProjectedPIT,
    Scale,
    as_ensemble,
    check,
    check_pits,
    corrected_pce,
    pce,
    pce_interval,
    pce_null,
    pce_test,
    projected_pit,
    reliability_band,
    reliability_curve,
)
from prerank.arrays import as_observations, as_tensor
from prerank.arrays.case_labels import checked_case_ids
from prerank.calibration import RandomisedRank, SmoothRank, centred_levels, inclusive_levels, pce_kde
from prerank.calibration.checks import require_how
from prerank.calibration.pit import ClosedForm, EmpiricalRank
from prerank.forecasts import differentiable_draws, equally_weighted_draws
from prerank.preranks import SquaredDifference
from prerank.scores import Fair, TwoSets, crps, energy_score, nll, variogram_score
from prerank.training import EnergyScore, Run

N, M, D = 6, 4, 3
NAN, INF = float("nan"), float("inf")
TIMES = pd.date_range("2020-01-01", periods=N)
STATIONS = ["Oslo", "Bergen", "Voss"]
rng = np.random.default_rng(0)
POINTS = rng.normal(size=(N, M + 1, D))
Y, E = POINTS[:, 0], POINTS[:, 1:]
T = torch.from_numpy(Y)


class Opaque(Distribution):
    """A law of which nothing but its sizes is known."""

    arg_constraints = {}  # noqa: RUF012 - torch's protocol

    def __init__(self, law):
        super().__init__(law.batch_shape, law.event_shape, validate_args=False)


LAW = MultivariateNormal(torch.zeros(N, D, dtype=torch.float64), torch.eye(D, dtype=torch.float64))
YX = xr.DataArray(Y, dims=("time", "station"), coords={"time": TIMES, "station": STATIONS})
EX = xr.DataArray(E, dims=("time", "number", "station"), coords={"time": TIMES, "station": STATIONS})
PIT = np.linspace(0.05, 0.95, 10)[:, None]


def put(array: np.ndarray, value: Any, *where: int) -> np.ndarray:
    result = array.copy()
    result[where] = value
    return result


def mixture(logits: Any = None, loc: Any = None, tril: Any = None) -> GaussianMixture:
    return GaussianMixture(
        np.zeros((N, 1)) if logits is None else logits,
        np.zeros((N, 1, D)) if loc is None else loc,
        np.broadcast_to(np.eye(D), (N, 1, D, D)) if tril is None else tril,
    )


def small(**parameters: Any) -> MixtureRegressor:
    return MixtureRegressor(max_epochs=1, **parameters).fit(np.arange(24.0)[:, None], rng.normal(size=(24, 2)))


MISSING_LABELS = r"blocks has 1 missing labels \(NaN, NaT or None\), the first for case 2; give every case a label"
WHOLE = "a whole number of at least 1"
Case = tuple[str, Callable[[], Any], type[Exception], str]

OBSERVATIONS: list[Case] = [
    ("y is None", lambda: check(None, E), TypeError, "y is None; pass an array of numbers"),
    ("y is text", lambda: check("data.csv", E), TypeError, "y is a str; pass an array of numbers"),
    ("y is a dict", lambda: check({"a": 1}, E), TypeError, "y is a dict; pass an array"),
    ("y is a class", lambda: check(Ensemble, E), TypeError, "y is the class Ensemble; pass a value of it"),
    ("y is an Ensemble", lambda: check(Ensemble(E), Y), TypeError, "y is an Ensemble, .* look swapped"),
    ("y is a law", lambda: check(LAW, Y), TypeError, "y is a MultivariateNormal, .* look swapped"),
    ("swapped arrays", lambda: check(E, Y), ValueError, r"\(6, 4, 3\) and the forecast \(6, 3\), so they look swapped"),
    ("y of text", lambda: check(Y.astype(str), E), TypeError, "y has dtype <U32; prerank needs numbers"),
    ("y of dates", lambda: check(TIMES.to_numpy()[:, None], E), TypeError, "convert text and dates first"),
    ("y of None", lambda: check([[1.0, None, 2.0]] * N, E), TypeError, "it holds None, a NoneType.*missing by NaN"),
    ("y of objects", lambda: check(Y.astype(object), E), TypeError, r"y has dtype object.*\.astype\(float\)"),
    (
        "y a frame with text",
        lambda: check(pd.DataFrame({"a": ["x"] * N, "b": 1.0}), E),
        TypeError,
        "it holds 'x', a str",
    ),
    ("y complex", lambda: check(Y + 0j, E), TypeError, "y has dtype complex128; prerank needs real numbers"),
    ("y a complex tensor", lambda: check(T + 0j, E), TypeError, "y has dtype torch.complex128; prerank needs real"),
    ("y sparse", lambda: check(sparse.csr_array(Y), E), TypeError, r"y is a sparse csr_array; pass y\.toarray\(\)"),
    ("y a sparse tensor", lambda: check(T.to_sparse(), E), TypeError, r"y is a sparse tensor.*y\.to_dense\(\)"),
    ("y a Dataset", lambda: check(xr.Dataset({"a": YX}), E), TypeError, "y is a Dataset of several variables"),
    ("y ragged", lambda: check([[1.0, 2.0], [3.0]], E), ValueError, "y has rows of different lengths"),
    ("y of tensors that differ", lambda: check([T[0], T[0, :2]], E), ValueError, "tensors of different shapes"),
    ("y of one axis", lambda: check(Y[:, 0], E), ValueError, r"y has shape \(6,\); .* y\[:, None\] for one target"),
    ("y a Series", lambda: check(pd.Series(Y[:, 0]), E), ValueError, r"y has shape \(6,\); it needs two axes"),
    ("y a number", lambda: check(1.0, E), ValueError, r"y has shape \(\); it needs two axes"),
    ("y of three axes", lambda: check(np.zeros((2, N, D)), LAW), ValueError, r"\(2, 6, 3\); give one model at a time"),
    ("no cases", lambda: check(Y[:0], E[:0]), ValueError, r"y of shape \(0, 3\) holds no case or no target"),
    ("no targets", lambda: check(Y[:, :0], E[..., :0]), ValueError, r"y of shape \(6, 0\) holds no case or no target"),
    ("all missing", lambda: check(Y * NAN, E), ValueError, "no case is left: y has 6 cases"),
    ("y infinite", lambda: check(put(Y, INF, 0, 0), E), ValueError, "y has 1 infinite values; NaN marks a missing one"),
    (
        "y a fill value",
        lambda: check(put(Y, 9.96921e36, 1, 1), E),
        ValueError,
        r"1 of 18 values of y are 9\.96921e\+36",
    ),
    ("y far off", lambda: check(put(Y, 1e300, 2, 1), E), ValueError, r"y for y2 are as large as 1e\+300.*by NaN"),
    (
        "y outside the support",
        lambda: check(Y, Independent(LogNormal(LAW.loc, 1.0), 1)),
        ValueError,
        "outside the support of the LogNormal forecast in . of 6 cases.*leave HDR",
    ),
    (
        "y no count",
        lambda: check(abs(Y), Independent(Poisson(LAW.loc + 1), 1)),
        ValueError,
        "outside the support of the Poisson",
    ),
    ("as_observations of one axis", lambda: as_observations(Y[0]), ValueError, r"y\[None, :\] for one case"),
    (
        "as_tensor of a function",
        lambda: as_tensor(len, "pit"),
        TypeError,
        "pit is a builtin_function_or_method; pass an",
    ),
    ("as_tensor of a record array", lambda: as_tensor(np.zeros(3, [("a", "f8")]), "y"), TypeError, "y has dtype"),
]

FORECASTS: list[Case] = [
    ("forecast is None", lambda: check(Y, None), TypeError, "the forecast is None; pass an array"),
    ("forecast is text", lambda: check(Y, "ensemble.nc"), TypeError, "the forecast is a str; pass an array"),
    ("forecast is a class", lambda: check(Y, Ensemble), TypeError, "the forecast is the class Ensemble; pass a value"),
    (
        "a scipy law",
        lambda: check(Y, stats.norm(0, 1)),
        TypeError,
        r"distribution of another library \(rv.*frozen\); pass draws",
    ),
    (
        "a joint scipy law",
        lambda: check(Y, stats.multivariate_normal(np.zeros(3))),
        TypeError,
        "pass draws from it as members",
    ),
    (
        "a sparse forecast",
        lambda: check(Y, sparse.csr_array(np.ones((N, M * D)))),
        TypeError,
        r"the forecast is a sparse csr_array; pass forecast\.toarray\(\)",
    ),
    ("one member's values", lambda: check(Y, E[:, 0]), ValueError, r"which is y's: .* forecast\[:, None\]"),
    ("two axes", lambda: check(Y[:, :1], E[..., 0]), ValueError, r"three axes .* members\[\.\.\., None\]"),
    (
        "sample-first",
        lambda: check(Y, E.swapaxes(0, 1)),
        ValueError,
        'it looks sample-first: pass axes=.*"member", "case"',
    ),
    ("member-last", lambda: check(Y, np.moveaxis(E, 1, 2)), ValueError, "it looks member-last: pass axes="),
    ("ambiguous members", lambda: check(Y, np.zeros((N, N, D))), ValueError, "the first two axes have the same length"),
    ("ambiguous targets", lambda: check(Y, np.zeros((N, D, D))), ValueError, "the last two axes have the same length"),
    ("other cases", lambda: check(Y[:5], E), ValueError, r"shape \(6, 4, 3\) does not match y of shape \(5, 3\)"),
    (
        "other targets",
        lambda: check(Y[:, :2], Ensemble(E)),
        ValueError,
        r"y has shape \(6, 2\), .* 6 cases and 3 targets",
    ),
    (
        "no members",
        lambda: check(Y, E[:, :0]),
        ValueError,
        r"shape \(6, 0, 3\) .*: no members; at least one of each is needed",
    ),
    ("no member present", lambda: check(Y, E * NAN), ValueError, "every member of every case has a missing value"),
    ("infinite member", lambda: check(Y, put(E, INF, 0, 0, 0)), ValueError, "members have 1 infinite values"),
    (
        "fill in members",
        lambda: check(Y, put(E, -1e20, 0, 0, 0)),
        ValueError,
        r"72 values of the members are -1e\+20.*NaN",
    ),
    (
        "fill in single precision",
        lambda: check(Y.astype("f4"), put(E.astype("f4"), np.float32(9.96921e36), 0, 0, 0)),
        ValueError,
        "netCDF's fill value",
    ),
    (
        "far-off member",
        lambda: check(Y, put(E, -1e300, 0, 0, 2)),
        ValueError,
        r"values of the members for y3 .* 1e\+300",
    ),
    (
        "targets 1e200 apart, units kept",
        lambda: check(Y * [1, 1, 1e200], E * [1, 1, 1e200], scale="none"),
        ValueError,
        'differ 1e.200-fold, too much for scale="none"',
    ),
    ("complex members", lambda: check(Y, E + 0j), TypeError, "the forecast has dtype complex128"),
    (
        "unbatched law",
        lambda: check(Y, MultivariateNormal(torch.zeros(3), torch.eye(3))),
        ValueError,
        r"no axis of cases; .*forecast\.expand\(\(6,\)\)",
    ),
    (
        "law of one case",
        lambda: check(Y, MultivariateNormal(torch.zeros(1, 3), torch.eye(3))),
        ValueError,
        r"batch shape \(1,\), but y has 6 cases: .*expand\(\(6,\)\)",
    ),
    ("law of other cases", lambda: check(Y[:4], LAW), ValueError, "is for 6 cases and 3 targets"),
    (
        "law of other targets",
        lambda: check(Y[:, :2], LAW),
        ValueError,
        r"y has shape \(6, 2\), .* 6 cases and 3 targets",
    ),
    (
        "law of scalars",
        lambda: check(Y, Normal(LAW.loc, 1.0)),
        ValueError,
        r"event shape \(\).*Independent\(forecast, 1\)",
    ),
    ("two models", lambda: check(Y, mixture().expand((2, N))), ValueError, "one model at a time"),
    (
        "a law that cannot be cut",
        lambda: check(put(Y, NAN, 0, 0), Opaque(LAW)),
        ValueError,
        "cannot be cut out of an Opaque",
    ),
    (
        "mixture of NaN",
        lambda: check(Y, mixture(loc=np.full((N, 1, D), NAN))),
        ValueError,
        "loc of the GaussianMixture are NaN or infinite in 6 of 6",
    ),
    (
        "mixture without weight",
        lambda: check(Y, mixture(np.full((N, 1), -INF))),
        ValueError,
        "logits of the GaussianMixture are NaN",
    ),
    (
        "negative factors",
        lambda: check(Y, mixture(tril=-np.eye(D) + np.zeros((N, 1, D, D)))),
        ValueError,
        "positive diagonal: torch.linalg.cholesky",
    ),
    ("full factors", lambda: check(Y, mixture(tril=np.ones((N, 1, D, D)))), ValueError, "lower triangular"),
    (
        "mixture shapes",
        lambda: GaussianMixture(np.zeros((N, 2)), np.zeros((N, 1, D)), np.zeros((N, 1, D, D))),
        ValueError,
        r"logits \(6, 2\) go with loc",
    ),
    (
        "mixture of text",
        lambda: GaussianMixture(np.array([["a"]]), np.zeros((1, 1, 1)), np.ones((1, 1, 1, 1))),
        TypeError,
        "logits has dtype <U1",
    ),
    (
        "mixture of None",
        lambda: GaussianMixture(None, np.zeros((1, 1, 1)), np.ones((1, 1, 1, 1))),
        TypeError,
        "logits is None",
    ),
    (
        "mixture at other targets",
        lambda: mixture().log_prob(torch.zeros(N, 2)),
        ValueError,
        "the forecast is for 3 targets",
    ),
    ("too few draws", lambda: mixture().draw(1), ValueError, "1 draws are too few for 1 components"),
    ("Ensemble of two axes", lambda: Ensemble(E[:, 0]), ValueError, r"members need three axes .* \(6, 3\)"),
    ("Ensemble of text", lambda: Ensemble([[["a"]]]), TypeError, "members has dtype <U1"),
    (
        "Ensemble of a law",
        lambda: Ensemble(LAW),
        TypeError,
        "members is a MultivariateNormal, which is a forecast already",
    ),
    (
        "Ensemble of an Ensemble",
        lambda: Ensemble(Ensemble(E)),
        TypeError,
        "members is an Ensemble, which is a forecast",
    ),
    ("Ensemble of a class", lambda: Ensemble(Ensemble), TypeError, "members is the class Ensemble"),
    ("Ensemble's weights", lambda: Ensemble(E, np.ones(N)), ValueError, r"one weight per case and member is \(6, 4\)"),
    ("weights of text", lambda: Ensemble(E, np.full((N, M), "w")), TypeError, "weights has dtype <U1"),
    (
        "reference of other cases",
        lambda: Ensemble(E, reference=E[:5]),
        ValueError,
        "for 5 cases and 3 targets, the members for 6",
    ),
    (
        "reference law of other cases",
        lambda: Ensemble(E[:5], reference=LAW),
        ValueError,
        "for 6 cases and 3 targets, the members for 5",
    ),
    (
        "reference of scalars",
        lambda: Ensemble(E, reference=Normal(LAW.loc, 1.0)),
        ValueError,
        r"event shape \(\).*Independent",
    ),
    ("reference is a class", lambda: Ensemble(E, reference=LogNormal), TypeError, "reference is the class LogNormal"),
    (
        "reference that cannot be cut",
        lambda: Ensemble(E, reference=LAW).select(slice(2)),
        TypeError,
        "cannot be cut into cases",
    ),
    ("as_ensemble of a law", lambda: as_ensemble(LAW), TypeError, "a MultivariateNormal is a forecast already"),
    ("as_ensemble of text", lambda: as_ensemble("x"), TypeError, "the forecast is a str"),
    ("as_ensemble, axes twice", lambda: as_ensemble(E, axes=("case", "case", "target")), ValueError, "exactly once"),
    (
        "as_ensemble, two axes",
        lambda: as_ensemble(Y, axes=("case", "member", "target")),
        ValueError,
        r"shape \(6, 3\): name each",
    ),
    ("as_ensemble, sample-first", lambda: as_ensemble(E, np.zeros((4, 3))), ValueError, "it looks sample-first"),
    ("no draws", lambda: equally_weighted_draws(LAW, 0), ValueError, f"n_draws=0: {WHOLE}"),
    (
        "draws of a scalar law",
        lambda: equally_weighted_draws(Normal(torch.zeros(3), 1.0), 5),
        ValueError,
        "Independent",
    ),
    (
        "draws without gradient",
        lambda: differentiable_draws(Independent(Poisson(LAW.loc + 1), 1), 5),
        TypeError,
        "no reparameterised draws",
    ),
]

LABELS: list[Case] = [
    (
        "other dates",
        lambda: check(YX, EX.assign_coords(time=TIMES + pd.Timedelta("1D"))),
        ValueError,
        "case 0 is 2020-01-01 in y and 2020-01-02 in the forecast.*lacks 1 of the 6.*same cases",
    ),
    (
        "other stations",
        lambda: check(YX, EX.assign_coords(station=["Oslo", "Voss", "Røros"])),
        ValueError,
        "target 1 is 'Bergen' in y and 'Voss' in the forecast",
    ),
    (
        "more cases",
        lambda: check(YX[:4], EX),
        ValueError,
        "the forecast has 2 cases that y lacks, the first 2020-01-05",
    ),
    ("fewer cases", lambda: check(YX, EX[:4]), ValueError, "case 4 is 2020-01-05 in y and missing from the forecast"),
    (
        "a date twice",
        lambda: check(YX.isel(time=[0, 0, 1, 2, 3, 4]), EX),
        ValueError,
        "case 2020-01-01 occurs more than once in y",
    ),
    (
        "numbers against dates",
        lambda: check(YX, EX.assign_coords(time=np.arange(N))),
        ValueError,
        "case 0 is 2020-01-01 in y and 0 in the forecast",
    ),
    (
        "pandas against xarray",
        lambda: check(pd.DataFrame(Y, index=list("abcdef"), columns=STATIONS), EX),
        ValueError,
        "case 0 is 'a' in y and 2020-01-01",
    ),
    (
        "weights of other dates",
        lambda: check(YX, EX, case_weights=pd.Series(1.0, index=TIMES + pd.Timedelta("1h"))),
        ValueError,
        "2020-01-01 in y and 2020-01-01 01:00:00 in case_weights",
    ),
    (
        "blocks of fewer dates",
        lambda: check(YX, EX, blocks=pd.Series(1, index=TIMES[:4])),
        ValueError,
        "case 4 is 2020-01-05 in y and missing from blocks",
    ),
    (
        "ids of other dates",
        lambda: check(YX, EX, case_ids=pd.Series(range(N), index=TIMES[::-1] + pd.Timedelta("9D"))),
        ValueError,
        "in case_ids",
    ),
    (
        "two orders of dimensions",
        lambda: check(YX.rename(time="a", station="b").T, EX.rename(time="a", station="b")),
        ValueError,
        "in another order; say which holds the cases: axes=",
    ),
    (
        "a dimension for two",
        lambda: check(YX, EX, axes={"time": "case", "number": "case"}),
        ValueError,
        "it needs one each for case, member, target",
    ),
    (
        "a role that is none",
        lambda: check(YX, EX, axes={"time": "cases"}),
        ValueError,
        "'time': 'cases' does not give a dimension",
    ),
    (
        "a dimension that is none",
        lambda: check(YX, EX, axes={"day": "case"}),
        ValueError,
        "'day': 'case' does not give a dimension",
    ),
    (
        "axes of other names",
        lambda: check(YX, EX, axes=("time", "member", "place")),
        ValueError,
        r"for the dimensions \('time', 'number', 'station'\)",
    ),
    (
        "members called cases",
        lambda: check(YX, EX.rename(number="member"), axes=("member", "time", "station")),
        ValueError,
        "makes the dimension 'member' the cases",
    ),
    (
        "dimensions half known",
        lambda: as_ensemble(EX.rename(number="member", time="a", station="b").transpose("member", "a", "b")),
        ValueError,
        "'a' and 'b' could be case or target",
    ),
    (
        "axes of an array by name",
        lambda: check(Y, E, axes={"time": "case"}),
        TypeError,
        "names dimensions, which only xarray objects have",
    ),
    ("axes as text", lambda: check(Y, E, axes="case member target"), TypeError, "name the axes one by one"),
    (
        "axes of an Ensemble",
        lambda: check(Y, Ensemble(E), axes=("case", "member", "target")),
        ValueError,
        "an Ensemble, whose layout is known; leave axes= out",
    ),
    (
        "axes of a law",
        lambda: check(Y, LAW, axes=("case", "member", "target")),
        ValueError,
        "a MultivariateNormal, whose layout is known",
    ),
    (
        "scores of other dates",
        lambda: energy_score(YX, EX.assign_coords(time=TIMES + pd.Timedelta("1D"))),
        ValueError,
        "case 0 is 2020-01-01 in y",
    ),
]

OPTIONS: list[Case] = [
    *(
        (
            f"exponent={exponent}",
            lambda exponent=exponent: check(Y, E, exponent=exponent),
            ValueError,
            f"exponent={exponent}: .*positive, finite exponent",
        )
        for exponent in (0, -1, NAN, INF)
    ),
    ("exponent as text", lambda: check(Y, E, exponent="1"), TypeError, "exponent='1': a positive number"),
    ("exponent None", lambda: check(Y, E, exponent=None), TypeError, "exponent=None: a positive number"),
    *(
        (
            f"{name}={value}",
            lambda name=name, value=value: check(Y, E, **{name: value}),
            error,
            f"{name}={value}: {WHOLE}",
        )
        for name in ("n_draws", "n_replicates")
        for value, error in ((0, ValueError), (-5, ValueError), (1.5, TypeError), (None, TypeError), (True, TypeError))
    ),
    ("seed as text", lambda: check(Y, E, seed="x"), TypeError, "seed='x': a whole number"),
    ("seed None", lambda: check(Y, E, seed=None), TypeError, "seed=None: a whole number"),
    ("seed a fraction", lambda: check(Y, E, seed=0.5), TypeError, "seed=0.5: a whole number"),
    (
        "scale",
        lambda: check(Y, E, scale="sometimes"),
        ValueError,
        'scale=\'sometimes\': say "auto", "pooled" or "none"',
    ),
    *(
        (
            f"{name} {what}",
            lambda name=name, value=value: check(Y, Ensemble(E, np.ones((N, M))), **{name: value}),
            ValueError,
            f"{name}.*{text}" if text[0] != "1" else f"{text} {name}",
        )
        for name in ("case_weights", "observation_weights")
        for what, value, text in (
            ("too long", np.ones(N + 1), r"has shape \(7,\); one number per case is \(6,\)"),
            ("too short", np.ones(N - 1), r"has shape \(5,\); one number per case is \(6,\)"),
            ("of two axes", np.ones((N, 1)), r"has shape \(6, 1\)"),
            ("infinite", put(np.ones(N), INF, 2), "1 of 6"),
            ("NaN", put(np.ones(N), NAN, 2), "1 of 6"),
            ("negative", put(np.ones(N), -1.0, 2), "1 of 6"),
            ("zero", np.zeros(N), "are zero; at least one must be positive"),
        )
    ),
    (
        "which weight",
        lambda: check(Y, E, case_weights=put(np.ones(N), -2.0, 3)),
        ValueError,
        r"the first \(-2\) for case 3",
    ),
    (
        "masked weight",
        lambda: check(Y, E, case_weights=np.ma.masked_equal(np.arange(N), 2)),
        ValueError,
        r"the first \(nan\) for case 2",
    ),
    ("weights as text", lambda: check(Y, E, case_weights=list("abcdef")), TypeError, "case_weights has dtype <U1"),
    ("weights a number", lambda: check(Y, E, case_weights=1.0), ValueError, r"case_weights has shape \(\)"),
    (
        "weights of unweighted members",
        lambda: check(Y, E, observation_weights=np.ones(N)),
        ValueError,
        "go with member weights",
    ),
    (
        "blocks too long",
        lambda: check(Y, E, blocks=np.zeros(N + 1)),
        ValueError,
        r"blocks has shape \(7,\); one label per case is \(6,\)",
    ),
    ("blocks too short", lambda: check(Y, E, blocks=[1, 2]), ValueError, r"blocks has shape \(2,\)"),
    ("blocks of two axes", lambda: check(Y, E, blocks=np.zeros((N, 1))), ValueError, r"blocks has shape \(6, 1\)"),
    ("blocks NaN", lambda: check(Y, E, blocks=put(np.zeros(N), NAN, 2)), ValueError, MISSING_LABELS),
    ("blocks None", lambda: check(Y, E, blocks=["a", "a", None, "b", "b", "b"]), ValueError, MISSING_LABELS),
    ("blocks NaN among text", lambda: check(Y, E, blocks=["a", "a", NAN, "b", "b", "b"]), ValueError, MISSING_LABELS),
    (
        "blocks NA",
        lambda: check(Y, E, blocks=pd.Series([1, 1, None, 2, 2, 2], dtype="Int64")),
        ValueError,
        MISSING_LABELS,
    ),
    (
        "blocks NaT",
        lambda: check(Y, E, blocks=put(TIMES.to_numpy(), np.datetime64("NaT"), 2)),
        ValueError,
        MISSING_LABELS,
    ),
    ("blocks masked", lambda: check(Y, E, blocks=np.ma.masked_equal(np.arange(N), 2)), ValueError, MISSING_LABELS),
    (
        "blocks as text",
        lambda: check(Y, E, blocks="season"),
        TypeError,
        "blocks is a str, 'season', .*; one value per case is needed, 6",
    ),
    ("blocks a number", lambda: check(Y, E, blocks=3), TypeError, "blocks is an int; one label per case"),
    ("ids twice", lambda: check(Y, E, case_ids=[1, 2, 3, 1, 5, 6]), ValueError, "cases 0 and 3 are both called 1"),
    ("labels twice", lambda: check(Y, E, case_ids=list("abcabc")), ValueError, "cases 0 and 3 are both called a"),
    (
        "ids too few",
        lambda: check(Y, E, case_ids=[1, 2]),
        ValueError,
        r"case_ids has shape \(2,\); one label per case is \(6,\)",
    ),
    ("ids with fractions", lambda: checked_case_ids([0.5, 1.0], 2), ValueError, "numbers with fractions"),
    ("ids missing", lambda: checked_case_ids([1, None], 2), ValueError, "case_ids has 1 missing labels.*case 1"),
    ("ids a number", lambda: checked_case_ids(7, 2), TypeError, "case_ids is an int; one label per case is needed, 2"),
    (
        "how as text",
        lambda: require_how("nonsense", (ClosedForm, RandomisedRank)),
        TypeError,
        r"how='nonsense' .* ClosedForm\(\) or RandomisedRank\(\)",
    ),
    (
        "how a class",
        lambda: require_how(RandomisedRank, (ClosedForm, EmpiricalRank)),
        TypeError,
        r"RandomisedRank is a class; pass RandomisedRank\(\)",
    ),
]

PRERANKS: list[Case] = [
    ("a class", lambda: check(Y, E, PCA), TypeError, r"^PCA is a class; pass PCA\(\)$"),
    ("a class among values", lambda: check(Y, E, [Location(), HDR]), TypeError, r"^HDR is a class; pass HDR\(\)$"),
    ("a name", lambda: check(Y, E, "PCA"), TypeError, r"'PCA' is not a pre-rank; pass a value such as Location\(\)"),
    ("names", lambda: check(Y, E, ["PCA"]), TypeError, "'PCA' is not a pre-rank"),
    ("a function", lambda: check(Y, E, len), TypeError, r"is not a pre-rank; .*wrap f as Custom\(f\)"),
    ("a number", lambda: check(Y, E, 3), TypeError, "3 is not a pre-rank"),
    ("none at all", lambda: check(Y, E, []), ValueError, "no pre-rank given"),
    (
        "two of one name",
        lambda: check(Y, E, [Dependency(1), Dependency(2)]),
        ValueError,
        "two pre-ranks are called 'dependency'",
    ),
    (
        "scale of one target",
        lambda: check(Y[:, :1], E[..., :1], Scale()),
        ValueError,
        r"Scale\(\) is constant .*use Marginal\(\)",
    ),
    (
        "dependency of one target",
        lambda: check(Y[:, :1], E[..., :1], Dependency()),
        ValueError,
        r"D=1 targets.*use Marginal\(\)",
    ),
    (
        "dependency of two targets",
        lambda: check(Y[:, :2], E[..., :2], Dependency()),
        ValueError,
        r"D=2 targets.*Scale\(\) or Contrast\(\)",
    ),
    ("lag too large", lambda: check(Y, E, Dependency(3)), ValueError, "use a lag of at most 2"),
    ("lag zero", lambda: check(Y, E, Dependency(0)), ValueError, "the lag is a distance between targets, 1 or more"),
    ("no component", lambda: check(Y, E, PCA(0)), ValueError, "at least one component is needed"),
    (
        "one reference draw",
        lambda: check(Y, Ensemble(E, reference=E[:, :1]), PCA()),
        ValueError,
        "at least two points per case",
    ),
    (
        "contrast of itself",
        lambda: check(Y, E, Contrast(1, 1)),
        ValueError,
        "two different targets between 0 and 2 for D=3",
    ),
    ("contrast too far", lambda: check(Y, E, Contrast(0, 3)), ValueError, "two different targets between 0 and 2"),
    (
        "difference too far",
        lambda: check(Y, E, SquaredDifference(0, 9)),
        ValueError,
        "two different targets between 0 and 2",
    ),
    ("custom of no function", lambda: Custom(3), TypeError, "Custom takes a function of a point.*not an int"),
    ("custom of a pre-rank", lambda: Custom(PCA()), TypeError, "that is a pre-rank already"),
    ("custom of a class", lambda: Custom(Copula), TypeError, "that is a pre-rank already"),
    ("custom without name", lambda: Custom(len, name=""), TypeError, "name in the table is a text"),
    (
        "custom that fails",
        lambda: check(Y, E, Custom(lambda y: y.nothing)),
        TypeError,
        r"takes neither a tensor \(AttributeError.*nor a NumPy array",
    ),
    (
        "custom that gives a number",
        lambda: check(Y, E, Custom(lambda y: 1.0)),
        TypeError,
        "it gave a float instead of an array",
    ),
    (
        "custom that gives None",
        lambda: check(Y, E, Custom(lambda y: None)),
        TypeError,
        "it gave None instead of an array",
    ),
    (
        "custom of the wrong shape",
        lambda: check(Y, E, Custom(lambda y: y[0])),
        ValueError,
        r"it must map \(\.\.\., D\) to",
    ),
    ("custom that gives NaN", lambda: check(Y, E, Custom(lambda y: y[..., 0] * NAN)), ValueError, "custom gave NaN"),
]

PITS: list[Case] = [
    (
        "pit: forecast an array",
        lambda: projected_pit(T, E, Location()),
        TypeError,
        "the forecast is an ndarray; pass an Ensemble",
    ),
    (
        "pit: forecast a class",
        lambda: projected_pit(T, Ensemble, Location()),
        TypeError,
        "the forecast is the class Ensemble",
    ),
    ("pit: no pre-rank", lambda: projected_pit(T, Ensemble(E), []), ValueError, "no pre-rank given"),
    ("pit: swapped", lambda: projected_pit(Ensemble(E), T, Location()), TypeError, "y is an Ensemble, .* look swapped"),
    (
        "pit: y NaN",
        lambda: projected_pit(T * NAN, Ensemble(E), Location()),
        ValueError,
        "18 of 18 values of y are NaN or infinite",
    ),
    (
        "pit: members NaN",
        lambda: projected_pit(T, Ensemble(E * NAN), Location()),
        ValueError,
        "values of the forecast are NaN or infinite",
    ),
    (
        "pit: fill",
        lambda: projected_pit(T, Ensemble(put(E, 1e36, 0, 0, 0)), Location()),
        ValueError,
        r"1 of 72 values of the (members|forecast) are 1e\+36",
    ),
    (
        "pit: other cases",
        lambda: projected_pit(T, Ensemble(E[:5]), Location()),
        ValueError,
        "for 5 cases and 3 targets",
    ),
    (
        "pit: unbatched law",
        lambda: projected_pit(T, MultivariateNormal(torch.zeros(3), torch.eye(3)), Location()),
        ValueError,
        r"forecast\.expand\(\(6,\)\)",
    ),
    (
        "pit: no closed form",
        lambda: projected_pit(T, mixture(), Scale(), ClosedForm()),
        TypeError,
        "has no closed-form PIT",
    ),
    (
        "pit: smooth and tested",
        lambda: projected_pit(T, mixture(), Scale(), SmoothRank(), exchangeable=True),
        ValueError,
        "smooth PITs are for training",
    ),
    (
        "pit: negative weights",
        lambda: projected_pit(T, Ensemble(E, -np.ones((N, M))), Location()),
        ValueError,
        "weights of the forecast are negative",
    ),
    *(
        (f"{f.__name__}: {what}", lambda f=f, pit=pit: f(pit), ValueError, text)
        for f in (pce, reliability_curve)
        for what, pit, text in (
            ("one axis", PIT[:, 0], r"PITs have axes \(cases, projections\), got shape \(10,\)"),
            ("no case", PIT[:0], "there are no PITs"),
            ("above one", PIT * 2, "5 of 10 PITs are NaN or outside"),
            ("NaN", put(PIT, NAN, 0, 0), "1 of 10 PITs are NaN or outside"),
        )
    ),
    *(
        (f"{f.__name__}: {what}", lambda f=f, pit=pit: f(pit), TypeError, text)
        for f in (pce, reliability_curve, pce_kde, corrected_pce, pce_interval)
        for what, pit, text in (
            ("text", "pit.csv", "pit is a str; pass an array"),
            ("complex", PIT + 0j, "pit has dtype complex128"),
            ("sparse", sparse.csr_array(PIT), "pit is a sparse csr_array"),
        )
    ),
    (
        "pce: weights",
        lambda: pce(PIT, case_weights=np.ones(3)),
        ValueError,
        r"case_weights has shape \(3,\); one number per case is \(10,\)",
    ),
    (
        "pce: negative weights",
        lambda: pce(PIT, case_weights=-np.ones(10)),
        ValueError,
        "10 of 10 case_weights are negative, NaN or infinite",
    ),
    (
        "pce: levels",
        lambda: pce(PIT, levels=np.array([0.5, 0.1])),
        ValueError,
        "levels are probabilities in ascending order",
    ),
    ("pce: no levels", lambda: pce(PIT, n_levels=0), ValueError, "0 levels: at least one is needed"),
    ("inclusive levels", lambda: inclusive_levels(1), ValueError, "1 levels: from 0 to 1 inclusive"),
    ("centred levels", lambda: centred_levels(0), ValueError, "0 levels"),
    (
        "interval: coverage",
        lambda: pce_interval(PIT, coverage=95),
        ValueError,
        "coverage=95: a probability between 0 and 1",
    ),
    ("interval: one axis", lambda: pce_interval(PIT[:, 0]), ValueError, r"got \(10,\)|got shape \(10,\)"),
    ("null: no cases", lambda: pce_null(0), ValueError, "at least one"),
    ("null: no members", lambda: pce_null(10, n_members=0), ValueError, "n_members=0: at least one member"),
    ("null: exponent", lambda: pce_null(10, exponent=-1), ValueError, "exponent=-1"),
    ("null: no levels", lambda: pce_null(10, n_levels=0), ValueError, "0 levels"),
    ("band: no cases", lambda: reliability_band(0), ValueError, "0 cases: at least one"),
    ("test: no replicates", lambda: pce_test(PIT, n_replicates=0), ValueError, "n_replicates=0: a whole number"),
    ("test: half a replicate", lambda: pce_test(PIT, n_replicates=9.5), TypeError, "n_replicates=9.5"),
    ("test: exponent", lambda: pce_test(PIT, exponent=NAN), ValueError, "exponent=nan"),
    ("test: a weight too many", lambda: pce_test(PIT, case_weights=torch.ones(11)), ValueError, r"\(10,\)"),
    ("test: infinite weight", lambda: pce_test(PIT, case_weights=torch.full((10,), INF)), ValueError, "infinite"),
    (
        "test: blocks too few",
        lambda: pce_test(PIT, blocks=torch.zeros(9)),
        ValueError,
        r"one label per case is \(10,\)",
    ),
    ("test: outside", lambda: pce_test(PIT + 1), ValueError, r"outside \[0, 1\]"),
    ("test: one axis", lambda: pce_test(PIT[:, 0]), ValueError, r"use pit\[:, None\]"),
    (
        "PIT: how",
        lambda: projected_pit(np.zeros((2, 1)), Ensemble(np.zeros((2, 3, 1))), Location(), "nonsense"),
        TypeError,
        "how='nonsense' is no way",
    ),
    (
        "PIT: no draws",
        lambda: projected_pit(np.zeros((2, 1)), Ensemble(np.zeros((2, 3, 1))), Location(), n_draws=0),
        ValueError,
        "n_draws=0: a whole number of at least 1",
    ),
    ("band: coverage", lambda: reliability_band(10, coverage=1.0), ValueError, "coverage=1.0: a probability"),
    ("check_pits: above one", lambda: check_pits([0.2, 1.2]), ValueError, r"outside \[0, 1\]"),
    ("check_pits: none", lambda: check_pits([NAN]), ValueError, "at least one case"),
    ("check_pits: names", lambda: check_pits(PIT, names=["a", "b"]), ValueError, "2 names for 1 columns"),
    ("check_pits: three axes", lambda: check_pits(PIT[None]), ValueError, r"pit has shape \(1, 10, 1\)"),
    ("check_pits: text", lambda: check_pits(["a"]), TypeError, "pit has dtype <U1"),
]

SCORES: list[Case] = [
    *(
        (f"{score.__name__}: {what}", lambda score=score, arguments=arguments: score(*arguments), error, text)
        for score in (energy_score, variogram_score, crps)
        for what, arguments, error, text in (
            ("swapped arrays", (E, Y), ValueError, "so they look swapped"),
            ("swapped Ensemble", (Ensemble(E), Y), TypeError, "y is an Ensemble, .* look swapped"),
            ("y NaN", (put(Y, NAN, 1, 2), Ensemble(E)), ValueError, r"1 of 18 values of y .* index \(1, 2\)"),
            (
                "members NaN",
                (Y, Ensemble(put(E, NAN, 1, 2, 0))),
                ValueError,
                r"1 of 72 values of the forecast .* index \(1, 2, 0\)",
            ),
            (
                "fill value",
                (Y, Ensemble(put(E, 9.96921e36, 1, 2, 0))),
                ValueError,
                r"1 of 72 values of the forecast are 9\.96921e\+36",
            ),
            ("other cases", (Y[:4], Ensemble(E)), ValueError, r"y has shape \(4, 3\), .* 6 cases and 3 targets"),
            ("one member's values", (Y, Y), ValueError, "one value per case and target is no ensemble"),
            ("text", (Y.astype(str), Ensemble(E)), TypeError, "y has dtype <U32"),
            ("a class", (Y, Ensemble), TypeError, "the forecast is the class Ensemble"),
        )
    ),
    (
        "energy_score: unbatched law",
        lambda: energy_score(Y, MultivariateNormal(torch.zeros(3), torch.eye(3))),
        ValueError,
        r"expand\(\(6,\)\)",
    ),
    ("energy_score: no draws", lambda: energy_score(Y, LAW, n_draws=0), ValueError, f"n_draws=0: {WHOLE}"),
    ("energy_score: half a draw", lambda: energy_score(Y, LAW, n_draws=2.5), TypeError, f"n_draws=2.5: {WHOLE}"),
    (
        "energy_score: weights of a law",
        lambda: energy_score(Y, LAW, weights=np.ones((N, M))),
        ValueError,
        "weigh the same",
    ),
    (
        "energy_score: weights twice",
        lambda: energy_score(Y, Ensemble(E, np.ones((N, M))), weights=np.ones((N, M))),
        ValueError,
        "not both",
    ),
    (
        "energy_score: negative weight",
        lambda: energy_score(Y, E, weights=put(np.ones((N, M)), -1, 0, 0)),
        ValueError,
        "1 weights of the forecast are negative",
    ),
    (
        "energy_score: estimator's name",
        lambda: energy_score(Y, E, "fair"),
        TypeError,
        r"pass one of the values Fair\(\), Paper\(\)",
    ),
    ("energy_score: estimator's class", lambda: energy_score(Y, E, Fair), TypeError, "pass one of the values"),
    ("energy_score: one member", lambda: energy_score(Y, E[:, :1]), ValueError, "M = 1 member"),
    (
        "energy_score: halves of one",
        lambda: energy_score(Y, E[:, :1], TwoSets()),
        ValueError,
        "cannot halve M = 1 member",
    ),
    ("energy_score: scipy law", lambda: energy_score(Y, stats.norm()), TypeError, "distribution of another library"),
    ("variogram_score: one target", lambda: variogram_score(Y[:, :1], E[..., :1]), ValueError, "D = 1 target"),
    (
        "variogram_score: exponent",
        lambda: variogram_score(Y, Ensemble(E), exponent=0),
        ValueError,
        "exponent above zero",
    ),
    (
        "variogram_score: pair weights",
        lambda: variogram_score(Y, Ensemble(E), pair_weights=np.ones((2, 2))),
        ValueError,
        r"D = 3 targets need \(3, 3\)",
    ),
    ("crps: law", lambda: crps(Y, LAW), TypeError, "crps takes the projected members"),
    ("nll: Ensemble", lambda: nll(Y, Ensemble(E)), TypeError, "an Ensemble has no density"),
    ("nll: array", lambda: nll(Y, E), TypeError, "an ndarray has no density"),
    ("nll: swapped", lambda: nll(LAW, Y), TypeError, "y is a MultivariateNormal, .* look swapped"),
    (
        "nll: unbatched law",
        lambda: nll(Y, MultivariateNormal(torch.zeros(3), torch.eye(3))),
        ValueError,
        r"expand\(\(6,\)\)",
    ),
    (
        "nll: outside the support",
        lambda: nll(Y, Independent(LogNormal(LAW.loc, 1.0), 1)),
        ValueError,
        "outside the support of the LogNormal.*energy_score",
    ),
    ("nll: other targets", lambda: nll(Y[:, :2], LAW), ValueError, r"y has shape \(6, 2\), .* 6 cases and 3 targets"),
]

TRAINING: list[Case] = [
    ("penalty of a class", lambda: PreRankPenalty(Location), TypeError, r"^Location is a class; pass Location\(\)$"),
    ("penalty of a name", lambda: PreRankPenalty("location"), TypeError, "'location' is not a pre-rank"),
    ("penalty of nothing", lambda: PreRankPenalty(()), ValueError, "the penalty needs at least one pre-rank"),
    ("penalty: temperature", lambda: PreRankPenalty(Location(), temperature=0), ValueError, "temperature=0"),
    ("penalty: exponent", lambda: PreRankPenalty(Location(), exponent=0.5), ValueError, "exponent=0.5"),
    ("penalty: one draw", lambda: PreRankPenalty(Location(), n_draws=1), ValueError, "at least two of each"),
    (
        "penalty of a tensor",
        lambda: PreRankPenalty(Location())(T, torch.from_numpy(E)),
        TypeError,
        "the forecast is a Tensor; pass an Ensemble, a GaussianMixture",
    ),
    (
        "penalty swapped",
        lambda: PreRankPenalty(Location())(mixture(), T),
        TypeError,
        r"y is a GaussianMixture, .* the order is \(y, forecast\)",
    ),
    (
        "penalty: y NaN",
        lambda: PreRankPenalty(Location())(put(Y, NAN, 0, 0), mixture()),
        ValueError,
        "1 of 18 values of y are NaN or infinite, .* or the penalty would be NaN",
    ),
    ("penalty: y of one axis", lambda: PreRankPenalty(Location())(Y[:, 0], mixture()), ValueError, "it needs two axes"),
    (
        "penalty: other targets",
        lambda: PreRankPenalty(Location())(Y[:, :2], mixture()),
        ValueError,
        "the forecast is for 6 cases and 3 targets",
    ),
    (
        "penalty: other cases",
        lambda: PreRankPenalty(Location())(Y[:4], mixture()),
        ValueError,
        "the forecast is for 6 cases and 3 targets",
    ),
    (
        "penalty: members without gradient",
        lambda: PreRankPenalty(Location())(T, Ensemble(E)),
        TypeError,
        "carry no gradient",
    ),
    (
        "penalty: three members",
        lambda: PreRankPenalty(Location())(T, Ensemble(torch.from_numpy(E[:, :3]).requires_grad_())),
        ValueError,
        "3 members are too few",
    ),
    ("strength", lambda: Run(0, PreRankPenalty(Location()), -1), ValueError, "strength=-1"),
    ("odd draws", lambda: EnergyScore(7), ValueError, "n_draws=7.*even"),
    (
        "regressor: prerank's class",
        lambda: small(preranks=Location),
        TypeError,
        r"Location is a class; pass Location\(\)",
    ),
    ("regressor: prerank's name", lambda: small(preranks="PCA"), TypeError, "'PCA' is not a pre-rank"),
    ("regressor: strength", lambda: small(preranks=Location(), strength=-1.0), ValueError, "strength=-1.0"),
    ("regressor: components", lambda: small(n_components=0), ValueError, f"n_components=0: {WHOLE}"),
]

EVERYTHING = [*OBSERVATIONS, *FORECASTS, *LABELS, *OPTIONS, *PRERANKS, *PITS, *SCORES, *TRAINING]


@pytest.mark.parametrize(("call", "error", "text"), [pytest.param(*case[1:], id=case[0]) for case in EVERYTHING])
def test_bad_input_gets_its_sentence(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as refused:
        call()
    said = str(refused.value)
    assert "\n" not in said
    assert len(said) < 450


def test_bad_inputs_are_many_and_none_is_listed_twice() -> None:
    assert len(EVERYTHING) >= 150
    assert len({case[0] for case in EVERYTHING}) == len(EVERYTHING)
    assert isinstance(
        check(Y, E, Marginal(), n_replicates=1).pit, ProjectedPIT
    )  # the good input that these are made from
