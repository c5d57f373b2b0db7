"""Whatever container, order, unit or precision the numbers come in, `check` gives the answer that they deserve."""

import math
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Independent, LogNormal

from prerank import Contrast, Custom, Ensemble, GaussianMixture, Location, Marginal, Scale, check
from prerank.arrays.case_labels import checked_case_ids
from prerank.diagnosis.data_warnings import quantiles
from prerank.inputs.survey import sorted_members

N, M, D = 40, 7, 3
STATIONS = ["Oslo", "Bergen", "Voss"]
TIMES = pd.date_range("2020-01-01", periods=N)
PRERANKS = [Marginal(), Location(), Scale()]


def points(n_cases=N, n_members=M, n_targets=D, seed=0):
    x = np.random.default_rng(seed).normal(size=(n_cases, n_members + 1, n_targets))
    return x[:, 0], x[:, 1:]


def quick(y, forecast, preranks=PRERANKS, **options):
    return check(y, forecast, preranks, **{"n_replicates": 19, **options})


def same(one, other):
    assert torch.equal(one.pit.values, other.pit.values)
    pd.testing.assert_frame_equal(one.table.drop(columns="reading"), other.table.drop(columns="reading"))


class TestMissingValues:
    def test_what_a_mask_hides_is_missing(self):
        y, members = points()
        masked_y, masked_members = np.ma.array(y), np.ma.array(members)
        masked_y[3, 1], masked_members[5, 2, 0] = np.ma.masked, np.ma.masked
        holes_y, holes = y.copy(), members.copy()
        holes_y[3, 1], holes[5, 2, 0] = np.nan, np.nan
        masked = quick(masked_y, masked_members)
        assert masked.notes[:2] == (
            "1 of 40 cases dropped: the observation is missing",
            "1 of 273 members left out: they have missing values",
        )
        same(masked, quick(holes_y, holes))

    def test_a_fill_value_under_a_mask_is_missing_and_no_number(self):
        y, members = points()
        filled = np.ma.masked_greater(np.where(members > 2.0, 9.96921e36, members), 1e30)
        assert filled.mask.any()
        same(quick(y, filled), quick(y, np.where(members > 2.0, np.nan, members)))

    @pytest.mark.parametrize("dtype", ["Float64", "Float32", "Int64", "boolean"])
    def test_pandas_na_is_missing(self, dtype):
        y, members = points()
        y = {"Int64": np.round(y), "boolean": y > 0}.get(dtype, y)
        table = pd.DataFrame(y, columns=STATIONS).astype(dtype)
        table.iloc[3, 1] = pd.NA
        result = quick(table, members)
        assert result.n_cases == N - 1
        whole = np.delete(np.asarray(y, dtype="f4" if dtype == "Float32" else "f8"), 3, axis=0)
        expected = quick(whole, np.delete(members, 3, axis=0), case_ids=np.delete(np.arange(N), 3))
        assert torch.equal(result.pit.values, expected.pit.values)


