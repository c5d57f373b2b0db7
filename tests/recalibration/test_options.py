"""Options of steps are checked where they are given, and the sentence has the value and the range."""

import pytest

from prerank.recalibration import (
    Affine,
    Dressing,
    EnsembleCopulaCoupling,
    HDRRecalibration,
    HighestDensityRegions,
    LatentRecalibration,
    SchaakeShuffle,
    Tilt,
)

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("step", [Affine, Tilt])
@pytest.mark.parametrize("ridges", [(NAN,), (-1.0,), (INF,), (), (0.1, NAN), "ab", 0.1, (True,), (None,), ("1",)])
def test_ridges_are_finite_and_not_negative(step, ridges):
    with pytest.raises((TypeError, ValueError), match=r"^ridges=.*: at least one, each of zero or more and finite"):
        step(ridges=ridges)


@pytest.mark.parametrize("value", [NAN, INF, 0, -1.0, "a", None, True, 2 + 1j])
def test_prior_cases_are_a_positive_number(value):
    with pytest.raises((TypeError, ValueError), match=r"^prior_cases=.*: a finite number above 0$"):
        Dressing(prior_cases=value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"errors": "a"}, "errors='a': a finite number of at least 0"),
        ({"errors": NAN}, "errors=nan: a finite number of at least 0"),
        ({"errors": -1}, "errors=-1: a finite number of at least 0"),
        ({"errors": None}, "errors=None: a finite number"),
        ({"least_effective_share": 2.0}, "least_effective_share=2.0: a finite number of at least 0 and at most 1"),
        ({"least_effective_share": NAN}, "least_effective_share=nan: "),
        ({"least_effective_share": True}, "least_effective_share=True: "),
        ({"pool": 10**12}, "pool=1000000000000: a whole number of at least 1 and at most 1,000,000"),
        ({"degree": 10**6}, "degree=1000000: a whole number of at least 1 and at most 50"),
        ({"degree": 2.0}, "degree=2.0: a whole number"),
        ({"n_draws": 0}, "n_draws=0: a whole number of at least 1"),
        ({"n_draws": 10**9}, "n_draws=1000000000: a whole number"),
        ({"n_reference": "many"}, "n_reference='many': a whole number"),
        ({"by_features": 1}, "by_features=1: True or False"),
        ({"by_features": "no"}, "by_features='no': True or False"),
    ],
)
def test_options_of_a_tilt(options, message):
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        Tilt(**options)


@pytest.mark.parametrize(
    "kind", [EnsembleCopulaCoupling, HDRRecalibration, HighestDensityRegions, LatentRecalibration, SchaakeShuffle]
)
@pytest.mark.parametrize("seed", [1.5, "1", None, True, NAN])
def test_seeds_are_whole_numbers(kind, seed):
    with pytest.raises(TypeError, match=f"^seed={seed!r}: a whole number"):
        kind(seed=seed)


def test_values_at_the_ends_are_accepted():
    assert Tilt(least_effective_share=0, errors=0, ridges=[0], degree=50).degree == 50
    assert Affine(ridges=(0.0,)).ridges == (0.0,)
