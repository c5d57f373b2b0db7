"""The door: what comes in becomes a tensor with the same numbers, labels find their places, and nothing is guessed."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import (
    Distribution,
    ExpTransform,
    Independent,
    LogNormal,
    Normal,
    TransformedDistribution,
    constraints,
)

from prerank import Ensemble, GaussianMixture, as_ensemble
from prerank.arrays import as_tensor
from prerank.arrays.conversion import accepts_arrays
from prerank.arrays.labels import label_text, positions
from prerank.arrays.precision import in_one_precision, precision_of, rounded
from prerank.forecasts.support import refuse_outside_support
from prerank.inputs import Cases
from prerank.inputs.checks import NETCDF_FILL, refuse_fill_values

NAN = float("nan")


class TestConversion:
    @pytest.mark.parametrize(
        ("value", "dtype"),
        [
            (np.ma.masked_equal(np.array([1.0, -9.0]), -9.0), torch.float64),
            (np.ma.masked_equal(np.array([1.0, -9.0], dtype="f4"), -9.0), torch.float32),
            (np.ma.masked_equal(np.array([1, -9]), -9), torch.float64),
            (pd.Series([1, None], dtype="Int64"), torch.float64),
            (pd.Series([True, None], dtype="boolean"), torch.float64),
            (pd.Series([1.0, None], dtype="Float32"), torch.float32),
            (pd.array([1.0, None], dtype="Float64"), torch.float64),
            (np.array([1.0, NAN], dtype="f2"), torch.float32),
            (torch.tensor([1.0, NAN], dtype=torch.bfloat16), torch.float32),
            (np.array([1.0, NAN], dtype=np.longdouble), torch.float64),
        ],
    )
    def test_a_missing_value_is_nan_in_every_container(self, value, dtype):
        tensor = as_tensor(value)
        assert tensor.dtype == dtype
        assert tensor[0] == 1.0
        assert tensor[1].isnan()

    def test_masks_survive_in_lists_and_frames_of_mixed_types_are_numbers(self):
        row = np.ma.masked_equal(np.array([1.0, -9.0]), -9.0)
        assert as_tensor([row, row]).isnan().tolist() == [[False, True], [False, True]]
        mixed = pd.DataFrame({"count": [1, 2], "yes": [True, False], "gap": pd.array([1.5, None], dtype="Float64")})
        assert as_tensor(mixed)[0].tolist() == [1.0, 1.0, 1.5]
        assert as_tensor(mixed)[1, :2].tolist() == [2.0, 0.0]

    def test_a_column_may_be_called_anything(self):
        table = pd.DataFrame({"members": [1.0], "values": [2.0], "rvs": [3.0], "columns": [4.0], "dims": [5.0]})
        assert as_tensor(table).tolist() == [[1.0, 2.0, 3.0, 4.0, 5.0]]

    def test_large_whole_numbers_stay_different(self):
        assert len(as_tensor(torch.tensor([20_000_001, 20_000_002])).unique()) == 2

    def test_numbers_and_lists_of_tensors_keep_their_shape(self):
        assert as_tensor(2.0).shape == ()
        assert as_tensor([torch.ones(3), torch.zeros(3)]).shape == (2, 3)

    def test_objects_of_this_library_pass_through_functions_that_accept_arrays(self):
        @accepts_arrays("value")
        def identity(value):
            return value

        ensemble = Ensemble(np.zeros((1, 2, 3)))
        assert identity(ensemble) is ensemble
        assert isinstance(identity((1.0, 2.0)), np.ndarray)
        with pytest.raises(TypeError, match="value is a str"):
            identity("text")


class TestForecasts:
    def test_an_ensemble_of_numpy_is_that_of_torch(self):
        members, weights = np.random.default_rng(0).random((5, 4, 3)), np.ones((5, 4))
        by_numpy = Ensemble(members, weights, members[:, :2])
        by_torch = Ensemble(torch.from_numpy(members), torch.from_numpy(weights), torch.from_numpy(members[:, :2]))
        assert torch.equal(by_numpy.members, by_torch.members)
        assert torch.equal(by_numpy.weights, by_torch.weights)
        assert torch.equal(by_numpy.reference.members, by_torch.reference.members)

    def test_an_ensemble_remembers_the_precision_it_came_in(self):
        zeros = np.zeros((5, 4, 3))
        assert Ensemble(zeros.astype("f2")).precision == torch.float16
        assert Ensemble(zeros.astype("f2")).members.dtype == torch.float32
        assert Ensemble(torch.zeros(5, 4, 3).bfloat16()).precision == torch.bfloat16
        assert Ensemble(zeros.astype(int)).precision is None
        assert as_ensemble(zeros.astype("f2"), axes=("case", "member", "target")).precision == torch.float16

    def test_a_mixture_of_numpy_is_that_of_torch(self):
        logits, loc, tril = np.zeros((5, 2)), np.ones((5, 2, 3)), np.broadcast_to(2 * np.eye(3), (5, 2, 3, 3))
        by_torch = GaussianMixture(*(torch.tensor(part) for part in (logits, loc, tril)))
        y = torch.rand(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        assert torch.equal(GaussianMixture(logits, loc, tril).log_prob(y), by_torch.log_prob(y))

    def test_gradients_reach_the_parameters_through_the_door(self):
        loc = torch.zeros(5, 1, 2, requires_grad=True)
        GaussianMixture(np.zeros((5, 1)), loc, np.broadcast_to(np.eye(2), (5, 1, 2, 2))).log_prob(
            torch.ones(5, 2, dtype=torch.float64)
        ).sum().backward()
        assert torch.equal(loc.grad, torch.ones(5, 1, 2))

    def test_named_dimensions_of_an_ensemble_may_have_any_order(self):
        xarray = pytest.importorskip("xarray")
        values = np.random.default_rng(0).normal(size=(7, 5, 3))
        array = xarray.DataArray(values, dims=("member", "case", "target"))
        assert torch.equal(Ensemble(array).members, torch.from_numpy(values).movedim(0, 1))


class TestAlignment:
    def test_labels_are_found_wherever_they_stand(self):
        wanted, labels = pd.Index(list("abc")), pd.Index(list("cab"))
        assert positions(labels, wanted, "weights").tolist() == [1, 2, 0]
        assert positions(wanted, wanted, "weights") is None
        assert positions(None, wanted, "weights") is None
        assert positions(labels, None, "weights") is None

    def test_the_first_difference_is_told(self):
        dates = pd.date_range("2020-01-01", periods=4)
        later = dates.append(dates[-1:] + pd.Timedelta("1D")).delete(3)
        with pytest.raises(ValueError, match="case 3 is 2020-01-04 in y and 2020-01-05 in the forecast"):
            positions(later, dates, "the forecast")

    @pytest.mark.parametrize(
        ("label", "text"),
        [
            (pd.Timestamp("2020-01-04"), "2020-01-04"),
            (pd.Timestamp("2020-01-04 06:00"), "2020-01-04 06:00:00"),
            ("Oslo", "'Oslo'"),
            (np.int64(3), "3"),
            (("a", 1), "('a', 1)"),
        ],
    )
    def test_labels_are_shown_as_people_write_them(self, label, text):
        assert label_text(label) == text

    @pytest.mark.parametrize("dims", [("case", "target"), ("time", "place")])
    def test_names_of_y_alone_leave_the_layout_of_an_array_to_its_shape(self, dims):
        """An array next to a named y is looked at like any other: what is sample-first, or could be, is refused."""
        xarray = pytest.importorskip("xarray")
        y = xarray.DataArray(np.zeros((5, 3)), dims=dims)
        assert Cases.of(y, np.zeros((5, 7, 3))).forecast.n_members == 7
        with pytest.raises(ValueError, match="looks sample-first"):
            Cases.of(y, np.zeros((7, 5, 3)))
        with pytest.raises(ValueError, match="ambiguous"):
            Cases.of(y, np.zeros((5, 5, 3)))

    def test_dimensions_without_a_role_leave_the_layout_to_the_shape(self):
        xarray = pytest.importorskip("xarray")
        members = xarray.DataArray(np.zeros((7, 5, 3)), dims=("a", "b", "c"))
        with pytest.raises(ValueError, match="looks sample-first"):
            Cases.of(np.zeros((5, 3)), members)
        named = members.rename(a="member", b="case", c="target")
        assert Cases.of(np.zeros((5, 3)), named).forecast.members.shape == (5, 7, 3)
        square = xarray.DataArray(np.zeros((5, 5, 3)), dims=("member", "case", "target"))
        assert Cases.of(np.zeros((5, 3)), square).forecast.members.shape == (5, 5, 3)


class TestSupport:
    def test_a_law_is_called_by_its_own_name_also_where_its_targets_are_independent(self):
        inside, outside = torch.ones(4, 2), torch.tensor([[1.0, 1.0], [1.0, -2.5], [3.0, 3.0], [-1.0, 1.0]])
        lognormal = LogNormal(torch.zeros(4, 2), torch.ones(4, 2))
        transformed = TransformedDistribution(Independent(Normal(torch.zeros(4, 2), 1.0), 1), [ExpTransform()])
        for law, name in ((Independent(lognormal, 1), "LogNormal"), (transformed, "TransformedDistribution")):
            refuse_outside_support(inside, law)
            with pytest.raises(
                ValueError, match=rf"support of the {name} forecast in 2 of 4 cases.*case 1 \(1, -2.5\)"
            ):
                refuse_outside_support(outside, law)

    @pytest.mark.parametrize("error", [AttributeError, NotImplementedError, RuntimeError])
    def test_a_support_that_is_unknown_or_cannot_be_asked_refuses_nothing(self, error):
        class Own(Distribution):
            arg_constraints: ClassVar = {}

            @property
            def support(self):
                raise error("no support")

        refuse_outside_support(torch.ones(4, 2), Own(torch.Size((4,)), torch.Size((2,)), validate_args=False))
        refuse_outside_support(torch.ones(4, 2), Ensemble(torch.zeros(4, 3, 2)))

    def test_a_support_asked_target_by_target_must_hold_for_all_of_them(self):
        class Positive(Distribution):
            arg_constraints: ClassVar = {}
            support = constraints.positive

        law = Positive(torch.Size((3,)), torch.Size((2,)), validate_args=False)
        refuse_outside_support(torch.ones(3, 2), law)
        with pytest.raises(ValueError, match=r"Positive forecast in 2 of 3 cases, the first at case 0 \(1, -1\)"):
            refuse_outside_support(torch.tensor([[1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]), law)

    def test_the_first_five_targets_of_a_case_outside_are_shown(self):
        law = Independent(LogNormal(torch.zeros(2, 7), torch.ones(2, 7)), 1)
        y = torch.tensor([[1.0] * 7, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -7.0]])
        with pytest.raises(ValueError, match=r"case 1 \(1, 2, 3, 4, 5\)"):
            refuse_outside_support(y, law)

    def test_other_errors_of_a_support_are_not_swallowed(self):
        class Broken(Distribution):
            arg_constraints: ClassVar = {}

            @property
            def support(self):
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            refuse_outside_support(torch.ones(4, 2), Broken(torch.Size((4,)), torch.Size((2,)), validate_args=False))


class TestPrecision:
    def test_rounding_is_that_of_the_type_and_monotone(self):
        x = torch.tensor([-1e39, -1e5, -0.1, 0.0, 0.1, 65519.0, 65521.0, 1e39], dtype=torch.float64)
        for kind in (torch.float32, torch.float16, torch.bfloat16):
            assert (rounded(x, kind).diff() >= 0).all()
            assert rounded(x, kind).isfinite().all()
        assert rounded(x, torch.float32)[4] == np.float32(0.1)

    def test_the_finer_side_moves_and_a_note_says_so_only_if_it_did(self):
        fine, coarse = torch.tensor([0.1], dtype=torch.float64), torch.tensor([0.1], dtype=torch.float32)
        y, members, note = in_one_precision(fine, coarse, torch.float64, torch.float32)
        assert torch.equal(y, members)
        assert note.startswith("y rounded to float32")
        y, members, note = in_one_precision(coarse, fine, torch.float32, torch.float64)
        assert torch.equal(y, members)
        assert note.startswith("members rounded to float32")
        assert in_one_precision(2 * fine.round(), coarse, torch.float64, torch.float32)[2] is None

    def test_whole_numbers_have_no_precision(self):
        assert precision_of(torch.arange(3)) is None
        assert precision_of(pd.DataFrame({"a": [1], "b": [True]})) is None
        assert precision_of(pd.DataFrame({"a": [1], "b": np.float32([1])})) == torch.float32
        assert precision_of([[0.5]]) == torch.float64


class TestFillValues:
    @pytest.mark.parametrize("value", [NETCDF_FILL, 9.96921e36, float(np.float32(1e20)), -1e20, 1e36, 9.999e20])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_fill_values_are_refused_in_either_precision_and_sign(self, value, dtype):
        values = torch.tensor([1.0, NAN, value, value], dtype=dtype)
        with pytest.raises(ValueError, match=r"2 of 4 values of y .*for missing data"):
            refuse_fill_values(values, "y")

    def test_numbers_are_left_alone(self):
        for values in ([1.0, 2.0], [NAN], [], [1e19, 3e20, 1e20], [2e36, 5e35], [float("inf"), 1.0]):
            refuse_fill_values(torch.tensor(values, dtype=torch.float64), "y")