class TestAlignment:
    @pytest.fixture
    def arrays(self):
        xarray = pytest.importorskip("xarray")
        y, members = points()
        coordinates = {"time": TIMES, "station": STATIONS}
        return (
            xarray.DataArray(y, dims=("time", "station"), coords=coordinates),
            xarray.DataArray(members, dims=("time", "number", "station"), coords=coordinates),
        )

    def test_cases_and_targets_are_found_by_their_coordinates(self, arrays):
        y, members = arrays
        plain = quick(y.to_numpy(), members.to_numpy())
        for moved in (members[::-1], members[:, :, ::-1], members.isel(time=np.random.default_rng(1).permutation(N))):
            same(quick(y, moved), plain)

    def test_a_forecast_in_another_order_is_another_forecast_without_its_labels(self, arrays):
        y, members = arrays
        moved = quick(y, members[::-1].to_numpy())
        assert not torch.equal(moved.pit.values, quick(y, members).pit.values)

    def test_dimensions_may_stand_in_any_order_where_they_have_roles(self, arrays):
        y, members = arrays
        plain = quick(y.to_numpy(), members.to_numpy())
        roles = {"time": "case", "number": "member", "station": "target"}
        for order in permutations(roles):
            moved = members.transpose(*order)
            same(quick(y.T, moved, axes=roles), plain)
            same(quick(y, moved, axes=("time", "number", "station")), plain)
            same(quick(y.T, moved, axes=tuple(roles[dim] for dim in order)), plain)
            same(quick(y.rename(roles_of(y, roles)).T, moved.rename(roles)), plain)

    def test_dimensions_of_the_same_name_mean_the_same(self, arrays):
        y, members = arrays
        same(quick(y, members.transpose("number", "time", "station")), quick(y.to_numpy(), members.to_numpy()))

    def test_a_pandas_index_finds_the_cases_of_an_xarray_forecast(self, arrays):
        y, members = arrays
        table = pd.DataFrame(y.to_numpy(), index=TIMES, columns=STATIONS)
        same(quick(table, members[::-1]), quick(y, members))
        same(quick(table[["Voss", "Oslo", "Bergen"]], members), quick(y[:, [2, 0, 1]], members))

    def test_a_range_index_means_position(self, arrays):
        y, members = arrays
        table = pd.DataFrame(y.to_numpy())
        weights = pd.Series(np.arange(N) + 1.0, index=TIMES[::-1])
        same(
            quick(table, members.to_numpy(), case_weights=weights),
            quick(table, members.to_numpy(), case_weights=weights.to_numpy()),
        )

    def test_what_comes_one_per_case_is_aligned_too(self, arrays):
        y, members = arrays
        weights = pd.Series(np.arange(N) + 1.0, index=TIMES)
        blocks = pd.Series(np.arange(N) // 4, index=TIMES)
        names = pd.Series([f"case {i}" for i in range(N)], index=TIMES)
        expected = quick(y, members, case_weights=weights.to_numpy(), case_ids=names.to_numpy())
        same(quick(y, members, case_weights=weights[::-1], case_ids=names[::-1]), expected)
        same(quick(y, members, blocks=blocks[::-1]), quick(y, members, blocks=blocks.to_numpy()))
        own = quick(y, Ensemble(members, np.ones((N, M))), observation_weights=weights[::-1])
        same(own, quick(y, Ensemble(members, np.ones((N, M))), observation_weights=weights.to_numpy()))

    def test_equal_labels_in_one_order_need_not_be_unique(self, arrays):
        y, members = arrays
        twice = TIMES[:20].repeat(2)
        table = pd.DataFrame(y.to_numpy(), index=twice, columns=STATIONS)
        weights = pd.Series(np.arange(N) + 1.0, index=twice)
        same(
            quick(table, members.to_numpy(), case_weights=weights),
            quick(table, members.to_numpy(), case_weights=weights.to_numpy()),
        )

    def test_targets_are_called_by_their_labels(self, arrays):
        y, members = arrays
        assert quick(y, members).pit.names[:3] == tuple(STATIONS)
        assert quick(y.to_numpy(), members).pit.names[:3] == tuple(STATIONS)
        assert quick(pd.DataFrame(y.to_numpy()), members.to_numpy()).pit.names[:3] == ("y1", "y2", "y3")
        named = quick(y, 0.1 * members, [Marginal(), Contrast(0, 2)])
        assert named.pit.names == ("Oslo", "Bergen", "Voss", "Oslo - Voss")
        assert named.table.loc["marginal", "reading"].startswith("Oslo")


def roles_of(array, roles):
    return {dim: roles[dim] for dim in array.dims}


class TestPrecision:
    VALUES = np.array([0.0, 0.1, 0.2, 0.4])

    def rounded_to_tenths(self, seed=0):
        x = np.random.default_rng(seed).choice(self.VALUES, size=(200, 6, 2))
        return x[:, 0], x[:, 1:]

    @pytest.mark.parametrize(
        ("of_y", "of_members"),
        [
            ("f4", "f8"),
            ("f8", "f4"),
            ("f2", "f8"),
            ("f8", "f2"),
            ("f2", "f4"),
            ("f4", "f2"),
            ("f2", "f2"),
            ("f4", "f4"),
        ],
    )
    def test_equal_values_tie_in_any_precision(self, of_y, of_members):
        y, members = self.rounded_to_tenths()
        expected = quick(y, members, [Marginal()])
        assert (expected.pit.tied > 0.5).all()
        for forecast in (members.astype(of_members), Ensemble(members.astype(of_members))):
            found = quick(y.astype(of_y), forecast, [Marginal()])
            assert torch.equal(found.pit.tied, expected.pit.tied)
            torch.testing.assert_close(found.pit.values.double(), expected.pit.values, rtol=0, atol=1e-6)

    def test_the_notes_say_what_was_rounded(self):
        y, members = self.rounded_to_tenths()
        note = "rounded to float32, the precision of"
        assert any(f"members {note} y" in said for said in quick(y.astype("f4"), members).notes)
        assert any(f"y {note} the members" in said for said in quick(y, members.astype("f4")).notes)
        assert not any("rounded" in said for said in quick(y, members).notes)
        assert not any("rounded" in said for said in quick(np.round(y).astype(int), members.astype("f4")).notes)

    def test_bfloat16_ties_with_double(self):
        y, members = self.rounded_to_tenths()
        expected = quick(y, members, [Marginal()]).pit.tied
        assert torch.equal(quick(torch.tensor(y).bfloat16(), members, [Marginal()]).pit.tied, expected)

    def test_rounding_to_half_precision_keeps_what_lies_beyond_its_range(self):
        y = np.array([[1.0], [2.0]], dtype="f2")
        members = np.array([[[1e5], [2e5], [0.0]], [[-1e5], [3.0], [4.0]]])
        values = quick(y, members, [Marginal()]).pit.values[:, 0]
        assert values[0] == pytest.approx(0.375, abs=0.125)  # one of three members lies below
        assert values[1] == pytest.approx(0.375, abs=0.125)


class TestNumbersOutOfRange:
    @pytest.mark.parametrize("exponent", [531, 900, -531, -900])
    def test_a_power_of_two_changes_nothing(self, exponent):
        y, members = points()
        unit = 2.0**exponent
        scaled = check(y * unit, members * unit, n_replicates=19)
        same(scaled, check(y, members, n_replicates=19))
        assert "which moves no rank" in scaled.notes[0]

    def test_a_power_of_two_changes_nothing_in_single_precision(self):
        y, members = (part.astype("f4") for part in points())
        unit = np.float32(2.0**90)
        same(quick(y * unit, members * unit), quick(y, members))

    def test_a_bad_forecast_stays_bad_at_1e160(self):
        y, members = points(200)
        assert not quick(y * 1e160, 0.3 * members * 1e160).calibrated

    def test_a_mixture_in_large_units_is_a_mixture(self):
        y, _ = points()
        unit = 2.0**600
        zeros, factors = np.zeros((N, 1, D)), np.broadcast_to(np.eye(D), (N, 1, D, D))
        law, large = (GaussianMixture(zeros[..., 0], zeros, factors * size) for size in (1.0, unit))
        found, expected = quick(y * unit, large).pit.values, quick(y, law).pit.values
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)

    def test_targets_in_units_200_orders_apart_are_brought_together(self):
        y, members = points()
        units = np.array([1.0, 1.0, 2.0**700])
        apart = quick(y * units, members * units)
        assert "spreads differ 5e+210-fold" in apart.notes[0]
        same(apart, quick(y, members, scale="pooled"))

    def test_large_numbers_that_are_alike_are_numbers(self):
        y, members = (np.round(3 * part) * 1e20 for part in points())
        assert (np.abs(members) == 1e20).any()  # a fill value elsewhere, here one of many
        assert quick(y, members).n_cases == N

    def test_constant_targets_have_no_say_in_the_units(self):
        y, members = points()
        y, members = np.concatenate([y, np.ones((N, 1))], -1), np.concatenate([members, np.ones((N, M, 1))], -1)
        assert not any("pooled spread" in note for note in quick(1000 * y, 1000 * members, [Location()]).notes)


