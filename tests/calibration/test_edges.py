"""Where a refusal begins: the last input that is good, the first that is not, and counts that are right in every model."""

import datetime

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Independent, LogNormal, MultivariateNormal

from builders import normal
from prerank.arrays.case_labels import checked_case_ids, label_array
from prerank.calibration import centred_levels, inclusive_levels, pce, pce_kde, projected_pit, reliability_curve
from prerank.calibration.checks import require_exponent
from prerank.calibration.curve_table import tables_of
from prerank.calibration.rank_intervals import Intervals
from prerank.forecasts import Ensemble, GaussianMixture
from prerank.preranks import (
    HDR,
    PCA,
    Contrast,
    Copula,
    Custom,
    Dependency,
    Location,
    Marginal,
    Scale,
    SquaredDifference,
    paper_preranks,
)
from prerank.preranks.directions import principal_directions
from prerank.preranks.exchangeable_points import canonical_points
from prerank.preranks.point_density import joint_cdf

NAN, INF = float("nan"), float("inf")


# -- levels, exponents, PITs


@pytest.mark.parametrize(
    "levels",
    [[[0.2, 0.4]], [], [0.4, 0.2], [-0.1, 0.5], [0.5, 1.1], [0.1, NAN, 0.5], 0.5],
    ids=str,
)
def test_levels_that_are_none_are_refused(levels):
    with pytest.raises(ValueError, match="probabilities in ascending order, one axis, at least one"):
        pce(torch.rand(5, 1), levels=torch.tensor(levels))


def test_levels_may_repeat_and_reach_both_ends():
    z = torch.tensor([[0.0], [0.5], [1.0]]).double()
    found = reliability_curve(z, levels=torch.tensor([0.0, 0.5, 0.5, 1.0]).double()).frequency[:, 0]
    assert found.tolist() == pytest.approx([1 / 3, 2 / 3, 2 / 3, 1.0])
    assert reliability_curve(z, levels=torch.tensor([0.3]).double()).frequency.shape == (1, 1)
    assert centred_levels(1).tolist() == [0.5]
    assert inclusive_levels(2).tolist() == [0.0, 1.0]
    for function, fewest in ((centred_levels, 1), (inclusive_levels, 2)):
        with pytest.raises(ValueError, match=f"{fewest - 1} levels"):
            function(fewest - 1)


