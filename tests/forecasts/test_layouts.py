"""Which axis is which: every order of named dimensions, every container, and the first shape that is refused."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch.distributions import Independent, Normal

from prerank.arrays import as_tensor
from prerank.arrays.conversion import accepts_arrays, as_observations, described, is_forecast, is_foreign
from prerank.arrays.labels import Labels, labels_of, orient_dimensions, positions
from prerank.arrays.precision import in_one_precision, precision_of
from prerank.forecasts import Ensemble, GaussianMixture
from prerank.forecasts.sampling import require_vector_distribution
from prerank.inputs import Cases, as_ensemble
from prerank.inputs.checks import refuse_fill_values

xarray = pytest.importorskip("xarray")
VALUES = np.random.default_rng(0).normal(size=(4, 5, 3))  # cases, members, targets
Y = np.random.default_rng(1).normal(size=(4, 3))
NAMES = ("time", "number", "place")
ROLES = ("case", "member", "target")
OF_Y = {"time": "case", "place": "target"}


def array(values, dims, order=None, **coordinates):
    found = xarray.DataArray(values, dims=dims, coords=coordinates)
    return found if order is None else found.transpose(*order)


def members_of(y, forecast, axes=None):
    return Cases.of(y, forecast, axes).forecast.members.numpy()


# -- dimensions


@pytest.mark.parametrize("order", list(itertools.permutations(NAMES)), ids="-".join)
def test_any_order_of_dimensions_is_understood_with_roles_or_names(order):
    forecast = array(VALUES, NAMES, order)
    mapping = dict(zip(NAMES, ROLES, strict=True))
    for axes in (mapping, NAMES, tuple(mapping[dim] for dim in order)):
        assert np.array_equal(members_of(Y, forecast, axes), VALUES)
        assert np.array_equal(as_ensemble(forecast, axes=axes).members.numpy(), VALUES)
    named = forecast.rename(mapping)
    assert np.array_equal(members_of(Y, named), VALUES)
    assert np.array_equal(as_ensemble(named).members.numpy(), VALUES)
    # y says which dimension holds the cases and which the targets; the members are what is left
    for turned in (("time", "place"), ("place", "time")):
        y = array(Y, ("time", "place"), turned)
        found = Cases.of(y, forecast, OF_Y)
        assert np.array_equal(found.y.numpy(), Y)
        assert np.array_equal(found.forecast.members.numpy(), VALUES)


@pytest.mark.parametrize("order", list(itertools.permutations(ROLES)), ids="-".join)
def test_axes_of_an_array_are_named_in_any_order(order):
    values = VALUES.transpose([ROLES.index(role) for role in order])
    assert np.array_equal(as_ensemble(values, axes=order).members.numpy(), VALUES)
    assert np.array_equal(members_of(Y, values, order), VALUES)
    assert np.array_equal(as_ensemble(values, Y, order).members.numpy(), VALUES)


def test_dimensions_that_y_and_the_forecast_share_have_the_same_role():
    y = array(Y, ("case", "place"))
    forecast = array(VALUES, ("case", "number", "place"), ("number", "place", "case"))
    found = Cases.of(y, forecast)
    assert np.array_equal(found.forecast.members.numpy(), VALUES)
    turned = Cases.of(y.transpose("place", "case"), forecast)
    assert np.array_equal(turned.y.numpy(), Y)
    # one role is enough for y: the other dimension is what is left
    assert np.array_equal(Cases.of(array(Y.T, ("target", "when")), VALUES).y.numpy(), Y)
    # of the forecast alone: its dimensions say what those of y are
    only = Cases.of(array(Y.T, ("place", "time")), array(VALUES, ("time", "member", "place")), OF_Y)
    assert np.array_equal(only.y.numpy(), Y)


@pytest.mark.parametrize(
    ("y", "forecast", "axes", "message"),
    [
        (array(Y, ("a", "b")), array(VALUES, ("a", "m", "b"), ("b", "m", "a")), None, "in another order"),
        (array(Y, ("case", "b")), array(VALUES, ("a", "m", "case")), None, "does not match|could be"),
        (Y, array(VALUES, NAMES), {"time": "member"}, "could be"),
        (Y, array(VALUES, NAMES), {"time": "case", "number": "case"}, "would be the cases"),
        (Y, array(VALUES, NAMES), {"time": "day"}, "does not give a dimension"),
        (Y, array(VALUES, NAMES), {"day": "case"}, "does not give a dimension"),
        (array(Y, ("a", "b")), array(VALUES, NAMES), {"a": "day"}, "write it like {'time': 'case', 'number': 'member'"),
        (array(Y, ("a", "b")), Ensemble(VALUES), {"a": "day"}, "does not give a dimension"),
        (Y, array(VALUES, NAMES), ("time", "number"), "name each of"),
        (Y, array(VALUES, NAMES), ("time", "time", "place"), "name each of"),
        (Y, VALUES, {"time": "case"}, "which only xarray objects have"),
        (Y, VALUES, ("case", "member"), "name each of"),
        (Y, VALUES, ("case", "member", "member"), "name each of"),
        (Y, VALUES, "case", "name the axes one by one"),
        (Y, VALUES, 3, "name the axes one by one"),
        (Y, Ensemble(torch.from_numpy(VALUES)), ROLES, "whose layout is known; leave axes= out"),
    ],
)
def test_what_names_leave_open_is_refused(y, forecast, axes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Cases.of(y, forecast, axes)


def test_a_role_in_its_usual_place_settles_the_others_and_elsewhere_it_does_not():
    assert np.array_equal(members_of(Y, array(VALUES, ("case", "b", "c"))), VALUES)
    assert np.array_equal(members_of(Y, array(VALUES, ("a", "b", "target"))), VALUES)
    with pytest.raises(ValueError, match="could be case or member"):
        members_of(Y, array(VALUES.transpose(2, 0, 1), ("target", "b", "c")))


# -- shapes


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((5, 4, 3), "looks sample-first"),
        ((4, 3, 5), "looks member-last"),
        ((4, 4, 3), "ambiguous: the first two axes"),
        ((4, 3, 3), "ambiguous: the last two axes"),
        ((4, 5, 2), "check both"),
        ((6, 5, 3), "check both"),
    ],
)
def test_shapes_that_are_another_layout_or_could_be_are_refused(shape, message):
    with pytest.raises(ValueError, match=message):
        Cases.of(Y, np.zeros(shape))
    with pytest.raises(ValueError, match=message):
        as_ensemble(np.zeros(shape), torch.from_numpy(Y))


def test_shapes_with_one_case_one_target_or_leading_axes_are_not_ambiguous():
    assert members_of(np.zeros((1, 3)), np.zeros((1, 1, 3))).shape == (1, 1, 3)
    assert members_of(np.zeros((4, 1)), np.zeros((4, 1, 1))).shape == (4, 1, 1)
    assert members_of(np.zeros((2, 4, 3)), np.zeros((2, 4, 4, 3))).shape == (2, 4, 4, 3)
    assert members_of(np.zeros((2, 4, 3)), np.zeros((2, 4, 3, 3))).shape == (2, 4, 3, 3)
    assert as_ensemble(np.zeros((4, 4, 3)), axes=ROLES).members.shape == (4, 4, 3)
    assert as_ensemble(np.zeros((4, 5, 3))).members.shape == (4, 5, 3)


def test_named_dimensions_of_other_lengths_are_refused_and_no_length_is_ambiguous_among_names():
    for shape in ((5, 5, 3), (4, 5, 2)):
        for forecast in (array(np.zeros(shape), ROLES), array(np.zeros(shape), ROLES, ("member", "target", "case"))):
            with pytest.raises(ValueError, match="does not match y of shape"):
                Cases.of(Y, forecast)
            with pytest.raises(ValueError, match="does not match y of shape"):
                as_ensemble(forecast, torch.from_numpy(Y))
    for shape in ((4, 4, 3), (4, 3, 3)):
        assert members_of(Y, array(np.zeros(shape), ROLES)).shape == shape


def test_swapped_arguments_are_recognised_by_their_shapes():
    with pytest.raises(ValueError, match="look swapped"):
        Cases.of(VALUES, Y)
    with pytest.raises(ValueError, match=r"one value per case and target is no ensemble; pass members \(4, M, 3\)"):
        Cases.of(Y, Y)
    with pytest.raises(TypeError, match="look swapped"):
        Cases.of(Ensemble(VALUES), Y)
    with pytest.raises(TypeError, match="the forecast is the class Ensemble; pass a value of it"):
        Cases.of(Y, Ensemble)


# -- labels


def test_the_forecast_is_brought_into_the_order_of_y():
    times, places = pd.date_range("2020-01-01", periods=4), list("abc")
    y = array(Y, ("time", "place"), time=times, place=places)
    forecast = array(VALUES, NAMES, time=times, place=places)
    turned = Cases.of(y, forecast[[2, 0, 3, 1]][:, :, [1, 2, 0]])
    assert np.array_equal(turned.forecast.members.numpy(), VALUES)
    assert turned.order.tolist() == [1, 3, 0, 2]
    assert turned.labels.cases.equals(times)
    assert list(turned.labels.targets) == places
    straight = Cases.of(y, forecast)
    assert straight.order is None
    frame = pd.DataFrame(Y, index=times, columns=places)
    assert np.array_equal(Cases.of(frame[::-1], forecast).forecast.members.numpy(), VALUES[::-1])
    # where y has none, the labels are those of the forecast
    bare = Cases.of(Y, forecast)
    assert bare.labels.cases.equals(times)
    assert list(bare.labels.targets) == places
    assert bare.order is None


def test_labels_are_looked_for_where_a_container_keeps_them():
    index, columns = pd.Index(list("wxyz")), pd.Index(list("abc"))
    frame = labels_of(pd.DataFrame(Y, index=index, columns=columns), 2)
    assert frame.cases.equals(index)
    assert frame.targets.equals(columns)
    default = labels_of(pd.DataFrame(Y), 2)
    assert default.cases is None
    assert default.targets is None
    series = labels_of(pd.Series(Y[:, 0], index=index), 1)
    assert series.cases.equals(index)
    assert series.targets is None
    line = labels_of(array(Y[:, 0], ("time",), time=list("wxyz")), 1)
    assert list(line.cases) == list("wxyz")
    assert line.targets is None
    plain = labels_of(array(Y, ("time", "place"), place=list("abc")), 2)
    assert plain.cases is None
    assert list(plain.targets) == list("abc")
    assert labels_of(Y, 2).cases is None
    assert labels_of(Y.tolist(), 2).cases is None
    assert labels_of(array(Y, ("time", "place")), 3).cases is None


class Columns:
    """A table without an index, as polars has it."""

    columns: list[str]

    def __init__(self):
        self.columns = ["a", "b", "c"]


def test_a_table_without_an_index_labels_its_targets():
    assert list(labels_of(Columns(), 2).targets) == ["a", "b", "c"]
    assert labels_of(Columns(), 2).cases is None
    assert labels_of(Columns(), 3).targets is None


def test_labels_that_occur_twice_go_by_position_only_where_both_sides_agree():
    twice = pd.Index(list("aab"))
    assert positions(twice, twice, "blocks") is None
    for labels, wanted in (
        (pd.Index(list("aba")), twice),
        (pd.Index(list("abc")), twice),
        (twice, pd.Index(list("abc"))),
    ):
        with pytest.raises(ValueError, match=r"case 'a' occurs more than once in .*blocks\.to_numpy\(\)"):
            positions(labels, wanted, "blocks")
    with pytest.raises(ValueError, match="missing from blocks, and blocks lacks 1 of the 3 labels of y"):
        positions(pd.Index(["a", "b"]), pd.Index(["a", "b", "c"]), "blocks")
    with pytest.raises(ValueError, match=r"blocks has 2 cases that y lacks, the first 'd'"):
        positions(pd.Index(list("adbe")), pd.Index(list("ab")), "blocks")
    with pytest.raises(ValueError, match=r"target 0 is 'a' in y and 1 in the forecast.*forecast\.to_numpy\(\)"):
        positions(pd.Index([1, 2]), pd.Index(["a", "b"]), "the forecast", "target")


def test_labels_and_inputs_cannot_be_changed():
    inputs = Cases.of(Y, VALUES)
    for value, field in ((Labels(), "cases"), (inputs, "order")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field, 1)
        assert len({value, dataclasses.replace(value)}) == 2
    assert orient_dimensions(Y, VALUES, None)[2] is False


# -- arrays


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "u1", "?", ">f8", ">f4", "g"])
def test_numbers_of_every_type_become_the_same_numbers(dtype):
    values = np.array([[0, 1], [1, 0]]).astype(dtype)
    found = as_tensor(values)
    assert found.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert found.dtype == (torch.float32 if dtype in ("f2", "f4", ">f4") else torch.float64)
    assert as_tensor(values[:, ::-1]).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_memory_is_shared_only_where_it_may_be_written():
    values = np.zeros(3)
    assert as_tensor(values).data_ptr() == values.ctypes.data
    values.flags.writeable = False
    assert as_tensor(values).data_ptr() != values.ctypes.data


@pytest.mark.parametrize(("largest", "dtype"), [(2**24, torch.float32), (2**24 + 1, torch.float64)])
def test_whole_tensors_are_single_as_long_as_they_stay_exact(largest, dtype):
    for sign in (1, -1):
        for kind in (torch.int32, torch.int64):
            found = as_tensor(torch.tensor([0, sign * largest], dtype=kind))
            assert found.dtype == dtype
            assert found.tolist() == [0.0, sign * largest]
    assert as_tensor(torch.tensor([True, False])).tolist() == [1.0, 0.0]
    assert as_tensor(torch.zeros(0, dtype=torch.int64)).shape == (0,)


def test_tables_of_mixed_columns_are_as_wide_as_their_widest():
    single = pd.DataFrame({"a": pd.Series([1.0, None], dtype="Float32"), "b": np.float32([1, 2])})
    assert as_tensor(single).dtype == torch.float32
    mixed = pd.DataFrame({"a": pd.Series([1.0, None], dtype="Float32"), "b": [1, 2]})
    assert as_tensor(mixed).dtype == torch.float64
    assert as_tensor(mixed).isnan().tolist() == [[False, False], [True, False]]
    assert as_tensor(pd.DataFrame({"a": np.float32([1]), "b": np.float32([2])})).dtype == torch.float32
    assert as_tensor(pd.DataFrame({"a": [1], "b": [2]})).tolist() == [[1.0, 2.0]]


def test_precision_is_that_of_the_widest_floating_column_or_of_the_first_tensor():
    assert precision_of(pd.DataFrame({"a": np.float32([1]), "b": np.float64([1])})) == torch.float64
    assert precision_of(pd.DataFrame({"a": np.float16([1]), "b": [1]})) == torch.float16
    assert precision_of(pd.Series(np.float32([1]))) == torch.float32
    assert precision_of([torch.zeros(2), torch.zeros(2)]) == torch.float32
    assert precision_of((torch.zeros(2, dtype=torch.float64), torch.zeros(2))) == torch.float64
    assert precision_of([]) == torch.float64
    assert precision_of(array(np.float32(Y), ("a", "b"))) == torch.float32
    assert precision_of(np.zeros(2, dtype=np.longdouble)) == torch.float64
    y, members = torch.tensor([[0.1]], dtype=torch.float64), torch.tensor([[[0.1]]])
    for kinds in ((None, torch.float32), (torch.float64, None), (torch.float32, torch.float32)):
        assert in_one_precision(y, members, *kinds)[2] is None
        assert in_one_precision(y, members, *kinds)[1].dtype == torch.float64


def test_infinite_and_missing_values_take_no_part_in_the_search_for_fill_values():
    for values in ([1.0, float("inf")], [float("nan"), float("-inf"), 2.0], [9e18, -9e18], [1e20, 1e18]):
        refuse_fill_values(torch.tensor(values, dtype=torch.float64), "y")
    for values in ([1e20, 9e16], [-1e20, 1.0], [1e20, float("inf")], [1e20, float("nan")], [1e20]):
        with pytest.raises(ValueError, match=f"1 of {len(values)} values of y are -?1e\\+20"):
            refuse_fill_values(torch.tensor(values, dtype=torch.float64), "y")


def test_laws_of_another_library_are_refused_whatever_they_can_do():
    for law in (stats.multinomial(3, [0.5, 0.5]), stats.gaussian_kde(Y.T), stats.norm(0, 1), stats.norm):
        with pytest.raises(TypeError, match="the forecast is a distribution of another library"):
            as_tensor(law, "the forecast")


def test_a_law_for_one_case_is_refused_with_the_number_of_cases_where_it_is_known():
    law = Independent(Normal(torch.zeros(3), 1.0), 1)
    with pytest.raises(ValueError, match=r"batch shape \(N,\) for N cases with forecast\.expand\(\(N,\)\)"):
        require_vector_distribution(law)
    with pytest.raises(ValueError, match=r"batch shape \(4,\) for 4 cases with forecast\.expand\(\(4,\)\)"):
        require_vector_distribution(law, 4)


def test_names_for_what_a_value_is():
    assert described(None) == "None"
    assert described(Ensemble) == "the class Ensemble"
    assert described(np.zeros(1)) == "an ndarray"
    assert described(torch.zeros(1)) == "a Tensor"
    assert described(Ensemble(VALUES)) == "an Ensemble"
    law = Independent(Normal(torch.zeros(4, 3), 1.0), 1)
    mixture = GaussianMixture(torch.zeros(4, 1), torch.zeros(4, 1, 3), torch.eye(3).expand(4, 1, 3, 3))
    assert all(is_forecast(value) for value in (law, mixture, Ensemble(VALUES)))
    assert not any(is_forecast(value) for value in (VALUES, None, Ensemble))
    assert [is_foreign(value) for value in (VALUES, None, torch.zeros(1), Ensemble(VALUES), [1.0])] == [
        *(True, False, False, False, True)
    ]


def test_arrays_go_back_as_arrays_and_tensors_as_tensors():
    @accepts_arrays("x", labelled=("y",))
    def both(x, y=None, times=2):
        return (x * times, {"kept": 1}, (x,)), y

    (twice, kept, (same,)), _ = both(np.ones(2))
    assert isinstance(twice, np.ndarray)
    assert isinstance(same, np.ndarray)
    assert kept == {"kept": 1}
    assert isinstance(both(torch.ones(2))[0][0], torch.Tensor)
    assert isinstance(both(torch.ones(2), y=np.ones(2))[0][0], np.ndarray)
    assert both(x=[1.0, 2.0], times=3)[0][0].tolist() == [3.0, 6.0]
    gradient = both(torch.ones(2, requires_grad=True), y=np.ones(1))[0][0]
    assert gradient.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("shape", [(), (3,)])
def test_observations_need_two_axes(shape):
    with pytest.raises(ValueError, match="it needs two axes"):
        as_observations(np.zeros(shape))
    assert as_observations(np.zeros((1, 1))).shape == (1, 1)
    assert as_observations(np.zeros((2, 1, 1))).shape == (2, 1, 1)