class TestSuspicions:
    NOTE = "sorted in every case and target, as quantiles are"

    def test_members_that_look_like_quantiles_are_named(self):
        y, members = points()
        for ordered in (np.sort(members, 1), -np.sort(members, 1)):
            assert any(self.NOTE in note for note in quick(y, ordered).notes)

    def test_one_member_out_of_order_is_enough_to_be_a_sample(self):
        y, members = points()
        ordered = np.sort(members, 1)
        ordered[-1, [0, 1], 2] = ordered[-1, [1, 0], 2]
        assert not any(self.NOTE in note for note in quick(y, ordered).notes)

    def test_equal_members_are_no_quantiles(self):
        y, members = points()
        assert not any(self.NOTE in note for note in quick(y, np.zeros_like(members)).notes)

    def test_one_target_or_two_members_are_never_suspected(self):
        y, members = points()
        ordered = np.sort(members, 1)
        assert not any(self.NOTE in note for note in quick(y[:, :1], ordered[..., :1], [Marginal()]).notes)
        assert not any(self.NOTE in note for note in quick(y, ordered[:, :2]).notes)

    @pytest.mark.parametrize(("n_members", "enough"), [(3, 9), (4, 5), (10, 1)])
    def test_so_few_cases_are_suspected_as_chance_cannot_sort(self, n_members, enough):
        # exchangeable members are sorted, up or down, with probability 2 / (M!)^N at most
        assert 2 * math.factorial(n_members) ** -enough < 1e-6 < 2 * math.factorial(n_members) ** -(enough - 1)
        for n_cases, noted in ((enough, True), (enough - 1, False)):
            if n_cases:
                members = torch.from_numpy(np.sort(points(n_cases, n_members)[1], 1))
                assert bool(quantiles(sorted_members(members, None))) == noted

    def test_few_values_are_noted_once_for_all_targets(self):
        y, members = points(60)
        counts = pd.DataFrame(np.clip(np.round(y), -1, 1), columns=STATIONS)
        notes = [note for note in quick(counts, members).notes if "values in" in note]
        assert notes == [
            "3 targets take only few values in 60 cases (Oslo: 3, Bergen: 3, Voss: 3): no continuous forecast of them can "
            "be uniform"
        ]

    def test_observations_in_another_unit_than_the_members_are_noted(self):
        y, members = points(60)
        kelvin = pd.DataFrame(y + np.array([0.0, 273.15, 273.15]), columns=STATIONS)
        (note,) = [note for note in quick(kelvin, members).notes if "one unit" in note]
        assert note.startswith("target Bergen is 27")
        assert "and so on for 2 targets" in note
        missing = members.copy()
        missing[:, 0] = np.nan
        assert any("one unit" in note for note in quick(kelvin, missing).notes)

    def test_a_bias_of_a_few_spreads_is_no_other_unit(self):
        y, members = points(60)
        for other in (y + 5, y[:1], np.zeros_like(y)):
            assert not any("one unit" in note for note in quick(other, members[: len(other)]).notes)


