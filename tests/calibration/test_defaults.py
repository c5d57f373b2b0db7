"""Left out, an argument has the value that the documentation gives; single precision costs no digits inside."""

import numpy as np
import pytest
import torch

from builders import normal, random_mixture, uniform
from prerank.arrays.case_labels import checked_case_ids, label_array
from prerank.calibration import (
    EmpiricalRank,
    SmoothRank,
    centred_levels,
    chi_square_test,
    corrected_pce,
    inclusive_levels,
    pce,
    pce_interval,
    pce_kde,
    pce_null,
    pce_test,
    projected_pit,
    reliability_band,
    reliability_curve,
)
from prerank.calibration.projected_pits import ProjectedPIT
from prerank.forecasts import Ensemble
from prerank.preranks import HDR, PCA, Contrast, Copula, Dependency, Location, Marginal, Scale, SquaredDifference

Z = uniform(40, 2, seed=3).square()
RANKS = projected_pit(
    normal(9, 2, seed=4), Ensemble(normal(9, 5, 2, seed=5)), [Marginal(), Location()], exchangeable=True
)
OBSERVED = normal(6, 3, seed=6)


def flat(value):
    if isinstance(value, torch.Tensor):
        return value.double().flatten().tolist()
    if isinstance(value, ProjectedPIT):
        return flat(value.lower) + flat(value.upper)
    if isinstance(value, tuple):
        return [number for item in value if not isinstance(item, str) for number in flat(item)]
    return [float(value)]


@pytest.mark.parametrize(
    ("function", "defaults"),
    [
        (centred_levels, {"n_levels": 100}),
        (inclusive_levels, {"n_levels": 100}),
        (lambda **given: reliability_curve(Z, **given), {"n_levels": 100}),
        (lambda **given: pce(Z, **given), {"n_levels": 100, "exponent": 1}),
        (lambda **given: pce_kde(Z, **given), {"temperature": 100.0, "n_levels": 100, "exponent": 1}),
        (lambda **given: corrected_pce(Z, **given), {"n_levels": 100, "exponent": 1}),
        (lambda **given: chi_square_test(Z, **given), {"n_bins": 10}),
        (lambda **given: pce_null(7, **given).mean, {"n_levels": 100, "exponent": 1, "unrandomised": False}),
        (lambda **given: pce_null(7, n_members=3, **given).mean, {"n_levels": 100, "exponent": 1, "unrandomised": False}),
        (lambda **given: reliability_band(7, **given), {"coverage": 0.95, "n_levels": 100}),
        (lambda **given: pce_test(RANKS, **given)[1:], {"n_levels": 100, "exponent": 1, "n_replicates": 999, "seed": 0}),
        (
            lambda **given: pce_interval(Z[:, :1], **given),
            {"coverage": 0.95, "n_levels": 100, "n_replicates": 999, "seed": 0},
        ),
        (lambda **given: projected_pit(OBSERVED, random_mixture(6), Scale(), **given), {"n_draws": 100, "seed": 0}),
        (
            lambda **given: projected_pit(OBSERVED, random_mixture(6), Copula(), SmoothRank(), **given),
            {"n_draws": 100, "seed": 0},
        ),
        (lambda **given: random_mixture(6).ensemble(4, **given).members, {"seed": 0, "stream": "members"}),
        (lambda **given: random_mixture(6).draw(8, **given).members, {"seed": 0, "stream": "draws", "at_least": 2}),
    ],
)  # fmt: skip
def test_defaults_are_those_of_the_documentation(function, defaults):
    left_out = flat(function())
    assert left_out == flat(function(**defaults))
    for name, value in defaults.items():
        assert left_out == flat(function(**{name: value}))


@pytest.mark.parametrize(
    ("prerank", "given"),
    [
        (Dependency(), Dependency(lag=1, name="dependency")),
        (PCA(), PCA(n_components=None, attached=False, name="PCA")),
        (Copula(), Copula(n_reference=1000, name="copula")),
        (Contrast(), Contrast(i=0, j=1, name="contrast")),
        (SquaredDifference(), SquaredDifference(i=0, j=1, name="squared difference")),
        (SmoothRank(), SmoothRank(temperature=100.0, relative=True)),
    ],
    ids=repr,
)
def test_preranks_left_to_themselves_are_those_of_the_documentation(prerank, given):
    assert prerank == given


# -- precision


def test_levels_in_single_precision_are_the_numbers_they_are():
    single = centred_levels(30).float()
    double = single.double()
    assert pce_null(9, levels=single).mean == pce_null(9, levels=double).mean
    for n_members in (None, 4):
        found, expected = (reliability_band(9, levels=levels, n_members=n_members) for levels in (single, double))
        assert found.levels.dtype == found.lower.dtype == torch.float64
        assert torch.equal(found.lower, expected.lower)
        assert torch.equal(found.upper, expected.upper)
    for test in (pce_test, pce_interval):
        given = {"n_replicates": 19} | ({"null": torch.zeros(19)} if test is pce_interval else {})
        assert flat(tuple(test(RANKS, levels=single, **given))[1:]) == pytest.approx(
            flat(tuple(test(RANKS, levels=double, **given))[1:]), nan_ok=True
        )