def test_pits_are_probabilities_ends_included():
    assert pce(torch.tensor([[0.0], [1.0]])).shape == (1,)
    for bad, count in (([[-1e-9], [0.5]], 1), ([[0.5], [1.0 + 1e-6]], 1), ([[NAN], [2.0]], 2)):
        with pytest.raises(ValueError, match=rf"{count} of 2 PITs are NaN or outside \[0, 1\]"):
            pce(torch.tensor(bad, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"got shape \(3,\); use pit\[:, None\]"):
        pce(torch.rand(3))
    with pytest.raises(ValueError, match="at least one case is needed"):
        pce(torch.rand(0, 2))
    assert pce(torch.rand(1, 2)).shape == (2,)


@pytest.mark.parametrize("exponent", [0.5, 1, 1.5, 2, np.float64(3), np.int64(2)])
def test_exponents_are_positive_numbers(exponent):
    assert require_exponent(exponent) == exponent
    z = torch.rand(6, 2, generator=torch.Generator().manual_seed(1)).double()
    curve = reliability_curve(z)
    expected = (curve.levels[:, None] - curve.frequency).abs().pow(float(exponent)).mean(0)
    torch.testing.assert_close(pce(z, exponent=exponent), expected)
    torch.testing.assert_close(pce_kde(z, temperature=1e7, exponent=exponent), expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("exponent", "error"), [(0, ValueError), (-1, ValueError), (INF, ValueError), (NAN, ValueError), (True, TypeError),
                         ("2", TypeError), (None, TypeError)],
)  # fmt: skip
def test_what_is_no_exponent_is_refused(exponent, error):
    with pytest.raises(error, match="exponent="):
        require_exponent(exponent)


def test_pits_that_are_numbers_have_no_unit():
    z = torch.tensor([[[1]], [[2]]])
    for unit in (3, torch.tensor([3, 4])):
        with pytest.raises(ValueError, match="have unit 1"):
            tables_of(Intervals(z, z, unit), centred_levels(3))


# -- counts in messages, over all models


def several():
    """Two by three models of four cases, five members, three targets."""
    return normal(2, 3, 4, 3, seed=2), normal(2, 3, 4, 5, 3, seed=3)


def test_bad_values_are_counted_in_all_models():
    y, members = several()
    bad_y, bad_members = y.clone(), members.clone()
    bad_y[0, 0, 1, 0] = bad_y[0, 0, 1, 2] = bad_y[1, 2, 3, 1] = NAN
    with pytest.raises(ValueError, match=r"3 of 72 values of y are NaN or infinite, the first at index \(0, 0, 1, 0\)"):
        projected_pit(bad_y, Ensemble(members), Location())
    bad_members[0, 0, 1, 0, 0] = bad_members[0, 0, 1, 4, 2] = bad_members[1, 0, 0, 2, 1] = bad_members[1, 2, 3, 1] = INF
    with pytest.raises(
        ValueError, match=r"6 of 360 values of the forecast are NaN or infinite, the first at index \(0, 0, 1, 0, 0\)"
    ):
        projected_pit(y, Ensemble(bad_members), Location())


def test_bad_parameters_are_counted_in_all_models():
    y, _ = several()
    logits, loc = torch.zeros(2, 3, 4, 2).double(), normal(2, 3, 4, 2, 3, seed=4)
    factor = torch.eye(3).double().expand(2, 3, 4, 2, 3, 3)
    for name, count in (("logits", 2), ("loc", 3), ("scale_tril", 3)):
        parts = {"logits": logits.clone(), "loc": loc.clone(), "scale_tril": factor.clone()}
        part = parts[name]
        part[0, 0, 1, 0] = NAN
        part[1, 2, 3] = NAN
        if count == 3:
            part[1, 0, 0, 1, 2] = INF
        with pytest.raises(
            ValueError, match=rf"{name} of the GaussianMixture are NaN or infinite in {count} of 24 cases"
        ):
            projected_pit(y, GaussianMixture(**parts), Location())


def test_nan_projections_are_counted_in_all_models():
    y, members = several()
    bad = Custom(lambda x: torch.where(x[..., 0] == members[1, 1, 2, 3, 0], NAN, x[..., 0]), name="holes")
    with pytest.raises(ValueError, match="holes gave NaN for 1 of 144 points"):
        projected_pit(y, Ensemble(members), bad)


def test_covariances_that_are_not_finite_are_counted_in_all_models():
    covariance = torch.eye(2).expand(2, 3, 2, 2).clone()
    covariance[0, 1, 0, 0] = covariance[1, 2, 1, 1] = INF
    with pytest.raises(ValueError, match="not finite in 2 of 6 cases"):
        principal_directions(covariance)


def test_leading_axes_of_observations_are_those_of_the_forecast_or_one_or_none():
    y, members = several()
    forecast = Ensemble(members)
    expected = projected_pit(y[:1, :1].expand(2, 3, 4, 3), forecast, Marginal())
    for fewer in (y[0, 0], y[:1, :1], y[0, :1]):
        found = projected_pit(fewer, forecast, Marginal())
        assert torch.equal(found.lower, expected.lower)
    for bad in (y[:, :2], y[None], y[0, :2]):
        with pytest.raises(ValueError, match="leading axes"):
            projected_pit(bad, forecast, Marginal())


@pytest.mark.parametrize(("n_cases", "n_targets"), [(0, 3), (4, 0), (0, 0)])
def test_nothing_to_rank_is_refused_in_several_models_too(n_cases, n_targets):
    for lead in ((), (2,), (2, 3)):
        y, members = torch.zeros(*lead, n_cases, n_targets), torch.zeros(*lead, n_cases, 5, n_targets)
        with pytest.raises(ValueError, match="holds no case or no target"):
            projected_pit(y, Ensemble(members), Marginal())


@pytest.mark.parametrize(
    ("value", "message"),
    [(0.0, "zero in 1 of 24 cases"), (NAN, "NaN or infinite"), (INF, "NaN or infinite"), (-0.5, "negative")],
    ids=str,
)
def test_weights_at_their_edges(value, message):
    y, members = several()
    weights = torch.ones(2, 3, 4, 5)
    weights[1, 2, 3] = value
    with pytest.raises(ValueError, match=message):
        projected_pit(y, Ensemble(members, weights), Marginal())
    weights[1, 2, 3] = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0])  # one member with weight is enough
    assert projected_pit(y, Ensemble(members, weights), Marginal()).lower.shape == (2, 3, 4, 3)
    own = torch.ones(2, 3, 4)
    own[1, 2, 3] = value
    if value == 0.0:
        assert projected_pit(y, Ensemble(members, weights), Marginal(), observation_weights=own).exact
    else:
        with pytest.raises(ValueError, match=r"1 of 24 observation_weights are negative, .* for case \(1, 2, 3\)"):
            projected_pit(y, Ensemble(members, weights), Marginal(), observation_weights=own)