class TestCustom:
    def test_functions_of_numpy_and_torch_agree(self):
        y, members = points()
        by_torch = quick(y, members, Custom(lambda x: x.amax(-1)))
        for function in (lambda x: np.max(x, axis=-1), lambda x: x.max(-1), lambda x: np.sort(x, axis=-1)[..., -1]):
            same(quick(y, members, Custom(function)), by_torch)

    def test_counts_and_truth_values_are_numbers(self):
        y, members = points()
        counts = quick(y, members, Custom(lambda x: (x > 0).sum(-1)))
        same(counts, quick(y, members, Custom(lambda x: (x > 0).double().sum(-1))))
        assert quick(y, members, Custom(lambda x: np.any(np.asarray(x) > 1, axis=-1))).n_cases == N

    def test_a_function_of_numpy_cannot_be_trained_with(self):
        projection = Custom(lambda x: np.max(x, axis=-1)).given(Ensemble(torch.zeros(4, 5, 3)))
        with pytest.raises(TypeError, match="carry no gradient; write it with torch"):
            projection(torch.zeros(4, 5, 3, requires_grad=True))


class TestCaseIdentifiers:
    def test_draws_for_a_case_depend_on_its_name_and_not_on_its_position(self):
        y, _ = points()
        loc = np.random.default_rng(5).normal(size=(N, 1, D))
        law = GaussianMixture(np.zeros((N, 1)), loc, np.broadcast_to(np.eye(D), (N, 1, D, D)))
        order = torch.arange(N).flip(0)
        for names in (TIMES, [f"case {i}" for i in range(N)], np.arange(N) * 7):
            straight = quick(y, law, Scale(), case_ids=names)
            back = quick(y[::-1], law.select(order), Scale(), case_ids=names[::-1])
            assert torch.equal(straight.pit.values, back.pit.values.flip(0))

    def test_dates_of_different_libraries_are_the_same_dates(self):
        expected = checked_case_ids(TIMES, N)
        for dates in (
            TIMES.to_numpy(),
            TIMES.to_numpy().astype("M8[D]"),
            list(TIMES),
            list(TIMES.date),
            pd.Series(TIMES),
        ):
            assert torch.equal(checked_case_ids(dates, N), expected)

    def test_hashes_are_those_of_blake2b_for_good(self):
        # printf Oslo | b2sum --length 64, without the last bit
        assert checked_case_ids(["Oslo"], 1).tolist() == [0x5DB7BE70FE92F0FC >> 1]

    def test_large_and_whole_floating_numbers_are_identifiers(self):
        assert checked_case_ids(np.array([3.0, 1.0]), 2).tolist() == [3, 1]
        assert len(set(checked_case_ids(np.array([2**64 - 1, 1], dtype=np.uint64), 2).tolist())) == 2


def test_impossible_observations_can_be_ranked_where_no_density_is_asked_for():
    y, _ = points()
    law = Independent(LogNormal(torch.zeros(N, D), 1.0), 1)
    assert quick(np.maximum(y, 0.0), law, [Marginal()]).n_cases == N


def test_blocks_may_be_any_labels():
    y, members = points()
    numbers = np.arange(N) // 4
    expected = quick(y, members, blocks=numbers)
    letters = np.array(list("abcdefghij"))[numbers]
    for blocks in (letters, list(letters), TIMES[numbers], pd.Categorical(letters), [("block", k) for k in numbers]):
        same(quick(y, members, blocks=blocks), expected)
    assert quick(y, members, blocks=["one", *numbers[1:].tolist()]).n_cases == N