def test_errors_of_many_pits_in_single_precision_keep_their_digits():
    z = uniform(50_000, 1, seed=7, dtype=torch.float32).square()
    blocks = torch.arange(50_000) // 1000
    for exponent in (1, 2):
        torch.testing.assert_close(
            corrected_pce(z, exponent=exponent).double(),
            corrected_pce(z.double(), exponent=exponent),
            rtol=1e-4,
            atol=1e-7,
        )
    found, expected = (corrected_pce(x, exponent=2, blocks=blocks).double() for x in (z, z.double()))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)
    interval, wide = (pce_interval(x[:2000], null=torch.zeros(9), n_replicates=49) for x in (z, z.double()))
    assert interval == pytest.approx(wide, rel=1e-5)


@pytest.mark.parametrize("how", [None, EmpiricalRank()], ids=str)
def test_weights_in_single_precision_are_the_numbers_they_are(how):
    y, members = normal(7, 2, seed=8), normal(7, 9, 2, seed=9)
    weights, own = uniform(7, 9, seed=10, dtype=torch.float32), uniform(7, seed=11, dtype=torch.float32)
    cases = uniform(7, seed=12, dtype=torch.float32)
    preranks = [Marginal(), Location(), PCA(), HDR(), Copula()]

    def ranked(dtype, observation, **options):
        own_weights = None if observation is None else observation.to(dtype)
        forecast = Ensemble(members, weights.to(dtype))
        return projected_pit(y, forecast, preranks, how, observation_weights=own_weights, **options)

    for observation in (None, own):
        found, expected = (ranked(dtype, observation, exchangeable=True) for dtype in (torch.float32, torch.float64))
        torch.testing.assert_close(found.points.lower, expected.points.lower, rtol=0, atol=1e-12)
        torch.testing.assert_close(found.points.upper, expected.points.upper, rtol=0, atol=1e-12)
        alone = ranked(torch.float32, observation)
        torch.testing.assert_close(alone.lower, expected.lower, rtol=0, atol=1e-12)
        torch.testing.assert_close(alone.upper, expected.upper, rtol=0, atol=1e-12)
        for one, other in zip(
            pce_test(found, n_replicates=19, case_weights=cases)[1:-1],
            pce_test(expected, n_replicates=19, case_weights=cases.double())[1:-1],
            strict=True,
        ):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_probabilities_of_points_are_shares_of_the_weights():
    y, forecast = normal(3, 1, seed=13), Ensemble(normal(3, 2, 1, seed=14), torch.tensor([[1.0, 3.0]] * 3).double())
    own = torch.tensor([4.0, 0.0, 1.0]).double()
    unknown = projected_pit(y, forecast, [Marginal()])
    torch.testing.assert_close(unknown.pick, torch.tensor([[0.0, 0.25, 0.75]] * 3).double())
    pit = projected_pit(y, forecast, [Marginal()], observation_weights=own, exchangeable=True)
    expected = torch.tensor([[0.5, 0.125, 0.375], [0.0, 0.25, 0.75], [0.2, 0.2, 0.6]]).double()
    torch.testing.assert_close(pit.pick, expected)
    # the spread of a curve is that of points picked with these probabilities
    levels, low, high = centred_levels(5)[:, None, None], pit.points.lower[..., 0], pit.points.upper[..., 0]
    share = torch.where(high > low, ((levels - low) / (high - low)).clamp(0, 1), (levels >= low).double())
    variance = (expected * share.square()).sum(-1) - levels[..., 0].square()
    spread = pce_test(pit, n_levels=5, n_replicates=9).spread[:, 0]
    torch.testing.assert_close(spread, (variance.sum(-1) / 9).sqrt())


# -- labels of cases


def test_names_of_cases_may_be_tensors_with_gradients_and_large_or_unsigned_numbers():
    assert checked_case_ids(torch.tensor([3.0, 1.0], requires_grad=True), 2).tolist() == [3, 1]
    assert checked_case_ids(np.array([5, 7], dtype=np.uint8), 2).tolist() == [5, 7]
    large = checked_case_ids(np.array([2**63, 2**63 + 1], dtype=np.uint64), 2)
    assert len(set(large.tolist())) == 2
    assert (large >= 0).all()
    assert label_array((2**70, 3), "case_ids", 2).dtype == object
    with pytest.raises(ValueError, match="whole number or a label"):
        checked_case_ids([1.5, 2.0], 2)
    with pytest.raises(ValueError, match="cases 0 and 2 are both called 7"):
        checked_case_ids([7, 8, 7], 3)
