"""What `check` accepts a recalibration accepts, with the same notes: missing values, masks, labels, orders of axes."""

import numpy as np
import pandas as pd
import pytest
import torch

from prerank import Ensemble, Location, Marginal, Recalibrator, check
from prerank.recalibration import Affine, Dressing, HDRRecalibration, HighestDensityRegions, RecalibratedMargins, Tilt

xr = pytest.importorskip("xarray")

N, M, D = 60, 6, 2
STATIONS = ["Oslo", "Bergen"]
TIMES = pd.date_range("2020-01-01", periods=N)
rng = np.random.default_rng(3)
MEMBERS = rng.normal(size=(N, M, D))
Y = rng.normal(size=(N, D)) + np.array([1.0, -1.0])


def affine():
    return Recalibrator([Marginal()], steps=[Affine()])


def with_holes():
    y, members = Y.copy(), MEMBERS.copy()
    y[3, 1] = y[7] = np.nan
    members[5, 2, 0] = members[9, :5] = members[11] = np.nan
    return y, members


def test_missing_values_are_left_out_with_the_notes_of_check():
    y, members = with_holes()
    fitted = affine().fit(members, y)
    notes = check(y, members, [Location()], n_replicates=19).notes
    assert fitted.notes_[:2] == notes[:2]
    assert fitted.notes_ == (
        "2 of 60 cases dropped: the observation is missing",
        "1 cases dropped: all their members are missing",
        "1 cases dropped: fewer than 2 of their members are there",
        "1 of 336 members left out: they have missing values",
    )
    assert fitted.n_cases_ == N - 4
    assert all(note in fitted.summary() for note in fitted.notes_)


def test_a_missing_member_is_one_of_weight_zero():
    y, members = with_holes()
    kept = np.setdiff1d(np.arange(N), [3, 7, 9, 11])
    weights = np.ones((N, M))
    weights[5, 2] = 0
    filled = np.where(np.isnan(members), 1e6, members)
    by_hand = affine().fit(Ensemble(filled[kept], weights[kept]), y[kept])
    ours = affine().fit(members, y)
    for name in ("shift", "scale"):
        assert torch.allclose(getattr(ours.steps_[0], name), getattr(by_hand.steps_[0], name), rtol=1e-12)
    new = members.copy()
    new[9, 0], new[11, 0] = 0.5, 0.5
    corrected = ours.transform(new)
    assert torch.equal(corrected.weights, torch.as_tensor(~np.isnan(new).any(-1)).double())
    assert torch.isfinite(corrected.members).all()


def test_weights_that_members_have_are_kept_where_others_are_missing():
    _, members = with_holes()
    weights = 1.0 + np.arange(M) + np.zeros((N, M))
    corrected = affine().fit(MEMBERS, Y).transform(Ensemble(np.delete(members, 11, 0), np.delete(weights, 11, 0)))
    assert corrected.weights[5].tolist() == [1, 2, 0, 4, 5, 6]


@pytest.mark.parametrize("what", [HDRRecalibration(10, 20), RecalibratedMargins(), HighestDensityRegions(20)])
def test_every_method_learns_where_values_are_missing(what):
    y, members = with_holes()
    fitted = what.fit(members, y)
    learnt = getattr(fitted, "masses_", getattr(fitted, "scores_", None))
    assert len(learnt) == N - 4


def test_what_a_mask_hides_is_missing():
    y, members = with_holes()
    hidden = [np.ma.masked_array(np.where(np.isnan(part), -999.0, part), np.isnan(part)) for part in (y, members)]
    ours, plain = affine().fit(hidden[1], hidden[0]), affine().fit(members, y)
    assert torch.equal(ours.steps_[0].shift, plain.steps_[0].shift)
    assert ours.notes_ == plain.notes_


def labelled(values, dims):
    return xr.DataArray(values, dims=dims, coords={"time": TIMES, "station": STATIONS})


def test_labels_put_cases_and_targets_into_the_order_of_y():
    y, members = labelled(Y, ("time", "station")), labelled(MEMBERS, ("time", "member", "station"))
    plain = affine().fit(MEMBERS, Y)
    for moved in (members[::-1], members[:, :, ::-1], members.transpose("member", "station", "time")):
        assert torch.equal(affine().fit(moved, y).steps_[0].shift, plain.steps_[0].shift)