@pytest.mark.parametrize(
    ("point", "centre", "share"), [(0.5, 0.5 + 1e-12, 0.0), (0.5 - 1e-12, 0.5, 0.0), (0.5, 0.5, 1.0)]
)
def test_joint_cdfs_tell_numbers_apart_that_single_precision_does_not(point, centre, share):
    points, centres = (torch.full((1, 1, 2), value, dtype=torch.float64) for value in (point, centre))
    assert joint_cdf(points, centres).item() == share


def test_a_negative_zero_is_a_zero():
    found = canonical_points(torch.tensor([[[-0.0, 1.0], [0.0, -0.0]]]))
    assert not found.given.signbit().any()
    assert not found.ordered.signbit().any()
    same = canonical_points(torch.tensor([[[-0.0], [0.0]]]))
    assert same.place.tolist() == [[0, 0]]


# -- pre-ranks at the edge of their meaning


def test_lags_and_pairs_reach_the_last_target():
    y, members = normal(3, 4, seed=5), normal(3, 6, 4, seed=6)
    for prerank, name in (
        (Dependency(lag=3), "variogram lag 3"),
        (Contrast(3, 0), "y4 - y1"),
        (Contrast(0, 3), "y1 - y4"),
        (SquaredDifference(2, 3), "(y3 - y4)²"),
    ):
        assert projected_pit(y, Ensemble(members), prerank).names == (name,)
    for prerank, message in (
        (Dependency(lag=4), "needs more than 4 targets, got D=4; use a lag of at most 3"),
        (Dependency(lag=0), "the lag is a distance between targets, 1 or more"),
        (Contrast(4, 0), "two different targets between 0 and 3"),
        (Contrast(0, 4), "two different targets between 0 and 3"),
        (Contrast(-1, 0), "two different targets between 0 and 3"),
        (Contrast(0, -1), "two different targets between 0 and 3"),
        (SquaredDifference(1, 1), "two different targets between 0 and 3"),
        (PCA(n_components=0), "at least one component"),
    ):
        with pytest.raises(ValueError, match=message):
            projected_pit(y, Ensemble(members), prerank)


def test_preranks_of_points_are_those_of_their_formulas():
    points, law = normal(2, 3, 4, seed=7), Ensemble(normal(2, 5, 4, seed=8))
    mean = points.mean(-1, keepdim=True)
    variance = (points - mean).square().mean(-1)
    torch.testing.assert_close(Scale().given(law)(points)[..., 0], variance)
    torch.testing.assert_close(Location().given(law)(points), mean)
    for lag in (1, 2, 3):
        gaps = points[..., lag:] - points[..., :-lag]
        expected = -gaps.square().mean(-1) / 2 / variance
        torch.testing.assert_close(Dependency(lag).given(law)(points)[..., 0], expected)
    torch.testing.assert_close(Contrast(2, 1).given(law)(points)[..., 0], points[..., 2] - points[..., 1])
    torch.testing.assert_close(
        SquaredDifference(2, 1).given(law)(points)[..., 0], (points[..., 2] - points[..., 1]).square()
    )
    assert Marginal().given(law).names == ("y1", "y2", "y3", "y4")
    assert Location().given(law).names == ("mean",)
    assert Scale().given(law).names == ("variance",)


