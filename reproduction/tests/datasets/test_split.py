"""A seed means one split on every machine; no row is in two parts; statistics see the training part alone."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prerank.datasets import Standardiser, Table
from prerank.io import DataError
from prerank.randomness import keyed_order
from prerank_paper.datasets import SplitProtocol, split
from prerank_paper.datasets.splitting import PAPER_SEEDS, PAPER_SPLIT, published_order


def example(n_cases: int = 50) -> Table:
    generator = np.random.default_rng(0)
    return Table.of(generator.normal(3, 5, (n_cases, 2)), generator.normal(-7, 0.1, (n_cases, 3)))


@given(st.integers(1, 10**7))
def test_sizes_add_up_and_calibration_is_capped(n_cases: int) -> None:
    sizes = PAPER_SPLIT.sizes(n_cases)
    assert sum(sizes) == n_cases
    assert min(sizes) >= 0
    assert sizes.calibration == min(n_cases * 3 // 10, 2048)


@given(st.integers(0, 10**6))
def test_sizes_are_truncated_shares_computed_exactly(k: int) -> None:
    n_cases = 10 * k + 10
    if n_cases * 3 // 10 <= 2048:
        assert PAPER_SPLIT.sizes(n_cases) == (4 * k + 4, k + 1, 3 * k + 3, 2 * k + 2)


def test_every_row_is_in_exactly_one_part() -> None:
    parts = split(example(), seed=42)
    rows = np.concatenate([part.rows for part in (parts.train, parts.validation, parts.calibration, parts.test)])
    assert sorted(rows.tolist()) == list(range(50))


def test_the_papers_seeds_give_different_splits() -> None:
    orders = [keyed_order(1000, seed) for seed in PAPER_SEEDS]
    assert len({tuple(order) for order in orders}) == 5


def test_statistics_see_the_training_part_alone() -> None:
    table = example()
    parts = split(table, seed=12)
    spoiled = Table.of(table.x.copy(), table.y.copy())
    other = np.concatenate([parts.validation.rows, parts.calibration.rows, parts.test.rows])
    spoiled.x[other], spoiled.y[other] = 1e6, -1e6
    again = split(spoiled, seed=12)
    np.testing.assert_array_equal(parts.train.x, again.train.x)
    np.testing.assert_array_equal(parts.train.y, again.train.y)
    np.testing.assert_array_equal(parts.x_scaler.mean, again.x_scaler.mean)
    np.testing.assert_array_equal(parts.y_scaler.scale, again.y_scaler.scale)


def test_the_training_part_has_mean_zero_and_sd_one() -> None:
    table = example()
    parts = split(table, seed=0)
    raw = table.y[parts.train.rows]
    expected = (raw - raw.mean(axis=0)) / (raw.std(axis=0, ddof=1) + 1e-7)
    np.testing.assert_allclose(parts.train.y, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_inverse_undoes_standardisation_for_arrays_and_tensors(dtype: type) -> None:
    table = example().astype(dtype)
    parts = split(table, seed=0)
    assert parts.test.y.dtype == dtype
    tolerance = 8 * np.finfo(dtype).eps * np.abs(table.y).max()
    np.testing.assert_allclose(parts.y_scaler.inverse(parts.test.y), table.y[parts.test.rows], rtol=0, atol=tolerance)
    tensor = torch.from_numpy(parts.test.y)
    members = tensor[:, None].expand(-1, 4, -1)
    back = parts.y_scaler.inverse(members)
    assert back.dtype == tensor.dtype
    np.testing.assert_allclose(back[:, 2].numpy(), table.y[parts.test.rows], rtol=0, atol=tolerance)
    np.testing.assert_allclose(parts.y_scaler.apply(back)[:, 0].numpy(), parts.test.y, rtol=0, atol=1e3 * tolerance)


def test_a_constant_feature_becomes_zeros() -> None:
    scaler = Standardiser.fit(np.full((5, 1), 3.0))
    assert scaler.apply(np.full((2, 1), 3.0)).tolist() == [[0.0], [0.0]]


def test_refusals_say_what_to_do() -> None:
    with pytest.raises(DataError, match=r"3 cases split into 1 training and 2 test rows"):
        split(example(3), seed=0)
    with pytest.raises(DataError, match="leave rows for the test part"):
        SplitProtocol(train=Fraction(9, 10))
    rare = np.zeros((40, 1))
    rare[-1] = 1
    seed = next(seed for seed in range(100) if 39 not in keyed_order(40, seed)[:16])
    with pytest.raises(DataError, match="is constant: 0 in all 16 training rows"):
        split(Table.of(np.arange(40.0), rare), seed=seed)


def test_another_protocol_is_a_value() -> None:
    protocol = SplitProtocol(Fraction(6, 10), Fraction(2, 10), Fraction(0), calibration_cap=None)
    assert split(example(), seed=0, protocol=protocol).sizes == (30, 10, 0, 10)


def test_the_published_order_is_that_of_torch_random_split():
    from torch.utils.data import random_split

    sizes = PAPER_SPLIT.sizes(1060)
    parts = random_split(range(1060), list(sizes), generator=torch.Generator().manual_seed(42))  # type: ignore[arg-type]
    order = published_order(1060, seed=42)
    assert order.tolist() == [row for part in parts for row in part.indices]
    table = Table.of(np.arange(1060.0)[:, None], np.arange(2120.0).reshape(1060, 2))
    assert split(table, 42, order=published_order).test.rows.tolist() == list(parts[3].indices)


def test_the_papers_seeds_are_the_papers() -> None:
    assert PAPER_SEEDS == (0, 42, 866, 12, 4)


def test_a_split_and_its_parts_are_themselves_and_no_others() -> None:
    """Arrays have no single truth value, so comparing contents would fail."""
    one, other = split(example(), seed=0), split(example(), seed=0)
    assert one != other
    assert one.train != other.train
    assert len({one, other, one.train, other.train}) == 4


def test_a_part_is_as_long_as_its_rows_and_knows_them() -> None:
    table = example()
    found = split(table, seed=3)
    for part, size in zip((found.train, found.validation, found.calibration, found.test), found.sizes, strict=True):
        assert len(part) == size == len(part.x) == len(part.y)
        np.testing.assert_allclose(found.x_scaler.inverse(part.x), table.x[part.rows], rtol=1e-12)
        np.testing.assert_allclose(found.y_scaler.inverse(part.y), table.y[part.rows], rtol=1e-12)
    assert found.seed == 3


def test_the_smallest_tables_that_can_be_split() -> None:
    """Two training rows and one to test on are enough; one row fewer of either is not."""
    protocol = SplitProtocol(Fraction(2, 3), Fraction(0), Fraction(0))
    assert split(example(3), 0, protocol).sizes == (2, 0, 0, 1)
    with pytest.raises(DataError, match="2 cases split into 1 training and 1 test rows"):
        split(example(2), 0, protocol)
    with pytest.raises(DataError, match="1 cases split into 0 training and 1 test rows"):
        split(example(1), 0, protocol)


def test_shares_may_be_zero_but_must_leave_something_to_test_on() -> None:
    assert SplitProtocol(Fraction(1, 2), Fraction(0), Fraction(0)).sizes(10) == (5, 0, 0, 5)
    for shares in ((Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)), (Fraction(1, 2), Fraction(-1, 4), Fraction(0))):
        with pytest.raises(DataError, match="must leave rows for the test part"):
            SplitProtocol(*shares)


def test_a_full_calibration_part_is_not_over_the_cap() -> None:
    """At 3/10 of 20 rows and a cap of 6 there is no surplus; at a cap of 3 the other three share it equally."""
    assert SplitProtocol(calibration_cap=6).sizes(20) == (8, 2, 6, 4)
    assert SplitProtocol(calibration_cap=3).sizes(20) == (9, 3, 3, 5)
    assert SplitProtocol(calibration_cap=None).sizes(20_000) == (8_000, 2_000, 6_000, 4_000)


def test_protocols_splits_and_their_parts_cannot_be_changed() -> None:
    found = split(example(), seed=0)
    for value, name in ((PAPER_SPLIT, "train"), (found, "seed"), (found.train, "rows")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, 0)
    assert {SplitProtocol(), PAPER_SPLIT} == {PAPER_SPLIT}  # equal values are one