def test_what_comes_one_per_case_is_aligned_by_its_index():
    y, members = labelled(Y, ("time", "station")), labelled(MEMBERS, ("time", "member", "station"))
    blocks = pd.Series(np.arange(N) // 5, index=TIMES)
    weights = pd.Series(1.0 + np.arange(N) % 3, index=TIMES)
    features = pd.DataFrame({"x": np.arange(N) + 0.0}, index=TIMES)
    tilt = [Dressing(), Tilt(degree=1, by_features=True, n_draws=10, n_reference=10, pool=50)]
    one, other = (
        Recalibrator([Location()], steps=tilt).fit(
            members, y, blocks=blocks[order], case_weights=weights[order], features=features[order]
        )
        for order in (slice(None), slice(None, None, -1))
    )
    by_position = Recalibrator([Location()], steps=tilt).fit(
        MEMBERS, Y, blocks=blocks.to_numpy(), case_weights=weights.to_numpy(), features=features.to_numpy()
    )
    for fitted in (other, by_position):
        assert torch.equal(fitted.steps_[0].shift, one.steps_[0].shift)
        assert torch.equal(fitted.steps_[1].theta, one.steps_[1].theta)
    with pytest.raises(ValueError, match="features lacks 1 of the 60 labels of the forecast"):
        one.transform(members, features.set_index(TIMES + pd.Timedelta("1D")))


def test_a_fitted_recalibrator_knows_its_targets_also_from_a_file(tmp_path):
    y, members = labelled(Y, ("time", "station")), labelled(MEMBERS, ("time", "member", "station"))
    fitted = affine().fit(members, y)
    fitted.save(tmp_path / "fitted")
    for each in (fitted, Recalibrator.load(tmp_path / "fitted")):
        assert each.target_names_ == ("Oslo", "Bergen")
        with pytest.raises(ValueError, match=r"Oslo, Bergen, but the forecast is for Bergen, Oslo; .*order of the fit"):
            each.transform(members[:, :, ::-1])
        with pytest.raises(ValueError, match="the same targets"):
            each.transform(members.assign_coords(station=["Oslo", "Voss"]))
        assert torch.equal(each.transform(members).members, each.transform(MEMBERS).members)
    assert affine().fit(MEMBERS, Y).target_names_ is None


def test_a_region_knows_the_targets_that_it_was_fitted_on():
    y, members = labelled(Y, ("time", "station")), labelled(MEMBERS, ("time", "member", "station"))
    regions = HighestDensityRegions(20).fit(members, y)
    with pytest.raises(ValueError, match="in the order of the fit"):
        regions.region(members[:, :, ::-1], 0.9)
    region = regions.region(MEMBERS, 0.9)
    plain = region.contains(Y)
    assert np.array_equal(region.contains(pd.DataFrame(Y, columns=STATIONS)[STATIONS[::-1]]), plain)
    with pytest.raises(ValueError, match="target 0 is 'Voss'"):
        region.contains(pd.DataFrame(Y, columns=["Voss", "Bergen"]))


def test_joint_names_the_dimensions_of_targets():
    values = rng.normal(size=(20, 3, 5, M + 1))
    both = xr.DataArray(values, dims=("time", "place", "lead", "number"), coords={"lead": [1, 2, 3, 4, 5]})
    y, members = both.isel(number=0), both.isel(number=slice(1, None))
    found = check(y, members, [Marginal(), Location()], joint="lead", n_replicates=19)
    flat = values.reshape(60, 5, M + 1)
    plain = check(flat[..., 0], flat[..., 1:].transpose(0, 2, 1), [Marginal(), Location()], n_replicates=19)
    assert torch.equal(found.pit.values, plain.pit.values)
    assert found.pit.names[:5] == ("1", "2", "3", "4", "5")
    # the targets stand in the order of `joint`, whatever that of the dimensions
    turned = check(
        y.transpose("lead", "place", "time"), members, [Location()], joint=("lead", "place"), n_replicates=19
    )
    assert (turned.n_cases, len(turned.table)) == (20, 1)
    names = check(y, members, [Marginal()], joint=("lead", "place"), n_replicates=19).pit.names
    assert names[:4] == ("1, 0", "1, 1", "1, 2", "2, 0")
    fitted = [affine().fit(members, y, joint="lead"), affine().fit(flat[..., 1:].transpose(0, 2, 1), flat[..., 0])]
    assert torch.equal(fitted[0].steps_[0].shift, fitted[1].steps_[0].shift)
    corrected = fitted[0].transform(members, joint="lead")
    assert corrected.members.shape == (60, M, 5)


def test_coordinates_and_levels_name_what_comes_one_per_case():
    season = np.array(["dry", "wet"])[np.arange(N) % 2]
    y = labelled(Y, ("time", "station")).assign_coords(season=("time", season), weight=("time", 1.0 + np.arange(N)))
    members = labelled(MEMBERS, ("time", "member", "station"))[::-1]
    options = {"preranks": [Location()], "n_replicates": 19}
    named, given = (check(y, members, by=by, **options) for by in ("season", season))
    pd.testing.assert_frame_equal(named.table, given.table)
    assert list(named.checks) == ["dry", "wet"]
    weighed = [check(y, members, case_weights=w, **options).table for w in ("weight", 1.0 + np.arange(N))]
    pd.testing.assert_frame_equal(*weighed)
    table = pd.DataFrame(Y, index=pd.MultiIndex.from_arrays([np.arange(N) // 2, season], names=["day", "season"]))
    assert check(table, MEMBERS, blocks="day", **options).n_blocks == N // 2
    # one of the forecast's own follows its cases
    other = members.assign_coords(half=("time", np.arange(N) // (N // 2)))
    halves = check(labelled(Y, ("time", "station")), other, by="half", **options)
    later = check(Y[N // 2 :], MEMBERS[N // 2 :], [Location()], n_replicates=19, case_ids=np.arange(N // 2, N))
    assert torch.equal(halves.checks[0].pit.values, later.pit.values)
    with pytest.raises(ValueError, match=r"by='month' is no coordinate of the cases, which have .*season"):
        check(y, members, by="month", **options)
    with pytest.raises(TypeError, match="blocks is a str, 'day', and the cases have no coordinates"):
        check(Y, MEMBERS, blocks="day", **options)


@pytest.mark.parametrize(
    ("joint", "error", "message"),
    [
        ("height", ValueError, "name dimensions of both, each once"),
        (("station", "time"), ValueError, r"leaves the dimensions \(\) of y for the cases"),
        (("station", "station"), ValueError, "each once"),
    ],
)
def test_dimensions_that_cannot_be_joint_are_refused(joint, error, message):
    y, members = labelled(Y, ("time", "station")), labelled(MEMBERS, ("time", "member", "station"))
    with pytest.raises(error, match=message):
        check(y, members, joint=joint)
    with pytest.raises(TypeError, match="which only xarray objects have"):
        check(Y, MEMBERS, joint="station")
    with pytest.raises(TypeError, match="name the members by a mapping"):
        check(y, members, joint="station", axes=("time", "member", "station"))


def test_axes_may_stand_in_any_order_everywhere():
    moved, axes = MEMBERS.transpose(1, 0, 2), ("member", "case", "target")
    assert torch.allclose(affine().fit(moved, Y, axes=axes).steps_[0].shift, affine().fit(MEMBERS, Y).steps_[0].shift)
    regions = HighestDensityRegions(20).fit(moved, Y, axes=axes)
    assert torch.equal(regions.scores_, HighestDensityRegions(20).fit(MEMBERS, Y).scores_)
    assert torch.equal(regions.region(moved, 0.5, axes=axes).threshold, regions.region(MEMBERS, 0.5).threshold)


def test_dimensions_of_chunks_are_joint_and_name_groups_as_in_memory():
    pytest.importorskip("dask")
    values = rng.normal(size=(30, 2, 3, M + 1))
    dims, days = ("time", "place", "lead", "number"), pd.date_range("2024-01-01", periods=30)
    both = xr.DataArray(values, dims=dims, coords={"time": days, "place": ["a", "b"]})
    both = both.assign_coords(half=("time", np.arange(30) // 15))
    y, members = both.isel(number=0), both.isel(number=slice(1, None))
    options = {"preranks": [Location()], "joint": "lead", "blocks": "time", "by": "half", "n_replicates": 19}
    here, there = check(y, members, **options), check(y, members.chunk({"time": 7})[::-1], **options)
    assert here.table["cases"].tolist() == [30, 30]
    for name, result in here.checks.items():
        assert result.n_blocks == 15
        torch.testing.assert_close(there.checks[name].pit.values, result.pit.values)