@pytest.mark.parametrize(("kept", "note"), [(1, "1 of 4 components"), (3, "3 of 4 components"), (4, ""), (9, "")])
def test_principal_components_are_kept_up_to_the_number_of_targets(kept, note):
    y, members = normal(3, 4, seed=9), normal(3, 9, 4, seed=10)
    pit = projected_pit(y, Ensemble(members), PCA(kept))
    assert pit.names == tuple(f"component {k + 1}" for k in range(min(kept, 4)))
    assert pit.notes == ({"PCA": note} if note else {})
    every = projected_pit(y, Ensemble(members), PCA())
    assert torch.equal(pit.lower, every.lower[:, : min(kept, 4)])


def test_few_members_have_fewer_principal_components():
    y = normal(3, 4, seed=11)
    assert (
        len(projected_pit(y, Ensemble(normal(3, 2, 4, seed=12)), PCA()).names) == 2
    )  # three points span two directions
    reference = Ensemble(normal(3, 5, 4, seed=13), reference=normal(3, 3, 4, seed=14))
    assert len(projected_pit(y, reference, PCA()).names) == 2
    single = Ensemble(normal(3, 5, 4, seed=13), reference=normal(3, 1, 4, seed=14))
    with pytest.raises(ValueError, match="at least two points per case"):
        projected_pit(y, single, PCA())


def test_principal_directions_are_eigenvectors_the_largest_first_with_a_positive_largest_entry():
    root = normal(2, 3, 5, 5, seed=15)
    covariance = root @ root.mT
    found = principal_directions(covariance)
    values, _ = torch.linalg.eigh(covariance)
    torch.testing.assert_close(covariance @ found, found * values.flip(-1)[..., None, :], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found.mT @ found, torch.eye(5).double().expand(2, 3, 5, 5), rtol=1e-8, atol=1e-8)
    largest = found.abs().argmax(-2, keepdim=True)
    assert (found.gather(-2, largest) > 0).all()
    assert principal_directions(covariance.float()).dtype == torch.float32


def test_a_law_of_torch_is_seen_through_its_own_covariance_density_and_draws():
    factor = torch.tensor([[1.0, 0.0], [0.8, 0.6]]).double()
    law = MultivariateNormal(normal(5, 2, seed=16), scale_tril=factor)
    y = normal(5, 2, seed=17)
    twin = GaussianMixture(torch.zeros(5, 1).double(), law.loc[:, None], factor.expand(5, 1, 2, 2))
    found, expected = PCA().given(law).directions, PCA().given(twin).directions
    torch.testing.assert_close(found.expand_as(expected), expected)
    points = normal(5, 7, 2, seed=18)
    density = HDR().given(law)(points)[..., 0]
    torch.testing.assert_close(density, law.log_prob(points.movedim(1, 0)).movedim(0, 1))
    other = Independent(LogNormal(torch.zeros(5, 2).double(), torch.ones(5, 2).double()), 1)
    positive = points.exp()
    density = HDR().given(other)(positive)[..., 0]
    torch.testing.assert_close(density, other.log_prob(positive.movedim(1, 0)).movedim(0, 1))
    pit = projected_pit(y.exp(), other, [PCA(), HDR(), Copula(n_reference=50)], n_draws=20)
    assert pit.notes["HDR"] == "log_prob of Independent"
    assert pit.notes["copula"] == "joint CDF of 50 points"
    assert ((pit.lower >= 0) & (pit.upper <= 1)).all()


