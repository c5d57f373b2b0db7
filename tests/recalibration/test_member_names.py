"""Members are exchangeable unless they have names."""

import numpy as np
import pandas as pd
import pytest
import torch

from prerank import Ensemble, Recalibrator
from prerank.arrays.labels import member_names
from prerank.io import from_long
from prerank.recalibration import ErrorLaw, recalibrate_over_time

MODELS = ("gfs", "icon", "ecmwf")


def of_different_quality(n_cases, seed=0):
    """The first member knows the truth better than the others."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n_cases, 1, 2))
    members = truth + np.array([0.2, 1.5, 1.5])[:, None] * rng.normal(size=(n_cases, 3, 2))
    return members, truth[:, 0] + 0.1 * rng.normal(size=(n_cases, 2))


def labelled(members, names, n_first=0):
    xarray = pytest.importorskip("xarray")
    return xarray.DataArray(members, dims=("case", "member", "target"), coords={"member": list(names)})


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        (["GFS", "ICON"], True),
        (["DNN 1", "DNN 2", "LEAR 56", "LEAR 84"], True),
        (["m01", "m02"], False),
        (["r1i1p1f1", "r2i1p1f1"], False),
        (["c00", "p01", "p02", "p03"], False),  # a control run and its perturbations
        (["GFS", "GFS2", "ICON"], True),
        (["1", "2"], False),
        ([1, 2], False),
        (["GFS", "GFS", "ICON"], False),  # which tells no two apart
        (["GFS"], False),
        (None, False),
    ],
)
def test_names_are_text_that_differs_in_more_than_numbers(labels, named):
    assert member_names(None if labels is None else pd.Index(labels)) == (tuple(labels) if named else None)


def test_names_of_a_dimension_make_models_of_members():
    members, y = of_different_quality(150)
    forms = {
        "labels": Recalibrator().fit(labelled(members, MODELS), y),
        "declared": Recalibrator().fit(members, y, member_names=MODELS),
        "step": Recalibrator(steps=[ErrorLaw(named_members=True)]).fit(members, y),
    }
    fresh, _ = of_different_quality(20, seed=1)
    laws = [one.transform(fresh) for one in forms.values()]
    assert all(torch.equal(law.loc, laws[0].loc) for law in laws)
    assert [one.member_names_ for one in forms.values()] == [MODELS, MODELS, None]
    numbered = Recalibrator().fit(labelled(members, ["m1", "m2", "m3"]), y)
    assert numbered.member_names_ is None
    truth = fresh[:, 0]  # the good member is believed by a law that knows it
    near, far = (np.abs(law.mean.numpy() - truth).mean() for law in (laws[0], numbered.transform(fresh)))
    assert near < 0.5 * far


def test_named_members_may_come_in_another_order(tmp_path):
    members, y = of_different_quality(150)
    recalibrator = Recalibrator().fit(labelled(members, MODELS), y)
    recalibrator.save(tmp_path / "file")
    fresh, order = of_different_quality(20, seed=1)[0], [2, 0, 1]
    for one in (recalibrator, Recalibrator.load(tmp_path / "file")):
        expected = one.transform(labelled(fresh, MODELS))
        other = [MODELS[place] for place in order]
        for moved in (
            one.transform(labelled(fresh[:, order], other)),
            one.transform(fresh[:, order], member_names=other),
        ):
            assert torch.equal(moved.loc, expected.loc)
            assert torch.equal(moved.scale_tril, expected.scale_tril)
        with pytest.raises(ValueError, match="was fitted on the members gfs, icon, ecmwf, each a model of its own"):
            one.transform(labelled(fresh, ("gfs", "icon", "um")))


@pytest.mark.parametrize("steps", [None, [ErrorLaw(always=True)]])
def test_otherwise_the_order_of_members_within_cases_changes_nothing(steps):
    members, y = of_different_quality(150)
    rng = np.random.default_rng(5)
    shuffled = rng.permuted(np.broadcast_to(np.arange(3)[:, None], (150, 3, 1)), axis=1)
    mixed = np.take_along_axis(members, shuffled, axis=1)
    assert not np.array_equal(mixed, members)
    numbered = labelled(members, ["m1", "m2", "m3"])
    fresh = of_different_quality(20, seed=1)[0]
    one, other = (Recalibrator(steps=steps).fit(each, y).transform(fresh) for each in (numbered, mixed))
    assert type(one) is type(other)
    for name in ("loc", "scale_tril", "logits"):
        # sums over members in another order round differently, and an optimiser stops elsewhere within its tolerance
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-4, atol=1e-5)


def test_a_law_of_exchangeable_members_does_not_mind_other_names():
    members, y = of_different_quality(150)
    recalibrator = Recalibrator(steps=[ErrorLaw(always=True)]).fit(labelled(members, MODELS), y)
    fresh = of_different_quality(5, seed=1)[0]
    assert recalibrator.member_names_ is None
    expected = recalibrator.transform(fresh)
    assert torch.equal(recalibrator.transform(labelled(fresh, ("a", "b", "c"))).loc, expected.loc)


def test_names_of_tables_are_kept_on_the_way():
    members, y = of_different_quality(12)
    rows = [
        (case, name, target, members[case, m, d], y[case, d])
        for case in range(12)
        for m, name in enumerate(MODELS)
        for d, target in enumerate("ab")
    ]
    table = pd.DataFrame(rows, columns=["case", "member", "target", "value", "observation"])
    found = from_long(table)
    assert found.member_names == ("ecmwf", "gfs", "icon")
    np.testing.assert_array_equal(found.members[:, 1], members[:, 0])
    assert from_long(table.assign(member=table["member"].map(MODELS.index))).member_names is None
    pytest.importorskip("xarray")
    assert list(found.to_xarray()["forecast"]["member"].values) == ["ecmwf", "gfs", "icon"]


def test_over_time_names_are_known_too():
    members, y = of_different_quality(60)
    issued = recalibrate_over_time(y, members, range(60), first=40, every=20, member_names=MODELS)
    assert issued.issues[0].recalibrator.member_names_ == MODELS


@pytest.mark.parametrize("names", [("a", "b"), ("a", "a", "b"), "abc"])
def test_names_that_are_not_one_each_are_refused(names):
    members, y = of_different_quality(40)
    with pytest.raises(ValueError, match="give each member a name of its own"):
        Recalibrator().fit(members, y, member_names=names)


def test_distributions_have_no_members_to_name():
    members, y = of_different_quality(40)
    law = Recalibrator(steps=[ErrorLaw(always=True)]).fit(Ensemble(members), y).transform(members)
    with pytest.raises(TypeError, match="member_names are for members"):
        Recalibrator().fit(law, y, member_names=MODELS)