@pytest.mark.parametrize(
    ("n_targets", "names"),
    [
        (1, ["marginal", "HDR"]),
        (2, ["marginal", "location", "scale", "contrast", "PCA", "HDR", "copula"]),
        (3, ["marginal", "location", "scale", "dependency", "PCA", "HDR", "copula"]),
    ],
)
def test_the_papers_preranks_are_those_with_a_meaning(n_targets, names):
    assert [prerank.name for prerank in paper_preranks(n_targets)] == names


def test_preranks_are_listed_from_one_several_or_a_generator():
    x = normal(3, 4, 2, seed=25)
    for given in (Location(), [Location()], (Location(),), (item for item in [Location()])):
        assert projected_pit(x[:, 0], Ensemble(x[:, 1:]), given).groups == ("location",)


def test_functions_of_points_may_be_numpys_whole_numbers_or_several_values():
    y, members = normal(3, 4, seed=19), normal(3, 6, 4, seed=20)
    by_torch = projected_pit(y, Ensemble(members), Custom(lambda x: x.amax(-1)))
    by_numpy = projected_pit(
        y, Ensemble(members), Custom(lambda x: np.asarray(x).max(axis=-1) if isinstance(x, np.ndarray) else x.np)
    )
    assert torch.equal(by_torch.lower, by_numpy.lower)
    counted = projected_pit(y, Ensemble(members), Custom(lambda x: (x > 0).sum(-1)))
    assert counted.tied.item() > 0
    pair = projected_pit(y, Ensemble(members), Custom(lambda x: x[..., :2], name="two"))
    assert pair.names == ("two 1", "two 2")
    assert torch.equal(pair.lower, projected_pit(y, Ensemble(members), Marginal()).lower[:, :2])


# -- labels of cases


def test_labels_of_every_kind_name_cases():
    day = datetime.date(2020, 1, 2)
    dates = [day, np.datetime64("2020-01-02"), pd.Timestamp("2020-01-02"), datetime.datetime(2020, 1, 2)]
    ids = {int(checked_case_ids([label, "x"], 2)[0]) for label in dates}
    assert len(ids) == 1  # a day is a day whichever library made it
    assert len(set(checked_case_ids([("a", 1), ("a", 2)], 2).tolist())) == 2
    assert checked_case_ids([True, False], 2).tolist() == [1, 0]
    assert checked_case_ids(np.array([4.0, 2.0]), 2).tolist() == [4, 2]
    assert checked_case_ids(pd.Series([4, 2], dtype="Int64"), 2).tolist() == [4, 2]
    assert (checked_case_ids(["a", "b", "c"], 3) >= 0).all()


@pytest.mark.parametrize(
    "missing", [None, NAN, pd.NA, pd.NaT, np.datetime64("NaT"), np.float32(NAN)], ids=lambda value: type(value).__name__
)
def test_a_missing_label_is_found_among_others(missing):
    with pytest.raises(ValueError, match=r"blocks has 1 missing labels .* the first for case 1"):
        label_array(["a", missing, "b"], "blocks", 3)


def test_missing_labels_of_arrays_are_found():
    for values in (
        np.array([1.0, NAN, NAN]),
        np.array(["2020-01-01", "NaT", "NaT"], dtype="datetime64[D]"),
        np.ma.masked_equal([1, 7, 7], 7),
        np.array([1, None, None], dtype=object),
    ):
        with pytest.raises(ValueError, match=r"2 missing labels .* the first for case 1"):
            label_array(values, "blocks", 3)
    assert label_array(np.array(["a", "b"]), "blocks", 2).tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="1 missing labels"):
        label_array(np.ma.array(["a", "b"], mask=[False, True]), "blocks", 2)
    for wrong in (np.zeros((2, 1)), np.zeros(3), []):
        with pytest.raises(ValueError, match=r"one label per case is \(2,\)"):
            label_array(wrong, "blocks", 2)
    for none in ("ab", 3, int):
        with pytest.raises(TypeError, match="one label per case is needed, 2 in all"):
            label_array(none, "blocks", 2)
